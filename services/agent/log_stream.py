"""The stream that keeps the turns' logs: made at the start, and again where a server has come back without it."""

import asyncio
from collections.abc import Awaitable, Callable

from shared.contracts import chat
from shared.messaging import streams
from shared.messaging.bus import Bus


class LogStream:
    """See the module. `restored` is called each time the connection was lost and the stream is there again."""

    def __init__(self, bus: Bus, restored: Callable[[], Awaitable[None]]) -> None:
        self._bus = bus
        self._restored = restored
        self._connected = asyncio.Event()
        bus.on_reconnected(self._note)

    async def keep(self) -> None:
        """See to it for ever. Apart from the connection's own work, which must not wait until JetStream answers."""
        while True:
            await self._connected.wait()
            self._connected.clear()
            await streams.ensure(self._bus.nats, chat.STREAM, owned=True)
            await self._restored()

    async def _note(self) -> None:
        self._connected.set()
