"""One turn: the loop over rounds, and every way in which it can end.

A round is one request to the model. The model answers, or asks for searches; their results go into the next round (ON-1 to ON-8).
Whatever happens, the turn's log ends with one `Done`, and what there was is stored before it (docs/cancellation.md).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import orjson

from services.agent import prompt
from services.agent.chat_model import ChatModel, CompletionRequest
from services.agent.completion import Completion
from services.agent.conversations import LONG_CHARACTERS
from services.agent.delivery import Delivery
from services.agent.ending import ENDING_SECONDS, SHUTDOWN, Ending, TurnFailure, end_open_calls, status_of_cancel
from services.agent.mentioned_notes import shown
from services.agent.preparation import Preparation
from services.agent.prompt import Past, Round
from services.agent.provider_failure import ProviderFailure
from services.agent.providers import Provider
from services.agent.rag_search import Searches, SourceBook
from services.agent.tool_calls import Call, arguments_of
from services.agent.turn_log import TurnLog
from services.agent.turn_store import Checkpoint, Turn, TurnStore
from shared.contracts import retrieval
from shared.contracts.chat import EventType, TurnStatus
from shared.contracts.errors import ServiceError
from shared.messaging.cancellation import shielded
from shared.messaging.scope import Scope
from shared.telemetry import tracing

logger = logging.getLogger(__name__)

RETRIEVAL_ROUNDS_MAX = 3  # ON-8
CALLS_PER_ROUND_MAX = 6  # ON-8
# How long a turn may take in all.
TURN_SECONDS_MAX = 900.0
QUERY_CHARACTERS_MAX = 1000
# The reason of a cancel that tells an attempt that another has taken over.
SUPERSEDED = "superseded"
HAND_OVER_SECONDS = 3.0

# Leaves a turn to another agent; whether there is one.
type HandOver = Callable[[TurnLog], Coroutine[Any, Any, bool]]


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a turn is to do. `searches` is None where no tool is offered; `checkpoint` is where an earlier attempt had got to."""

    turn: Turn
    past: list[Past]
    provider: Provider
    model: str
    scope: Scope
    searches: Searches | None
    retrieval: str
    preparation: Preparation
    notices: list[tuple[str, str]] = field(default_factory=list)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    instructions: str | None = None
    sampling: dict[str, Any] = field(default_factory=dict)


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
        self._storing: asyncio.Task[None] | None = None
        self._rule = assignment.provider.model(assignment.model)
        self._past = assignment.past
        self._past_call_ids = prompt.call_ids(assignment.past)
        self.begun = False

    async def conduct(self) -> None:
        """Run the turn to its `Done`. Never raises for what happens within it; a cancel ends it in order."""
        self.begun = True
        failure: TurnFailure | ProviderFailure | None = None
        try:
            status = await self._rounds_to_the_end()
        except asyncio.CancelledError as cancel:
            reason = str(cancel.args[0]) if cancel.args else "requested"
            if reason == SUPERSEDED or (reason == SHUTDOWN and await self._handed_over()):
                self.log.fence()
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
        await self._finish(status, failure)

    async def _handed_over(self) -> bool:
        """This process stops: whether another agent goes on with the turn."""
        try:
            return await shielded(self._hand_over(self.log), HAND_OVER_SECONDS)
        except (ServiceError, TimeoutError):
            return False

    async def cancelled_before_start(self, reason: str) -> None:
        """End a turn whose cancel was here before its work."""
        await self._started()
        await self._finish(*status_of_cancel(reason))

    async def _finish(self, status: TurnStatus, failure: TurnFailure | ProviderFailure | None) -> None:
        ending = Ending(self.turn, self.log, self._store, self._rounds)
        try:
            await shielded(ending.write(status, failure), ENDING_SECONDS)
        except asyncio.CancelledError:
            logger.info("Turn %s was cancelled again while it ended", self.turn.id)

    async def _rounds_to_the_end(self) -> TurnStatus:
        await self._started()
        await self._prepared()
        if self._restarted:
            await self._restart_round()
        searching, replay = self._assignment.searches is not None, self._rule.reasoning_replay
        # A long history is read in a thread, so that no other turn waits for it.
        messages = await asyncio.to_thread(self._branch) if self._is_long else self._branch()
        for round_ in self._rounds:
            messages += prompt.said(round_, replay)
        round_number = len(self._rounds)
        while True:
            round_number += 1
            offering = searching and round_number <= RETRIEVAL_ROUNDS_MAX
            last = searching and not offering
            completion = await self._ask(prompt.without_more_searches(messages) if last else messages, round_number, offering=offering)
            if not completion.calls:
                return await self._answered(completion)
            if not offering:
                await self._refuse(completion.calls, round_number, "No more calls can be made in this reply.")
                await self.log.emit(
                    EventType.NOTICE, code="limit_reached", message="The model asked for more searches than a reply may make."
                )
                return "limit_reached"
            await self._search(completion, round_number)
            self._store_checkpoint()
            messages += prompt.said(self._rounds[-1], replay)

    @property
    def _is_long(self) -> bool:
        return sum(len(message.content) for message in self._past) > LONG_CHARACTERS

    def _branch(self) -> list[dict[str, Any]]:
        assignment = self._assignment
        return prompt.branch(
            self._past, self._rule.reasoning_replay, searching=assignment.searches is not None, instructions=assignment.instructions
        )

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
        if prepared.problem is not None:
            message = f"Notes that are mentioned could not be added: {prepared.problem}"
            await self.log.emit(EventType.NOTICE, code="context_unavailable", message=message)

    async def _restart_round(self) -> None:
        """Tell the client to forget what the agent before had said of the round that is asked again."""
        fold, checkpoint = self.log.fold, self._assignment.checkpoint
        await end_open_calls(self.log, "The agent that ran this call was lost.")
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
        deliver = Delivery(self.log, completion, round_number)
        request = CompletionRequest(self._rule, messages, [prompt.SEARCH_TOOL] if offering else [], self._assignment.sampling)
        try:
            await self._model.complete(self._assignment.provider, request, completion, deliver, self._retrying)
        finally:
            round_.content, round_.thinking, round_.thinking_field = completion.text, completion.thinking, completion.thinking_field
            round_.calls = [prompt.wire_call(call, arguments_of(call)) for call in completion.calls]
            round_.usage = completion.usage
        return completion

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

    # Searching

    async def _search(self, completion: Completion, round_number: int) -> None:
        """Run the round's calls at once; number and report them in the order in which the model made them."""
        whole = not completion.cut_off
        work = [
            asyncio.create_task(self._execute(call, within_limit=position < CALLS_PER_ROUND_MAX, whole=whole))
            for position, call in enumerate(completion.calls)
        ]
        try:
            for call, task in zip(completion.calls, work, strict=True):
                await self._report(call, await task, round_number)
        finally:
            for task in work:
                task.cancel()
            await shielded(_ended(work), 5)

    async def _execute(self, call: Call, *, within_limit: bool, whole: bool) -> "list[retrieval.Hit] | str":
        """The hits of a call, or why there are none."""
        if not within_limit:
            return f"At most {CALLS_PER_ROUND_MAX} calls can be made at once."
        if prompt.OUR_NAMES.get(call.name) != retrieval.TOOL_NAME:
            return f"There is no tool {call.name!r} here; only {prompt.SEARCH_WIRE_NAME} can be called."
        arguments = arguments_of(call) if whole else None
        if arguments is None:
            return "The arguments are not a whole JSON object; nothing was executed."
        words = arguments.get("query")
        if not isinstance(words, str) or not 0 < len(words.strip()) <= QUERY_CHARACTERS_MAX or len(arguments) != 1:
            return 'The arguments must be {"query": "words to look for"}; nothing was executed.'
        assert self._assignment.searches is not None
        try:
            return await self._assignment.searches.search(words, self._assignment.scope)
        except ServiceError as error:
            logger.warning("A search failed: %s", error.code)
            return f"The search failed: {error.detail}"

    async def _report(self, call: Call, outcome: "list[retrieval.Hit] | str", round_number: int) -> None:
        """Tell the client how a call ended, and keep what the model gets to read."""
        span = tracing.current()
        if isinstance(outcome, str):
            self._rounds[-1].results[call.id] = orjson.dumps({"error": outcome}).decode()
            span.add_event("chat.retrieval.failed", {"round": round_number})
            await self._end_call(call, "failed", error=outcome)
            return
        presented = self._book.present(outcome)
        self._rounds[-1].results[call.id] = presented.result
        span.add_event("chat.retrieval.completed", {"round": round_number, "hits": len(outcome)})
        for citation in presented.citations:
            await self.log.emit(EventType.CITATION, **citation)
        await self._end_call(call, "completed", hits=len(outcome))
        if presented.left_out:
            await self.log.emit(
                EventType.NOTICE,
                code="source_budget_exhausted",
                message=f"{len(presented.left_out)} passages were found that no longer fit into this reply.",
                left_out=presented.left_out,
            )

    async def _refuse(self, calls: list[Call], round_number: int, why: str) -> None:
        for call in calls:
            await self._report(call, why, round_number)

    async def _end_call(self, call: Call, status: str, **fields: Any) -> None:
        arguments = arguments_of(call)
        await self.log.emit(
            EventType.TOOL_CALL_END,
            tool_call_id=call.id,
            name=prompt.OUR_NAMES.get(call.name, call.name),
            arguments=arguments if arguments is not None else call.arguments,
            status=status,
            **fields,
        )


async def _stored_or_not(checkpoint: Coroutine[Any, Any, None], before: "asyncio.Task[None] | None") -> None:
    """In order: a later checkpoint is not overwritten by an earlier one."""
    if before is not None:
        await asyncio.wait({before})
    try:
        await checkpoint
    except ServiceError as error:
        logger.warning("A checkpoint could not be stored: %s", error.detail)


async def _ended(tasks: list["asyncio.Task[Any]"]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)
