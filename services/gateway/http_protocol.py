"""HTTP/1.1 by uvicorn, with a limit that it lacks: on the time and size that a request's head may take."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS = 10.0
HEAD_BYTES_MAX = 64 * 1024


class HeadLimits(HttpToolsProtocol):
    """Closes connections on which no head, or half a head, has come for `HEAD_SECONDS`, or one without end."""

    _timer: asyncio.TimerHandle | None = None
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The first head is awaited from here on."""
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Counts the head's bytes while there is one to be awaited."""
        if self._timer is not None:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._timer is not None and self._head_bytes > HEAD_BYTES_MAX:
            self._give_up()

    def on_message_begin(self) -> None:
        """Another head on the same connection."""
        super().on_message_begin()
        if self._timer is None:
            self._await_head()

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._stop_timer()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing to await any more."""
        self._stop_timer()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        self._head_bytes = 0
        self._timer = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._stop_timer()
        transport: Any = self.transport
        transport.close()
