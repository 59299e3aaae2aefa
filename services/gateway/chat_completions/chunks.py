"""A turn's events as the chunks of a streamed completion.

What was sent cannot be taken back. Where another agent asks a round again (`RoundRestarted`), what it says is compared with what the
client has: while they agree only the surplus is sent, and where they differ the stream ends with an error that says so.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import orjson

from services.gateway.chat_completions.outcome import Outcome, completion_id, usage
from services.gateway.problems import openai_error
from services.gateway.sse_frame import data_frame
from shared.contracts.chat import EventType
from shared.contracts.errors import ErrorCode, ServiceError

END = b"data: [DONE]\n\n"


def frame(value: Mapping[str, Any]) -> bytes:
    """One chunk on the wire."""
    return data_frame(orjson.dumps(value))


def error_frame(error: ServiceError) -> bytes:
    """The end of a stream that has no answer; no `[DONE]` follows it."""
    return frame({"error": openai_error(error)})


class Chunks:
    """Takes a turn's events in order. After `ended` nothing is to be sent."""

    def __init__(self, turn_id: UUID, model: str, created: int, *, include_usage: bool) -> None:
        self.ended = False
        self._turn_id = turn_id
        self._base = {"id": completion_id(turn_id), "object": "chat.completion.chunk", "created": created, "model": model}
        self._include_usage = include_usage
        self._outcome = Outcome()
        self._said: list[str] = []
        # What the client has that the round asked again has not said yet.
        self._owed = ""

    def take(self, event: Mapping[str, Any]) -> bytes:
        """The frames that an event comes to; often none."""
        if self.ended:
            return b""
        self._outcome.apply(event)
        match event["type"]:
            case EventType.TURN_STARTED:
                return self._delta(role="assistant", content="")
            case EventType.THINKING_DELTA:
                return self._delta(reasoning_content=event["text"])
            case EventType.TEXT_DELTA:
                return self._text(event["text"])
            case EventType.ROUND_RESTARTED:
                self._restart(event["content_characters"])
            case EventType.DONE:
                return self._end()
        return b""

    def _text(self, text: str) -> bytes:
        common = min(len(text), len(self._owed))
        if text[:common] != self._owed[:common]:
            return self._differs()
        self._owed = self._owed[common:]
        self._said.append(text)
        return self._delta(content=text[common:]) if len(text) > common else b""

    def _restart(self, kept: int) -> None:
        whole = "".join(self._said) + self._owed
        self._said, self._owed = [whole[:kept]], whole[kept:]

    def _differs(self) -> bytes:
        self.ended = True
        return error_frame(
            ServiceError(
                ErrorCode.AGENT_LOST, "The answer had to be begun anew and now differs from what was sent; ask again.", retriable=True
            )
        )

    def _end(self) -> bytes:
        failure = self._outcome.failure
        if failure is None and self._owed:
            return self._differs()
        self.ended = True
        if failure is not None:
            return error_frame(failure)
        last = self._chunk([_choice({}, self._outcome.finish_reason)], marginalia=self._outcome.extension(self._turn_id))
        tokens = usage(self._outcome.usage) if self._include_usage else None
        return last + (frame({**self._base, "choices": [], "usage": tokens}) if tokens is not None else b"") + END

    def _delta(self, **delta: str) -> bytes:
        return self._chunk([_choice(delta, None)])

    def _chunk(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        chunk = {**self._base, "choices": choices, **more}
        return frame({**chunk, "usage": None} if self._include_usage else chunk)


def _choice(delta: dict[str, str], finish_reason: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
