"""What a turn's events amount to for a client of Chat Completions, and how that looks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import orjson

from shared.contracts.chat import EventType, TurnResult
from shared.contracts.errors import ErrorCode, ServiceError

ENVELOPE = frozenset({"type", "seq", "turn_id"})
# The notice of an answer that the provider cut off at its limit.
TRUNCATED = "answer_truncated"
DATA = b"data: "


def events(frames: bytes) -> Iterator[dict[str, Any]]:
    """The events in these SSE frames of a turn."""
    for line in frames.split(b"\n"):  # a frame's JSON has no line break of its own
        if line.startswith(DATA):
            yield orjson.loads(line.removeprefix(DATA))


@dataclass(slots=True)
class Outcome:
    """The sum of the events so far, beside the text."""

    conversation_id: str = ""
    sources: dict[int, dict[str, Any]] = field(default_factory=dict)
    notices: list[dict[str, Any]] = field(default_factory=list)
    usage: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    done: dict[str, Any] | None = None

    def apply(self, event: Mapping[str, Any]) -> None:
        """Take in the next event."""
        fields = {name: value for name, value in event.items() if name not in ENVELOPE}
        match event["type"]:
            case EventType.TURN_STARTED:
                self.conversation_id = event["conversation_id"]
            case EventType.CITATION:
                self.sources[event["number"]] = fields
            case EventType.NOTICE:
                self.notices.append(fields)
            case EventType.USAGE:
                self.usage = fields
            case EventType.ERROR:
                self.error = fields
            case EventType.DONE:
                self.done = fields

    @property
    def finish_reason(self) -> str:
        """`length` where the answer is not whole: a limit ended it."""
        limited = self.done is not None and self.done["status"] == "limit_reached"
        return "length" if limited or any(notice["code"] == TRUNCATED for notice in self.notices) else "stop"

    @property
    def failure(self) -> ServiceError | None:
        """Why there is no answer; None where there is one, or may yet be."""
        if self.done is None or self.done["status"] in ("completed", "limit_reached"):
            return None
        if self.error is None:
            return ServiceError(ErrorCode.CANCELLED, "The turn was cancelled.", retriable=False)
        code = self.error["code"]
        known = ErrorCode(code) if code in ErrorCode else ErrorCode.INTERNAL
        return ServiceError(known, self.error["message"], retriable=self.error["retriable"])

    def extension(self, turn_id: UUID) -> dict[str, Any]:
        """The field `marginalia`."""
        return {
            "turn_id": str(turn_id),
            "conversation_id": self.conversation_id,
            "sources": list(self.sources.values()),
            "cited": self.done["cited"] if self.done else [],
            "notices": self.notices,
        }


def completion_id(turn_id: UUID) -> str:
    """The id of a completion is its turn's."""
    return f"chatcmpl-{turn_id.hex}"


def usage(event: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Usage in OpenAI's fields; what was not reported is absent, nothing is estimated."""
    if event is None:
        return None
    found = {
        "prompt_tokens": event["input_tokens"],
        "completion_tokens": event["output_tokens"],
        "total_tokens": event["total_tokens"],
        "prompt_tokens_details": _detail("cached_tokens", event),
        "completion_tokens_details": _detail("reasoning_tokens", event),
    }
    return {name: value for name, value in found.items() if value is not None} or None


def _detail(name: str, event: Mapping[str, Any]) -> dict[str, Any] | None:
    return {name: event[name]} if event[name] is not None else None


def completion(result: TurnResult, outcome: Outcome, model: str, created: int) -> dict[str, Any]:
    """The answer of a request that does not stream. The text is the stored one."""
    message: dict[str, Any] = {"role": "assistant", "content": result.message.content, "refusal": None}
    if result.message.thinking:
        message["reasoning_content"] = result.message.thinking
    message["marginalia"] = {**outcome.extension(result.turn_id), "sources": result.message.sources}
    answer: dict[str, Any] = {
        "id": completion_id(result.turn_id),
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": outcome.finish_reason}],
    }
    if (tokens := usage(result.usage)) is not None:
        answer["usage"] = tokens
    return answer
