r"""The block structure of a Markdown text (CommonMark 0.31, tables as in GFM), read for one purpose: what of it is inline text.

`inline_text` gives the text back at its own length, with everything that no reader sees as running text blanked out: code, HTML blocks,
definitions of links, the markers of quotes. Offsets stay what they are. A BREAK parts one block from the next, so that nothing inline
reaches from one into the other.

Lines are taken one after the other, each by its step (`lines`). Where lines repeat each other a regular expression without
backtracking takes all of them at once. Nothing is looked at twice, so that the work grows with the text
(docs/adr/0016-citations-are-read-by-a-scanner-of-our-own.md).
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from shared.commonmark.grammar import BREAK, DESTINATION, LABEL, SPACE, TITLE, normalized
from shared.commonmark.lines import BLANK_LINE, QUOTE, TEXT, Leaf, Lines, Role, State, Step, cells

_DEFINITION = re.compile(rf"{LABEL}:{SPACE}*+(?:{DESTINATION})(?:{SPACE}++(?:{TITLE})[ \t]*+(?=\n|\Z)|[ \t]*+(?=\n|\Z)){SPACE}*+")


@dataclass(frozen=True, slots=True)
class InlineText:
    """`text` is as long as the source, blanks where the source is no inline text. `labels` are those of the definitions, normalised."""

    text: str
    labels: frozenset[str]


def inline_text(source: str) -> InlineText:
    """Read the blocks of `source`. What follows its last bracket is left out where nothing depends on it."""
    return BlockReader(source).read()


@dataclass(frozen=True, slots=True)
class _Runs:
    """Lines that can be taken at once. Each pattern ends behind a line and never backtracks."""

    paragraphs: re.Pattern[str]
    rest_of_paragraph: re.Pattern[str]
    items: re.Pattern[str]
    quoted: re.Pattern[str]

    @classmethod
    def compiled(cls, *, beside_definitions: bool) -> "_Runs":
        """The patterns; beside definitions, text that begins with a bracket is none to be taken at once, unless it goes on a paragraph."""
        begins = rf"(?!\[){TEXT}" if beside_definitions else TEXT
        end = r"[^\n]*+\n"
        rest = rf"(?:[ \t]*+{TEXT}{end})*+"
        paragraphs = rf"(?:\n*+ {{0,3}}{begins}{end}{rest})*+\n*+"
        item = rf"(?:[-+*]|\d{{1,9}}[.)])(?: {{1,4}}{begins}[^\n]*+)?+\n"
        heading = rf"#{{1,6}}(?:[ \t]{end}|\n)"
        return cls(
            paragraphs=re.compile(paragraphs),
            rest_of_paragraph=re.compile(rest + paragraphs),
            items=re.compile(rf"(?:(?:{item}|{heading})\n*+)*+"),
            quoted=re.compile(rf"(?:>(?: ?{begins}{end}|\n))*+"),
        )


_RUNS = _Runs.compiled(beside_definitions=False)
_RUNS_BESIDE_DEFINITIONS = _Runs.compiled(beside_definitions=True)
# A definition on each line, and another one after it.
_DEFINITIONS = re.compile(r"(?:\[[^\s\[\]\\][^\[\]\\\n]{0,900}\]:[ \t]*+[^\s()<>\\]++[ \t]*+\n(?=\[))*+")
_DEFINED = re.compile(r"^\[([^\]]++)", re.MULTILINE)
_BLANK_LINES = re.compile(r"(?:[ \t]*+\n)*+")
_INDENTED_LINES = re.compile(r"(?:(?: {4}| {0,3}\t)[^\n]*+\n|[ \t]*+\n)*+")
_FENCE_END = re.compile(r"^ {0,3}(`{3,}+|~{3,}+)[ \t]*$", re.MULTILINE)


@lru_cache(maxsize=64)
def _rows(columns: int) -> re.Pattern[str]:
    """Rows with no more cells than these, and no escape."""
    return re.compile(rf"(?: {{0,3}}(?=\||{TEXT})\|?+[^|\\\n]*+(?:\|[^|\\\n]*+){{0,{columns - 1}}}+\|?+[ \t]*+\n)*+")


class BlockReader:
    """One reading of one text, from left to right: `_parts` is the inline text up to `_written`."""

    def __init__(self, source: str) -> None:
        # Of the same length, so that offsets stay: a carriage return before a newline is no more than a space at a line's end.
        self._text = source.replace("\r\n", " \n").replace("\r", "\n").replace(BREAK, "\ufffd") + "\n"
        # Up to where the text has to be read.
        self._end = max(self._text.rfind("["), self._text.rfind("【"), 0)
        self._parts: list[str] = []
        self._written = 0
        self._labels: set[str] = set()
        self._lines = Lines()
        has_definitions = "]:" in self._text
        self._runs = _RUNS_BESIDE_DEFINITIONS if has_definitions else _RUNS
        self._opens_definition = "[" if has_definitions else BREAK
        # The open paragraph, if it may begin with a definition: where it stands in `_parts`.
        self._defining: int | None = None
        self._columns = 0

    def read(self) -> InlineText:
        """The whole text."""
        text = self._text
        lines = text.split("\n")
        count, enough = len(lines) - 1, text.count("\n", 0, self._end)
        state, previous, at, offset = self._lines.state(State()), None, 0, 0
        fruitless = again = 0
        while at < count and (at <= enough or state.leaf is Leaf.PARAGRAPH):
            line = lines[at]
            step = state.steps.get(line) or self._lines.step(state, line)
            if step.otherwise is not None or self._defining is not None:
                step = self._decided(step, state, line)
            if step.at >= 0:
                self._take(step, offset + step.at, line[step.at :])
            state = step.state
            at += 1
            offset += len(line) + 1
            if (step is previous or not line) and at >= again:
                state, reached = self._run(state, offset, is_after_blank=not line.strip(" \t"))
                # Where nothing can be taken at once it is tried less and less often.
                fruitless = 0 if reached > offset else fruitless + 1
                at, offset = at + text.count("\n", offset, reached), reached
                again = at + min(fruitless * fruitless, 1000)
            previous = step
        self._settle()
        self._parts.append(BREAK * (len(text) - self._written))
        return InlineText("".join(self._parts)[:-1], frozenset(self._labels))

    # One line

    def _take(self, step: Step, start: int, piece: str) -> None:
        """Write what is text in a line."""
        if step.goes_on:
            self._parts += ("\n" + " " * (start - self._written - 1), piece)
            self._written = start + len(piece)
        elif step.role is Role.ROW:
            for at, cell in cells(piece)[: self._columns]:
                self._write(start + at, cell)
        else:
            self._write(start, piece)
            if step.role is Role.PARAGRAPH and piece[0] == self._opens_definition:
                self._defining = len(self._parts) - 1

    def _write(self, start: int, inline: str) -> None:
        """A block's inline text, or several blocks' with breaks between them."""
        self._parts += (BREAK * (start - self._written), inline)
        self._written = start + len(inline)

    def _decided(self, step: Step, state: State, line: str) -> Step:
        """The step, where it depends on what the paragraph before the line is."""
        if step.afresh and self._is_definition:
            self._settle()
            step = self._lines.step(self._lines.state(State(state.containers)), line)
        if step.role is Role.DELIMITERS and not self._begins_table(step.columns):
            step = step.alternative
        if not step.goes_on:
            is_empty = self._settle()
            if step.role is Role.UNDERLINE and is_empty:
                step = step.alternative
        return step

    def _begins_table(self, columns: int) -> bool:
        """Whether the paragraph's last line is the head of a table; its cells are written instead of it."""
        head = self._parts[-1]
        columns_of_head = cells(head) if "|" in head else []
        if len(columns_of_head) != columns:
            return False
        start = self._written - len(head)
        self._parts[-2:] = [BREAK * len(self._parts[-2])]
        self._written = start
        self._columns = columns
        if self._defining == len(self._parts):
            self._defining = None
        for at, cell in columns_of_head:
            self._write(start + at, cell)
        return True

    # Definitions

    @property
    def _is_definition(self) -> bool:
        """Whether the open paragraph is one line, and that line a definition."""
        return self._defining == len(self._parts) - 1 and _DEFINITION.fullmatch(self._parts[-1]) is not None

    def _settle(self) -> bool:
        """Take the definitions from the beginning of the paragraph that has ended; True if nothing is left of it."""
        if self._defining is None:
            return False
        paragraph, position = "".join(self._parts[self._defining :]), 0
        while found := _DEFINITION.match(paragraph, position):
            self._labels.add(normalized(found[1]))
            position = found.end()
        self._parts[self._defining :] = (BREAK * position, paragraph[position:])
        self._defining = None
        return position == len(paragraph)

    # Runs of lines

    def _run(self, state: State, position: int, *, is_after_blank: bool) -> tuple[State, int]:
        """Take as many lines at once as can be; what is open after them, and where the next line begins."""
        if is_after_blank:
            position = _end(_BLANK_LINES, self._text, position)
        if self._defining == len(self._parts) - 1:
            return state, self._run_of_definitions(position)
        match state.containers, state.leaf:
            case (), Leaf.FENCE | Leaf.HTML | Leaf.INDENTED:
                return self._run_of_code(state, position)
            case (), Leaf.TABLE:
                return state, self._run_of_rows(position)
            case (), Leaf.PARAGRAPH:
                return self._run_of_paragraphs(state, position, self._runs.rest_of_paragraph)
            case (container,), Leaf.PARAGRAPH | Leaf.NONE if container == QUOTE:
                return self._run_of_quoted(state, position)
        state, position = self._run_of_items(state, position)
        return self._run_of_paragraphs(state, position, self._runs.paragraphs) if not state.containers else (state, position)

    def _last_line(self, run: re.Pattern[str], position: int) -> int:
        """Where the last line of a run begins: it is taken by itself, because what follows may depend on it."""
        lines = self._text[position : _end(run, self._text, position)].rstrip("\n")
        return position + lines.rfind("\n") + 1

    def _run_of_paragraphs(self, state: State, position: int, run: re.Pattern[str]) -> tuple[State, int]:
        last = self._last_line(run, position)
        if last == position:
            return state, position
        lines = ("\n" + self._text[position:last]).replace("\n\n", "\n" + BREAK)[1:-1]
        self._write_more(state, position, lines)
        ends = self._text.startswith("\n\n", last - 2)
        return self._lines.state(State((), Leaf.NONE if ends else Leaf.PARAGRAPH)), last

    def _run_of_quoted(self, state: State, position: int) -> tuple[State, int]:
        last = self._last_line(self._runs.quoted, position)
        if last == position:
            return self._run_of_items(state, position)
        lines = "\n" + self._text[position:last]
        for _ in range(2):  # of empty lines one after the other every second is found
            lines = lines.replace("\n>\n", "\n" + BREAK + "\n")
        ends = lines.endswith(BREAK + "\n")
        self._write_more(state, position, lines.replace("\n>", "\n ")[1:-1])
        return self._lines.state(State((QUOTE,), Leaf.NONE if ends else Leaf.PARAGRAPH)), last

    def _write_more(self, state: State, position: int, lines: str) -> None:
        """Whole lines that begin with more of the open paragraph, if one is open."""
        if state.leaf is Leaf.PARAGRAPH:
            self._parts.append("\n")
            self._written = position
        self._write(position, lines)

    def _run_of_items(self, state: State, position: int) -> tuple[State, int]:
        last = self._last_line(self._runs.items, position)
        if last == position:
            return state, position
        self._settle()
        self._write(position, self._text[position:last].replace("\n", BREAK))
        return self._lines.state(State()), last

    def _run_of_rows(self, position: int) -> int:
        last = self._last_line(_rows(self._columns), position)
        if last > position:
            self._write(position, self._text[position:last].replace("|", BREAK).replace("\n", BREAK))
        return last

    def _run_of_definitions(self, position: int) -> int:
        if not self._is_definition:
            return position
        end = _end(_DEFINITIONS, self._text, position)
        self._labels.update(map(normalized, _DEFINED.findall(self._text, position, end)))
        return end

    def _run_of_code(self, state: State, position: int) -> tuple[State, int]:
        """To behind the code or HTML that is open, or to the blank line that ends it."""
        if state.leaf is Leaf.INDENTED:
            return state, _end(_INDENTED_LINES, self._text, position)
        if state.leaf is Leaf.HTML:
            found = state.html_end.search(self._text, position)
        else:
            found = next((end for end in _FENCE_END.finditer(self._text, position) if end[1].startswith(state.fence)), None)
        if found is None:
            return state, len(self._text)
        if state.leaf is Leaf.HTML and state.html_end is BLANK_LINE:
            return state, found.start()
        return self._lines.state(State()), self._text.index("\n", found.end()) + 1


def _end(run: re.Pattern[str], text: str, position: int) -> int:
    found = run.match(text, position)
    assert found is not None  # none of the runs needs even one line
    return found.end()
