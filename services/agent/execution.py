"""Executing a round's tool calls: each call gets its result for the model and its `ToolCallEnd` for the client, in the order in which the
model made them. A change of a note gets them once the user has decided.
"""

import asyncio
import json
import logging
import time
from typing import Any

import orjson
from opentelemetry.trace import Span

from services.agent.approval import Proposal
from services.agent.completion import Completion
from services.agent.prompt import Round
from services.agent.rag_search import SourceBook
from services.agent.tool_calls import Call, arguments_of
from services.agent.toolbox import Outcome, Passages, Refusal, Result, Toolbox
from services.agent.tools import our_name
from services.agent.turn_log import TurnLog
from shared.contracts.chat import Decision, EventType
from shared.contracts.errors import STATUS, ErrorCode, ServiceError
from shared.contracts.retrieval import Hit
from shared.contracts.tools import SEARCH, TOOLS
from shared.messaging.cancellation import shielded
from shared.messaging.scope import Scope
from shared.telemetry import tracing
from shared.telemetry import vocabulary as words

logger = logging.getLogger(__name__)

CALLS_PER_ROUND_MAX = 6  # ON-8
CLEANUP_SECONDS = 5.0
# A reply is read as one message with all diffs that it has shown, beside which all else must fit.
DIFFS_BYTES_MAX = 4 * 1024 * 1024
# How long a change that was approved may take; see `NoteTools.carry_out`.
WRITE_SECONDS = 60.0
REJECTED = "The user has rejected this change; nothing was written. Do not ask for it again unless the user wants it."
# Nobody said what became of the change.
NO_ANSWER = frozenset({ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED})
UNKNOWN = "Whether the change was made is not known; read the note."


class Execution:
    """The calls of one turn."""

    def __init__(self, toolbox: Toolbox, book: SourceBook, log: TurnLog, scope: Scope) -> None:
        self._toolbox = toolbox
        self._book = book
        self._log = log
        self._scope = scope

    async def run(self, completion: Completion, round_: Round, round_number: int) -> list[Proposal]:
        """Run the round's calls at once; report them in their order. What needs the user's consent is told and comes back."""
        whole = not completion.cut_off
        work = [
            asyncio.create_task(self._outcome(call, round_number, within_limit=position < CALLS_PER_ROUND_MAX, whole=whole))
            for position, call in enumerate(completion.calls)
        ]
        proposals: list[Proposal] = []
        try:
            for call, task in zip(completion.calls, work, strict=True):
                outcome = await task
                if isinstance(outcome, Proposal) and any(outcome.concerns(other) for other in proposals):
                    outcome = Refusal("Another change of this note in the same answer waits for the user; read the note again after it.")
                if isinstance(outcome, Proposal) and self._diffs_bytes + len(orjson.dumps(outcome.diff)) > DIFFS_BYTES_MAX:
                    outcome = Refusal("The changes of this reply are too long to be shown together; ask for this one in the next reply.")
                if isinstance(outcome, Proposal):
                    proposals.append(outcome)
                    await self._ask_for_consent(outcome)
                else:
                    await self._report(call, outcome, round_)
        finally:
            for task in work:
                task.cancel()
            await shielded(_ended(work), CLEANUP_SECONDS)
        return proposals

    @property
    def _diffs_bytes(self) -> int:
        """How long the diffs are that this reply has shown, as they are kept with it."""
        shown = (call["approval"]["diff"] for call in self._log.fold.tool_calls.values() if "approval" in call)
        return sum(len(orjson.dumps(diff)) for diff in shown)

    async def refuse(self, calls: list[Call], round_: Round, why: str) -> None:
        """None of these calls is run."""
        for call in calls:
            await self._report(call, Refusal(why), round_)

    async def settle(self, proposal: Proposal, decision: Decision, round_: Round) -> None:
        """Do what the user has decided, and report it. A cancel waits for a write that has begun, so that what is told is what happened.

        What the log says already was done by an agent that was lost since, and is not told again.
        """
        await shielded(self._settled(proposal, decision, round_), WRITE_SECONDS + CLEANUP_SECONDS)

    async def _settled(self, proposal: Proposal, decision: Decision, round_: Round) -> None:
        if (told := told_end(self._log, proposal.call)) is not None:
            # A change that was told as failed is not made after all by whoever comes next.
            status, error = told["status"], told.get("error")
        elif decision == "reject":
            status, error = "rejected", None
        else:
            error = await self._written(proposal)
            status = "completed" if error is None else "failed"
        round_.results[proposal.call] = said_of(proposal, status, error)
        if told is None:
            await tell_end(self._log, proposal, status, error)

    async def _written(self, proposal: Proposal) -> str | None:
        """Why the change was not made; None where it was. In a scope of its own: no cancel of the turn leaves it half known."""
        try:
            await self._toolbox.notes.carry_out(proposal, Scope.root(WRITE_SECONDS, account=self._scope.account))
        except ServiceError as error:
            logger.warning("An approved change was not made: %s", error.code)
            what = UNKNOWN if error.code in NO_ANSWER else "The change was not made."
            return f"{what} {error.code}: {error.detail}"
        return None

    async def _outcome(self, call: Call, round_number: int, *, within_limit: bool, whole: bool) -> Outcome:
        began = time.monotonic()
        name = our_name(call.name) if our_name(call.name) in TOOLS else "unknown"
        asked = {
            words.GEN_AI_OPERATION: "execute_tool",
            words.GEN_AI_TOOL: name,
            words.GEN_AI_TOOL_TYPE: "datastore" if name == SEARCH else "function",
            words.ROUND: round_number,
        }
        with tracing.span(words.TOOL, asked, tool=name) as span:
            if within_limit:
                outcome = await self._toolbox.run(call, self._scope, whole=whole)
            else:
                outcome = Refusal(f"At most {CALLS_PER_ROUND_MAX} calls can be made at once.")
            _describe(span, outcome)
            if name == SEARCH:
                _tell(outcome, round_number, time.monotonic() - began)
        return outcome

    async def _ask_for_consent(self, proposal: Proposal) -> None:
        await self._log.emit(
            EventType.APPROVAL_REQUIRED,
            tool_call_id=proposal.call,
            name=proposal.name,
            arguments=proposal.arguments,
            **proposal.shown.model_dump(mode="json"),
        )

    async def _report(self, call: Call, outcome: Passages | Result | Refusal, round_: Round) -> None:
        """Tell the client how a call ended, and keep what the model gets to read."""
        match outcome:
            case Passages(hits):
                await self._present(call, hits, round_)
            case Result(value, hits):
                round_.results[call.id] = json.dumps(value, ensure_ascii=False)
                await self._end(call, "completed", **({} if hits is None else {"hits": hits}))
            case Refusal(why):
                round_.results[call.id] = json.dumps({"error": why}, ensure_ascii=False)
                await self._end(call, "failed", error=why)

    async def _present(self, call: Call, hits: list[Hit], round_: Round) -> None:
        presented = self._book.present(hits)
        round_.results[call.id] = presented.result
        for citation in presented.citations:
            await self._log.emit(EventType.CITATION, **citation)
        await self._end(call, "completed", hits=len(hits))
        if presented.left_out:
            await self._log.emit(
                EventType.NOTICE,
                code="source_budget_exhausted",
                message=f"{len(presented.left_out)} passages were found that no longer fit into this reply.",
                left_out=presented.left_out,
            )

    async def _end(self, call: Call, status: str, **fields: Any) -> None:
        arguments = arguments_of(call)
        await self._log.end_call(call.id, our_name(call.name), call.arguments if arguments is None else arguments, status, **fields)


def told_end(log: TurnLog, call: str) -> dict[str, Any] | None:
    """The `ToolCallEnd` of a call, where the log has it."""
    for event in reversed(log.events):
        if event.type == EventType.TOOL_CALL_END and (fields := orjson.loads(event.payload))["tool_call_id"] == call:
            return dict(fields)
    return None


async def tell_end(log: TurnLog, proposal: Proposal, status: str, error: str | None) -> None:
    """Tell the client what became of a change."""
    fields = {} if error is None else {"error": error}
    await log.end_call(proposal.call, proposal.name, proposal.arguments, status, **fields)


def said_of(proposal: Proposal, status: str, error: str | None) -> str:
    """What the model is told of it."""
    result: dict[str, Any] = {"error": error}
    if status == "completed":
        result = {"written": True, "path": proposal.path, "content_hash": proposal.content_hash}
    elif status == "rejected":
        result = {"rejected": REJECTED}
    return json.dumps(result, ensure_ascii=False)


def _describe(span: Span, outcome: Outcome) -> None:
    match outcome:
        case Passages(hits):
            span.set_attribute(words.HITS, len(hits))
        case Result(_, int(count)):
            span.set_attribute(words.HITS, count)
        case Refusal(_, code):
            # What the model asks in vain is not ours to repair; what a service cannot do is.
            tracing.note_error(span, code, ours=code in ErrorCode and STATUS[ErrorCode(code)] >= 500)


def _tell(outcome: Outcome, round_number: int, seconds: float) -> None:
    """How a search went (ON-14): never its words, nor what it found."""
    facts: dict[str, str | int] = {"round": round_number, "duration_ms": round(seconds * 1000)}
    match outcome:
        case Passages(hits):
            tracing.tell(words.RETRIEVAL_COMPLETED, {**facts, "hits": len(hits)})
        case Refusal(_, code):
            tracing.tell(words.RETRIEVAL_FAILED, {**facts, words.ERROR_TYPE: code})


async def _ended(tasks: "list[asyncio.Task[Outcome]]") -> None:
    await asyncio.gather(*tasks, return_exceptions=True)
