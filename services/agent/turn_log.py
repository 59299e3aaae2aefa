"""The log of one turn: numbers events, folds them, publishes them, and sees to it that none is missing in the stream.

Publishing is core NATS, one hop, nothing waited for. What a lost connection swallowed is made good when it is back: the stream says which
event it has last, and the rest is sent again; readers drop what they have seen. `Done` is confirmed by the stream.
"""

import asyncio
import logging
import zlib
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import orjson
from nats.aio.client import Client as Nats
from nats.errors import Error as NatsError
from nats.js.errors import APIError, NotFoundError

from services.agent.characters import storable
from services.agent.fold import Fold
from services.agent.tenure import Tenure
from shared.contracts.chat import EVENTS, LAST_EVENTS, STREAM, EventType, LoggedEvent
from shared.messaging import headers as names
from shared.messaging.streams import Stored, read_subject

logger = logging.getLogger(__name__)

CONFIRM_SECONDS = 2.0


class TurnLog:
    """The one writer of a turn's events within an attempt."""

    def __init__(self, nats: Nats, tenure: Tenure, turn_id: UUID, *, attempt: int = 1, events: list[LoggedEvent] | None = None) -> None:
        self.turn_id = turn_id
        self.attempt = attempt
        self.events: list[LoggedEvent] = events or []
        self.fold = Fold.of(self.events)
        self._nats = nats
        self._tenure = tenure
        self._subject = EVENTS.subject(turn_id)
        self._held: list[LoggedEvent] = []
        self._published = len(self.events)
        self._publishing = False
        self._fenced = False

    @property
    def fenced(self) -> bool:
        """Whether another attempt has taken over."""
        return self._fenced

    @property
    def last_seq(self) -> int:
        """The number of the last event."""
        return self.fold.last_seq

    def fence(self) -> None:
        """Another attempt has taken over: publish nothing more."""
        self._fenced = True

    async def emit(self, type_: EventType, **fields: Any) -> None:
        """Append an event and publish it. Order is the order of calls, also between tasks."""
        self.append(type_, **fields)
        await self.publish()

    async def end_call(self, call: str, name: str, arguments: Any, status: str, **fields: Any) -> None:
        """Say how a tool call ended: `arguments` is the parsed object, or the raw text where it did not parse."""
        await self.emit(EventType.TOOL_CALL_END, tool_call_id=call, name=name, arguments=arguments, status=status, **fields)

    def append(self, type_: EventType, **fields: Any) -> None:
        """Append an event without publishing it yet."""
        self.events.append(self._made(type_, fields))

    def hold(self, type_: EventType, **fields: Any) -> None:
        """Make one of the last events, to be stored first: no reader sees it, and no lost connection publishes it, before `release`."""
        self._held.append(self._made(type_, fields))

    def release(self) -> None:
        """The held events are stored: let them be read and published."""
        self.events += self._held
        self._held = []

    def withdraw(self) -> None:
        """The held events are not to be after all; nobody has seen them."""
        self._held = []
        self.fold = Fold.of(self.events)

    def _made(self, type_: EventType, fields: dict[str, Any]) -> LoggedEvent:
        seq = self.fold.last_seq + 1
        event = {"type": type_.value, "seq": seq, "turn_id": str(self.turn_id), **fields}
        try:
            payload = orjson.dumps(event)
        except TypeError:  # half a surrogate pair somewhere: no event may end its turn
            event = _storable(event)
            payload = orjson.dumps(event)
        self.fold.apply(event)
        return LoggedEvent.model_construct(seq=seq, type=type_.value, payload=payload.decode())

    async def publish(self) -> None:
        """Send what has not been sent. While the connection is away, or it is in doubt whose turn this is, the events only gather."""
        if self._publishing or not self._tenure.certain:  # whoever is at it takes ours along, in order
            return
        self._publishing = True
        try:
            while self._published < len(self.events) and not self._fenced and self._tenure.certain:
                await self._send(self.events[self._published])
                self._published += 1
        except (NatsError, TimeoutError):
            logger.info("Events of turn %s wait for the connection", self.turn_id)
        finally:
            self._publishing = False

    async def republish(self) -> None:
        """After a lost connection: send again what the stream does not have."""
        try:
            stored = await self._stored()
        except (NatsError, APIError, TimeoutError):
            return  # lost again; the next connection brings us back here
        self._published = min(self._published, stored)
        await self.publish()

    async def delivered(self, seconds: float) -> bool:
        """Wait until everything is published, the last event confirmed by the stream; False when time is over first."""
        try:
            async with asyncio.timeout(seconds):
                while self._published < len(self.events) and not self._fenced:
                    await asyncio.sleep(0.2)
                    await self.publish()
                return True
        except TimeoutError:
            return False

    async def _send(self, event: LoggedEvent) -> None:
        payload, headers = event.payload.encode(), self._headers(event)
        if event.type in LAST_EVENTS:
            await self._nats.request(self._subject, payload, timeout=CONFIRM_SECONDS, headers=headers)
        else:
            await self._nats.publish(self._subject, payload, headers=headers)

    def packed(self) -> bytes:
        """The log as the database keeps it, held events included."""
        return zlib.compress(orjson.dumps([[event.seq, event.type, event.payload] for event in [*self.events, *self._held]]), 1)

    async def _stored(self) -> int:
        """How many events of this turn the stream has: the number of its last one."""
        try:
            last = await self._nats.jetstream(timeout=CONFIRM_SECONDS).get_last_msg(STREAM, self._subject, direct=True)
        except NotFoundError:
            return 0
        return int((last.headers or {}).get(names.EVENT_SEQ, 0))

    def _headers(self, event: LoggedEvent) -> dict[str, str]:
        return {names.EVENT_TYPE: event.type, names.EVENT_SEQ: str(event.seq), names.ATTEMPT: str(self.attempt)}


def _storable(value: Any) -> Any:
    """JSON with every text made storable."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, list):
        return [_storable(item) for item in value]
    if isinstance(value, dict):
        return {storable(key): _storable(item) for key, item in value.items()}
    return value


def unpack(packed: bytes) -> list[LoggedEvent]:
    """The events of a stored log."""
    return [
        LoggedEvent.model_construct(seq=seq, type=type_, payload=payload) for seq, type_, payload in orjson.loads(zlib.decompress(packed))
    ]


async def stored_events(nats: Nats, turn_id: UUID, known: Sequence[LoggedEvent] = ()) -> list[LoggedEvent]:
    """The log as the stream has it, in order, each number once, up to the first gap. `known` are its first events, known otherwise.

    Where an attempt began, what earlier ones wrote from there on is void.
    """
    attempts: dict[int, dict[int, Stored]] = {}
    for stored in await read_subject(nats, STREAM, EVENTS.subject(turn_id)):
        attempts.setdefault(int(stored.headers[names.ATTEMPT]), {})[int(stored.headers[names.EVENT_SEQ])] = stored
    valid: dict[int, Stored] = {}
    for _, written in sorted(attempts.items()):
        valid = {seq: stored for seq, stored in valid.items() if seq < min(written)} | written
    events = list(known)
    while len(events) + 1 in valid:
        stored = valid[len(events) + 1]
        events.append(LoggedEvent(seq=len(events) + 1, type=stored.headers[names.EVENT_TYPE], payload=stored.data.decode()))
    return events
