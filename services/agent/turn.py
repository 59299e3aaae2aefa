"""One turn: the loop over rounds, and every way in which it can end.

A round is one request to the model. The model answers, or calls tools; their results go into the next round (ON-1 to ON-8). Changes of
notes wait for the user: the turn is suspended, and another agent may go on with it (MD-5).
Whatever happens, the turn's log ends with one `Done`, and what there was is stored before it (docs/cancellation.md).
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from services.agent import prompt
from services.agent.approval import Decisions
from services.agent.chat_model import ChatModel, CompletionRequest
from services.agent.completion import Completion, Delta, Text
from services.agent.conversations import LONG_CHARACTERS
from services.agent.delivery import Delivery
from services.agent.ending import ENDING_SECONDS, Ending, TurnFailure, end_open_calls, status_of_cancel
from services.agent.execution import Execution
from services.agent.mentioned_notes import shown
from services.agent.preparation import Preparation
from services.agent.prompt import Past, Round
from services.agent.provider_failure import ProviderFailure
from services.agent.providers import Provider
from services.agent.rag_search import SourceBook
from services.agent.suspension import Suspension
from services.agent.tool_calls import arguments_of
from services.agent.toolbox import Toolbox
from services.agent.turn_log import TurnLog
from services.agent.turn_rows import Checkpoint, Ended, Turn
from services.agent.turn_store import TurnStore
from shared.contracts.chat import EventType, Mode, TurnStatus
from shared.contracts.control import CANCEL_REASONS
from shared.contracts.errors import ServiceError
from shared.messaging.cancellation import SHUTDOWN, shielded
from shared.messaging.scope import Scope
from shared.telemetry import tracing
from shared.telemetry import vocabulary as words

logger = logging.getLogger(__name__)

# Rounds that may call tools; the next one has to answer (ON-8).
ROUNDS_MAX: dict[Mode, int] = {"chat": 3, "agent": 12}
# How long a turn may take in all.
TURN_SECONDS_MAX = 900.0
# The reason of a cancel that tells an attempt that another has taken over.
SUPERSEDED = "superseded"
HAND_OVER_SECONDS = 3.0
CONTEXT_UNAVAILABLE = "context_unavailable"

# Leaves a turn to another agent; whether there is one.
type HandOver = Callable[[TurnLog], Coroutine[Any, Any, bool]]


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a turn is to do. `checkpoint` is where an earlier attempt had got to, `decisions` what was decided about its proposals; `trace`
    is the context that the turn was begun in, where that is not the present one.
    """

    turn: Turn
    past: list[Past]
    provider: Provider
    model: str
    scope: Scope
    mode: Mode
    toolbox: Toolbox
    retrieval: str
    preparation: Preparation
    notices: list[tuple[str, str]] = field(default_factory=list)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    decisions: Decisions = field(default_factory=dict)
    instructions: str | None = None
    sampling: dict[str, Any] = field(default_factory=dict)
    trace: str | None = None


def attempt_scope(turn_id: UUID, attempt: int) -> str:
    """The scope that an attempt runs under, below the turn's: whoever cancels the turn reaches it, whoever supersedes it only it."""
    return f"{turn_id}.attempt-{attempt}"


class TurnRun:
    """A turn in progress in this process."""

    def __init__(self, assignment: Assignment, log: TurnLog, model: ChatModel, store: TurnStore, hand_over: HandOver) -> None:
        self.turn = assignment.turn
        self.log = log
        self._assignment = assignment
        self._model = model
        self._store = store
        self._hand_over = hand_over
        self._rounds = list(assignment.checkpoint.rounds)
        self._restarted = log.attempt > 1
        self._book = SourceBook(log.fold.numbers, (result for round_ in self._rounds for result in round_.results.values()))
        self._execution = Execution(assignment.toolbox, self._book, log, assignment.scope)
        self._proposals = list(assignment.checkpoint.proposals)
        self._decisions = dict(assignment.decisions)
        self._waits = False
        self._storing: asyncio.Task[None] | None = None
        self._rule = assignment.provider.model(assignment.model)
        self._past = assignment.past
        self._past_call_ids = prompt.call_ids(assignment.past)
        self._since = time.monotonic()
        # Of a turn that is gone on with, nobody here knows when it began.
        self._first_text_told = self._restarted
        self.begun = False

    async def conduct(self) -> None:
        """Run the turn to its `Done`, or until it waits. Never raises for what happens within it; a cancel ends it in order."""
        self.begun = True
        failure: TurnFailure | ProviderFailure | None = None
        try:
            status = await self._rounds_to_the_end()
        except asyncio.CancelledError as cancel:
            reason = str(cancel.args[0]) if cancel.args else "requested"
            if self._waits:
                tracing.current().set_attribute(words.TURN_STATUS, "suspended")
                return
            tracing.current().set_attribute(words.CANCEL_REASON, reason if reason in CANCEL_REASONS else "other")
            if reason == SUPERSEDED or (reason == SHUTDOWN and await self._handed_over()):
                self.log.fence()
                tracing.current().set_attribute(words.TURN_STATUS, SUPERSEDED if reason == SUPERSEDED else "handed_over")
                return
            status, failure = status_of_cancel(reason)
        except (TurnFailure, ProviderFailure) as error:
            status, failure = "failed", error
        except Exception:
            logger.exception("Turn %s failed unexpectedly", self.turn.id)
            status, failure = (
                "failed",
                TurnFailure("internal", "The agent met an unexpected error; its log has the details.", retriable=True),
            )
        if status == "suspended":
            tracing.current().set_attribute(words.TURN_STATUS, status)
        else:
            await self._finish(status, failure)

    async def _handed_over(self) -> bool:
        """This process stops: whether another agent goes on with the turn."""
        try:
            return await shielded(self._hand_over(self.log), HAND_OVER_SECONDS)
        except (ServiceError, TimeoutError):
            return False

    async def cancelled_before_start(self, reason: str) -> None:
        """End a turn whose cancel was here before its work."""
        tracing.current().set_attribute(words.CANCEL_REASON, reason if reason in CANCEL_REASONS else "other")
        await self._started()
        await self._finish(*status_of_cancel(reason))

    async def _finish(self, status: TurnStatus, failure: TurnFailure | ProviderFailure | None) -> None:
        span = tracing.current()
        span.set_attribute(words.TURN_STATUS, status)
        if failure is not None:
            tracing.note_error(span, failure.code)
        ending = Ending(self.turn, self.log, self._store, self._rounds)
        try:
            await shielded(ending.write(status, failure), ENDING_SECONDS)
        except asyncio.CancelledError:
            logger.info("Turn %s was cancelled again while it ended", self.turn.id)
        if span.is_recording():  # the deadline may have ended it
            # Who counts the turn is the attempt whose end was stored.
            span.set_attributes({words.TURN_STATUS: SUPERSEDED} if self.log.fenced else {words.TURN_ROUNDS: len(self._rounds)})

    async def _rounds_to_the_end(self) -> TurnStatus:
        await self._started()
        await self._prepared()
        if self._restarted:
            await self._restart_round()
        if not await self._consented():
            return "suspended"
        toolbox, replay = self._assignment.toolbox, self._rule.reasoning_replay
        # A long history is read in a thread, so that no other turn waits for it.
        messages = await asyncio.to_thread(self._branch) if self._is_long else self._branch()
        for round_ in self._rounds:
            messages += prompt.said(round_, replay)
        round_number = len(self._rounds)
        while True:
            round_number += 1
            offering = bool(toolbox.tools) and round_number <= ROUNDS_MAX[self._assignment.mode]
            last = bool(toolbox.tools) and not offering
            completion = await self._ask(prompt.without_more_calls(messages) if last else messages, round_number, offering=offering)
            if not completion.calls:
                return await self._answered(completion)
            if not offering:
                await self._execution.refuse(completion.calls, self._rounds[-1], "No more calls can be made in this reply.")
                await self.log.emit(EventType.NOTICE, code="limit_reached", message="The model asked for more calls than a reply may make.")
                return "limit_reached"
            self._proposals = await self._execution.run(completion, self._rounds[-1], round_number)
            if not await self._consented():
                return "suspended"
            self._store_checkpoint()
            messages += prompt.said(self._rounds[-1], replay)

    @property
    def _is_long(self) -> bool:
        return sum(len(message.content) for message in self._past) > LONG_CHARACTERS

    def _branch(self) -> list[dict[str, Any]]:
        assignment = self._assignment
        return prompt.branch(self._past, self._rule.reasoning_replay, assignment.toolbox.tools, assignment.instructions)

    async def _started(self) -> None:
        """The events that a turn begins with; of a turn that was taken over, those that are missing."""
        assignment = self._assignment
        started = {
            "conversation_id": str(self.turn.conversation_id),
            "user_message_id": str(self.turn.user_message_id),
            "response_id": str(self.turn.response_id),
            "provider": assignment.provider.name,
            "model": assignment.model,
            "retrieval": assignment.retrieval,
        }
        events: list[tuple[EventType, dict[str, Any]]] = [(EventType.TURN_STARTED, started)]
        events += [(EventType.NOTICE, {"code": code, "message": message}) for code, message in assignment.notices]
        for type_, fields in events[self.log.last_seq :]:
            await self.log.emit(type_, **fields)

    async def _prepared(self) -> None:
        """Have the notes that the branch mentions in it (MN-6), and tell the client, unless an agent before has."""
        prepared = await self._assignment.preparation.prepare(self._past, self._assignment.scope)
        self._past = prepared.past
        if not self.log.fold.injected and prepared.injected:
            await self.log.emit(EventType.CONTEXT_INJECTED, items=[shown(item) for item in prepared.injected])
        if prepared.problem is not None and CONTEXT_UNAVAILABLE not in self.log.fold.notices:
            message = f"Notes that are mentioned could not be added: {prepared.problem}"
            await self.log.emit(EventType.NOTICE, code=CONTEXT_UNAVAILABLE, message=message)

    async def _restart_round(self) -> None:
        """Tell the client to forget what the agent before had said of the round that is asked again."""
        fold, checkpoint = self.log.fold, self._assignment.checkpoint
        waiting = {proposal.call for proposal in checkpoint.proposals}
        await end_open_calls(self.log, "The agent that ran this call was lost.", but=waiting)
        if (len(fold.content), fold.activity_entries) == (checkpoint.content_characters, checkpoint.activity_entries):
            return
        await self.log.emit(
            EventType.ROUND_RESTARTED,
            round=len(self._rounds) + 1,
            attempt=self.log.attempt,
            content_characters=checkpoint.content_characters,
            activity_entries=checkpoint.activity_entries,
            citations=sorted(self._book.numbers),
            left_out=checkpoint.left_out,
        )

    async def _consented(self) -> bool:
        """Carry out, or leave, what the user has decided on of the round's changes; False where the turn waits for the rest."""
        while self._proposals:
            for proposal in [proposal for proposal in self._proposals if proposal.call in self._decisions]:
                await self._execution.settle(proposal, self._decisions[proposal.call], self._rounds[-1])
                self._proposals.remove(proposal)
            if self._proposals and not await self._suspended():
                return False
        return True

    async def _suspended(self) -> bool:
        """Wait for the user; True where there is something decided already."""
        checkpoint = Checkpoint.at(self._rounds, self.log.fold, self._proposals)
        outcome = await shielded(self._suspend(Suspension(self.turn, self.log, self._store, checkpoint)), ENDING_SECONDS)
        if isinstance(outcome, Ended):
            # It is the user who has cancelled it, or removed the conversation; or another attempt's turn now.
            if not self._waits:
                raise asyncio.CancelledError(SUPERSEDED if outcome is Ended.SUPERSEDED else "requested")
            return False
        self._decisions = outcome
        return True

    async def _suspend(self, suspension: Suspension) -> Decisions | Ended:
        outcome = await suspension.write()
        self._waits = outcome is Ended.STORED
        return outcome

    def _store_checkpoint(self) -> None:
        """A round is whole: have that in the database, without waiting for it. What fails is made up for by the next."""
        checkpoint = Checkpoint.at(self._rounds, self.log.fold)
        work = self._store.checkpoint(self.turn, checkpoint, self.log.last_seq, self.log.packed())
        self._storing = asyncio.create_task(_stored_or_not(work, self._storing))

    # One round

    async def _ask(self, messages: list[dict[str, Any]], round_number: int, *, offering: bool) -> Completion:
        """One request to the model, streamed into the log. What it produced is kept as a round even when it is interrupted."""
        completion = Completion(taken=self._past_call_ids | self.log.fold.call_ids)
        round_ = Round()
        self._rounds.append(round_)
        delivery = Delivery(self.log, completion, round_number)

        async def deliver(deltas: list[Delta]) -> None:
            await delivery(deltas)
            self._tell_first_text(deltas)

        request = CompletionRequest(self._rule, messages, self._assignment.toolbox.offered if offering else [], self._assignment.sampling)
        try:
            await self._model.complete(self._assignment.provider, request, completion, deliver, self._retrying)
        finally:
            round_.content, round_.thinking, round_.thinking_field = completion.text, completion.thinking, completion.thinking_field
            round_.calls = [prompt.wire_call(call, arguments_of(call)) for call in completion.calls]
            round_.usage = completion.usage
        return completion

    def _tell_first_text(self, deltas: list[Delta]) -> None:
        """What the user has waited for is text of an answer, not a thought."""
        if not self._first_text_told and any(isinstance(delta, Text) for delta in deltas):
            self._first_text_told = True
            tracing.current().set_attribute(words.TURN_FIRST_TOKEN, time.monotonic() - self._since)

    async def _retrying(self, message: str) -> None:
        await self.log.emit(EventType.NOTICE, code="provider_retry", message=message)

    async def _answered(self, completion: Completion) -> TurnStatus:
        if not completion.text.strip():
            why = "reached its limit of length before it wrote an answer" if completion.cut_off else "ended without an answer"
            raise TurnFailure("empty_answer", f"The model {why}.", retriable=True)
        if completion.cut_off:
            message = "The model reached its limit of length; the answer is not all it wanted to say."
            await self.log.emit(EventType.NOTICE, code="answer_truncated", message=message)
        return "completed"


async def _stored_or_not(checkpoint: Coroutine[Any, Any, None], before: "asyncio.Task[None] | None") -> None:
    """In order: a later checkpoint is not overwritten by an earlier one."""
    if before is not None:
        await asyncio.wait({before})
    try:
        await checkpoint
    except ServiceError as error:
        logger.warning("A checkpoint could not be stored: %s", error.detail)
