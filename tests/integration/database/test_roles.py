"""Every service's PostgreSQL role, on a real server: its own schema's rows, and nothing else."""

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest

from shared.contracts.subject import SERVICES
from shared.database import roles
from shared.database.migrate import migrate
from shared.database.pool import open_pool
from tests.support.polling import eventually

ROOT = Path(__file__).parents[3]
RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")


@dataclass(frozen=True, slots=True)
class Roles:
    """A database with all tables, its owner's connection, and an address for each role."""

    owner: "asyncpg.Connection[asyncpg.Record]"
    urls: dict[str, str]

    @asynccontextmanager
    async def connected(self, service: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
        connection = await asyncpg.connect(self.urls[service], server_settings={"search_path": f"{service}, public"})
        try:
            yield connection
        finally:
            await connection.close()

    async def tables(self) -> list[tuple[str, str]]:
        rows = await self.owner.fetch("SELECT schemaname, tablename FROM pg_tables WHERE schemaname = ANY($1)", list(SERVICES))
        return [(row["schemaname"], row["tablename"]) for row in rows]


def address(database_url: str, role: str, password: str) -> str:
    parts = urlsplit(database_url)
    return urlunsplit(parts._replace(netloc=f"{role}:{password}@{parts.netloc.rpartition('@')[2]}"))


@asynccontextmanager
async def owned(database_url: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """The owner's connection; roles that were made are gone afterwards."""
    owner = await asyncpg.connect(database_url)
    try:
        yield owner
        for service in SERVICES:
            role = await roles.role_of(owner, service)
            if await owner.fetchval("SELECT true FROM pg_roles WHERE rolname = $1", role):
                await owner.execute(f'DROP OWNED BY "{role}"; DROP ROLE "{role}"')
    finally:
        await owner.close()


async def migrated(database_url: str, service: str) -> int:
    pool = await open_pool(database_url, service, size=1)
    try:
        return await migrate(pool, service, f"services.{service}")
    finally:
        await pool.close()


@pytest.fixture
async def made(database_url: str) -> AsyncIterator[Roles]:
    async with owned(database_url) as owner:
        for service in SERVICES:
            await migrated(database_url, service)
        await roles.establish(owner, {service: f"{service}-password" for service in SERVICES})
        urls = {service: address(database_url, await roles.role_of(owner, service), f"{service}-password") for service in SERVICES}
        yield Roles(owner, urls)


async def test_a_role_has_the_rows_of_its_own_schema_and_no_right_to_anything_of_the_others(made: Roles) -> None:
    tables = await made.tables()
    assert {schema for schema, _ in tables} == set(SERVICES)
    for service in SERVICES:
        async with made.connected(service) as db:
            for schema, table in tables:
                if schema == service:
                    assert await db.fetch(f'SELECT * FROM "{schema}"."{table}" LIMIT 1') is not None
                    has = {right for right in RIGHTS if await db.fetchval("SELECT has_table_privilege($1, $2)", f"{schema}.{table}", right)}
                    assert has == expected_rights(schema, table), f"{schema}.{table}"
                    continue
                for statement in (
                    f"SELECT * FROM {schema}.{table}",
                    f"DELETE FROM {schema}.{table}",
                    f"INSERT INTO {schema}.{table} DEFAULT VALUES",
                ):
                    with pytest.raises(asyncpg.InsufficientPrivilegeError, match=f"permission denied for schema {schema}"):
                        await db.execute(statement)


def expected_rights(schema: str, table: str) -> set[str]:
    if table == "migrations":
        return {"SELECT"}
    if (schema, table) in (("contexts", "snapshots"), ("contexts", "answers")):
        return {"SELECT", "INSERT"}  # RC-10, RC-19, RC-20
    return {"SELECT", "INSERT", "UPDATE", "DELETE"}


async def test_the_contexts_role_inserts_snapshots_and_has_no_way_to_change_or_remove_one(made: Roles) -> None:  # RC-10, RC-19
    async with made.connected("contexts") as db:
        await db.execute("INSERT INTO snapshots (id, line) VALUES ($1, '{}')", uuid4())
        assert await db.fetchval("SELECT count(*) FROM snapshots") == 1
        for statement in (
            "UPDATE snapshots SET line = '[]'",
            "DELETE FROM snapshots",
            "TRUNCATE snapshots CASCADE",
            "SELECT * FROM snapshots FOR UPDATE",
            "DROP TABLE snapshots",
            "ALTER TABLE snapshots DISABLE TRIGGER ALL",
            "DROP FUNCTION refuse_change() CASCADE",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match=r"permission denied for table|must be owner of"):
                await db.execute(statement)
        await db.execute("GRANT UPDATE ON snapshots TO CURRENT_USER")  # a warning and no effect
        assert not await db.fetchval("SELECT has_table_privilege('snapshots', 'UPDATE')")


@pytest.mark.parametrize("service", SERVICES)
async def test_a_role_makes_nothing_and_becomes_nobody_else(made: Roles, service: str) -> None:
    owner = await made.owner.fetchval("SELECT current_user")
    async with made.connected(service) as db:
        for statement in (
            f"CREATE TABLE {service}.mine (id int)",
            "CREATE TABLE public.mine (id int)",
            "CREATE TEMPORARY TABLE mine (id int)",
            "CREATE SCHEMA mine",
            "CREATE ROLE mine",
            f'SET ROLE "{owner}"',
            "COPY (SELECT 1) TO PROGRAM 'true'",
            "SELECT pg_read_file('PG_VERSION')",
            "SELECT lo_creat(-1)",
            "SELECT lo_create(0)",
            "SELECT lo_from_bytea(0, 'hidden')",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await db.execute(statement)


async def test_running_it_again_changes_passwords_and_brings_rights_back_to_what_they_should_be(made: Roles) -> None:
    await made.owner.execute("CREATE TABLE notes.new (id int)")
    notes = await roles.role_of(made.owner, "notes")
    await made.owner.execute(f'GRANT TRUNCATE ON notes.new TO "{notes}"')
    await roles.establish(made.owner, {service: f"{service}-password" for service in SERVICES} | {"notes": 'it\'s "another" 密'})
    with pytest.raises(asyncpg.InvalidPasswordError):
        async with made.connected("notes"):
            pass
    db = await asyncpg.connect(made.urls["notes"], password='it\'s "another" 密')
    try:
        await db.execute("INSERT INTO notes.new VALUES (1)")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await db.execute("TRUNCATE notes.new")
    finally:
        await db.close()


async def test_a_role_that_was_given_no_right_does_not_come_in(made: Roles) -> None:
    stranger = f"stranger_{uuid4().hex}"
    await made.owner.execute(f"CREATE ROLE {stranger} LOGIN PASSWORD 'x'")
    try:
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="permission denied for database"):
            await asyncpg.connect(address(made.urls["notes"], stranger, "x"))
    finally:
        await made.owner.execute(f"DROP ROLE {stranger}")


async def test_a_service_waits_until_the_owner_has_brought_its_tables_up_to_date(  # OP-3
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with owned(database_url) as owner:
        await roles.establish(owner, {"contexts": "x"})
        url = address(database_url, await roles.role_of(owner, "contexts"), "x")
        with caplog.at_level(logging.WARNING):
            waiting = asyncio.create_task(migrated(url, "contexts"))
            await eventually(lambda: _behind(caplog), 10)
        assert not waiting.done()
        applied = await migrated(database_url, "contexts")
        assert applied > 0
        async with asyncio.timeout(10):
            assert await waiting == 0
        assert await owner.fetchval("SELECT count(*) FROM contexts.migrations") == applied


async def _behind(caplog: pytest.LogCaptureFixture) -> bool:
    return "contexts is 2 migrations behind; waiting for `python -m shared.database.migrate services.contexts`" in caplog.text


async def run(module: str, *arguments: str, **variables: str) -> tuple[int, str]:
    """The exit status and all that was said."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments),
        cwd=ROOT,
        env={**os.environ, **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(30):
        said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


async def test_the_commands_make_a_database_ready_from_nothing(database_url: str, tmp_path: Path) -> None:
    async with owned(database_url) as owner:
        parts = urlsplit(database_url)
        (tmp_path / "owner").write_text(parts.password or "")
        passwordless = urlunsplit(parts._replace(netloc=parts.netloc.replace(f":{parts.password}", "")))
        by_owner = {"DATABASE_URL": passwordless, "DATABASE_PASSWORD_FILE": str(tmp_path / "owner")}
        assert await run("shared.database.roles", str(tmp_path), **by_owner) == (0, "")
        status, said = await run("shared.database.migrate", *(f"services.{service}" for service in SERVICES), **by_owner)
        assert status == 0, said
        assert (await run("shared.database.roles", str(tmp_path), **by_owner)) == (0, "")
        for service in SERVICES:
            file = roles.password_file(tmp_path, service)
            assert file.stat().st_mode & 0o777 == 0o600
            own = {"DATABASE_URL": passwordless.replace("marginalia@", f"{await roles.role_of(owner, service)}@")}
            status, said = await run("shared.database.migrate", f"services.{service}", **own, DATABASE_PASSWORD_FILE=str(file))
            assert (status, said) == (0, f"{service}: 0 migrations applied\n")


async def test_what_cannot_be_done_is_said_in_one_line(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "owner").write_text("wrong")
    status, said = await run(
        "shared.database.roles", str(tmp_path), DATABASE_URL=database_url, DATABASE_PASSWORD_FILE=str(tmp_path / "owner")
    )
    assert (status, said) == (1, 'roles: password authentication failed for user "marginalia"\n')
    status, said = await run("shared.database.roles", str(tmp_path / "none"), DATABASE_URL=database_url)
    assert status == 1
    assert said.startswith("roles: ")
    assert said.count("\n") == 1


async def test_a_service_that_is_started_first_waits_for_its_role(database_url: str, caplog: pytest.LogCaptureFixture) -> None:  # OP-3
    async with owned(database_url) as owner:
        url = address(database_url, await roles.role_of(owner, "notes"), "its password")
        opening = asyncio.create_task(open_pool(url, "notes", size=1))

        async def refused() -> bool:
            return "does not know this role" in caplog.text

        await eventually(refused, 10)
        await roles.establish(owner, dict.fromkeys(SERVICES, "its password"))
        async with asyncio.timeout(10):
            pool = await opening
        await pool.close()
