"""Plain SQL migrations: numbered files, each applied once, in order, in a transaction, under a lock; edited history is refused."""

import hashlib
import re
from dataclasses import dataclass
from importlib import resources

from shared.database.pool import Pool

FILE_NAME = re.compile(r"^(\d{4})_[a-z0-9_]+\.sql$")


class MigrationError(Exception):
    """The files and the database's history do not agree."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One file."""

    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the text."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def load(package: str) -> list[Migration]:
    """The migrations in `<package>/migrations`, by number.

    Raises:
        MigrationError: a number is missing or stands twice, or a name is not `0001_like_this.sql`.
    """
    found = []
    for entry in resources.files(package).joinpath("migrations").iterdir():
        if not entry.name.endswith(".sql") or entry.name.endswith(".down.sql"):
            continue
        if (match := FILE_NAME.match(entry.name)) is None:
            raise MigrationError(f"{entry.name} is not named like 0001_what_it_does.sql")
        found.append(Migration(int(match[1]), entry.name, entry.read_text("utf-8")))
    found.sort(key=lambda migration: migration.number)
    if [migration.number for migration in found] != list(range(1, len(found) + 1)):
        raise MigrationError(f"the migrations of {package} are not numbered 1, 2, 3, …")
    return found


async def migrate(pool: Pool, schema: str, package: str) -> int:
    """Bring `schema` up to date; how many files were applied. Several processes may call this at once.

    Raises:
        MigrationError: an applied file was changed, or the database is newer than this version.
    """
    migrations = load(package)
    async with pool.acquire(timeout=30) as connection, connection.transaction():
        await connection.execute("SET LOCAL lock_timeout = '60s'; SET LOCAL statement_timeout = '60s'")
        await connection.execute("SELECT pg_advisory_xact_lock(hashtext('migrate ' || $1))", schema)
        await connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
        await connection.execute(
            f'CREATE TABLE IF NOT EXISTS "{schema}".migrations '
            "(number int PRIMARY KEY, name text NOT NULL, checksum text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
        )
        applied = {row["number"]: row["checksum"] for row in await connection.fetch(f'SELECT number, checksum FROM "{schema}".migrations')}  # noqa: S608
        for number, checksum in applied.items():
            if number > len(migrations):
                raise MigrationError(f"the database has migration {number} of {schema}, which this version does not know")
            if migrations[number - 1].checksum != checksum:
                raise MigrationError(f"{migrations[number - 1].name} of {schema} was changed after it had been applied")
        todo = migrations[len(applied) :]
        for migration in todo:
            await connection.execute(migration.sql)
            await connection.execute(
                f'INSERT INTO "{schema}".migrations (number, name, checksum) VALUES ($1, $2, $3)',  # noqa: S608
                migration.number, migration.name, migration.checksum,
            )  # fmt: skip
        return len(todo)


async def revert(pool: Pool, schema: str, package: str) -> int:
    """Take back what was applied to `schema`, the last first, each by its `0001_like_this.down.sql`; how many files were.

    Raises:
        MigrationError: one of them cannot be taken back; nothing was.
    """
    directory = resources.files(package).joinpath("migrations")
    async with pool.acquire(timeout=30) as connection, connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(hashtext('migrate ' || $1))", schema)
        applied = await connection.fetch(f'SELECT name FROM "{schema}".migrations ORDER BY number DESC')  # noqa: S608
        for row in applied:
            down = directory.joinpath(row["name"].removesuffix(".sql") + ".down.sql")
            if not down.is_file():
                raise MigrationError(f"{row['name']} of {schema} cannot be taken back")
            await connection.execute(down.read_text("utf-8"))
        await connection.execute(f'DELETE FROM "{schema}".migrations')  # noqa: S608
        return len(applied)
