"""What is meant by the text behind an `@`: notes of the session's workspace, of another one, or the name of one (MN-2).

tea            workspaces with `tea` in their names, notes of the session's workspace
work           where a workspace is called just that: its notes
work/tea       the notes of `work` that `tea` finds
"my work"/tea  the same, for a name with spaces
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from services.notes.note_path import nfc
from services.notes.search_key import search_key
from services.notes.workspaces import Readable

FUZZY_LETTERS_MIN = 3


@dataclass(frozen=True, slots=True)
class MentionQuery:
    """`workspaces` to be offered, and the one whose notes are looked through for `text`; None where none are."""

    workspaces: list[Readable]
    notes_of: Readable | None
    text: str


def understood(query: str, session: Readable, readable: Sequence[Readable]) -> MentionQuery:
    """The query's meaning for an account that may read these workspaces."""
    query = nfc(query).strip()
    names = _Names(readable)
    for name, rest, is_complete in _readings(query):
        named = names.of(name, exactly=not is_complete)
        if len(named) == 1:
            return MentionQuery([], named[0], rest)
        if named:  # a title that several have: by their directories they can be told apart
            return MentionQuery(named, None, rest)
    text = query.removeprefix('"').removesuffix('"') if query.startswith('"') else query
    return MentionQuery(_resembling(search_key(text), readable), session, text)


def completion(workspace: Readable) -> str:
    """What leads to a workspace's notes when it stands behind the `@`."""
    name = workspace.directory
    return f'"{name}"/' if name.startswith('"') or any(map(str.isspace, name)) else f"{name}/"


def _readings(query: str) -> Iterator[tuple[str, str, bool]]:
    """The names that may be meant, with what is looked for there, and whether the name is said to be at its end."""
    if query.startswith('"'):
        if (end := query.find('"/', 1)) > 0:
            yield query[1:end], query[end + 2 :], True
        elif query.endswith('"') and len(query) > 1:
            yield query[1:-1], "", True
    yield query, "", False
    slash = query.rfind("/")
    while slash > 0:
        yield query[:slash], query[slash + 1 :], True
        slash = query.rfind("/", 0, slash)


class _Names:
    """Workspaces by what they are called."""

    def __init__(self, readable: Sequence[Readable]) -> None:
        self._by_name: list[dict[str, list[Readable]]] = [{}, {}, {}, {}]
        for one in readable:
            names = one.directory, one.title, search_key(one.directory), search_key(one.title)
            for named, name in zip(self._by_name, names, strict=True):
                named.setdefault(name, []).append(one)

    def of(self, name: str, *, exactly: bool) -> list[Readable]:
        """By directory before by title; in another case only where the name is complete."""
        if not name:
            return []
        exact, alike = self._by_name[:2], self._by_name[2:]
        found = next((named[name] for named in exact if name in named), [])
        if found or exactly:
            return found
        key = search_key(name)
        return next((named[key] for named in alike if key in named), [])


def _resembling(key: str, readable: Sequence[Readable]) -> list[Readable]:
    """Those whose directory or title has the key; then those that have its letters in this order, from the beginning of a word on."""
    if not key:
        return []
    names = {one.id: (search_key(one.directory), search_key(one.title)) for one in readable}
    holding = [one for one in readable if any(key in name for name in names[one.id])]
    holding.sort(key=lambda one: not any(name.startswith(key) for name in names[one.id]))
    if len(key) < (FUZZY_LETTERS_MIN if key.isascii() else 2):
        return holding
    return holding + [one for one in readable if one not in holding and any(_has_in_order(name, key) for name in names[one.id])]


def _has_in_order(name: str, letters: str) -> bool:
    position = -1
    for number, letter in enumerate(letters.replace(" ", "")):
        position = name.find(letter, position + 1)
        while number == 0 and position > 0 and name[position - 1].isalnum():
            position = name.find(letter, position + 1)
        if position < 0:
            return False
    return True
