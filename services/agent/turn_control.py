"""What the user does to a turn that runs or waits: cancel it, decide about a change of a note. Any agent can be asked."""

import asyncio
import logging
from uuid import UUID

from services.agent.approval import Proposal
from services.agent.succession import Succession
from services.agent.turn_reader import TurnReader
from services.agent.turn_store import NOBODY, TurnStore, not_pending
from shared.contracts import notes
from shared.contracts.chat import DecideCall, ToolCall
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.notes import DraftNote
from shared.messaging.bus import Bus
from shared.messaging.scope import Account, Scope

logger = logging.getLogger(__name__)

# A client may decide before the round that asks is over: how long that is waited for.
SUSPENSION_TRIES = 50
SUSPENSION_PAUSE_SECONDS = 0.2
# What a draft of the change is refused with where the note has changed since.
CHANGED = frozenset({ErrorCode.NOTE_NOT_FOUND, ErrorCode.NOTE_STALE, ErrorCode.NOTE_EXISTS})


class TurnControl:
    """Each method acts for the account it is given; what is another's is not found."""

    def __init__(self, bus: Bus, store: TurnStore, reader: TurnReader, succession: Succession) -> None:
        self._bus = bus
        self._store = store
        self._reader = reader
        self._succession = succession

    async def cancel(self, turn_id: UUID, account: Account) -> None:
        """Stop a turn, whoever runs it, or end one that waits. Ended already: nothing happens."""
        turn = await self._store.turn(turn_id, account.id)
        if turn.status not in ("running", "suspended"):
            return
        if await self._store.request_cancel(turn.id):
            await self._go_on(turn.id)
        await self._bus.client.cancel(str(turn.id), "requested")

    async def decide(self, request: DecideCall, account: Account, scope: Scope) -> None:
        """Take the user's decision about a change, and let the turn go on. The same decision again changes nothing.

        Raises:
            ServiceError: `turn_not_found`, `tool_call_not_found`; `approval_stale` where the diff is not the one that waits,
                `note_stale` or `note_exists` where the note is not the one that was shown, or whatever else would refuse the change now
                (the turn waits on); `approval_decided` where it was decided otherwise before; `approval_not_pending` where nothing
                waits (any more).
        """
        call = await self._call(request, account)
        if call.approval is None:
            raise not_pending()
        if call.approval.diff_sha256 != request.diff_sha256:
            raise ServiceError(ErrorCode.APPROVAL_STALE, "This is not the change that waits for a decision; look at it again.")
        if (known := await self._store.decision(request.turn, call.id)) is None:
            if call.status != "awaiting_approval":
                raise not_pending()
            proposal = await self._proposal(request, account)
            if request.decision == "approve":
                await self._require_possible(proposal, scope)
            turn = await self._store.turn(request.turn, account.id)
            known = await self._store.decide(turn, call.id, request.decision, account.role)
        if known != request.decision:
            raise ServiceError(ErrorCode.APPROVAL_DECIDED, f"The decision was taken before: {known}.", decision=known)
        await self._go_on(request.turn)

    async def _call(self, request: DecideCall, account: Account) -> ToolCall:
        state = await self._reader.state(request.turn, account.id)
        call = next((call for call in state.tool_calls if call.id == request.tool_call_id), None)
        if call is None:
            raise ServiceError(ErrorCode.TOOL_CALL_NOT_FOUND, "The turn has no such tool call.")
        return call

    async def _proposal(self, request: DecideCall, account: Account) -> Proposal:
        """The change as it was drafted, once the turn has come to wait."""
        for _ in range(SUSPENSION_TRIES):
            running = (await self._store.turn(request.turn, account.id)).status == "running"
            for proposal in await self._store.waiting(request.turn):
                if proposal.call == request.tool_call_id:
                    return proposal
            if not running:
                break
            await asyncio.sleep(SUSPENSION_PAUSE_SECONDS)
        raise not_pending()

    async def _require_possible(self, proposal: Proposal, scope: Scope) -> None:
        """Refuse what could not be carried out any more: the user sees it now, and not only the model afterwards. Drafted again, it has to
        be the change that was shown.
        """
        request = DraftNote(workspace=proposal.workspace, path=proposal.path, change=proposal.change)
        try:
            draft = await self._bus.client.ask(notes.NOTE_DRAFT, request, scope)
        except ServiceError as error:
            if error.code in CHANGED:
                raise _stale(proposal, error.extra.get("current_hash")) from None
            raise
        if (draft.base_hash, draft.content_hash) != (proposal.base_hash, proposal.content_hash):
            raise _stale(proposal, draft.base_hash)

    async def _go_on(self, turn_id: UUID) -> None:
        """Have this agent go on with a turn that nobody holds. Where it cannot, whoever sees it next does (`lease`)."""
        if self._bus.stopping:
            return
        try:
            await self._succession.take_over(turn_id, NOBODY)
        except ServiceError as error:
            logger.info("Turn %s is left to the next agent: %s", turn_id, error.detail)


def _stale(proposal: Proposal, present: str | None) -> ServiceError:
    """What the user is told of a note that is not the one that was shown; `present` is its version now, None where there is none."""
    if proposal.base_hash is None:
        return ServiceError(ErrorCode.NOTE_EXISTS, f"{proposal.path} exists by now; reject this change.", current_hash=present)
    return ServiceError(
        ErrorCode.NOTE_STALE, f"{proposal.path} is not the version that was shown any more; reject this change.", current_hash=present
    )
