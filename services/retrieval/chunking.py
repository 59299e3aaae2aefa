"""From a note to chunks, by the structure of its Markdown.

A chunk is an exact slice of the note's content, so that a citation can point at it. It never crosses a heading, holds whole blocks
(paragraphs, lists, code, tables) up to about `TARGET` characters, and cuts a block only where it alone is longer than `MAXIMUM`: lists
between their items, everything else between lines, a line that is too long itself at a space or a full stop. Headings are not repeated
in the text (each chunk has its heading path), except where nothing stands below one. Front matter is no text, except where it is the whole
note. An exchange that was written into the note (MN-9) is cut by itself: no chunk holds both some of it and some of the note, and its
headings stand over nothing else.

All of it takes time linear in the note's length and bounded memory, whatever is in the note: a long one is parsed piece by piece.
"""

import hashlib
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple
from uuid import UUID, uuid5

import pyromark

from shared.contracts.exchanges import exchanges
from shared.contracts.front_matter import split

TARGET = 800
MAXIMUM = 1600
HEADING_LENGTH_MAX = 300

# Parsed at once, in characters; a piece ends at the next empty line outside a code fence, at the latest at twice that.
PIECE = 128_000

# More than front matter is (`split`): who wants a note kept out must not be let down by a line that is no YAML.
_FRONT_MATTER = re.compile(r"\ufeff?---[ \t]*(?:\r\n|\n|\r)(.*?)(?:^|(?<=[\r\n]))(?:---|\.\.\.)[ \t]*(?:\r\n|\n|\r|\Z)", re.DOTALL)
# YAML 1.1 has several words for it.
_WITHDRAWN = re.compile(r"^retrieval[ \t]*:[ \t]*[\"']?(?:false|no|off)[\"']?[ \t]*(?:#.*)?$", re.IGNORECASE | re.MULTILINE)
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_LINE_END = re.compile(r"\r\n|\r|\n")
_BREAK = re.compile(r"[。！？；!?;.]\s*|[，,、]\s*|\s+")
_CLOSING_MARKS = re.compile(r"[ \t]+#+[ \t]*$")
_MARKUP = re.compile(r"!?\[([^\[\]]*)\]\([^()]*\)|\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]|[*`~]+|(?<!\w)_+|_+(?!\w)")

_OPENING_MARKS = re.compile(r"[ \t]*#{1,6}")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")

_MARKDOWN = pyromark.Options.ENABLE_TABLES


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage: `text == content[start:end]`, in code points.

    Attributes:
        block_id: see `chunk_note`.
        ordinal: position among the note's chunks, from 0.
        heading_path: the headings above it, outermost first, as plain text.
        exchange: whether it is of an exchange.
    """

    block_id: UUID
    ordinal: int
    heading_path: tuple[str, ...]
    start: int
    end: int
    text: str
    exchange: bool = False

    @property
    def sha256(self) -> str:
        """Of the text in UTF-8."""
        return hashlib.sha256(self.text.encode()).hexdigest()


class _Unit(NamedTuple):
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Block:
    """`level` 1 to 6 for a heading, else 0."""

    parts: list[_Unit]
    level: int = 0
    heading: str = ""


def is_withdrawn(content: str) -> bool:
    """Whether the note's front matter says `retrieval: false` (RC-19)."""
    matter = _FRONT_MATTER.match(content)
    return matter is not None and _WITHDRAWN.search(matter[1].replace("\r", "\n")) is not None


def chunk_note(document: UUID, content: str) -> list[Chunk]:
    """The chunks of a note's content, in order.

    A chunk's `block_id` is made of the document's id, the heading path, the text, and how many equal chunks stand before it under that
    heading: it stays the same however much changes elsewhere in the note, and through a move of the note.
    """
    seen: Counter[tuple[tuple[str, ...], str]] = Counter()
    chunks: list[Chunk] = []
    for headings, span, exchange in _spans(content):
        text = content[span.start : span.end]
        occurrence = seen[headings, text]
        seen[headings, text] += 1
        name = "\x1f".join((*headings, str(occurrence), hashlib.sha256(text.encode()).hexdigest()))
        chunks.append(Chunk(uuid5(document, name), len(chunks), headings, span.start, span.end, text, exchange))
    return chunks


def _spans(content: str) -> Iterator[tuple[tuple[str, ...], _Unit, bool]]:
    parts = split(content)
    text = _text_spans(content, len(content) - len(parts.body))
    if (first := next(text, None)) is not None:
        yield first
        yield from text
    elif parts.source:
        lines = _line_starts(content, _Unit(0, len(content)))
        matter = _Unit(lines[1], lines[1] + len(parts.source))
        for span in _packed(_cut_lines(content, matter, lines)):
            if (trimmed := _trimmed(content, span)) is not None:
                yield (), trimmed, False


def _text_spans(content: str, body: int) -> Iterator[tuple[tuple[str, ...], _Unit, bool]]:
    above: list[tuple[int, str]] = []
    for region, exchange in _regions(content, body):
        lines = _line_starts(content, region)
        for headings, units in _sections(_blocks(content, lines), above.copy() if exchange else above):
            for span in _packed(unit for whole in units for unit in _cut(content, whole, lines)):
                if (trimmed := _trimmed(content, span)) is not None:
                    yield headings, trimmed, exchange


def _regions(content: str, body: int) -> Iterator[tuple[_Unit, bool]]:
    """The text in order, what is an exchange and what is not; the marks belong to neither."""
    for found in exchanges(content):
        if found.start < body:
            continue  # in front matter
        yield _Unit(body, found.start), False
        yield _Unit(found.inner_start, found.inner_end), True
        body = found.end
    yield _Unit(body, len(content)), False


def _line_starts(content: str, region: _Unit) -> list[int]:
    """Where each line begins as the parser counts them, and the end as the last."""
    starts = [line.start() for line in _LINE.finditer(content, region.start, region.end)]
    return [*starts, region.end]


def _blocks(content: str, lines: list[int]) -> Iterator[_Block]:
    """The outermost blocks, without horizontal rules."""
    for first, last in _pieces(content, lines):
        starts = lines[first : last + 1]
        text = content[starts[0] : starts[-1]]
        in_bytes = _byte_offsets(text, starts)
        for level, begins, end in _outermost(text):
            last_line = bisect_left(in_bytes, end) - 1
            # A list ends behind the indentation of what follows it.
            if content[starts[last_line] : starts[last_line] + end - in_bytes[last_line]].isspace():
                last_line -= 1
            parts = [starts[bisect_right(in_bytes, begin) - 1] for begin in begins] + [starts[last_line + 1]]
            heading = _plain(_heading(content[parts[0] : parts[-1]])) if level else ""
            yield _Block([_Unit(*part) for part in pairwise(parts)], level, heading)


def _pieces(content: str, lines: list[int]) -> Iterator[tuple[int, int]]:
    """First and last line (exclusive) of what is parsed at once."""
    last = len(lines) - 1
    if lines[last] - lines[0] <= PIECE:
        yield 0, last
        return
    first, fence = 0, ""
    for line in range(last):
        size = lines[line] - lines[first]
        blank = not fence and not content[lines[line] : lines[line + 1]].strip()
        if (size > PIECE and blank) or size > 2 * PIECE:
            yield first, line
            first, fence = line, ""
        if (mark := _FENCE.match(content, lines[line])) is None:
            continue
        if not fence:
            fence = mark[1]
        elif mark[1].startswith(fence):
            fence = ""
    yield first, last


def _sections(blocks: Iterable[_Block], path: list[tuple[int, str]]) -> Iterator[tuple[tuple[str, ...], list[list[_Unit]]]]:
    """Headings, and what stands below them before the next: each block as the list of the parts it may be cut into.

    `path`: the headings that stand above the first block, with their levels; afterwards those above what follows.
    """
    heading: _Block | None = None
    units: list[list[_Unit]] = []
    for block in blocks:
        if not block.level:
            units.append(block.parts)
            continue
        if units or (heading is not None and block.level <= heading.level):
            yield tuple(text for _, text in path), units or ([heading.parts] if heading else [])
        path[:] = [*((level, text) for level, text in path if level < block.level), (block.level, block.heading)]
        heading, units = block, []
    if units or heading is not None:
        yield tuple(text for _, text in path), units or ([heading.parts] if heading else [])


def _outermost(text: str) -> Iterator[tuple[int, list[int], int]]:
    """The outermost blocks: the level (of a heading, else 0); where the block, or each item of a list, begins; and the end. In bytes."""
    depth = level = 0
    begins: list[int] = []
    for event, span in pyromark.events_with_range(text, options=_MARKDOWN):
        if not isinstance(event, dict):
            continue
        if (tag := event.get("Start")) is not None:
            if depth == 0:
                level = int(tag["Heading"]["level"][1]) if isinstance(tag, dict) and "Heading" in tag else 0
                begins = [] if isinstance(tag, dict) and "List" in tag else [span["start"]]
            elif depth == 1 and tag == "Item":
                begins.append(span["start"])
            depth += 1
        elif "End" in event:
            depth -= 1
            if depth == 0:
                yield level, begins, span["end"]


def _byte_offsets(text: str, starts: list[int]) -> list[int]:
    """Where each line begins in the text's UTF-8."""
    if text.isascii():
        return [start - starts[0] for start in starts]
    sizes = (len(text[start - starts[0] : end - starts[0]].encode()) for start, end in pairwise(starts))
    return list(accumulate(sizes, initial=0))


def _heading(raw: str) -> str:
    """Its text, without the marks before it or the line below."""
    lines = _LINE_END.split(raw.rstrip("\r\n"))
    return " ".join(lines[:-1]) if len(lines) > 1 else _OPENING_MARKS.sub("", raw, count=1)


def _cut(content: str, parts: list[_Unit], lines: list[int]) -> Iterator[_Unit]:
    """A block whole where it fits; else its parts, as many together as fit."""
    whole = _Unit(parts[0].start, parts[-1].end)
    if whole.end - whole.start <= MAXIMUM:
        yield whole
        return
    smaller: list[_Unit] = []
    for part in parts:
        smaller.extend([part] if part.end - part.start <= MAXIMUM else _cut_lines(content, part, lines))
    yield from _packed(smaller)


def _cut_lines(content: str, part: _Unit, lines: list[int]) -> Iterator[_Unit]:
    at = bisect_left(lines, part.start)
    while lines[at] < part.end:
        line = _Unit(lines[at], min(lines[at + 1], part.end))
        yield from _cut_line(content, line)
        at += 1


def _cut_line(content: str, line: _Unit) -> Iterator[_Unit]:
    start = line.start
    while line.end - start > MAXIMUM:
        end = start + TARGET
        for found in _BREAK.finditer(content, start + TARGET // 2, start + TARGET):
            end = found.end()
        yield _Unit(start, end)
        start = end
    yield _Unit(start, line.end)


def _packed(units: Iterable[_Unit]) -> Iterator[_Unit]:
    """Neighbours together up to the target."""
    held: _Unit | None = None
    for unit in units:
        if held is None:
            held = unit
        elif unit.end - held.start <= TARGET:
            held = _Unit(held.start, unit.end)
        else:
            yield held
            held = unit
    if held is not None:
        yield held


def _trimmed(content: str, span: _Unit) -> _Unit | None:
    """Without the empty lines around it; indentation of the first line stays. None where nothing is left."""
    text = content[span.start : span.end]
    end = span.start + len(text.rstrip())
    if end == span.start:
        return None
    lead = len(text) - len(text.lstrip())
    first_line = max(text.rfind("\n", 0, lead), text.rfind("\r", 0, lead)) + 1
    return _Unit(span.start + first_line, end)


def _plain(inline: str) -> str:
    """A heading without its marks."""
    text = " ".join(inline[: 2 * HEADING_LENGTH_MAX].split())
    text = _MARKUP.sub(lambda found: found[1] or found[2] or "", _CLOSING_MARKS.sub("", text))
    return " ".join(text.split())[:HEADING_LENGTH_MAX]
