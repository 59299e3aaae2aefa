"""The turn of one HTTP request: begun, listened to, waited for, and cancelled when its client leaves."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self
from uuid import UUID

from starlette.types import Receive

from services.gateway.access import Caller
from services.gateway.disconnect import client_left
from services.gateway.turn_stream import TurnStream
from shared.contracts import chat
from shared.contracts.chat import StartTurn, TurnAccepted, TurnRef, TurnResult
from shared.contracts.errors import ErrorCode, ServiceError
from shared.messaging.cancellation import shielded
from shared.messaging.scope import Account

logger = logging.getLogger(__name__)

CANCEL_SECONDS = 5.0
# How long a non-streaming client's turn is waited for at a stretch before its log is looked at.
SILENCE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """A turn that was accepted, and its events from the first one on."""

    caller: Caller
    stream: TurnStream
    accepted: TurnAccepted

    @classmethod
    async def begin(cls, command: StartTurn, caller: Caller) -> Self:
        """Listen first, then start: no event can be missed. A start that fails leaves nothing running but what its client can find again:
        where nobody knows whether the turn began, the same `client_message_id` is answered by it, or begins it.
        """
        turn_id = command.turn_id
        stream = TurnStream(caller.bus, _account(caller), turn_id)
        async with _closing_on_error(stream):
            try:
                accepted = await caller.bus.client.ask(chat.TURN_START, command, caller.scope(scope_id=str(turn_id)))
            except (ServiceError, asyncio.CancelledError) as error:
                unclear = not isinstance(error, ServiceError) or error.passing  # it may have begun, or may yet
                if unclear and command.client_message_id is None:
                    await caller.bus.client.cancel(str(turn_id), "caller_gone")
                raise
            if accepted.turn_id == turn_id:
                return cls(caller, stream, accepted)
        await stream.__aexit__(None, None, None)
        # The same client_message_id: the turn that there is already, from its beginning.
        return cls(caller, await cls.reading(accepted.turn_id, caller), accepted)

    @classmethod
    async def reading(cls, turn_id: UUID, caller: Caller, *, after: int = 0) -> TurnStream:
        """The events of a turn that there is, after a number."""
        stream = TurnStream(caller.bus, _account(caller), turn_id, after=after)
        async with _closing_on_error(stream):
            await stream.catch_up()
        return stream

    async def result(self, receive: Receive, *, cancel: bool) -> TurnResult:
        """What the turn comes to once it has ended, or waits for the user. One that was decided on before it could be asked goes on, and is
        waited for. `cancel`: as in `wait`.
        """
        turn = self
        while True:
            await turn.wait(receive, cancel=cancel)
            try:
                return await self.caller.ask(chat.TURN_RESULT, TurnRef(turn=self.accepted.turn_id))
            except ServiceError as error:
                if error.code is not ErrorCode.CONFLICT:
                    raise
            turn = replace(turn, stream=await self.reading(self.accepted.turn_id, self.caller, after=turn.stream.last))

    async def wait(self, receive: Receive, *, cancel: bool, heard: Callable[[bytes], None] | None = None) -> None:
        """Wait for the end of the turn, or of its present stretch, then listen no more. `cancel`: stop the turn where the client leaves
        before. Its frames go to `heard`.

        Raises:
            ServiceError: `cancelled`, where the client left.
        """
        watcher = asyncio.create_task(self._left(receive))
        ended = False
        try:
            while not self.stream.ended:
                frames = await self.stream.frames(SILENCE_SECONDS)
                if heard is not None:
                    heard(frames)
                if not frames and not watcher.done():
                    await self.stream.check()
                if watcher.done():
                    raise ServiceError(ErrorCode.CANCELLED, "The client left.")
            if heard is not None:
                heard(await self.stream.frames(0))  # what a look at the log has brought
            ended = True
        finally:
            watcher.cancel()
            await shielded(self.close(cancel=cancel and not ended), CANCEL_SECONDS)

    async def _left(self, receive: Receive) -> None:
        await client_left(receive)
        self.stream.wake()

    async def close(self, *, cancel: bool) -> None:
        """Listen no more. `cancel`: stop the turn, at once by message, and for certain by telling the agent, whose database outlives a
        lost message.
        """
        await self.stream.__aexit__(None, None, None)
        if not cancel:
            return
        turn_id = self.accepted.turn_id
        await self.caller.bus.client.cancel(str(turn_id), "disconnect")
        try:
            await self.caller.bus.client.ask(chat.TURN_CANCEL, TurnRef(turn=turn_id), self.caller.scope(CANCEL_SECONDS))
        except ServiceError as error:
            if error.code is not ErrorCode.TURN_NOT_FOUND:
                logger.warning("The cancel of turn %s was sent, but not confirmed: %s", turn_id, error.code)


class _closing_on_error:  # noqa: N801 - used like contextlib's
    """Opens the stream; closes it only where the body fails."""

    def __init__(self, stream: TurnStream) -> None:
        self._stream = stream

    async def __aenter__(self) -> None:
        await self._stream.__aenter__()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            await self._stream.__aexit__(kind, error, trace)


def _account(caller: Caller) -> Account:
    return Account(caller.identity.id, caller.identity.role)
