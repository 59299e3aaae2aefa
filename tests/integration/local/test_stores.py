import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable

import asyncpg
import nats
import pytest

from local import postgres as postgres_module
from local import processes
from local.errors import StartError
from local.home import Home
from local.nats_server import NatsServer
from local.ports import free_port
from local.postgres import Postgres, data_user
from local.supervisor import Supervisor, launched

type Until = Callable[..., Awaitable[None]]


@pytest.fixture
def postgres(home: Home) -> Postgres:
    return Postgres(home, free_port(), home.secret("postgres"))


@pytest.fixture
def nats_server(home: Home) -> NatsServer:
    return NatsServer(free_port(), home.secret("nats"))


async def rows(url: str) -> list[int]:
    connection = await asyncpg.connect(url, timeout=5)
    try:
        return [row["id"] for row in await connection.fetch("SELECT id FROM kept ORDER BY id")]
    finally:
        await connection.close()


async def add(url: str, number: int) -> None:
    connection = await asyncpg.connect(url, timeout=5)
    try:
        await connection.execute("CREATE TABLE IF NOT EXISTS kept (id int)")
        await connection.execute("INSERT INTO kept VALUES ($1)", number)
    finally:
        await connection.close()


async def test_postgres_is_durable_utf8_and_asks_for_its_password(supervisor: Supervisor, postgres: Postgres) -> None:
    supervisor.start(await postgres.program())
    await supervisor.ready(["postgres"], 30)
    connection = await asyncpg.connect(postgres.url)
    shown = {name: await connection.fetchval(f"SHOW {name}") for name in ("fsync", "server_encoding", "data_checksums")}
    upper = await connection.fetchval("SELECT upper('é') || upper('ß笔记')")
    await connection.close()
    assert shown == {"fsync": "on", "server_encoding": "UTF8", "data_checksums": "on"}
    assert upper.startswith("É")
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(postgres.url.replace(postgres.password, "wrong"))


async def test_postgres_comes_back_with_its_rows_whatever_is_killed(
    home: Home, supervisor: Supervisor, postgres: Postgres, until: Until
) -> None:
    supervisor.start(await postgres.program())
    await supervisor.ready(["postgres"], 30)
    await add(postgres.url, 1)

    # The postmaster alone, while a backend holds the shared memory.
    connection = await asyncpg.connect(postgres.url)
    killed = int(home.pid_file("postgres").read_text())
    os.kill(killed, signal.SIGKILL)
    await until(lambda: home.pid_file("postgres").exists() and int(home.pid_file("postgres").read_text()) != killed)
    await supervisor.ready(["postgres"], 15)
    connection.terminate()
    await add(postgres.url, 2)

    # Everything, and its process id is by now another program's, of the same user.
    await supervisor.stop(grace_seconds=10)
    sleep = launched((sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"), user=data_user(postgres.data))
    stranger = await asyncio.create_subprocess_exec(*sleep)
    (postgres.data / "postmaster.pid").write_text(f"{stranger.pid}\n{postgres.data}\n1\n1\n\n127.0.0.1\n1 1\nready\n")
    supervisor.start(await postgres.program())
    await supervisor.ready(["postgres"], 15)
    assert await rows(postgres.url) == [1, 2]
    stranger.kill()
    await stranger.wait()
    await supervisor.stop(grace_seconds=10)
    assert not list(processes.working_in(postgres.data))


async def test_a_half_made_database_is_made_anew(home: Home, supervisor: Supervisor, postgres: Postgres) -> None:
    (home.path / "postgres.new").mkdir()
    (home.path / "postgres.new" / "PG_VERSION").write_text("18")
    supervisor.start(await postgres.program())
    await supervisor.ready(["postgres"], 30)
    assert not (home.path / "postgres.new").exists()


async def test_data_of_another_version_is_refused(postgres: Postgres) -> None:
    postgres.data.mkdir()
    (postgres.data / "PG_VERSION").write_text("16\n")
    with pytest.raises(StartError, match="was made by PostgreSQL 16, this Marginalia has 18"):
        await postgres.program()


async def test_data_of_another_user_is_refused(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    postgres.data.mkdir()
    (postgres.data / "PG_VERSION").write_text("18\n")
    owner = postgres.data.stat().st_uid
    monkeypatch.setattr(postgres_module.os, "geteuid", lambda: owner + 1)
    with pytest.raises(StartError, match=rf"belongs to user {owner}; start Marginalia as that one or as root"):
        await postgres.program()


async def test_nats_asks_for_its_password_and_keeps_streams_over_a_kill(
    home: Home, supervisor: Supervisor, nats_server: NatsServer, until: Until
) -> None:
    supervisor.start(nats_server.program(home))
    await supervisor.ready(["nats"], 10)
    client = await nats.connect(nats_server.url)
    stream = client.jetstream()
    await stream.add_stream(name="KEPT", subjects=["kept.>"])
    await stream.publish("kept.1", b"x" * 8_000_000)
    await client.close()

    killed = int(home.pid_file("nats").read_text())
    os.kill(killed, signal.SIGKILL)
    await until(lambda: home.pid_file("nats").exists() and int(home.pid_file("nats").read_text()) != killed)
    await supervisor.ready(["nats"], 10)
    client = await nats.connect(nats_server.url)
    assert len((await client.jetstream().get_msg("KEPT", 1)).data or b"") == 8_000_000
    await client.close()

    stranger = nats.NATS()
    with pytest.raises(nats.errors.Error):
        await stranger.connect(f"nats://127.0.0.1:{nats_server.port}", allow_reconnect=False, error_cb=ignore)
    await stranger.close()


async def ignore(_error: Exception) -> None:
    pass
