"""Sending a stream of events to an HTTP client: frames as they come, a comment while nothing does, an end in every case.

Ends when the events end, when the client leaves, when the client no longer reads, or when the gateway stops; who wins what is in
docs/cancellation.md.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from services.gateway.disconnect import client_left
from services.gateway.edge import Metrics
from shared.contracts.errors import ServiceError
from shared.messaging.cancellation import shielded

logger = logging.getLogger(__name__)

HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
}
COMMENT = b": keep-alive\n\n"
RETRY = b"retry: 1000\n\n"
RECONNECT = b": reconnect\n\n"
SILENCE_SECONDS = 15.0
# A client that takes nothing for this long has left without saying so.
SEND_SECONDS = 60.0
CLEANUP_SECONDS = 5.0


class Frames(Protocol):
    """Where frames come from."""

    ended: bool

    async def frames(self, seconds: float) -> bytes:
        """Frames that are ready, or nothing after `seconds`."""
        ...

    async def check(self) -> None:
        """Called after a silence."""
        ...

    def wake(self) -> None:
        """Have `frames` return."""
        ...


class OpenStreams:
    """The streams of this process, so that a stop can end them before anything they need is closed."""

    def __init__(self) -> None:
        self._open: set[EventStream] = set()
        self.stopping = False

    def add(self, stream: "EventStream") -> None:
        """A stream began."""
        self._open.add(stream)

    def discard(self, stream: "EventStream") -> None:
        """A stream ended."""
        self._open.discard(stream)

    def __len__(self) -> int:
        return len(self._open)

    def wake_all(self) -> None:
        """Have every stream look at its log: the connection was away."""
        for stream in self._open:
            stream.recheck()

    def stop(self) -> None:
        """End every stream; their clients come back to another gateway, or to this one when it is up again."""
        self.stopping = True
        for stream in self._open:
            stream.recheck()


class EventStream(Response):
    """A `text/event-stream` response.

    `close` is called in every case, shielded, with whether the client left before the end. `opening` is sent first, `breaking_off` where
    the stream must end before its events do.
    """

    def __init__(
        self,
        source: Frames,
        streams: OpenStreams,
        metrics: Metrics,
        close: Callable[[bool], Awaitable[None]],
        *,
        opening: bytes = RETRY,
        breaking_off: bytes = RECONNECT,
    ) -> None:
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._source = source
        self._streams = streams
        self._metrics = metrics
        self._close = close
        self._opening = opening
        self._breaking_off = breaking_off
        self._left = False
        self._recheck = False

    def recheck(self) -> None:
        """Look at the log soon."""
        self._recheck = True
        self._source.wake()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        del scope
        watcher = asyncio.create_task(self._watch(receive))
        self._streams.add(self)
        ended = "broken"
        try:
            await self._send(send, {"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            ended = await self._relay(send)
        except (OSError, TimeoutError):
            self._left = True
        except ServiceError as error:  # the response has begun: it can only break off, and the client comes back
            logger.warning("A stream broke off: %s", error.detail)
            await self._send(send, {"type": "http.response.body", "body": self._breaking_off})
        finally:
            self._streams.discard(self)
            self._metrics.streams.labels("disconnected" if self._left else ended).inc()
            watcher.cancel()
            await shielded(self._cleanup(), CLEANUP_SECONDS)

    async def _relay(self, send: Send) -> str:
        """Send frames until there is a reason to stop; which one."""
        await self._send_body(send, self._opening)
        while not self._left:
            frames = await self._source.frames(SILENCE_SECONDS)
            if self._left:
                break
            if frames:
                await self._send_body(send, frames)
            if self._source.ended and not frames:
                await self._send(send, {"type": "http.response.body", "body": b""})
                return "completed"
            if self._streams.stopping:
                await self._send(send, {"type": "http.response.body", "body": self._breaking_off})
                return "stopped"
            if not frames or self._recheck:
                await self._after_silence(send, frames)
        return "disconnected"

    async def _after_silence(self, send: Send, frames: bytes) -> None:
        recheck, self._recheck = self._recheck, False
        if not frames and not recheck and not self._source.ended:
            await self._send_body(send, COMMENT)
        await self._source.check()

    async def _watch(self, receive: Receive) -> None:
        await client_left(receive)
        self._left = True
        self._source.wake()

    async def _send_body(self, send: Send, data: bytes) -> None:
        await self._send(send, {"type": "http.response.body", "body": data, "more_body": True})

    async def _send(self, send: Send, message: Message) -> None:
        async with asyncio.timeout(SEND_SECONDS):
            await send(message)

    async def _cleanup(self) -> None:
        with contextlib.suppress(ServiceError):
            await self._close(self._left and not self._source.ended)
