"""The turns of this process: begun, run, handed over when it stops."""

import asyncio
import logging
from collections.abc import Sequence
from uuid import UUID

from services.agent.chat_model import ChatModel
from services.agent.mentioned_notes import with_references
from services.agent.note_tools import NoteTools
from services.agent.preparation import Preparation
from services.agent.providers import Providers
from services.agent.rag_search import Searches
from services.agent.tenure import Tenure
from services.agent.toolbox import Toolbox
from services.agent.tools import chosen
from services.agent.turn import SUPERSEDED, TURN_SECONDS_MAX, Assignment, TurnRun, attempt_scope
from services.agent.turn_log import TurnLog
from services.agent.turn_rows import Begun, Checkpoint, TakenOver
from services.agent.turn_store import TurnStore
from services.agent.workspace_access import require_readable
from shared.contracts import mentions
from shared.contracts.chat import RetrievalState, StartTurn, TurnAccepted
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.tools import SEARCH, Tool
from shared.messaging.bus import Bus
from shared.messaging.cancellation import Cancelled
from shared.messaging.headers import TRACEPARENT
from shared.messaging.scope import Account, Scope
from shared.telemetry import tracing
from shared.telemetry import vocabulary as words

logger = logging.getLogger(__name__)

TURNS_MAX = 512
# What of a command is not kept for an agent that takes over: it stands in the turn's row and messages.
KEPT_ELSEWHERE = {"turn_id", "message", "history", "client_message_id", "request_digest"}


class Turns:
    """See the module."""

    def __init__(
        self, bus: Bus, store: TurnStore, tenure: Tenure, model: ChatModel, providers: Providers
    ) -> None:  # fmt: skip
        self._bus = bus
        self._tenure = tenure
        self._store = store
        self._model = model
        self._providers = providers
        self._running: dict[UUID, TurnRun] = {}
        # Whether there are other agents; see `lease`.
        self.colleagues = False
        self._tasks: set[asyncio.Task[None]] = set()
        bus.on_lost(tenure.doubt)

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
        chosen(start.mode, start.allowed_tools, searching=True)
        if len(self._running) >= TURNS_MAX:
            raise ServiceError(ErrorCode.UNAVAILABLE, "Too many turns are running; try again shortly.", retry_after=2)
        await require_readable(self._bus.client, [start.workspace, *(start.retrieval.filters.workspaces or [])], scope)
        if start.references:
            if (seen := await self._store.replayed(start, account.id)) is not None:
                return TurnAccepted(turn_id=seen.id, conversation_id=seen.conversation_id, response_id=seen.response_id)
            start = await self._with_references(start, scope)
        resolved = start.model_copy(update={"provider": provider.name, "model": model})
        kept = resolved.model_dump(mode="json", exclude=KEPT_ELSEWHERE)
        stored = {"start": kept, "role": account.role, TRACEPARENT: tracing.traceparent()}
        begun = await self._store.begin(start, account.id, stored)
        if not begun.replayed:
            self.launch(self.assignment(resolved, begun, account), TurnLog(self._bus.nats, self._tenure, begun.turn.id))
        turn = begun.turn
        return TurnAccepted(turn_id=turn.id, conversation_id=turn.conversation_id, response_id=turn.response_id)

    async def _with_references(self, start: StartTurn, scope: Scope) -> StartTurn:
        """The references as lines of the message; nothing is stored where one of their notes is missing (MN-5)."""
        workspace = start.workspace
        if start.conversation_id is not None:
            stored = await self._store.workspace_of(start.conversation_id, require_account(scope).id)
            workspace = workspace or stored
        request = mentions.SerializeRequest(workspace=workspace, references=start.references, locale=start.locale or "en")
        lines = (await self._bus.client.ask(mentions.SERIALIZE, request, scope)).text
        return start.model_copy(update={"message": with_references(start.message or "", lines), "references": []})

    def assignment(self, start: StartTurn, begun: Begun, account: Account, taken: TakenOver | None = None) -> Assignment:
        """What the turn is to do; the same for the agent that begins it and for one that takes it over.

        Raises:
            ServiceError: `unknown_provider`, `unknown_model`, where they have gone since.
        """
        provider, model = self._providers.choose(start.provider, start.model)
        notices: list[tuple[str, str]] = []
        offered = chosen(start.mode, start.allowed_tools, searching=start.retrieval.enabled)
        searching = any(tool.name == SEARCH for tool in offered)
        retrieval: RetrievalState = "on_demand" if searching else "off"
        if offered and not provider.model(model).tool_calling:
            notices.append(_without_tools(provider.name, model, searching=searching))
            offered, retrieval = [], "unavailable" if searching else "off"
        turn = begun.turn
        seconds = TURN_SECONDS_MAX - (taken.age if taken is not None else 0)
        scope = Scope.root(seconds, account=account, scope_id=attempt_scope(turn.id, turn.attempt))
        return Assignment(
            turn,
            begun.past,
            provider,
            model,
            scope,
            start.mode,
            self._toolbox(start, begun.workspace, offered),
            retrieval,
            Preparation(self._bus.client, self._store, start.workspace or begun.workspace, start.mode),
            notices,
            checkpoint=taken.checkpoint if taken is not None else Checkpoint(),
            decisions=taken.decisions if taken is not None else {},
            instructions=start.instructions,
            sampling=start.sampling,
            trace=taken.assignment.get(TRACEPARENT) if taken is not None and taken.assignment is not None else None,
        )

    def _toolbox(self, start: StartTurn, workspace: UUID | None, offered: list[Tool]) -> Toolbox:
        """The tools of a turn, of which `offered` are offered."""
        filters, workspace = start.retrieval.filters, start.workspace or workspace
        notes = NoteTools(self._bus.client, workspace, filters.workspaces)
        if filters.workspaces is None and workspace is not None:
            filters = filters.model_copy(update={"workspaces": [workspace]})
        return Toolbox(offered, self._bus.client, Searches(self._bus.client, filters), notes, start.preset)

    def launch(self, assignment: Assignment, log: TurnLog) -> None:
        """Let a turn run in a task of its own."""
        turn = assignment.turn
        run = TurnRun(assignment, log, self._model, self._store, self._hand_over)
        self._running[turn.id] = run
        task = asyncio.create_task(self._conduct(run, assignment), name=f"turn {turn.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _conduct(self, run: TurnRun, assignment: Assignment) -> None:
        turn, trace = assignment.turn, assignment.trace
        told: tracing.Attributes = {
            words.GEN_AI_OPERATION: "invoke_agent",
            words.GEN_AI_AGENT: "marginalia",
            words.GEN_AI_CONVERSATION: str(turn.conversation_id),
            words.TURN_ID: str(turn.id),
            words.TURN_ATTEMPT: turn.attempt,
        }
        # Whoever goes on with a turn does so in its trace, linked to the request that set it going again.
        context = None if trace is None else tracing.extract({TRACEPARENT: trace})
        with tracing.span(words.TURN, told, context=context, links=[] if trace is None else tracing.link_to_current()):
            try:
                await self._bus.cancellations.run(assignment.scope, run.conduct)
            except Cancelled as cancelled:
                if not run.begun:
                    await run.cancelled_before_start(cancelled.reason)
            except ServiceError as error:  # the deadline: the run has ended in order meanwhile, or is still at it
                logger.info("Turn %s: %s", run.turn.id, error.detail)
            finally:
                self._running.pop(run.turn.id, None)

    # In this process's hands or another's

    async def _hand_over(self, log: TurnLog) -> bool:
        if not self.colleagues:
            return False
        # Whoever takes the turn reads its log from the stream: first let the server have all of it.
        await log.publish()
        await self._bus.client.hears(self._bus.name)
        return await self._store.release(log.turn_id, log.attempt)

    async def confirm(self, lost: Sequence[UUID], asked_at: float) -> None:
        """The database, asked at that moment, has said which turns are ours: leave those that are not, let the others' events out."""
        for turn_id in lost:
            if (run := self._running.get(turn_id)) is not None:
                run.log.fence()
                self._bus.cancellations.cancel(attempt_scope(turn_id, run.turn.attempt), SUPERSEDED)
        doubted = not self._tenure.certain
        self._tenure.confirm(asked_at)
        if doubted and self._tenure.certain:
            await self.republish()

    async def republish(self) -> None:
        """The connection was lost: send again what the stream does not have."""
        await asyncio.gather(*(run.log.republish() for run in self._running.values()))


def _without_tools(provider: str, model: str, *, searching: bool) -> tuple[str, str]:
    """The notice of a model that cannot call tools (ON-2)."""
    if searching:
        return "retrieval_unavailable", f"{model} of {provider} cannot call tools, so the notes are not searched."
    return "tools_unavailable", f"{model} of {provider} cannot call tools."


def require_account(scope: Scope) -> Account:
    """The account a request acts for.

    Raises:
        ServiceError: `unauthenticated`.
    """
    if scope.account is None:
        raise ServiceError(ErrorCode.UNAUTHENTICATED, "This needs an account.")
    return scope.account
