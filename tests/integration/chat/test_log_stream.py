"""The stream of the turns' logs, on a server that loses it."""

import asyncio
import shutil

import nats
from nats.js.errors import NotFoundError

from services.agent.log_stream import LogStream
from shared.messaging.bus import Bus
from shared.service import background
from tests.support.nats_server import RunningNats
from tests.support.polling import eventually


async def test_a_stream_that_a_server_has_lost_is_made_again(own_nats: RunningNats) -> None:  # OP-3
    restored = asyncio.Event()

    async def note() -> None:
        restored.set()

    bus = Bus("agent", own_nats.url)
    await bus.connect()
    log_stream = LogStream(bus, note)
    try:
        async with background(log_stream.keep(), "log stream"):
            await own_nats.stop()
            shutil.rmtree(own_nats.home.path / "nats" / "jetstream")
            await own_nats.start()
            async with asyncio.timeout(20):
                await restored.wait()
            await eventually(lambda: there(own_nats))
    finally:
        await bus.stop()


async def there(server: RunningNats) -> bool:
    client = await nats.connect(server.url)
    try:
        return (await client.jetstream().stream_info("CHAT")).config.name == "CHAT"
    except NotFoundError:
        return False
    finally:
        await client.close()
