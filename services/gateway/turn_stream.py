"""Reading one turn's log: live from NATS, and from the log where something was missed.

The events are relayed as they are: a message's payload becomes the `data` of an SSE frame, its headers the `id` and `event`. What is
queued goes out in one write.
"""

import asyncio
import contextlib
import logging
from collections import deque
from types import TracebackType
from typing import Self
from uuid import UUID

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from services.gateway.sse_frame import event_frame
from shared.contracts import chat
from shared.contracts.chat import EVENTS, LAST_EVENTS, LogRequest
from shared.contracts.errors import ErrorCode, ServiceError
from shared.messaging import headers as names
from shared.messaging.bus import Bus
from shared.messaging.scope import Account, Scope

logger = logging.getLogger(__name__)

ASK_SECONDS = 10.0
GAP_TRIES = 50
GAP_SECONDS = 0.1


class TurnStream:
    """The events of a turn after `after`, in order, none missing, none twice. Use as a context manager."""

    def __init__(self, bus: Bus, account: Account, turn_id: UUID, *, after: int = 0) -> None:
        self._bus = bus
        self._account = account
        self._turn_id = turn_id
        self._last = after
        self._attempt = 0
        self._arrived: deque[Msg] = deque()
        self._wake = asyncio.Event()
        self._ready: list[bytes] = []
        self._subscription: Subscription | None = None
        self.ended = False

    @property
    def last(self) -> int:
        """The number of the last event that was taken."""
        return self._last

    async def __aenter__(self) -> Self:
        """Listen; everything published from now on is seen."""
        self._subscription = await self._bus.nats.subscribe(EVENTS.subject(self._turn_id), cb=self._heard)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._subscription is not None:
            with contextlib.suppress(NatsError):
                await self._subscription.unsubscribe()

    async def _heard(self, message: Msg) -> None:
        self._arrived.append(message)
        self._wake.set()

    def wake(self) -> None:
        """Have `frames` return, though perhaps with nothing."""
        self._wake.set()

    async def catch_up(self) -> None:
        """Read from the log what has been missed so far.

        Raises:
            ServiceError: `turn_not_found`, or the agent does not answer.
        """
        before = self._last
        while True:
            scope = Scope.root(ASK_SECONDS, account=self._account)
            log = await self._bus.client.ask(chat.TURN_LOG, LogRequest(turn=self._turn_id, after=self._last), scope)
            self._attempt = max(self._attempt, log.attempt)
            for event in log.events:
                self._take(event.seq, event.type, event.payload.encode())
            if not log.more:
                break
        # Whoever knows already that the turn waits has come to see it go on.
        self.ended = self.ended or log.ended or (log.suspended and self._last > before)

    async def frames(self, seconds: float) -> bytes:
        """All frames that are ready, in one piece; waits at most `seconds` for the first, then answers with none."""
        if not self._arrived and not self._ready and not self.ended:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
        while self._arrived and not self.ended:
            await self._next(self._arrived.popleft())
        ready, self._ready = self._ready, []
        return b"".join(ready)

    async def check(self) -> None:
        """Look whether something was lost. A log that cannot be read now is looked at next time."""
        try:
            await self.catch_up()
        except ServiceError as error:
            if not error.passing:
                raise
            logger.info("The log of turn %s cannot be read now: %s", self._turn_id, error.code)

    async def _next(self, message: Msg) -> None:
        headers = message.headers or {}
        seq, attempt = int(headers[names.EVENT_SEQ]), int(headers[names.ATTEMPT])
        if seq <= self._last or attempt < self._attempt:
            return
        if seq > self._last + 1:
            await self._fill_gap(seq)
        self._attempt = attempt
        if self._take(seq, headers[names.EVENT_TYPE], message.data):
            self.ended = headers[names.EVENT_TYPE] in LAST_EVENTS

    async def _fill_gap(self, before: int) -> None:
        """Read what was lost between the last event and this one; the log has it now or in a moment.

        Raises:
            ServiceError: it has it not; the client comes back and reads on from its last event.
        """
        for _ in range(GAP_TRIES):
            await self.check()
            if self._last >= before - 1:
                return
            await asyncio.sleep(GAP_SECONDS)
        raise ServiceError(ErrorCode.UNAVAILABLE, "Events of this turn are missing for now; reconnect to read on.")

    def _take(self, seq: int, type_: str, payload: bytes) -> bool:
        """Whether it is the next event; one that is known already counts for nothing."""
        if seq != self._last + 1:
            return False
        self._last = seq
        self._ready.append(event_frame(seq, type_, payload))
        return True
