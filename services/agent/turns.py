"""The turns of this process: begun, listed, read, cancelled, and handed over when an agent dies."""

import asyncio
import logging
from typing import Any
from uuid import UUID

import orjson
from nats.aio.client import Client as Nats

from services.agent.chat_model import ChatModel
from services.agent.conversations import Conversations
from services.agent.fold import Fold
from services.agent.providers import Provider, Providers
from services.agent.rag_search import Searches
from services.agent.turn import TURN_SECONDS_MAX, Assignment, TurnRun
from services.agent.turn_log import TurnLog, unpack
from services.agent.turn_store import Begun, Turn, TurnStore
from shared.contracts import contexts, notes
from shared.contracts.chat import (
    EVENTS,
    STREAM,
    LoggedEvent,
    LogRequest,
    StartTurn,
    ToolCall,
    TurnAccepted,
    TurnResult,
    TurnState,
)
from shared.contracts.chat import TurnLog as LogReply
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.subject import Empty
from shared.messaging import headers as names
from shared.messaging.bus import Bus
from shared.messaging.cancellation import Cancelled
from shared.messaging.scope import Account, Scope
from shared.messaging.streams import Stored, read_subject
from shared.telemetry import tracing

logger = logging.getLogger(__name__)

TURNS_MAX = 512
STREAM_LAG_EVENTS_MAX = 1000
LOG_REPLY_CHARACTERS_MAX = 4 * 1024 * 1024


class Turns:
    """See the module."""

    def __init__(self, bus: Bus, store: TurnStore, conversations: Conversations, model: ChatModel, providers: Providers) -> None:
        self._bus = bus
        self._store = store
        self._conversations = conversations
        self._model = model
        self._providers = providers
        self._running: dict[UUID, TurnRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        bus.on_reconnected(self._republish)

    @property
    def running(self) -> dict[UUID, TurnRun]:
        """The turns whose log this process writes."""
        return self._running

    # Beginning

    async def start(self, start: StartTurn, scope: Scope) -> TurnAccepted:
        """Store the message, reserve the reply, and let the turn run. Answers before the first event of the turn's own.

        Raises:
            ServiceError: the request cannot be carried out; nothing is stored or sent then.
        """
        account = require_account(scope)
        provider, model = self._providers.choose(start.provider, start.model)
        if len(self._running) >= TURNS_MAX:
            raise ServiceError(ErrorCode.UNAVAILABLE, "Too many turns are running; try again shortly.", retry_after=2)
        await self._require_workspaces(start, scope)
        injected, notices = await self._injected(start, scope)
        begun = await self._store.begin(start, account.id, injected)
        if not begun.replayed:
            self._launch(self._assignment(start, begun, provider, model, account, injected, notices))
        turn = begun.turn
        return TurnAccepted(turn_id=turn.id, conversation_id=turn.conversation_id, response_id=turn.response_id)

    async def _require_workspaces(self, start: StartTurn, scope: Scope) -> None:
        """The workspaces that the request names must be the account's to read."""
        named = {start.workspace, *(start.retrieval.filters.workspaces or [])} - {None}
        if not named:
            return
        readable = {workspace.id for workspace in (await self._bus.client.ask(notes.WORKSPACE_LIST, Empty(), scope)).items}
        if not named <= readable:
            raise ServiceError(ErrorCode.WORKSPACE_NOT_FOUND, "There is no such workspace.")

    async def _injected(self, start: StartTurn, scope: Scope) -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
        """The notes that the message mentions, by its links (MN-6); without a link nobody is asked."""
        if start.message is None or "](" not in start.message:
            return [], []
        workspace = start.workspace
        if workspace is None and start.conversation_id is not None:
            workspace = await self._store.workspace_of(start.conversation_id, require_account(scope).id)
        request = contexts.InjectRequest(text=start.message, workspace=workspace)
        try:
            reply = await self._bus.client.ask(contexts.INJECT, request, scope)
        except ServiceError as error:
            if error.code is ErrorCode.CANCELLED:
                raise
            return [], [("context_unavailable", f"The notes that the message mentions could not be added: {error.detail}")]
        return [item.model_dump(mode="json") for item in reply.items], []

    def _assignment(
        self,
        start: StartTurn,
        begun: Begun,
        provider: Provider,
        model: str,
        account: Account,
        injected: list[dict[str, Any]],
        notices: list[tuple[str, str]],
    ) -> Assignment:
        searches, retrieval = None, "off"
        if start.retrieval.enabled and not provider.model(model).tool_calling:
            retrieval = "unavailable"
            notices = [*notices, ("retrieval_unavailable", f"{model} of {provider.name} cannot call tools, so the notes are not searched.")]
        elif start.retrieval.enabled:
            retrieval = "on_demand"
            filters = start.retrieval.filters
            workspace = start.workspace or begun.workspace
            if filters.workspaces is None and workspace is not None:
                filters = filters.model_copy(update={"workspaces": [workspace]})
            searches = Searches(self._bus.client, filters)
        scope = Scope.root(TURN_SECONDS_MAX, account=account, scope_id=str(begun.turn.id))
        return Assignment(begun.turn, begun.past, provider, model, scope, searches, retrieval, notices, injected)

    def _launch(self, assignment: Assignment) -> None:
        turn = assignment.turn
        run = TurnRun(assignment, TurnLog(self._bus.nats, turn.id), self._model, self._store)
        self._running[turn.id] = run
        task = asyncio.create_task(self._conduct(run, assignment.scope), name=f"turn {turn.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _conduct(self, run: TurnRun, scope: Scope) -> None:
        with tracing.tracer().start_as_current_span("invoke_agent marginalia", attributes={"gen_ai.operation.name": "invoke_agent"}):
            try:
                await self._bus.cancellations.run(scope, run.conduct)
            except Cancelled as cancelled:
                if run.log.last_seq == 0:
                    await run.cancelled_before_start(cancelled.reason)
            except ServiceError as error:  # the deadline: the run has ended in order meanwhile, or is still at it
                logger.info("Turn %s: %s", run.turn.id, error.detail)
            finally:
                self._running.pop(run.turn.id, None)

    async def _republish(self) -> None:
        await asyncio.gather(*(run.log.republish() for run in self._running.values()))

    # Reading

    async def state(self, turn_id: UUID, scope: Scope) -> TurnState:
        """The turn so far."""
        turn = await self._store.turn(turn_id, require_account(scope).id)
        fold = Fold()
        for event in await self.events(turn):
            fold.apply(orjson.loads(event.payload))
        return TurnState(
            turn_id=turn.id,
            conversation_id=turn.conversation_id,
            response_id=turn.response_id,
            status=turn.status if turn.status != "running" else fold.status,
            attempt=turn.attempt,
            last_seq=fold.last_seq,
            content=fold.content,
            thinking=fold.thinking,
            activity=fold.activity,
            tool_calls=[ToolCall(**call) for call in fold.tool_calls.values()],
        )

    async def log(self, request: LogRequest, scope: Scope) -> LogReply:
        """Events after a number, bounded in size.

        Raises:
            ServiceError: `turn_not_found`; `last_event_id_invalid` for a number the turn has not reached.
        """
        turn = await self._store.turn(request.turn, require_account(scope).id)
        events = await self.events(turn)
        last_seq = events[-1].seq if events else 0
        # Of another agent's running turn the stream may have less than a reader has seen already.
        whole = turn.status != "running" or turn.id in self._running
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
        return LogReply(events=chosen, last_seq=last_seq, more=more, ended=turn.status != "running")

    async def events(self, turn: Turn) -> list[LoggedEvent]:
        """The events so far: of a turn that has ended from the database, of ours from memory, of another agent's from the stream."""
        if turn.status != "running" and (packed := await self._store.packed_log(turn.id)) is not None:
            return unpack(packed)
        if (run := self._running.get(turn.id)) is not None:
            return list(run.log.events)
        return await stored_events(self._bus.nats, turn.id)

    async def result(self, turn_id: UUID, scope: Scope) -> TurnResult:
        """What a turn that has ended came to."""
        turn = await self._store.turn(turn_id, require_account(scope).id)
        events = await self.events(turn)
        fold = Fold()
        for event in events:
            fold.apply(orjson.loads(event.payload))
        if fold.done is None:
            raise ServiceError(ErrorCode.CONFLICT, "The turn has not ended.")
        message = await self._conversations.message(turn.response_id)
        return TurnResult(turn_id=turn.id, conversation_id=turn.conversation_id, message=message, usage=message.usage, done=fold.done)

    # Cancelling

    async def cancel(self, turn_id: UUID, scope: Scope) -> None:
        """Stop a turn, whoever runs it. Ended already: nothing happens."""
        turn = await self._store.turn(turn_id, require_account(scope).id)
        if turn.status != "running":
            return
        await self._store.request_cancel(turn.id)
        await self._bus.client.cancel(str(turn.id), "requested")


async def stored_events(nats: Nats, turn_id: UUID) -> list[LoggedEvent]:
    """The log as the stream has it: in order, each number once, the later attempt's where two wrote one, up to the first gap."""
    best: dict[int, tuple[int, Stored]] = {}
    for stored in await read_subject(nats, STREAM, EVENTS.subject(turn_id)):
        seq, attempt = int(stored.headers[names.EVENT_SEQ]), int(stored.headers[names.ATTEMPT])
        if seq not in best or attempt > best[seq][0]:
            best[seq] = (attempt, stored)
    events = []
    for seq in range(1, len(best) + 1):
        if seq not in best:
            break
        stored = best[seq][1]
        events.append(LoggedEvent(seq=seq, type=stored.headers[names.EVENT_TYPE], payload=stored.data.decode()))
    return events


def require_account(scope: Scope) -> Account:
    """The account a request acts for.

    Raises:
        ServiceError: `unauthenticated`.
    """
    if scope.account is None:
        raise ServiceError(ErrorCode.UNAUTHENTICATED, "This needs an account.")
    return scope.account
