"""Three NATS servers as one (OP-4), each configured by the written file and three lines of its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from nats.errors import Error as NatsError
from pydantic import SecretStr

from local.home import Home
from local.nats_server import find_binary
from local.ports import free_port
from local.stack import ROOT
from local.supervisor import Program, Supervisor
from shared.contracts import chat
from shared.messaging import server_configuration, streams
from shared.messaging.bus import Bus
from tests.support.polling import eventually

NAMES = ("one", "two", "three")


@asynccontextmanager
async def cluster(home: Home) -> AsyncIterator[tuple[Supervisor, str]]:
    """The supervisor of three servers, and their addresses as a service is told them."""
    passwords = server_configuration.passwords_in(home.secrets)
    clients, routes = {name: free_port() for name in NAMES}, {name: free_port() for name in NAMES}
    addresses = ", ".join(f"nats://127.0.0.1:{port}" for port in routes.values())
    supervisor = Supervisor(home, ROOT, {}, print)
    for name in NAMES:
        folder = home.path / name
        folder.mkdir()
        (folder / server_configuration.FILE).write_text(server_configuration.configuration(passwords, str(folder / "jetstream")))
        (folder / "server.conf").write_text(
            f"include {server_configuration.FILE}\nserver_name: {name}\nlisten: 127.0.0.1:{clients[name]}\n"
            f"cluster {{ name: marginalia, listen: 127.0.0.1:{routes[name]}, routes: [{addresses}] }}\n"
        )
        supervisor.start(Program(name, (str(find_binary()), "--config", str(folder / "server.conf"))))
    try:
        yield supervisor, ",".join(f"nats://127.0.0.1:{port}" for port in clients.values())
    finally:
        await supervisor.stop()


async def stored(bus: Bus) -> bool:
    """Whether an event has come into the stream."""
    try:
        reply = await bus.nats.request(chat.EVENTS.subject("t"), b"{}", timeout=2)
    except NatsError:
        return False
    return b'"seq"' in reply.data


async def test_a_service_uses_a_cluster_and_outlives_a_server(tmp_path: Path) -> None:
    home = Home.open(tmp_path / "home")
    async with cluster(home) as (supervisor, addresses):
        bus = Bus("agent", addresses, SecretStr(server_configuration.passwords_in(home.secrets)["agent"]))
        async with asyncio.timeout(20):
            await bus.connect()
            await bus.serve([])
            await streams.ensure(bus.nats, chat.STREAM, owned=True)
            await streams.ensure(bus.nats, chat.STREAM, owned=True)  # as a second agent does

        connected = next(name for name in NAMES if str(bus.nats.connected_url.port) in (home.path / name / "server.conf").read_text())  # type: ignore[union-attr]
        await eventually(lambda: stored(bus), 10, every=0.2)
        await supervisor.stop([connected])

        await eventually(lambda: stored(bus), 30, every=0.2)
        assert [one.data for one in await streams.read_subject(bus.nats, chat.STREAM, chat.EVENTS.subject("t"))][:2] == [b"{}"] * 2
        await bus.stop()
    home.close()
