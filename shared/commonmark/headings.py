"""The headings of a note and the sections below them, as a CommonMark parser sees them: no `#` in code, HTML or front matter is one."""

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass

from shared.commonmark.blocks import BlockReader
from shared.commonmark.grammar import BREAK, PUNCTUATION
from shared.commonmark.lines import Role, State, Step

_FRONT_MATTER = re.compile(
    r"\ufeff?---[ \t]*\r?\n(?:(?!(?:---|\.\.\.)[ \t]*\r?$)[^\n]*+\n)*+(?:---|\.\.\.)[ \t]*\r?(?:\n|\Z)", re.MULTILINE
)
_FRONT_MATTER_CHARACTERS_MAX = 16 * 1024 + 8
_OPENING = re.compile(r"#{1,6}[ \t]*")
_CLOSING = re.compile(r"(?:^|[ \t]+)#+[ \t]*$")
_LINKED = re.compile(r"!?\[([^\[\]]*)\]\([^()]*\)|\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]")
_MARKS = re.compile(rf"\\([{PUNCTUATION}])|[*`~]+|(?<!\w)_+|_+(?!\w)")
_UNFIT_FOR_SLUGS = re.compile(r"[^\w\- ]")
TEXT_CHARACTERS_MAX = 300
# A note of more is no text that anyone looks for a section in.
HEADINGS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading outside quotes and lists. It stands at `start` in the text (code points); `text` is without marks.

    `anchor` names it, and no other heading of the note: its text, or where that stands more than once, for the later ones the slug with
    a number that GitHub gives them.
    """

    level: int
    text: str
    start: int
    anchor: str


def headings(content: str) -> list[Heading]:
    """The headings of a note's whole text, in order; the first `HEADINGS_MAX`."""
    begin = 0
    if matter := _FRONT_MATTER.match(content, 0, _FRONT_MATTER_CHARACTERS_MAX):
        begin = matter.end()
    found: list[Heading] = []
    seen: set[str] = set()
    slugs: Counter[str] = Counter()
    for level, start, raw in _HeadingReader(content[begin:]).found()[:HEADINGS_MAX]:
        text = _plain(raw)
        name, slug = folded(text), slug_of(text)
        number = slugs[slug]
        slugs[slug] += 1
        anchor = text if name not in seen else f"{slug}-{number}"
        seen |= {name, folded(anchor)}
        found.append(Heading(level, text, begin + start, anchor))
    return found


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what is below it: `content[start:end]`. `anchor` is the heading's."""

    anchor: str
    start: int
    end: int


def section(content: str, fragment: str) -> Section | None:
    """The section that a fragment names; None where there is none.

    A fragment is a heading's text in any case and spelling, the slug that GitHub makes of it, or as in Obsidian several headings, each
    below the one before, with `#` between them.
    """
    known = headings(content)
    at = _found(known, fragment)
    if at is None:
        return None
    end = next((later.start for later in known[at + 1 :] if later.level <= known[at].level), len(content))
    return Section(known[at].anchor, known[at].start, end)


def folded(text: str) -> str:
    """How headings are compared."""
    return " ".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).split())


def slug_of(text: str) -> str:
    """GitHub's name for a heading, without the number of a later one of the same name."""
    return _UNFIT_FOR_SLUGS.sub("", unicodedata.normalize("NFC", text).lower()).replace(" ", "-")


def _found(known: list[Heading], fragment: str) -> int | None:
    names = {folded(one.anchor): at for at, one in reversed(list(enumerate(known)))}
    if (at := names.get(folded(fragment))) is not None:
        return at
    slugs: dict[str, int] = {}
    counts: Counter[str] = Counter()
    for at, one in enumerate(known):
        slug = slug_of(one.text)
        slugs.setdefault(f"{slug}-{counts[slug]}" if counts[slug] else slug, at)
        counts[slug] += 1
    if (at := slugs.get(fragment.lower())) is not None:
        return at
    return _found_below(known, [folded(part) for part in fragment.split("#")]) if "#" in fragment else None


def _found_below(known: list[Heading], path: list[str]) -> int | None:
    """The last heading of a path of headings, each in the section of the one before."""
    position, level = -1, 0
    for name in path:
        for at in range(position + 1, len(known)):
            if level and known[at].level <= level:
                return None
            if folded(known[at].text) == name:
                position, level = at, known[at].level
                break
        else:
            return None
    return position if position >= 0 else None


class _HeadingReader(BlockReader):
    """Reads every line, and keeps where the headings are."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self._end = len(self._text)
        self._found: list[tuple[int, int, str]] = []
        self._paragraph = 0, 0

    def found(self) -> list[tuple[int, int, str]]:
        """Level, where the heading's first line begins, and its text."""
        self.read()
        return self._found

    def _run(self, state: State, position: int, *, is_after_blank: bool) -> tuple[State, int]:  # noqa: ARG002 - lines are not skipped here
        return state, position

    def _take(self, step: Step, start: int, piece: str) -> None:
        super()._take(step, start, piece)
        if step.role is Role.PARAGRAPH and not step.goes_on:
            self._paragraph = start, len(self._parts) - 1
        elif step.role is Role.HEADING and not step.state.containers:
            opening = _OPENING.match(piece)
            assert opening is not None
            text = _CLOSING.sub("", piece[opening.end() :].rstrip(" \t"))
            self._found.append((opening[0].count("#"), self._line_start(start), text))

    def _decided(self, step: Step, state: State, line: str) -> Step:
        decided = super()._decided(step, state, line)
        if decided.role is Role.UNDERLINE and not decided.state.containers:
            start, part = self._paragraph
            self._found.append((1 if "=" in line else 2, self._line_start(start), "".join(self._parts[part:])))
        return decided

    def _line_start(self, position: int) -> int:
        return self._text.rfind("\n", 0, position) + 1


def _plain(raw: str) -> str:
    """A heading without its marks."""
    text = _LINKED.sub(lambda found: found[1] or found[2] or "", " ".join(raw.replace(BREAK, " ").split())[: 2 * TEXT_CHARACTERS_MAX])
    return " ".join(_MARKS.sub(lambda found: found[1] or "", text).split())[:TEXT_CHARACTERS_MAX]
