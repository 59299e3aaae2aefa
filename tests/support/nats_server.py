"""The real nats-server with JetStream on disk, started as the embedded stack starts it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import nats
import pytest

from local.home import Home
from local.nats_server import NatsServer
from local.ports import free_port
from local.stack import ROOT
from local.supervisor import Supervisor

READY_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class RunningNats:
    """A server that a test may stop and start again on the same data."""

    server: NatsServer
    home: Home
    supervisor: Supervisor

    @property
    def url(self) -> str:
        """Its address, password included."""
        return self.server.url

    async def start(self) -> None:
        """Returns when JetStream answers."""
        program = self.server.program(self.home)
        self.supervisor.start(program)
        await self.supervisor.ready([program.name], READY_SECONDS)

    async def stop(self) -> None:
        """Ends it; its data stay."""
        await self.supervisor.stop()


async def _running(directory: Path) -> AsyncIterator[RunningNats]:
    home = Home.open(directory)
    running = RunningNats(NatsServer(free_port(), home.secret("nats")), home, Supervisor(home, ROOT, {}, print))
    try:
        await running.start()
        yield running
    finally:
        await running.stop()
        home.close()


@pytest.fixture(scope="session")
async def shared_nats(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningNats]:
    """The server of the whole test run; not to be stopped."""
    async for running in _running(tmp_path_factory.mktemp("nats")):
        yield running


@pytest.fixture
async def nats_url(shared_nats: RunningNats) -> AsyncIterator[str]:
    """The address of a server without streams; what the test leaves in JetStream is deleted."""
    yield shared_nats.url
    client = await nats.connect(shared_nats.url)
    try:
        js = client.jetstream()
        for stream in await js.streams_info():
            await js.delete_stream(stream.config.name)
    finally:
        await client.close()


@pytest.fixture
async def own_nats(tmp_path: Path) -> AsyncIterator[RunningNats]:
    """A server of this test alone, to stop and start."""
    async for running in _running(tmp_path / "own-nats"):
        yield running
