"""One turn: the loop over rounds, and every way in which it can end.

A round is one request to the model. The model answers, or asks for searches; their results go into the next round (ON-1 to ON-8).
Whatever happens, the turn's log ends with one `Done`, and what there was is stored before it (docs/cancellation.md).
"""

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Any

import orjson

from services.agent import prompt
from services.agent.chat_model import ChatModel, CompletionRequest, ProviderFailure
from services.agent.citations import cited_sources
from services.agent.completion import Call, CallArguments, CallStarted, Completion, Delta, Text, Thinking
from services.agent.conversations import shown
from services.agent.prompt import Past, Round
from services.agent.providers import Provider
from services.agent.rag_search import Searches, SourceBook
from services.agent.turn_log import TurnLog
from services.agent.turn_store import Ended, Turn, TurnStore
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
# How long the end of a turn waits for a database or a connection that is away.
STORE_SECONDS = 300.0
DELIVER_SECONDS = 60.0
# How often a reply that the database refuses, though it is there, is tried before its end alone is stored.
REFUSALS_MAX = 5
QUERY_CHARACTERS_MAX = 1000


class TurnFailure(Exception):
    """The turn ends `failed`; code and message as in the event `Error`."""

    def __init__(self, code: str, message: str, *, retriable: bool) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retriable = retriable


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a turn is to do. `searches` is None where no tool is offered."""

    turn: Turn
    past: list[Past]
    provider: Provider
    model: str
    scope: Scope
    searches: Searches | None
    retrieval: str
    notices: list[tuple[str, str]] = field(default_factory=list)
    injected: list[dict[str, Any]] = field(default_factory=list)


class UsageSum:
    """Tokens over the rounds that reported them (ON-12)."""

    def __init__(self) -> None:
        self._sums: dict[str, int | None] = dict.fromkeys(
            ("input_tokens", "output_tokens", "total_tokens", "cached_tokens", "reasoning_tokens")
        )
        self._rounds = 0
        self._reported = 0

    def add(self, usage: dict[str, Any] | None) -> None:
        """One round's report, or None where it gave none."""
        self._rounds += 1
        if usage is None:
            return
        self._reported += 1
        found = {
            "input_tokens": usage.get("prompt_tokens"),
            "output_tokens": usage.get("completion_tokens"),
            "total_tokens": usage.get("total_tokens"),
            "cached_tokens": _inner(usage, "prompt_tokens_details", "cached_tokens", "prompt_cache_hit_tokens"),
            "reasoning_tokens": _inner(usage, "completion_tokens_details", "reasoning_tokens"),
        }
        for name, count in found.items():
            if isinstance(count, int) and count >= 0:
                self._sums[name] = (self._sums[name] or 0) + count

    def event(self) -> dict[str, Any]:
        """The fields of the event `Usage`."""
        return {**self._sums, "rounds": self._rounds, "partial": self._reported < self._rounds}


def _inner(usage: dict[str, Any], group: str, name: str, flat: str | None = None) -> Any:
    details = usage.get(group)
    inner = details.get(name) if isinstance(details, dict) else None
    return inner if inner is not None or flat is None else usage.get(flat)


class TurnRun:
    """A turn in progress in this process."""

    def __init__(self, assignment: Assignment, log: TurnLog, model: ChatModel, store: TurnStore) -> None:
        self.turn = assignment.turn
        self.log = log
        self._assignment = assignment
        self._model = model
        self._store = store
        self._rounds: list[Round] = []
        self._usage = UsageSum()
        self._book = SourceBook()

    async def conduct(self) -> None:
        """Run the turn to its `Done`. Never raises for what happens within it; a cancel ends it in order."""
        failure: TurnFailure | ProviderFailure | None = None
        try:
            status = await self._rounds_to_the_end()
        except asyncio.CancelledError as cancel:
            status, failure = _status_of_cancel(str(cancel.args[0]) if cancel.args else "requested")
        except (TurnFailure, ProviderFailure) as error:
            status, failure = "failed", error
        except Exception:
            logger.exception("Turn %s failed unexpectedly", self.turn.id)
            status, failure = (
                "failed",
                TurnFailure("internal", "The agent met an unexpected error; its log has the details.", retriable=True),
            )
        await self._finish(status, failure)

    async def cancelled_before_start(self, reason: str) -> None:
        """End a turn whose cancel was here before its work."""
        await self._started()
        await self._finish(*_status_of_cancel(reason))

    async def _finish(self, status: TurnStatus, failure: TurnFailure | ProviderFailure | None) -> None:
        ending = Ending(self.turn, self.log, self._store, self._rounds, self._usage)
        try:
            await shielded(ending.write(status, failure), STORE_SECONDS + DELIVER_SECONDS)
        except asyncio.CancelledError:
            logger.info("Turn %s was cancelled again while it ended", self.turn.id)

    async def _rounds_to_the_end(self) -> TurnStatus:
        await self._started()
        messages = prompt.branch(
            self._assignment.past, self._assignment.provider.reasoning_replay, searching=self._assignment.searches is not None
        )
        round_number = 0
        while True:
            round_number += 1
            offering = self._assignment.searches is not None and round_number <= RETRIEVAL_ROUNDS_MAX
            if self._assignment.searches is not None and not offering:
                messages.append({"role": "system", "content": prompt.LAST_REQUEST})
            completion = await self._ask(messages, round_number, offering=offering)
            if not completion.calls:
                return self._answered(completion)
            if not offering:
                await self._refuse(completion.calls, round_number, "No more calls can be made in this reply.")
                await self.log.emit(
                    EventType.NOTICE, code="limit_reached", message="The model asked for more searches than a reply may make."
                )
                return "limit_reached"
            await self._search(completion, round_number)
            messages += prompt.said(self._rounds[-1], self._assignment.provider.reasoning_replay)

    async def _started(self) -> None:
        assignment = self._assignment
        await self.log.emit(
            EventType.TURN_STARTED,
            conversation_id=str(self.turn.conversation_id),
            user_message_id=str(self.turn.user_message_id),
            response_id=str(self.turn.response_id),
            provider=assignment.provider.name,
            model=assignment.model,
            retrieval=assignment.retrieval,
        )
        if assignment.injected:
            await self.log.emit(EventType.CONTEXT_INJECTED, items=[shown(item) for item in assignment.injected])
        for code, message in assignment.notices:
            await self.log.emit(EventType.NOTICE, code=code, message=message)

    # One round

    async def _ask(self, messages: list[dict[str, Any]], round_number: int, *, offering: bool) -> Completion:
        """One request to the model, streamed into the log. What it produced is kept as a round even when it is interrupted."""
        completion = Completion(taken=frozenset(self.log.fold.tool_calls))
        round_ = Round()
        self._rounds.append(round_)
        deliver = Delivery(self.log, completion, round_number)
        request = CompletionRequest(self._assignment.model, messages, [prompt.SEARCH_TOOL] if offering else [])
        try:
            await self._model.complete(self._assignment.provider, request, completion, deliver, self._retrying)
        finally:
            round_.content, round_.thinking = completion.text, completion.thinking
            round_.calls = [prompt.wire_call(call, _arguments(call)) for call in completion.calls]
            self._usage.add(completion.usage)
        return completion

    async def _retrying(self, message: str) -> None:
        await self.log.emit(EventType.NOTICE, code="provider_retry", message=message)

    def _answered(self, completion: Completion) -> TurnStatus:
        if not completion.text.strip():
            raise TurnFailure("empty_answer", "The model ended without an answer.", retriable=True)
        if completion.finish_reason == "content_filter":
            raise TurnFailure("provider_refused", "The provider's content filter stopped the answer.", retriable=False)
        return "completed"

    # Searching

    async def _search(self, completion: Completion, round_number: int) -> None:
        """Run the round's calls at once; number and report them in the order in which the model made them."""
        whole = completion.finish_reason != "length"
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
        arguments = _arguments(call) if whole else None
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
        arguments = _arguments(call)
        await self.log.emit(
            EventType.TOOL_CALL_END,
            tool_call_id=call.id,
            name=prompt.OUR_NAMES.get(call.name, call.name),
            arguments=arguments if arguments is not None else call.arguments,
            status=status,
            **fields,
        )


class Delivery:
    """Deltas of one round into events. What arrived together goes out together."""

    def __init__(self, log: TurnLog, completion: Completion, round_number: int) -> None:
        self._log = log
        self._completion = completion
        self._round = round_number
        # Text after a tool call is parted from the text before by a blank line (ON-11).
        self._separator = "\n\n" if log.fold.content and not log.fold.content.endswith("\n\n") else ""

    async def __call__(self, deltas: list[Delta]) -> None:
        """Append events for the deltas and publish them."""
        for delta in _joined(deltas):
            match delta:
                case Thinking(text):
                    self._log.append(EventType.THINKING_DELTA, text=text)
                case Text(text):
                    self._log.append(EventType.TEXT_DELTA, text=self._separator + text)
                    self._separator = ""
                case CallStarted(_, identifier, name):
                    ours = prompt.OUR_NAMES.get(name, name)
                    self._log.append(EventType.TOOL_CALL_START, tool_call_id=identifier, name=ours, round=self._round)
                case CallArguments(position, fragment):
                    identifier = self._completion.call(position).id
                    self._log.append(EventType.TOOL_CALL_DELTA, tool_call_id=identifier, arguments=fragment)
        await self._log.publish()


def _joined(deltas: list[Delta]) -> list[Delta]:
    """Neighbouring pieces of text, or of thinking, as one: they came in one read, so nobody waits longer."""
    joined: list[Delta] = []
    for delta in deltas:
        last = joined[-1] if joined else None
        if isinstance(delta, Text) and isinstance(last, Text):
            joined[-1] = Text(last.text + delta.text)
        elif isinstance(delta, Thinking) and isinstance(last, Thinking):
            joined[-1] = Thinking(last.text + delta.text)
        else:
            joined.append(delta)
    return joined


@dataclass(slots=True)
class Ending:
    """The end of a turn: everything open is closed, stored, then said."""

    turn: Turn
    log: TurnLog
    store: TurnStore
    rounds: list[Round]
    usage: UsageSum

    async def write(self, status: TurnStatus, failure: TurnFailure | ProviderFailure | None) -> None:
        """Close open calls, say what failed, store the whole, and only then send `Done`."""
        fold = self.log.fold
        for call in fold.open_calls:
            await self.log.emit(
                EventType.TOOL_CALL_END,
                tool_call_id=call["id"],
                name=call["name"],
                arguments=parsed(call["arguments"]),
                status="failed",
                error="The turn ended before this call did.",
            )
        if failure is not None:
            await self.log.emit(EventType.ERROR, code=failure.code, message=failure.message, retriable=failure.retriable)
        await self.log.emit(EventType.USAGE, **self.usage.event())
        self.log.hold(EventType.DONE, status=status, cited=cited_sources(fold.content, fold.sources))
        if await self._stored() is Ended.SUPERSEDED:
            self.log.fence()
            return
        self.log.release()
        await self.log.publish()
        if not await self.log.delivered(DELIVER_SECONDS):
            logger.error("The end of turn %s could not be published; it is stored", self.turn.id)

    async def _stored(self) -> Ended:
        """Store, waiting out a database that is away. What cannot be stored at all is left to be taken over."""
        packed, refusals = self.log.packed(), 0
        try:
            async with asyncio.timeout(STORE_SECONDS):
                while refusals < REFUSALS_MAX:
                    try:
                        return await self.store.end(self.turn, self.log.fold, self.rounds, packed)
                    except ServiceError as error:
                        logger.warning("Turn %s cannot be stored yet: %s", self.turn.id, error.detail)
                    except Exception:
                        refusals += 1
                        logger.exception("What turn %s came to is refused by the database", self.turn.id)
                    await asyncio.sleep(0.3)
                # The one thing worse than a reply that is not kept is a turn without an end, tried again for ever.
                return await self.store.end_without_content(self.turn, self.log.last_seq, packed)
        except TimeoutError:
            logger.error("Turn %s could not be stored; it will be taken over", self.turn.id)  # noqa: TRY400
            return Ended.SUPERSEDED


def _status_of_cancel(reason: str) -> tuple[TurnStatus, TurnFailure | None]:
    """What a cancel makes of a turn: the user's wish is no failure; ours is."""
    if reason == "deadline":
        return "cancelled", TurnFailure("deadline_exceeded", "The turn took longer than a turn may take.", retriable=True)
    if reason == "shutdown":
        return "failed", TurnFailure("agent_stopped", "The agent was stopped during this turn; ask again.", retriable=True)
    return "cancelled", None


def _arguments(call: Call) -> dict[str, Any] | None:
    """A call's arguments as the object they should be; None where they are not whole (ON-4). No arguments at all are an empty object."""
    value = parsed(call.arguments or "{}")
    return value if isinstance(value, dict) else None


def parsed(text: str) -> Any:
    """JSON, or the text itself where it is none, or holds what cannot be stored."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    return text if b"\\u0000" in orjson.dumps(value) else value


async def _ended(tasks: list["asyncio.Task[Any]"]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)
