"""What the log of a turn amounts to.

The same fold makes the stored message, the state of a running turn, and what an agent that takes over knows. It reads events only, so
that what is stored is what was streamed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shared.contracts.chat import EventType

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
    """The sum of the events so far. `status` is the turn's."""

    last_seq: int = 0
    status: str = "running"
    content: str = ""
    thinking: str = ""
    activity: list[dict[str, Any]] = field(default_factory=list)
    tool_calls: dict[str, dict[str, Any]] = field(default_factory=dict)
    sources: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[dict[str, Any]] = field(default_factory=list)
    usage: dict[str, Any] | None = None
    done: dict[str, Any] | None = None

    def apply(self, event: Mapping[str, Any]) -> None:
        """Take in the next event. Types that change nothing here, unknown ones included, only move `last_seq`."""
        self.last_seq = event["seq"]
        match event["type"]:
            case EventType.TEXT_DELTA:
                self.content += event["text"]
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
                self.sources.append(_without_envelope(event))
            case EventType.NOTICE:
                self.left_out += event.get("left_out", [])
            case EventType.USAGE:
                self.usage = _without_envelope(event)
            case EventType.SUSPENDED:
                self.status = "suspended"
            case EventType.DONE:
                self.status = event["status"]
                self.done = _without_envelope(event)

    @property
    def open_calls(self) -> list[dict[str, Any]]:
        """Calls that began and have not ended."""
        return [call for call in self.tool_calls.values() if call["status"] == "running"]

    @property
    def cited(self) -> list[int]:
        """The numbers that the text cites; known at the end."""
        return list(self.done["cited"]) if self.done else []

    def _think(self, text: str) -> None:
        self.thinking += text
        if self.activity and self.activity[-1]["type"] == "thinking":
            self.activity[-1]["text"] += text
        else:
            self.activity.append({"type": "thinking", "text": text})

    def _begin_call(self, event: Mapping[str, Any]) -> None:
        identifier = event["tool_call_id"]
        self.tool_calls[identifier] = {
            "id": identifier,
            "name": event["name"],
            "arguments": "",
            "status": "running",
            "round": event["round"],
            "hits": None,
        }
        self.activity.append({"type": "tool_call", "id": identifier})

    def _end_call(self, event: Mapping[str, Any]) -> None:
        call = self.tool_calls[event["tool_call_id"]]
        call["arguments"] = event["arguments"]
        call["status"] = "error" if event["status"] == "failed" else event["status"]
        call["hits"] = event.get("hits")


def _without_envelope(event: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name not in ENVELOPE}
