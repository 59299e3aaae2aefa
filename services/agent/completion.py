"""Reading a chat completion: payloads to deltas and whole tool calls. Pure; no I/O.

Servers that call themselves compatible differ in almost everything; what is tolerated here is what was seen of them (docs/providers.md).
An answer that was not streamed is read the same way, as one payload.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from services.agent.characters import WholeCharacters
from services.agent.payloads import MalformedStream
from services.agent.provider_failure import SaidError, said_error
from services.agent.tool_calls import DEPRECATED_INDEX, Call, CallArguments, Calls, CallStarted

# An endless answer is stopped; the longest real ones have about a tenth of this.
ANSWER_CHARACTERS_MAX = 1_500_000
# What an answer that comes at once is cut into, so that each event of the turn fits into a message.
PIECE_CHARACTERS_MAX = 64 * 1024
# Counts of tokens beyond this are no counts.
COUNT_MAX = 1_000_000_000
CUT_OFF_REASONS = frozenset({"length", "model_length", "max_tokens"})
FAILED_REASONS = frozenset({"insufficient_system_resource", "aborted", "error"})
# The names under which thinking comes; it is sent back under the same. `content`: as a part of it.
THINKING_FIELDS = ("reasoning_content", "reasoning")
THINKING_IN_CONTENT = "content"


class ProviderSaidError(Exception):
    """An error where the completion, or a part of it, should be."""

    def __init__(self, said: SaidError) -> None:
        super().__init__(said.message)
        self.said = said


@dataclass(frozen=True, slots=True)
class Thinking:
    """A piece of reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer."""

    text: str


type Delta = Thinking | Text | CallStarted | CallArguments


class Completion:
    """One completion as it grows. Feed it payloads; it says what is new, and in the end what it was.

    `taken` are the ids of earlier calls of the branch. `usage` holds the counts as the provider reported them last, under its names.
    """

    def __init__(self, taken: frozenset[str] = frozenset()) -> None:
        self._taken = taken
        self.restart()

    def restart(self) -> None:
        """Forget a request that brought nothing, before the next one is made."""
        self.finish_reason: str | None = None
        self.finished = False
        self.usage: dict[str, Any] | None = None
        self.thinking_field = THINKING_FIELDS[0]
        # In pieces, joined when asked for: a long answer has many thousand.
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._characters = 0
        self._whole_text = WholeCharacters()
        self._whole_thinking = WholeCharacters()
        self._calls = Calls(self._taken)
        self._has_tool_calls = False

    def feed(self, payload: str) -> list[Delta]:
        """The deltas in one payload: a chunk, or a whole answer.

        Raises:
            MalformedStream: it is neither.
            ProviderSaidError: it is an error frame.
        """
        if self.finished:
            return []
        if payload.startswith("[DONE]"):
            self.finished = True
            return []
        chunk = _json(payload)
        if (said := said_error(chunk)) is not None:
            raise ProviderSaidError(said)
        if not isinstance(chunk, dict):
            raise MalformedStream("a chunk is not an object")
        choices = chunk.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        if "error" in choice and (said := said_error({"error": choice["error"]})) is not None:
            raise ProviderSaidError(said)
        self._take_usage(chunk, choice)
        deltas = list(self._read_choice(choice))
        # Only after the delta: the last chunk may carry content or calls.
        if isinstance(reason := choice.get("finish_reason"), str) and reason:
            self.finish_reason = reason
        return deltas

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(self._text)

    @property
    def thinking(self) -> str:
        """The reasoning so far."""
        return "".join(self._thinking)

    @property
    def calls(self) -> list[Call]:
        """The tool calls that have a name, in the order in which they began."""
        return self._calls.named

    def call(self, position: int) -> Call:
        """The call that `CallStarted` and `CallArguments` name by its position."""
        return self._calls.at(position)

    @property
    def begun(self) -> bool:
        """Whether there is anything that was told."""
        return bool(self._text or self._thinking or self.calls)

    @property
    def ended_properly(self) -> bool:
        """Whether the provider said that it was done, rather than just closing the connection."""
        return self.finished or self.finish_reason is not None

    @property
    def cut_off(self) -> bool:
        """Whether the model ran into its limit of length: the text is not all, and no call may be run."""
        return self.finish_reason in CUT_OFF_REASONS

    def _take_usage(self, chunk: dict[str, Any], choice: dict[str, Any]) -> None:
        x_groq = chunk.get("x_groq")
        for holder in (chunk, choice, x_groq):
            if isinstance(holder, dict) and isinstance(usage := holder.get("usage"), dict) and (counts := _counts(usage)):
                self.usage = counts

    def _read_choice(self, choice: dict[str, Any]) -> Iterator[Delta]:
        if isinstance(delta := choice.get("delta"), dict):
            yield from self._read(delta, whole=False)
        elif isinstance(message := choice.get("message"), dict) and not self.begun:
            yield from self._read(message, whole=True)
            self.finished = True

    def _read(self, delta: dict[str, Any], *, whole: bool) -> Iterator[Delta]:
        thinking, text = self._texts(delta)
        thinking, text = self._whole_thinking.of(thinking), self._whole_text.of(text)
        self._characters += len(thinking) + len(text)
        if self._characters > ANSWER_CHARACTERS_MAX:
            raise MalformedStream("the answer is too long")
        for piece in _pieces(thinking):
            self._thinking.append(piece)
            yield Thinking(piece)
        for piece in _pieces(text):
            self._text.append(piece)
            yield Text(piece)
        if "tool_calls" in delta or "function_call" in delta:
            yield from self._calls.read(self._call_entries(delta), whole=whole)

    def _call_entries(self, delta: dict[str, Any]) -> list[Any]:
        entries = delta.get("tool_calls")
        entries = [entries] if isinstance(entries, dict) else entries
        if isinstance(entries, list) and entries:
            self._has_tool_calls = True
            return entries
        # Deprecated; a server that sends both says the same twice.
        function = delta.get("function_call")
        return [{"index": DEPRECATED_INDEX, "function": function}] if isinstance(function, dict) and not self._has_tool_calls else []

    def _texts(self, delta: dict[str, Any]) -> tuple[str, str]:
        """Reasoning and text of a delta. Reasoning that comes under both names is the same twice."""
        thinking = ""
        for name in THINKING_FIELDS:
            if isinstance(value := delta.get(name), str) and value:
                thinking, self.thinking_field = value, name
                break
        content, refusal = delta.get("content"), _string(delta.get("refusal"))
        if content is None or isinstance(content, str):
            return thinking, (content or "") + refusal
        text = ""
        for part in content if isinstance(content, list) else [content]:
            if isinstance(part, dict):
                thought = _thought(part)
                self.thinking_field = THINKING_IN_CONTENT if thought else self.thinking_field
                thinking += thought
                text += _string(part.get("refusal")) + (_string(part.get("text")) if not thought else "")
        return thinking, text + refusal


def _thought(part: dict[str, Any]) -> str:
    """What a part of the content holds of reasoning: text, or parts again."""
    inner = part.get("thinking")
    if isinstance(inner, list):
        return "".join(_string(item.get("text")) for item in inner if isinstance(item, dict))
    if isinstance(inner, str):
        return inner
    return _string(part.get("text")) if part.get("type") in ("thinking", "reasoning") else ""


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _pieces(text: str) -> list[str]:
    if len(text) <= PIECE_CHARACTERS_MAX:
        return [text] if text else []
    return [text[start : start + PIECE_CHARACTERS_MAX] for start in range(0, len(text), PIECE_CHARACTERS_MAX)]


def _counts(usage: dict[str, Any]) -> dict[str, Any]:
    """The counts of a report, those one level below included, without what cannot be one."""
    counts: dict[str, Any] = {}
    for name, value in usage.items():
        if isinstance(value, dict):
            if inner := {key: count for key, count in value.items() if _is_count(count)}:
                counts[name] = inner
        elif _is_count(value):
            counts[name] = value
    return counts


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= COUNT_MAX


def _json(payload: str) -> Any:
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(payload)  # slower, but takes half a surrogate pair, which some providers send
    except (RecursionError, ValueError):
        raise MalformedStream("a chunk is not JSON") from None
