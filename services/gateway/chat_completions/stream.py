"""The frames of a streamed completion, made of a turn's frames as they come."""

import asyncio

from services.gateway.chat_completions.chunks import Chunks, error_frame
from services.gateway.chat_completions.outcome import events
from services.gateway.turn_stream import TurnStream
from shared.contracts.errors import ServiceError


class CompletionStream:
    """The source of an `EventStream`. A client of this protocol cannot read on later: what breaks the stream ends it with an error."""

    def __init__(self, turn: TurnStream, chunks: Chunks) -> None:
        self.ended = False
        self._turn = turn
        self._chunks = chunks
        self._broken: ServiceError | None = None

    async def frames(self, seconds: float) -> bytes:
        """Chunks that are ready. Events that come to none keep nobody waiting longer: after `seconds`, or when woken, there are none."""
        deadline = asyncio.get_running_loop().time() + seconds
        while not self.ended:
            try:
                taken = await self._turn.frames(max(0.0, deadline - asyncio.get_running_loop().time()))
            except ServiceError as error:
                self._broken = error
            if self._broken is not None:
                self.ended = True
                return error_frame(self._broken)
            chunks = b"".join(self._chunks.take(event) for event in events(taken))
            self.ended = self._chunks.ended
            if chunks or not taken:
                return chunks
        return b""

    async def check(self) -> None:
        """Look whether something was lost."""
        try:
            await self._turn.check()
        except ServiceError as error:
            self._broken = error
            self._turn.wake()

    def wake(self) -> None:
        """Have `frames` return."""
        self._turn.wake()
