"""A real PostgreSQL for the whole run, started as the embedded stack starts it, and a fresh database per test."""

import dataclasses
from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest

from local.home import Home
from local.ports import free_port
from local.postgres import Postgres
from local.stack import ROOT
from local.supervisor import Supervisor

READY_SECONDS = 60.0
# Losing power is not what these tests are about; a kill of the server loses nothing without them either.
QUICK = ("--fsync=off", "--full_page_writes=off", "--max_connections=200")


@pytest.fixture(scope="session")
async def postgres_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The server's own database, to make others from."""
    home = Home.open(tmp_path_factory.mktemp("postgres"))
    supervisor = Supervisor(home, ROOT, {}, print)
    try:
        postgres = Postgres(home, free_port(), home.secret("postgres"))
        program = await postgres.program()
        supervisor.start(dataclasses.replace(program, command=(*program.command, *QUICK)))
        await supervisor.ready([program.name], READY_SECONDS)
        yield postgres.url
    finally:
        await supervisor.stop()
        home.close()


@pytest.fixture
async def database_url(postgres_url: str) -> AsyncIterator[str]:
    """The address of an empty database of this test alone."""
    name = f"test_{uuid4().hex}"
    connection = await asyncpg.connect(postgres_url)
    try:
        await connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 STRATEGY file_copy")
        yield urlunsplit(urlsplit(postgres_url)._replace(path=f"/{name}"))
        await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await connection.close()
