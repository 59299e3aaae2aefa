"""The engine as the process that it is."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

from local.stack import ROOT
from shared.contracts import index
from shared.contracts.errors import ServiceError
from shared.contracts.index import Delete, Filter, Point, Search, SparseVector, Upsert
from shared.contracts.subject import Empty
from shared.messaging.bus import Bus
from shared.messaging.scope import Scope
from tests.support.polling import eventually

WORKSPACE = uuid4()


@asynccontextmanager
async def process(nats_url: str, home: Path, bus: Bus) -> AsyncIterator[asyncio.subprocess.Process]:
    environment = {**os.environ, "NATS_URL": nats_url, "MARGINALIA_HOME": str(home)}
    started = await asyncio.create_subprocess_exec(sys.executable, "-m", "local.index_engine", cwd=ROOT, env=environment)

    async def answers() -> bool:
        try:
            return (await bus.client.ask(index.STATS, Empty(), Scope.root(5))).generation > 0
        except ServiceError:
            return False

    try:
        await eventually(answers, 20)
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


def points(count: int) -> list[Point]:
    payload = {"workspace": str(WORKSPACE), "document": str(uuid4()), "ancestors": [], "tags": [], "exchange": False}
    return [Point(id=uuid4(), sparse=SparseVector(indices=[1], values=[1.0]), payload=payload) for _ in range(count)]


async def test_what_was_answered_survives_a_kill_and_a_second_start(nats_url: str, tmp_path: Path) -> None:
    bus = Bus("test", nats_url)
    await bus.connect()
    written = points(300)
    try:
        async with process(nats_url, tmp_path, bus) as first:
            await bus.client.ask(index.UPSERT, Upsert(points=written), Scope.root(20))
            await bus.client.ask(index.DELETE, Delete(ids=[written[0].id]), Scope.root(20))
            # More are on their way when it dies.
            asking = asyncio.create_task(bus.client.ask(index.UPSERT, Upsert(points=points(1000)), Scope.root(1)))
            await asyncio.sleep(0.01)
            first.send_signal(signal.SIGKILL)
            await first.wait()
            await asyncio.wait({asking})
            asking.exception()
        async with process(nats_url, tmp_path, bus) as second:
            search = Search(filter=Filter(workspaces=[WORKSPACE]), sparse=SparseVector(indices=[1], values=[1.0]), limit=2000)
            found = {hit.id for hit in (await bus.client.ask(index.SEARCH, search, Scope.root(20))).sparse}
            assert {point.id for point in written[1:]} <= found
            assert written[0].id not in found
            second.terminate()
            began = time.monotonic()
            assert await second.wait() == 0
            assert time.monotonic() - began < 10
    finally:
        await bus.stop()
