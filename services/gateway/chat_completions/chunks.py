"""A turn's events as the chunks of a streamed completion.

What was sent cannot be taken back. Where another agent asks a round again (`RoundRestarted`), what it says is compared with what the
client has: while they agree only the surplus is sent. Where the text differs the stream ends with an error that says so. Where only the
thinking does, the answer still stands: what else the round thinks is left out, so that the client has one train of thought, not two.
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


class Told:
    """The words of one kind that a client has. After `rewind` the turn says some of them again."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0
        # What the client has that the turn has not said again yet.
        self.owed = ""

    @property
    def position(self) -> int:
        """How much of what the client has the turn has said."""
        return self._length - len(self.owed)

    def rewind(self, position: int) -> None:
        """The turn goes on from here."""
        self._pieces = ["".join(self._pieces)]
        self.owed = self._pieces[0][position:]

    def surplus(self, words: str) -> str | None:
        """What of the turn's next words the client has not yet; None, and nothing is changed, where it has others in their place."""
        common = min(len(words), len(self.owed))
        if words[:common] != self.owed[:common]:
            return None
        self.owed = self.owed[common:]
        self._pieces.append(words[common:])
        self._length += len(words) - common
        return words[common:]


class Chunks:
    """Takes a turn's events in order. After `ended` nothing is to be sent."""

    def __init__(self, turn_id: UUID, model: str, created: int, *, include_usage: bool) -> None:
        self.ended = False
        self._turn_id = turn_id
        self._base = {"id": completion_id(turn_id), "object": "chat.completion.chunk", "created": created, "model": model}
        self._include_usage = include_usage
        self._outcome = Outcome()
        self._text = Told()
        self._thinking = Told()
        self._thinks_otherwise = False
        # The entries of the activity, as `RoundRestarted` counts them: where in the thinking each began, and whether it is thinking.
        self._activity: list[tuple[int, bool]] = []

    def take(self, event: Mapping[str, Any]) -> bytes:
        """The frames that an event comes to; often none."""
        if self.ended:
            return b""
        self._outcome.apply(event)
        match event["type"]:
            case EventType.TURN_STARTED:
                return self._delta(role="assistant", content="")
            case EventType.THINKING_DELTA:
                return self._think(event["text"])
            case EventType.TEXT_DELTA:
                return self._say(event["text"])
            case EventType.TOOL_CALL_START:
                self._activity.append((self._thinking.position, False))
            case EventType.TOOL_CALL_END:
                self._end_thinking()
            case EventType.ROUND_RESTARTED:
                self._restart(event["content_characters"], event["activity_entries"])
            case EventType.DONE:
                return self._end()
        return b""

    def _say(self, words: str) -> bytes:
        surplus = self._text.surplus(words)
        if surplus is None:
            return self._differs()
        return self._delta(content=surplus) if surplus else b""

    def _think(self, words: str) -> bytes:
        if not self._activity or not self._activity[-1][1]:
            self._activity.append((self._thinking.position, True))
        surplus = None if self._thinks_otherwise else self._thinking.surplus(words)
        self._thinks_otherwise = surplus is None
        return self._delta(reasoning_content=surplus) if surplus else b""

    def _end_thinking(self) -> None:
        """Calls end when their round has said all: the next one's thinking has nothing to be compared with."""
        self._thinks_otherwise = False
        self._thinking.owed = ""

    def _restart(self, characters: int, entries: int) -> None:
        began = self._activity[entries][0] if entries < len(self._activity) else self._thinking.position
        del self._activity[entries:]
        self._text.rewind(characters)
        self._thinking.rewind(began)
        self._thinks_otherwise = False

    def _differs(self) -> bytes:
        self.ended = True
        return error_frame(
            ServiceError(
                ErrorCode.AGENT_LOST, "The answer had to be begun anew and now differs from what was sent; ask again.", retriable=True
            )
        )

    def _end(self) -> bytes:
        failure = self._outcome.failure
        if failure is None and self._text.owed:
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
