"""Each committed change is told, in order, whatever dies in between (architecture.md, Messages: facts)."""

import asyncio
import contextlib
import logging
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from nats.js import JetStreamContext
from nats.js.api import PubAck

from local.stack import ROOT
from services.notes import outbox
from services.notes.outbox import Outboxes
from shared.contracts import notes
from shared.database.migrate import migrate
from shared.database.pool import Pool, open_pool
from shared.messaging import streams
from shared.messaging.bus import Bus
from tests.integration.notes.conftest import Asker
from tests.support.nats_server import RunningNats
from tests.support.polling import eventually

logger = logging.getLogger(__name__)


@asynccontextmanager
async def process(vaults: str, home: Path, database_url: str, nats_url: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The real service in a process of its own."""
    own = {"MARGINALIA_VAULTS": vaults, "MARGINALIA_HOME": str(home), "DATABASE_URL": database_url, "NATS_URL": nats_url}
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.notes"),
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **own},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield started
    finally:
        with contextlib.suppress(ProcessLookupError):
            started.kill()
        await started.communicate()


async def workspaces_with_changes(pool: Pool, workspaces: int, changes: int) -> list[UUID]:
    """Workspaces of which so many changes are to be told."""
    await migrate(pool, "notes", "services.notes")
    made = [
        await pool.fetchval(
            "INSERT INTO workspaces (directory, root, title, notes_dir) VALUES ($1, '/', 'v', '') RETURNING id", f"v{number}"
        )
        for number in range(workspaces)
    ]
    await pool.execute(
        "INSERT INTO changes (workspace, revision, kind, path, content_hash) "
        "SELECT w, r, 'created', r || '.md', 'h' FROM unnest($1::uuid[]) AS w, generate_series(1, $2) AS r",
        made, changes,
    )  # fmt: skip
    return made


async def all_are_marked(pool: Pool) -> bool:
    return bool(await pool.fetchval("SELECT count(*) = 0 FROM changes WHERE sent_at IS NULL"))


@pytest.fixture
async def own_asker(own_nats: RunningNats) -> AsyncIterator[Asker]:
    bus = Bus("tests", own_nats.url)
    await bus.connect()
    yield Asker(bus)
    await bus.stop()


async def test_nothing_is_lost_or_out_of_order_while_nats_is_down(
    vault: Path, home: Path, database_url: str, own_nats: RunningNats, own_asker: Asker
) -> None:
    (vault / "before.md").write_text("0")
    async with process(str(vault), home, database_url, own_nats.url):
        await own_asker.ready()
        workspace = (await own_asker.workspace()).id
        await own_asker.told(workspace, "created", "before.md")
        await own_nats.stop()
        connection = await asyncpg.connect(database_url)
        for number, name in enumerate(["z", "m", "a", "q", "b"], start=2):
            (vault / f"{name}.md").write_text(f"text {name}")

            async def committed(number: int = number) -> bool:
                return bool(await connection.fetchval("SELECT count(*) = $1 FROM notes.changes", number))

            await eventually(committed, 5)
        await connection.close()
        await own_nats.start()
        await own_asker.ready()

        async def all_told() -> bool:
            return [change.revision for change in await own_asker.changes(workspace)] == list(range(1, 7))

        await eventually(all_told, 10)
        assert [change.path for change in await own_asker.changes(workspace)][1:] == ["z.md", "m.md", "a.md", "q.md", "b.md"]


async def test_kill_9_at_any_moment_loses_and_repeats_nothing(
    vault: Path, home: Path, database_url: str, nats_url: str, asker: Asker
) -> None:
    seed = random.randrange(2**32)
    logger.warning("seed %d", seed)
    moments = random.Random(seed)
    files = 0
    for _ in range(6):
        for _ in range(100):
            (vault / f"{files}.md").write_text(f"text {files}")
            files += 1
        async with process(str(vault), home, database_url, nats_url) as service:
            await asyncio.sleep(moments.uniform(0.6, 1.6))
            service.kill()
    async with process(str(vault), home, database_url, nats_url):
        await asker.ready()
        workspace = (await asker.workspace()).id

        async def all_told() -> bool:
            return len(await asker.changes(workspace)) >= files

        await eventually(all_told, 10)
        changes = await asker.changes(workspace)
        assert [change.revision for change in changes] == list(range(1, files + 1))
        assert {change.path: change.content_hash for change in changes} == await asker.hashes(workspace)
        assert {change.kind for change in changes} == {"created"}


async def test_what_comes_behind_a_message_that_was_lost_is_told_after_it(
    database_url: str, nats_url: str, asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    publish = JetStreamContext.publish_async

    async def lossy(self: JetStreamContext, subject: str, payload: bytes, **more: Any) -> asyncio.Future[PubAck]:
        sent.append(subject)
        if len(sent) == 10:
            return asyncio.get_running_loop().create_future()
        return await publish(self, subject, payload, **more)

    monkeypatch.setattr(JetStreamContext, "publish_async", lossy)
    monkeypatch.setattr(outbox, "BATCH_ACK_SECONDS", 1.0)
    pool = await open_pool(database_url, "notes")
    (workspace,) = await workspaces_with_changes(pool, 1, 50)
    await streams.ensure(asker.bus.nats, notes.STREAM, owned=True)
    box = asyncio.create_task(Outboxes(pool, asker.bus.nats).of(workspace).run())
    await eventually(lambda: all_are_marked(pool), 30)
    assert len(sent) == 50
    assert [change.revision for change in await asker.changes(workspace)] == list(range(1, 51))
    box.cancel()
    await asyncio.gather(box, return_exceptions=True)
    await pool.close()


async def test_processes_that_tell_much_at_the_same_time_lose_repeat_and_exchange_nothing(
    database_url: str, nats_url: str, asker: Asker
) -> None:
    pool = await open_pool(database_url, "notes")
    workspaces = await workspaces_with_changes(pool, 3, 450)
    await streams.ensure(asker.bus.nats, notes.STREAM, owned=True)
    buses = [Bus("notes", nats_url) for _ in workspaces]
    for bus in buses:
        await bus.connect()
    sending = [asyncio.create_task(Outboxes(pool, bus.nats).of(workspace).run()) for bus, workspace in zip(buses, workspaces, strict=True)]

    await eventually(lambda: all_are_marked(pool), 30)
    for workspace in workspaces:
        assert [change.revision for change in await asker.changes(workspace)] == list(range(1, 451))
    for task in sending:
        task.cancel()
    await asyncio.gather(*sending, return_exceptions=True)
    for bus in buses:
        await bus.stop()
    await pool.close()


async def test_the_stream_is_made_anew_where_jetstream_has_lost_it(
    vault: Path, home: Path, database_url: str, nats_url: str, asker: Asker
) -> None:
    async with process(str(vault), home, database_url, nats_url):
        await asker.ready()
        workspace = (await asker.workspace()).id
        await asker.bus.nats.jetstream().delete_stream("NOTES")
        (vault / "a.md").write_text("a")

        async def told() -> bool:
            with contextlib.suppress(TimeoutError):
                return bool(await asker.changes(workspace))
            return False

        await eventually(told, 8)


async def test_it_ends_in_time_when_asked_and_says_why_it_cannot_start(
    vault: Path, tmp_path: Path, home: Path, database_url: str, nats_url: str, asker: Asker
) -> None:
    async with process(str(vault), home, database_url, nats_url) as service:
        await asker.ready()
        service.send_signal(signal.SIGTERM)
        async with asyncio.timeout(5):
            assert await service.wait() == 0
    async with process(f"{vault}:{tmp_path}/other/vault", home, database_url, nats_url) as service:
        async with asyncio.timeout(10):
            _, error = await service.communicate()
        assert service.returncode == 1
        assert error.decode().strip().splitlines() == [
            f"notes: two directories have one name: {vault} and {tmp_path}/other/vault (MARGINALIA_VAULTS)"
        ]


async def test_a_database_that_breaks_the_connections_is_got_over(
    vault: Path, home: Path, database_url: str, nats_url: str, asker: Asker
) -> None:
    async with process(str(vault), home, database_url, nats_url):
        await asker.ready()
        workspace = (await asker.workspace()).id
        connection = await asyncpg.connect(database_url)
        for number in range(3):
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            (vault / f"{number}.md").write_text("a")
            await asker.told(workspace, "created", f"{number}.md", within=8)
        await connection.close()


async def test_old_told_changes_are_forgotten(database_url: str, service: Asker, vault: Path) -> None:
    (vault / "a.md").write_text("a")
    await service.told((await service.workspace()).id, "created", "a.md")
    connection = await asyncpg.connect(database_url)

    async def marked() -> bool:
        return bool(await connection.fetchval("SELECT count(*) = 1 FROM notes.changes WHERE sent_at IS NOT NULL"))

    await eventually(marked)
    pool = await open_pool(database_url, "notes")
    await outbox.prune(pool)
    assert await connection.fetchval("SELECT count(*) FROM notes.changes") == 1
    await connection.execute("UPDATE notes.changes SET sent_at = sent_at - interval '25 hours'")
    await outbox.prune(pool)
    assert await connection.fetchval("SELECT count(*) FROM notes.changes") == 0
    await pool.close()
    await connection.close()
