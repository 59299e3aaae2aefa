"""What the log of a turn amounts to.

The same fold makes the stored message, the state of a running turn, and what an agent that takes over knows. It reads events only, so
that what is stored is what was streamed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import orjson

from shared.contracts.chat import Approval, EventType, LoggedEvent

STATUS_OF_MESSAGE = {
    "completed": "completed",
    "cancelled": "interrupted",
    "failed": "failed",
    "limit_reached": "limit_reached",
    "running": "running",
    "suspended": "awaiting_approval",
}
ENVELOPE = frozenset({"type", "seq", "turn_id"})


@dataclass(slots=True)
class Fold:
    """The sum of the events so far. `status` is the turn's.

    Texts are kept in pieces and joined when asked for: a long answer has many thousand events.
    """

    last_seq: int = 0
    status: str = "running"
    tool_calls: dict[str, dict[str, Any]] = field(default_factory=dict)
    # The ids of all calls, and the numbers of all blocks, those of restarted rounds included: none is given twice.
    call_ids: set[str] = field(default_factory=set)
    numbers: dict[str, int] = field(default_factory=dict)
    sources: list[dict[str, Any]] = field(default_factory=list)
    injected: list[dict[str, Any]] = field(default_factory=list)
    notices: set[str] = field(default_factory=set)
    left_out: list[dict[str, Any]] = field(default_factory=list)
    usage: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    done: dict[str, Any] | None = None
    _content: list[str] = field(default_factory=list)
    # In order: the pieces of one stretch of thinking, or the id of a tool call.
    _activity: list[list[str] | str] = field(default_factory=list)

    @classmethod
    def of(cls, events: Iterable[LoggedEvent]) -> Self:
        """The sum of these events of a log."""
        fold = cls()
        for event in events:
            fold.apply(orjson.loads(event.payload))
        return fold

    def apply(self, event: Mapping[str, Any]) -> None:
        """Take in the next event. Types that change nothing here, unknown ones included, only move `last_seq`."""
        self.last_seq = event["seq"]
        if self.status == "suspended":
            self.status = "running"
        match event["type"]:
            case EventType.TEXT_DELTA:
                self._content.append(event["text"])
            case EventType.THINKING_DELTA:
                self._think(event["text"])
            case EventType.TOOL_CALL_START:
                self._begin_call(event)
            case EventType.TOOL_CALL_DELTA:
                call = self.tool_calls[event["tool_call_id"]]
                call["arguments"] += event["arguments"]
            case EventType.TOOL_CALL_END:
                self._end_call(event)
            case EventType.CITATION:
                self.numbers[event["block_id"]] = event["number"]
                self.sources.append(_without_envelope(event))
            case _:
                self._apply_rare(event)

    def _apply_rare(self, event: Mapping[str, Any]) -> None:
        match event["type"]:
            case EventType.CONTEXT_INJECTED:
                self.injected = event["items"]
            case EventType.NOTICE:
                self.notices.add(event["code"])
                self._leave_out(event.get("left_out", []))
            case EventType.ROUND_RESTARTED:
                self._restart_round(event)
            case EventType.ERROR:
                self.error = _without_envelope(event)
            case EventType.USAGE:
                self.usage = _without_envelope(event)
            case EventType.APPROVAL_REQUIRED:
                self._wait_for_consent(event)
            case EventType.SUSPENDED:
                self.status = "suspended"
            case EventType.DONE:
                self.status = event["status"]
                self.done = _without_envelope(event)

    @property
    def content(self) -> str:
        """The text so far."""
        self._content = ["".join(self._content)]
        return self._content[0]

    @property
    def thinking(self) -> str:
        """All thinking so far, without what came in between."""
        return "".join("".join(entry) for entry in self._activity if isinstance(entry, list))

    @property
    def activity_entries(self) -> int:
        """How many entries `activity` has."""
        return len(self._activity)

    @property
    def activity(self) -> list[dict[str, Any]]:
        """Thinking and tool calls in the order in which they happened (VT-1)."""
        return [
            {"type": "thinking", "text": "".join(entry)} if isinstance(entry, list) else {"type": "tool_call", "id": entry}
            for entry in self._activity
        ]

    @property
    def open_calls(self) -> list[dict[str, Any]]:
        """Calls that began and have not ended."""
        return [call for call in self.tool_calls.values() if call["status"] in ("running", "awaiting_approval")]

    def _think(self, text: str) -> None:
        last = self._activity[-1] if self._activity else None
        if isinstance(last, list):
            last.append(text)
        else:
            self._activity.append([text])

    def _begin_call(self, event: Mapping[str, Any]) -> None:
        identifier = event["tool_call_id"]
        self.call_ids.add(identifier)
        self.tool_calls[identifier] = {
            "id": identifier,
            "name": event["name"],
            "arguments": "",
            "status": "running",
            "round": event["round"],
            "hits": None,
        }
        self._activity.append(identifier)

    def _wait_for_consent(self, event: Mapping[str, Any]) -> None:
        call = self.tool_calls[event["tool_call_id"]]
        call["status"] = "awaiting_approval"
        call["arguments"] = event["arguments"]
        call["approval"] = {name: event[name] for name in Approval.model_fields}

    def _end_call(self, event: Mapping[str, Any]) -> None:
        call = self.tool_calls[event["tool_call_id"]]
        call["arguments"] = event["arguments"]
        call["status"] = "error" if event["status"] == "failed" else event["status"]
        call["hits"] = event.get("hits")

    def _leave_out(self, passages: Sequence[dict[str, Any]]) -> None:
        known = {passage["block_id"] for passage in self.left_out}
        self.left_out += [passage for passage in passages if passage["block_id"] not in known]

    def _restart_round(self, event: Mapping[str, Any]) -> None:
        """What the round had said is void."""
        self._content = [self.content[: event["content_characters"]]]
        del self._activity[event["activity_entries"] :]
        kept = {entry for entry in self._activity if isinstance(entry, str)}
        self.tool_calls = {identifier: call for identifier, call in self.tool_calls.items() if identifier in kept}
        self.sources = [source for source in self.sources if source["number"] in event["citations"]]
        del self.left_out[event["left_out"] :]


def _without_envelope(event: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name not in ENVELOPE}
