"""Putting tool calls together from the fragments in which they come (ON-4). Pure; no I/O.

A fragment belongs to a call by its id where that is known, else by its index, else it goes to the call that was begun last. A call
begins with a name: one with another id, one on an unknown index, or one that comes when the call it would belong to has whole arguments
already. What comes without a name never begins a call; where two objects are glued together in this way the arguments are not JSON, and
nothing is executed.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from services.agent.characters import WholeCharacters, storable
from services.agent.payloads import MalformedStream

# Each event of a turn, the whole arguments of a call among them, must fit into a message many times over. Of all calls of an answer.
CHARACTERS_MAX = 256 * 1024
CALLS_MAX = 128
LEVELS_MAX = 64
# An id that is longer than any real one is replaced by one of ours.
ID_CHARACTERS_MAX = 500
# The index of the deprecated `function_call`, of which there is one.
DEPRECATED_INDEX = -1


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


@dataclass(slots=True)
class Call:
    """A tool call as it is put together. `arguments` is raw text until it is whole; `id` is unique within the branch.

    `extra_content` is what some providers want back with the call as it was (Gemini's thought signature).
    """

    position: int
    id: str = ""
    provider_id: str = ""
    name: str = ""
    arguments: str = ""
    extra_content: dict[str, Any] | None = None
    whole_characters: WholeCharacters = field(default_factory=WholeCharacters)

    @property
    def announced(self) -> bool:
        """Whether its `CallStarted` has been given out."""
        return self.id != ""


@dataclass(frozen=True, slots=True)
class Fragment:
    """One entry of `tool_calls`, with what is of the wrong type left out; null and "" are nothing."""

    id: str
    index: int | None
    name: str
    arguments: str
    extra_content: dict[str, Any] | None

    @classmethod
    def of(cls, value: dict[str, Any]) -> "Fragment":
        """Read it."""
        function = value.get("function")
        function = function if isinstance(function, dict) else {}
        identifier, index, name, extra = value.get("id"), value.get("index"), function.get("name"), value.get("extra_content")
        return cls(
            id=storable(str(identifier)) if isinstance(identifier, str | int) and identifier else "",
            index=index if isinstance(index, int) and not isinstance(index, bool) else None,
            name=storable(name) if isinstance(name, str) else "",
            arguments=_arguments(function.get("arguments")),
            extra_content=extra if isinstance(extra, dict) and _can_be_kept(extra) else None,
        )

    @property
    def size(self) -> int:
        """Characters, what they stand for included."""
        extra = 0 if self.extra_content is None else len(orjson.dumps(self.extra_content))
        return len(self.id) + len(self.name) + len(self.arguments) + extra


class Calls:
    """The calls of one answer. `taken` are ids that are in use: some providers count anew in each answer."""

    def __init__(self, taken: frozenset[str]) -> None:
        self._taken = taken
        self._calls: list[Call] = []
        self._by_id: dict[str, Call] = {}
        self._by_index: dict[int, Call] = {}
        self._characters = 0

    @property
    def named(self) -> list[Call]:
        """Those that have a name, in the order in which they began."""
        return [call for call in self._calls if call.announced]

    def at(self, position: int) -> Call:
        """The call that `CallStarted` and `CallArguments` name by its position."""
        return self._calls[position]

    def read(self, entries: list[Any], *, whole: bool) -> Iterator[CallStarted | CallArguments]:
        """What is new with these entries of `tool_calls`; `whole`: each is a call by itself, as in an answer that was not streamed.

        Raises:
            MalformedStream: more than any answer has.
        """
        for entry in entries:
            if isinstance(entry, dict):
                yield from self._take(Fragment.of(entry), whole=whole)

    def _take(self, fragment: Fragment, *, whole: bool) -> Iterator[CallStarted | CallArguments]:
        self._characters += fragment.size
        if self._characters > CHARACTERS_MAX:
            raise MalformedStream("the arguments of a tool call are too long")
        call = None if whole else self._belongs_to(fragment)
        piece = "" if call is not None and _repeats(call, fragment) else fragment.arguments
        call = call or self._begin()
        if fragment.index is not None:
            self._by_index[fragment.index] = call
        if fragment.id and not call.provider_id:
            call.provider_id = fragment.id
            self._by_id.setdefault(fragment.id, call)
        call.name = call.name or fragment.name
        call.extra_content = fragment.extra_content or call.extra_content
        if call.name and not call.announced:
            call.id = self._unique(call.provider_id if _fits_into_an_address(call.provider_id) else f"call_{call.position}")
            yield CallStarted(call.position, call.id, call.name)
            if call.arguments:  # they came before the name
                yield CallArguments(call.position, call.arguments)
        piece = call.whole_characters.of(piece)
        call.arguments += piece
        if piece and call.announced:
            yield CallArguments(call.position, piece)

    def _belongs_to(self, fragment: Fragment) -> Call | None:
        """The call that the fragment goes on with, or None where it begins another one."""
        by_id = self._by_id.get(fragment.id)
        by_index = None if fragment.index is None else self._by_index.get(fragment.index)
        if by_index is not None and fragment.id in ("", by_index.provider_id):
            call: Call | None = by_index
        elif by_id is not None and (by_index is not None or fragment.index is None or not fragment.name):
            call = by_id
        elif fragment.index is not None:
            call = by_index
        else:
            call = self._calls[-1] if self._calls else None
        return None if call is not None and _begins_another(call, fragment) else call

    def _begin(self) -> Call:
        if len(self._calls) == CALLS_MAX:
            raise MalformedStream("an answer has too many tool calls")
        call = Call(position=len(self._calls))
        self._calls.append(call)
        self._by_index.setdefault(call.position, call)  # what it is where fragments name no index before
        return call

    def _unique(self, identifier: str) -> str:
        used = self._taken | {call.id for call in self._calls}
        number, candidate = 1, identifier
        while candidate in used:
            number += 1
            candidate = f"{identifier}-{number}"
        return candidate


def _fits_into_an_address(identifier: str) -> bool:
    """Whether a client can name the call in a path: programs on the way resolve parts that are dots, and none takes any length."""
    parts = identifier.replace("\\", "/").split("/")
    return 0 < len(identifier) <= ID_CHARACTERS_MAX and identifier.isprintable() and not {".", ".."} & {part.strip() for part in parts}


def _begins_another(call: Call, fragment: Fragment) -> bool:
    """Whether the fragment begins a call of its own, rather than going on with `call`."""
    if not fragment.name or not call.name:
        return False
    same_id = fragment.id == call.provider_id != ""
    if fragment.id and call.provider_id and not same_id:
        return True
    if fragment.index is None and not same_id and fragment.name != call.name:
        return True
    return bool(fragment.arguments) and is_whole(call.arguments) and not _repeats(call, fragment)


def _repeats(call: Call, fragment: Fragment) -> bool:
    """Whether this is the call once more, as a whole, after its fragments."""
    return bool(fragment.id and fragment.name) and fragment.arguments == call.arguments and is_whole(call.arguments)


def is_whole(arguments: str) -> bool:
    """Whether the text is one JSON object."""
    if not arguments.rstrip().endswith("}"):
        return False
    try:
        return isinstance(orjson.loads(arguments), dict)
    except orjson.JSONDecodeError:
        return False


def _arguments(value: Any) -> str:
    """Text is a fragment; anything else is the whole of it. An empty object is nothing yet: some servers put it before the fragments."""
    if isinstance(value, str):
        return value
    if value is None or value == {}:
        return ""
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # half a surrogate pair, a number beyond 64 bits: not to be executed
        return "\ufffd"


def _can_be_kept(value: dict[str, Any]) -> bool:
    """Whether it can be stored and sent back exactly as it is."""
    try:
        return is_passable(value) and bool(orjson.dumps(value))
    except TypeError:
        return False


def arguments_of(call: Call) -> dict[str, Any] | None:
    """A call's arguments as the object they should be; None where they are not whole (ON-4). No arguments at all are an empty object."""
    value = parsed(call.arguments or "{}")
    return value if isinstance(value, dict) else None


def parsed(text: str) -> Any:
    """JSON, or the text itself where it is none, or holds what cannot be stored or passed on (NUL, dozens of levels)."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    return value if is_passable(value) else text


def is_passable(value: Any) -> bool:
    """Whether this JSON comes through every column and reader on the way: no NUL in it, and not too many levels (the strictest stop at
    some 200, and it is put into more).
    """
    level = [value]
    for _ in range(LEVELS_MAX):
        if any(isinstance(one, str) and "\0" in one for one in level):
            return False
        inside = [one for one in level if isinstance(one, (dict, list))]
        if not inside:
            return True
        level = [item for one in inside for item in (itertools.chain(one, one.values()) if isinstance(one, dict) else one)]
    return False
