"""A PostgreSQL role for each service: it may read and write the rows of its own schema's tables, and do nothing else in the database.

    python -m shared.database.roles DIRECTORY

is run once, and again whenever one likes, as the role that owns the database (`DATABASE_URL`, `DATABASE_PASSWORD`). The roles get the
passwords in `DIRECTORY/postgres_<service>_password`; those that are missing are made. From then on it is the owner who migrates
(`shared.database.migrate`). Roles belong to a server's every database, so they are named after theirs: `marginalia_notes`.
"""

import argparse
import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path

import asyncpg

from shared import credentials
from shared.contracts.subject import SERVICES
from shared.database.pool import UNAVAILABLE, Connection
from shared.settings import DatabaseSettings, read

CONNECT_SECONDS = 10.0
# The migrations' own way to say that a table's rows are kept as they are.
KEEPING_FUNCTION = "refuse_change"
LARGE_OBJECT_MAKERS = ("lo_creat(int)", "lo_create(oid)", "lo_from_bytea(oid, bytea)")

type Session = asyncpg.Connection[asyncpg.Record] | Connection


def password_file(directory: Path, service: str) -> Path:
    """Where the password of a service's role lies."""
    return directory / f"postgres_{service}_password"


def passwords_in(directory: Path) -> dict[str, str]:
    """The password of each service's role; those that are missing are made. Raises OSError."""
    return {service: credentials.password(password_file(directory, service))[0] for service in SERVICES}


async def establish(db: Session, passwords: Mapping[str, str]) -> None:
    """Have the roles with these passwords and exactly the rights that they need; nobody else may enter the database."""
    async with db.transaction():
        await _execute(db, "REVOKE ALL ON DATABASE %I FROM PUBLIC", await db.fetchval("SELECT current_database()"))
        await db.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
        await _keep_large_objects_from_everyone(db)
        for service, password in passwords.items():
            await lock(db, service)
            role = await role_of(db, service)
            if not await db.fetchval("SELECT true FROM pg_roles WHERE rolname = $1", role):
                await _execute(db, "CREATE ROLE %I", role)
            await _execute(db, "ALTER ROLE %I LOGIN PASSWORD %L", role, password)
            await _execute(db, "GRANT CONNECT ON DATABASE %I TO %I", await db.fetchval("SELECT current_database()"), role)
            await db.execute(f'CREATE SCHEMA IF NOT EXISTS "{service}"')
            await grant(db, service)


async def _keep_large_objects_from_everyone(db: Session) -> None:
    """They lie in no schema, so anybody who may enter could fill the disk where nobody looks. The functions are the superuser's."""
    if await db.fetchval("SELECT rolsuper FROM pg_roles WHERE rolname = current_user"):
        await db.execute(f"REVOKE EXECUTE ON FUNCTION {', '.join(LARGE_OBJECT_MAKERS)} FROM PUBLIC")


async def role_of(db: Session, schema: str) -> str:
    """The name of the role that works with a schema of this database."""
    return f"{await db.fetchval('SELECT current_database()')}_{schema}"


async def lock(db: Session, schema: str) -> None:
    """To the end of the transaction nobody else changes what the schema holds or who may use it."""
    await db.execute("SELECT pg_advisory_xact_lock(hashtext('migrate ' || $1))", schema)


async def grant(db: Session, schema: str) -> None:
    """Give the schema's role what it needs of the tables that there are; nothing where it has no such role.

    Rows of tables that the migrations protect (RC-10) can be inserted and read; the migrations' own record can be read.
    """
    role = await role_of(db, schema)
    if not await db.fetchval("SELECT true FROM pg_roles WHERE rolname = $1 AND rolname <> current_user", role):
        return
    await _execute(db, "GRANT USAGE ON SCHEMA %I TO %I", schema, role)
    await _execute(db, "REVOKE ALL ON ALL TABLES IN SCHEMA %I FROM %I", schema, role)
    await _execute(db, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %I TO %I", schema, role)
    kept = await db.fetch(
        "SELECT DISTINCT relname FROM pg_trigger JOIN pg_proc ON pg_proc.oid = tgfoid JOIN pg_class ON pg_class.oid = tgrelid "
        "JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = $1 AND proname = $2",
        schema,
        KEEPING_FUNCTION,
    )
    for row in kept:
        await _execute(db, "REVOKE UPDATE, DELETE ON %I.%I FROM %I", schema, row["relname"], role)
    if await db.fetchval("SELECT to_regclass(format('%I.migrations', $1::text)) IS NOT NULL", schema):
        await _execute(db, "REVOKE INSERT, UPDATE, DELETE ON %I.migrations FROM %I", schema, role)


async def _execute(db: Session, template: str, *values: str) -> None:
    """Statements of this kind take no parameters; the server itself quotes."""
    await db.execute(await db.fetchval("SELECT format($1, VARIADIC $2::text[])", template, list(values)))


async def _establish(settings: DatabaseSettings, passwords: Mapping[str, str]) -> None:
    db = await asyncpg.connect(settings.database, timeout=CONNECT_SECONDS)
    try:
        await establish(db, passwords)
    finally:
        await db.close()


def main() -> int:
    """The exit status: 0, or 1 (and one line) where it could not be done."""
    parser = argparse.ArgumentParser(prog="python -m shared.database.roles", description="Makes a role for each service.")
    parser.add_argument("directory", type=Path, help="where the passwords are, or are to be made")
    arguments = parser.parse_args()
    settings = read(DatabaseSettings)
    try:
        asyncio.run(_establish(settings, passwords_in(arguments.directory)))
    except (asyncpg.PostgresError, *UNAVAILABLE) as error:
        sys.stderr.write(f"roles: {error or type(error).__name__}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
