"""Reading a streamed chat completion: bytes to payloads, payloads to deltas and whole tool calls. Pure; no I/O.

Servers that call themselves compatible differ in almost everything; what is tolerated here is what was seen of them: fragments without
an index, whole arguments in one piece, objects for arguments, ids that come late or never, `reasoning` beside `reasoning_content`,
usage in three places, error frames in a 200, a missing finish reason.
"""

import codecs
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

LINE_CHARACTERS_MAX = 16 * 1024 * 1024
# An endless answer is stopped; the longest real ones have about a tenth of this.
ANSWER_CHARACTERS_MAX = 4_000_000
# Each event of a turn, the whole arguments of a call among them, must fit into a message many times over.
ARGUMENTS_CHARACTERS_MAX = 256 * 1024


class MalformedStream(Exception):
    """What the provider sent cannot be read as a completion; the message says why, without quoting it."""


class ProviderSaidError(Exception):
    """An error frame inside a stream; the message is the provider's own."""


@dataclass(frozen=True, slots=True)
class Thinking:
    """A piece of reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A tool call has a name now."""

    position: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A fragment of a call's arguments."""

    position: int
    fragment: str


type Delta = Thinking | Text | CallStarted | CallArguments


@dataclass(slots=True)
class Call:
    """A tool call as it is put together. `arguments` is raw text until it is whole; `id` is unique within the turn."""

    position: int
    id: str = ""
    provider_id: str = ""
    name: str = ""
    arguments: str = ""
    announced: bool = False


class PayloadReader:
    """Splits the bytes of a server-sent stream into `data` payloads. Comments, other fields and line-end styles fall away here."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self._rest = ""

    def feed(self, data: bytes) -> list[str]:
        """The payloads that are complete with these bytes, which may end anywhere, even inside a character.

        Raises:
            MalformedStream: not UTF-8, or a line without end.
        """
        try:
            text = self._rest + self._decoder.decode(data)
        except UnicodeDecodeError:
            raise MalformedStream("the stream is not UTF-8") from None
        if len(text) > LINE_CHARACTERS_MAX:
            raise MalformedStream("a line of the stream is too long")
        # A lone CR at the end may be the first half of CRLF.
        held = "\r" if text.endswith("\r") else ""
        lines = text[: len(text) - len(held)].replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._rest = lines.pop() + held
        return [line[5:].removeprefix(" ") for line in lines if line.startswith("data:")]

    def close(self) -> list[str]:
        """What a stream without a final line end still holds."""
        rest, self._rest = self._rest.rstrip("\r"), ""
        return [rest[5:].removeprefix(" ")] if rest.startswith("data:") else []


class WholeCharacters:
    """Text that comes in pieces, made of whole characters: the halves of a surrogate pair may come in two pieces."""

    def __init__(self) -> None:
        self._half = ""

    def of(self, piece: str) -> str:
        """What can be passed on of `piece`, together with a half that was held back."""
        if not piece or (not self._half and piece.isascii() and "\0" not in piece):
            return piece
        text, self._half = self._half + piece, ""
        if "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return storable(text)


def storable(text: str) -> str:
    """The text with what no database or wire can carry (NUL, half a surrogate pair) replaced by the replacement character."""
    if text.isascii():
        return text.replace("\0", "\ufffd")
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").replace("\0", "\ufffd")


@dataclass(slots=True)
class Completion:
    """One completion as it grows. Feed it payloads; it says what is new, and in the end what it was.

    `taken` are the ids of earlier calls of the turn: some providers count anew in each answer.
    """

    taken: frozenset[str] = frozenset()
    finish_reason: str | None = None
    finished: bool = False
    usage: dict[str, Any] | None = None
    # In pieces, joined when asked for: a long answer has many thousand.
    _text: list[str] = field(default_factory=list)
    _thinking: list[str] = field(default_factory=list)
    _characters: int = 0
    _whole_text: WholeCharacters = field(default_factory=WholeCharacters)
    _whole_thinking: WholeCharacters = field(default_factory=WholeCharacters)
    _calls: list[Call] = field(default_factory=list)
    _by_index: dict[int, Call] = field(default_factory=dict)

    def feed(self, payload: str) -> list[Delta]:
        """The deltas in one payload.

        Raises:
            MalformedStream: it is no chunk.
            ProviderSaidError: it is an error frame.
        """
        if payload.startswith("[DONE]"):
            self.finished = True
            return []
        chunk = _json(payload)
        if not isinstance(chunk, dict):
            raise MalformedStream("a chunk is not an object")
        if (said := error_message(chunk)) is not None:
            raise ProviderSaidError(said)
        self._take_usage(chunk)
        choices = chunk.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            return []
        choice = choices[0]
        delta = choice.get("delta")
        deltas = list(self._read(delta)) if isinstance(delta, dict) else []
        # Only after the delta: the last chunk may carry content or calls.
        if isinstance(reason := choice.get("finish_reason"), str):
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
        return [call for call in self._calls if call.announced]

    def call(self, position: int) -> Call:
        """The call that `CallStarted` and `CallArguments` name by its position."""
        return self._calls[position]

    @property
    def ended_properly(self) -> bool:
        """Whether the provider said that it was done, rather than just closing the connection."""
        return self.finished or self.finish_reason is not None

    def _take_usage(self, chunk: dict[str, Any]) -> None:
        choices = chunk.get("choices")
        first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        x_groq = chunk.get("x_groq")
        for holder in (chunk, first, x_groq if isinstance(x_groq, dict) else {}):
            if isinstance(usage := holder.get("usage"), dict):
                self.usage = usage

    def _read(self, delta: dict[str, Any]) -> Iterator[Delta]:
        thinking, text = _texts(delta)
        thinking, text = self._whole_thinking.of(thinking), self._whole_text.of(text)
        self._count(len(thinking) + len(text))
        if thinking:
            self._thinking.append(thinking)
            yield Thinking(thinking)
        if text:
            self._text.append(text)
            yield Text(text)
        fragments = delta.get("tool_calls")
        if isinstance(fragments, dict):
            fragments = [fragments]
        for fragment in fragments if isinstance(fragments, list) else []:
            if isinstance(fragment, dict):
                yield from self._read_call(fragment)

    def _read_call(self, fragment: dict[str, Any]) -> Iterator[Delta]:
        function = fragment.get("function")
        function = function if isinstance(function, dict) else {}
        name = storable(str(function.get("name") or ""))
        call = self._call_of(fragment, name)
        if name and not call.name:
            call.name = name
        if call.name and not call.announced:
            call.announced = True
            call.id = self._unique(call.provider_id or f"call_{call.position}")
            yield CallStarted(call.position, call.id, call.name)
            if call.arguments:  # they came before the name
                yield CallArguments(call.position, call.arguments)
        arguments = function.get("arguments")
        piece = arguments if isinstance(arguments, str) else "" if arguments is None else json.dumps(arguments)
        piece = storable(piece)
        if piece:
            if len(call.arguments) + len(piece) > ARGUMENTS_CHARACTERS_MAX:
                raise MalformedStream("the arguments of a tool call are too long")
            call.arguments += piece
            if call.announced:
                yield CallArguments(call.position, piece)

    def _call_of(self, fragment: dict[str, Any], name: str) -> Call:
        identifier = storable(str(fragment.get("id") or ""))
        index = fragment.get("index")
        index = index if isinstance(index, int) else None
        known = next((call for call in self._calls if identifier and call.provider_id == identifier), None)
        if known is None and index is not None:
            known = self._by_index.get(index)
            if known is not None and identifier and known.provider_id not in ("", identifier) and name:
                known = None  # a new call on a used index
        elif known is None and self._calls and not name:
            known = self._calls[-1]
        if known is None:
            known = Call(position=len(self._calls))
            self._calls.append(known)
        if index is not None:
            self._by_index[index] = known
        if identifier:
            known.provider_id = known.provider_id or identifier
        return known

    def _count(self, characters: int) -> None:
        self._characters += characters
        if self._characters > ANSWER_CHARACTERS_MAX:
            raise MalformedStream("the answer is too long")

    def _unique(self, identifier: str) -> str:
        used = self.taken | {call.id for call in self._calls}
        number, candidate = 1, identifier
        while candidate in used:
            number += 1
            candidate = f"{identifier}-{number}"
        return candidate


def _json(payload: str) -> Any:
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(payload)  # slower, but takes half a surrogate pair, which some providers send
    except (json.JSONDecodeError, RecursionError, ValueError):
        raise MalformedStream("a chunk is not JSON") from None


def error_message(body: Any) -> str | None:
    """The provider's own words where `body` is an error of one of the known shapes, else None."""
    said = _error_words(body)
    return None if said is None else storable(said)


def _error_words(body: Any) -> str | None:
    if not isinstance(body, dict):
        return None
    error = body.get("error")
    if isinstance(error, dict):
        return str(error.get("message") or error.get("code") or "the provider reported an error")
    if isinstance(error, str) and error:
        return error
    if body.get("object") == "error":
        return str(body.get("message") or "the provider reported an error")
    return None


def _texts(delta: dict[str, Any]) -> tuple[str, str]:
    """Reasoning and text of a delta; content may be a list of parts."""
    thinking = delta.get("reasoning_content") or delta.get("reasoning")
    thinking = thinking if isinstance(thinking, str) else ""
    content = delta.get("content")
    if isinstance(content, str):
        return thinking, content
    text = ""
    for part in content if isinstance(content, list) else []:
        if not isinstance(part, dict):
            continue
        if isinstance(inner := part.get("thinking"), list):
            thinking += "".join(str(item.get("text") or "") for item in inner if isinstance(item, dict))
        elif isinstance(piece := part.get("text"), str):
            text += piece
    return thinking, text
