"""Reading turns: their events, what they amount to so far, what they came to."""

from uuid import UUID

from nats.aio.client import Client as Nats

from services.agent.conversations import Conversations
from services.agent.fold import Fold
from services.agent.turn_log import stored_events, unpack
from services.agent.turn_rows import Turn
from services.agent.turn_store import TurnStore
from services.agent.turns import Turns
from shared.contracts.chat import LoggedEvent, LogRequest, ToolCall, TurnLog, TurnResult, TurnState
from shared.contracts.errors import ErrorCode, ServiceError

STREAM_LAG_EVENTS_MAX = 1000
LOG_REPLY_CHARACTERS_MAX = 4 * 1024 * 1024


class TurnReader:
    """Each method acts for the account it is given; what is another's is not found."""

    def __init__(self, nats: Nats, store: TurnStore, conversations: Conversations, turns: Turns) -> None:
        self._nats = nats
        self._store = store
        self._conversations = conversations
        self._turns = turns

    async def state(self, turn_id: UUID, account: UUID) -> TurnState:
        """The turn so far."""
        turn = await self._store.turn(turn_id, account)
        fold = Fold.of(await self._events(turn))
        return TurnState(
            turn_id=turn.id,
            conversation_id=turn.conversation_id,
            response_id=turn.response_id,
            # Stored before it is said: where the log is ahead of the row, the row was read a moment before.
            status=fold.status if fold.done is not None else turn.status,
            attempt=turn.attempt,
            last_seq=fold.last_seq,
            content=fold.content,
            thinking=fold.thinking,
            activity=fold.activity,
            tool_calls=[ToolCall(**call) for call in fold.tool_calls.values()],
        )

    async def log(self, request: LogRequest, account: UUID) -> TurnLog:
        """Events after a number, bounded in size.

        Raises:
            ServiceError: `turn_not_found`; `last_event_id_invalid` for a number the turn has not reached.
        """
        turn = await self._store.turn(request.turn, account)
        events = await self._events(turn)
        last_seq = events[-1].seq if events else 0
        # Of another agent's running turn the stream may have less than a reader has seen already.
        whole = turn.status != "running" or turn.id in self._turns.running
        if request.after > last_seq + (0 if whole else STREAM_LAG_EVENTS_MAX):
            raise ServiceError(ErrorCode.LAST_EVENT_ID_INVALID, f"The turn's last event is {last_seq}; there is none {request.after}.")
        chosen: list[LoggedEvent] = []
        size = 0
        for event in events:
            if event.seq <= request.after:
                continue
            size += len(event.payload)
            if chosen and size > LOG_REPLY_CHARACTERS_MAX:
                break
            chosen.append(event)
        more = bool(chosen) and chosen[-1].seq < last_seq
        return TurnLog(
            events=chosen,
            attempt=turn.attempt,
            last_seq=last_seq,
            more=more,
            ended=turn.status not in ("running", "suspended"),
            suspended=turn.status == "suspended",
        )

    async def _events(self, turn: Turn) -> list[LoggedEvent]:
        """The events so far: of a turn that has ended or waits from the database, of ours from memory, of another agent's from the stream.

        The stream forgets after a while; a turn that has waited for long goes on after what the database has.
        """
        if turn.status == "running" and (run := self._turns.running.get(turn.id)) is not None:
            return list(run.log.events)
        packed = await self._store.packed_log(turn.id)
        stored = unpack(packed) if packed is not None else []
        return stored if stored and turn.status != "running" else await stored_events(self._nats, turn.id, stored)

    async def result(self, turn_id: UUID, account: UUID) -> TurnResult:
        """What a turn came to that has ended, or waits for the user."""
        turn = await self._store.turn(turn_id, account)
        fold = Fold.of(await self._events(turn))
        if turn.status == "running" and fold.done is None:
            raise ServiceError(ErrorCode.CONFLICT, "The turn has not ended.")
        message = await self._conversations.message(turn.response_id)
        return TurnResult(turn_id=turn.id, conversation_id=turn.conversation_id, message=message, usage=message.usage, done=fold.done)
