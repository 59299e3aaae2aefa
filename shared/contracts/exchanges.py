r"""How an exchange (a question and its answer) is marked where it stands in a note.

    <!-- marginalia:exchange 0f8c… -->
    …
    <!-- /marginalia:exchange 0f8c… -->

Each mark is a line of its own, an HTML comment to Markdown, and names the message that answered. The end is the last such line with the
same id: the texts in between are as they were, and may hold marks of other exchanges, or one that looks like the end.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

_MARK = re.compile(
    r"^\ufeff?(?P<line><!-- (?P<end>/?)marginalia:exchange (?P<id>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}) -->[ \t]*\r?(?:\n|\Z))",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Exchange:
    """Where an exchange stands, in code points: `content[start:end]` with its marks, `content[inner_start:inner_end]` without."""

    message_id: UUID
    start: int
    inner_start: int
    inner_end: int
    end: int


def begin_mark(message_id: UUID) -> str:
    """The line before."""
    return f"<!-- marginalia:exchange {message_id} -->"


def end_mark(message_id: UUID) -> str:
    """The line after."""
    return f"<!-- /marginalia:exchange {message_id} -->"


def exchanges(content: str) -> Iterator[Exchange]:
    """The exchanges of a note's text, in order. One whose end was removed reaches to the end of the note."""
    marks = list(_MARK.finditer(content))
    ends = {mark["id"]: mark for mark in marks if mark["end"]}
    position = 0
    for mark in marks:
        if mark["end"] or mark.start("line") < position:
            continue
        end = ends.get(mark["id"])
        inner_end, position = (len(content),) * 2 if end is None or end.start("line") < mark.start("line") else end.span("line")
        yield Exchange(UUID(mark["id"]), *mark.span("line"), inner_end, position)


def whole_sections(content: str) -> Iterator[Exchange]:
    """What surely belongs to one message: from its begin mark to the next mark with its id, which is an end; none within another."""
    marks = list(_MARK.finditer(content))
    following: dict[str, re.Match[str]] = {}
    next_of: list[re.Match[str] | None] = []
    for mark in reversed(marks):
        next_of.append(following.get(mark["id"]))
        following[mark["id"]] = mark
    position = 0
    for mark, after in zip(marks, reversed(next_of), strict=True):
        if not mark["end"] and after is not None and after["end"] and mark.start("line") >= position:
            position = after.end("line")
            yield Exchange(UUID(mark["id"]), *mark.span("line"), after.start("line"), position)
