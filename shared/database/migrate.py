"""Plain SQL migrations: numbered files, each applied once, in order, in a transaction, under a lock; edited history is refused.

A service whose role owns its tables brings them up to date by itself. Where each service has a role of its own (`shared.database.roles`),
the owner of the database does that, before a new version starts or while it waits:

    python -m shared.database.migrate [services.notes …]
"""

import argparse
import asyncio
import hashlib
import logging
import re
import sys
from dataclasses import dataclass
from importlib import resources

from shared.contracts.subject import SERVICES
from shared.database import roles
from shared.database.pool import Connection, Pool, open_pool
from shared.settings import DatabaseSettings, read

logger = logging.getLogger(__name__)

WAIT_SECONDS = 2.0
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

    A role that may not change the schema waits until its owner has (ADR 32).

    Raises:
        MigrationError: an applied file was changed, or the database is newer than this version.
    """
    migrations = load(package)
    while True:
        async with pool.acquire(timeout=30) as connection, connection.transaction():
            missing = await _missing(connection, schema, migrations)
            if not missing:
                return 0
            if await _may_change(connection, schema):
                return await _apply(connection, schema, migrations)
        logger.warning("%s is %d migrations behind; waiting for `python -m shared.database.migrate %s`", schema, len(missing), package)
        await asyncio.sleep(WAIT_SECONDS)


async def _missing(db: Connection, schema: str, migrations: list[Migration]) -> list[Migration]:
    """What is still to be applied.

    Raises:
        MigrationError: history and files do not agree.
    """
    if not await db.fetchval("SELECT to_regclass(format('%I.migrations', $1::text)) IS NOT NULL", schema):
        return migrations
    applied = {row["number"]: row["checksum"] for row in await db.fetch(f'SELECT number, checksum FROM "{schema}".migrations')}  # noqa: S608
    for number, checksum in applied.items():
        if number > len(migrations):
            raise MigrationError(f"the database has migration {number} of {schema}, which this version does not know")
        if migrations[number - 1].checksum != checksum:
            raise MigrationError(f"{migrations[number - 1].name} of {schema} was changed after it had been applied")
    return migrations[len(applied) :]


async def _may_change(db: Connection, schema: str) -> bool:
    return bool(
        await db.fetchval(
            "SELECT COALESCE((SELECT pg_has_role(nspowner, 'USAGE') FROM pg_namespace WHERE nspname = $1), "
            "has_database_privilege(current_database(), 'CREATE'))",
            schema,
        )
    )


async def _apply(db: Connection, schema: str, migrations: list[Migration]) -> int:
    await db.execute("SET LOCAL lock_timeout = '60s'; SET LOCAL statement_timeout = '60s'")
    await roles.lock(db, schema)
    await db.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
    await db.execute(
        f'CREATE TABLE IF NOT EXISTS "{schema}".migrations '
        "(number int PRIMARY KEY, name text NOT NULL, checksum text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
    )
    missing = await _missing(db, schema, migrations)  # another process may have been here meanwhile
    for migration in missing:
        await db.execute(migration.sql)
        await db.execute(
            f'INSERT INTO "{schema}".migrations (number, name, checksum) VALUES ($1, $2, $3)',  # noqa: S608
            migration.number, migration.name, migration.checksum,
        )  # fmt: skip
    await roles.grant(db, schema)
    return len(missing)


async def revert(pool: Pool, schema: str, package: str) -> int:
    """Take back what was applied to `schema`, the last first, each by its `0001_like_this.down.sql`; how many files were.

    Raises:
        MigrationError: one of them cannot be taken back; nothing was.
    """
    directory = resources.files(package).joinpath("migrations")
    async with pool.acquire(timeout=30) as connection, connection.transaction():
        await roles.lock(connection, schema)
        applied = await connection.fetch(f'SELECT name FROM "{schema}".migrations ORDER BY number DESC')  # noqa: S608
        for row in applied:
            down = directory.joinpath(row["name"].removesuffix(".sql") + ".down.sql")
            if not down.is_file():
                raise MigrationError(f"{row['name']} of {schema} cannot be taken back")
            await connection.execute(down.read_text("utf-8"))
        await connection.execute(f'DELETE FROM "{schema}".migrations')  # noqa: S608
        return len(applied)


async def _migrate_all(settings: DatabaseSettings, packages: list[str]) -> None:
    for package in packages:
        schema = package.rpartition(".")[2]
        pool = await open_pool(settings.database, schema, size=1)
        try:
            sys.stdout.write(f"{schema}: {await migrate(pool, schema, package)} migrations applied\n")
        finally:
            await pool.close()


def main() -> int:
    """The exit status: 0, or 1 (and one line) where files and history do not agree."""
    parser = argparse.ArgumentParser(prog="python -m shared.database.migrate", description="Brings tables up to date.")
    parser.add_argument("packages", nargs="*", metavar="package", help="a service's, e.g. services.notes; without any, those of all")
    packages = parser.parse_args().packages or [f"services.{service}" for service in SERVICES]
    settings = read(DatabaseSettings)
    try:
        asyncio.run(_migrate_all(settings, packages))
    except MigrationError as error:
        sys.stderr.write(f"migrate: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
