"""The turns of this process: begun, listed, read, cancelled, and handed over when an agent dies."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import orjson
from nats.aio.client import Client as Nats
from nats.errors import Error as NatsError
from nats.js.errors import APIError

from services.agent.chat_model import ChatModel
from services.agent.conversations import Conversations
from services.agent.ending import Ending, TurnFailure
from services.agent.fold import Fold
from services.agent.history import user_texts
from services.agent.prompt import Round
from services.agent.providers import Providers
from services.agent.rag_search import Searches
from services.agent.tenure import Tenure
from services.agent.turn import SUPERSEDED, TURN_SECONDS_MAX, Assignment, TurnRun
from services.agent.turn_log import TurnLog, unpack
from services.agent.turn_store import Begun, Checkpoint, TakenOver, Turn, TurnStore
from services.agent.workspace_access import require_readable
from shared.contracts import contexts
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
from shared.messaging import headers as names
from shared.messaging.bus import Bus
from shared.messaging.cancellation import Cancelled
from shared.messaging.scope import Account, Scope
from shared.messaging.streams import Stored, read_subject
from shared.telemetry import tracing

logger = logging.getLogger(__name__)

TURNS_MAX = 512
# A turn that takes its agent with it each time is not for a fourth.
ATTEMPTS_MAX = 3
RETRY_SECONDS = 0.5
# What of a command is not kept for an agent that takes over: it stands in the turn's row and messages.
KEPT_ELSEWHERE = {"turn_id", "message", "history", "client_message_id", "request_digest"}
AGENT_LOST = TurnFailure("agent_lost", "The agent that worked on this answer was lost; what it had written is kept.", retriable=True)
STREAM_LAG_EVENTS_MAX = 1000
LOG_REPLY_CHARACTERS_MAX = 4 * 1024 * 1024


class Turns:
    """See the module."""

    def __init__(
        self, bus: Bus, store: TurnStore, tenure: Tenure, conversations: Conversations, model: ChatModel, providers: Providers
    ) -> None:  # fmt: skip
        self._bus = bus
        self._tenure = tenure
        self._store = store
        self._conversations = conversations
        self._model = model
        self._providers = providers
        self._running: dict[UUID, TurnRun] = {}
        # Whether there are other agents; see `lease`.
        self.colleagues = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._taking_over: dict[UUID, asyncio.Task[None]] = {}
        bus.on_lost(tenure.doubt)
        bus.on_reconnected(self._republish)

    @property
    def busy(self) -> set[UUID]:
        """The turns that this process works on."""
        return self._running.keys() | self._taking_over.keys()

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
        await require_readable(self._bus.client, [start.workspace, *(start.retrieval.filters.workspaces or [])], scope)
        injected, notices = await self._injected(start, scope)
        resolved = start.model_copy(update={"provider": provider.name, "model": model})
        stored = {"start": resolved.model_dump(mode="json", exclude=KEPT_ELSEWHERE), "role": account.role, "notices": notices}
        begun = await self._store.begin(start, account.id, injected, stored)
        if not begun.replayed:
            self._launch(self._assignment(resolved, begun, account, notices), TurnLog(self._bus.nats, self._tenure, begun.turn.id))
        turn = begun.turn
        return TurnAccepted(turn_id=turn.id, conversation_id=turn.conversation_id, response_id=turn.response_id)

    async def _injected(self, start: StartTurn, scope: Scope) -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
        """The notes that the message mentions, by its links (MN-6); without a link nobody is asked."""
        if "](" not in (text := user_texts(start)):
            return [], []
        workspace = start.workspace
        if workspace is None and start.conversation_id is not None:
            workspace = await self._store.workspace_of(start.conversation_id, require_account(scope).id)
        request = contexts.InjectRequest(text=text, workspace=workspace)
        try:
            reply = await self._bus.client.ask(contexts.INJECT, request, scope)
        except ServiceError as error:
            if error.code is ErrorCode.CANCELLED:
                raise
            return [], [("context_unavailable", f"The notes that the message mentions could not be added: {error.detail}")]
        return [item.model_dump(mode="json") for item in reply.items], []

    def _assignment(
        self, start: StartTurn, begun: Begun, account: Account, notices: list[tuple[str, str]], taken: TakenOver | None = None
    ) -> Assignment:
        """What the turn is to do; the same for the agent that begins it and for one that takes it over.

        Raises:
            ServiceError: `unknown_provider`, `unknown_model`, where they have gone since.
        """
        provider, model = self._providers.choose(start.provider, start.model)
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
        turn = begun.turn
        seconds = TURN_SECONDS_MAX - (taken.age if taken is not None else 0)
        scope = Scope.root(seconds, account=account, scope_id=attempt_scope(turn.id, turn.attempt))
        return Assignment(
            turn,
            begun.past,
            provider,
            model,
            scope,
            searches,
            retrieval,
            notices,
            injected=begun.past[-1].injected,  # the branch ends with the user's message
            checkpoint=taken.checkpoint if taken is not None else Checkpoint(),
            instructions=start.instructions,
            sampling=start.sampling,
        )

    def _launch(self, assignment: Assignment, log: TurnLog) -> None:
        turn = assignment.turn
        run = TurnRun(assignment, log, self._model, self._store, self._hand_over)
        self._running[turn.id] = run
        task = asyncio.create_task(self._conduct(run, assignment.scope), name=f"turn {turn.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _conduct(self, run: TurnRun, scope: Scope) -> None:
        with tracing.tracer().start_as_current_span("invoke_agent marginalia", attributes={"gen_ai.operation.name": "invoke_agent"}):
            try:
                await self._bus.cancellations.run(scope, run.conduct)
            except Cancelled as cancelled:
                if not run.begun:
                    await run.cancelled_before_start(cancelled.reason)
            except ServiceError as error:  # the deadline: the run has ended in order meanwhile, or is still at it
                logger.info("Turn %s: %s", run.turn.id, error.detail)
            finally:
                self._running.pop(run.turn.id, None)

    # Handing over and taking over

    async def _hand_over(self, log: TurnLog) -> bool:
        if not self.colleagues:
            return False
        # Whoever takes the turn reads its log from the stream: first let the server have all of it.
        await log.publish()
        await self._bus.client.hears(self._bus.name)
        return await self._store.release(log.turn_id, log.attempt)

    async def take_over(self, turn_id: UUID, former: UUID) -> None:
        """Own a turn whose agent is gone, and go on with it in a task of its own, unless another agent was quicker.

        Raises:
            ServiceError: the database is away.
        """
        taken = await self._store.take_over(turn_id, former)
        if taken is None:
            return
        turn = taken.begun.turn
        logger.warning("Turn %s lost its agent; going on with it in attempt %d", turn.id, turn.attempt)
        task = asyncio.create_task(self._go_on(taken), name=f"taking over {turn.id}")
        self._taking_over[turn.id] = task
        task.add_done_callback(lambda done: self._went_on(turn.id, done))

    async def close(self) -> None:
        """Leave the turns that are being taken over to others."""
        tasks = list(self._taking_over.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _went_on(self, turn_id: UUID, task: "asyncio.Task[None]") -> None:
        del self._taking_over[turn_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            # It is ours and nobody works on it: the lease finds it again.
            logger.error("Turn %s could not be gone on with; trying again", turn_id, exc_info=error)

    async def _go_on(self, taken: TakenOver) -> None:
        turn = taken.begun.turn
        # Should the one before live after all, it stops here and now.
        await self._bus.client.cancel(attempt_scope(turn.id, turn.attempt - 1), SUPERSEDED)
        events = await self._events_at_last(turn.id, unpack(taken.log) if taken.log is not None else [])
        log = TurnLog(self._bus.nats, self._tenure, turn.id, attempt=turn.attempt, events=events)
        assignment = self._reassigned(taken, log)
        if assignment is None:
            await self._end_taken_over(taken, log)
        else:
            self._launch(assignment, log)

    async def _events_at_last(self, turn_id: UUID, known: Sequence[LoggedEvent]) -> list[LoggedEvent]:
        """The log so far, once NATS is there to give it."""
        while True:
            try:
                return await stored_events(self._bus.nats, turn_id, known)
            except (NatsError, APIError, TimeoutError) as error:
                logger.warning("Taking over waits for NATS: %r", error)
                await asyncio.sleep(RETRY_SECONDS)

    def _reassigned(self, taken: TakenOver, log: TurnLog) -> Assignment | None:
        """What to go on with; None where the turn can only be ended."""
        turn, stored = taken.begun.turn, taken.assignment
        ending = taken.cancel_requested or log.fold.error is not None
        if stored is None or ending or turn.attempt > ATTEMPTS_MAX or taken.age > TURN_SECONDS_MAX:
            return None
        start = StartTurn(turn_id=turn.id, **stored["start"])
        notices = [(code, message) for code, message in stored["notices"]]
        try:
            return self._assignment(start, taken.begun, Account(turn.account_id, stored["role"]), notices, taken)
        except ServiceError as error:
            logger.warning("Turn %s cannot be gone on with: %s", turn.id, error.detail)
            return None

    async def _end_taken_over(self, taken: TakenOver, log: TurnLog) -> None:
        """End it with what there was."""
        fold, checkpoint = log.fold, taken.checkpoint
        rounds = [*checkpoint.rounds, Round(content=fold.content[checkpoint.content_characters :])]
        numbers = frozenset(source["number"] for source in fold.sources)
        ending = Ending(taken.begun.turn, log, self._store, rounds, numbers)
        if taken.cancel_requested:
            await ending.write("cancelled", None)
        elif fold.error is not None:  # the one before had said so already
            await ending.write("failed", None)
        else:
            await ending.write("failed", AGENT_LOST)

    async def confirm(self, lost: Sequence[UUID], asked_at: float) -> None:
        """The database, asked at that moment, has said which turns are ours: leave those that are not, let the others' events out."""
        for turn_id in lost:
            if (run := self._running.get(turn_id)) is not None:
                run.log.fence()
                self._bus.cancellations.cancel(attempt_scope(turn_id, run.turn.attempt), SUPERSEDED)
        doubted = not self._tenure.certain
        self._tenure.confirm(asked_at)
        if doubted and self._tenure.certain:
            await self._republish()

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
        return LogReply(events=chosen, attempt=turn.attempt, last_seq=last_seq, more=more, ended=turn.status != "running")

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


def attempt_scope(turn_id: UUID, attempt: int) -> str:
    """The scope that an attempt runs under, below the turn's: whoever cancels the turn reaches it, whoever supersedes it only it."""
    return f"{turn_id}.attempt-{attempt}"


def require_account(scope: Scope) -> Account:
    """The account a request acts for.

    Raises:
        ServiceError: `unauthenticated`.
    """
    if scope.account is None:
        raise ServiceError(ErrorCode.UNAUTHENTICATED, "This needs an account.")
    return scope.account
