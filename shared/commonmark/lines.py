r"""What one line of Markdown means after the lines before it (CommonMark 0.31, tables as in GFM).

All that a line can depend on is a State: the containers that are open, and the leaf in them. What a line makes of a state is a Step. It is
worked out once for each state and line, and lines that begin alike and go on with nothing but text are one line here; a text of many
short lines, however odd, is then little more than a look-up for each.
"""

import re
from bisect import bisect_left
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from itertools import accumulate

from shared.commonmark.grammar import tag

# Containers within containers. What lies deeper is not read.
DEPTH_MAX = 100
# A container is an int: 0 for a quote, for a list item the columns by which what belongs to it is indented.
QUOTE = 0

# A line's content that begins no block of its own, whatever it goes on with. A bracket may begin a definition.
TEXT = (
    r"(?:[^\s#>`~*+\-_=<|:\d]|\d(?!\d{0,8}[.)](?:\s|\Z))|\*{1,2}+(?![*\s]|\Z)|_{1,2}+(?![_\s]|\Z)|-(?![-|:\s]|\Z)|[|:](?![-|:\s]|\Z)"
    r"|\+(?!\s|\Z)|=(?![=\s]|\Z)|#{1,6}+(?![#\s]|\Z)|#{7}|`{1,2}+(?!`)|~{1,2}+(?!~)|<(?![A-Za-z/!?]))"
)
# What stands before a line's content. Tabs in it mean columns.
_LEAD = re.compile(r"(?:[ \t>]|[-+*](?=[ \t])|\d{1,9}[.)](?=[ \t]))*+")
_LEAD_OF_TEXT = re.compile(rf"{_LEAD.pattern}(?={TEXT})")
_TITLE_STARTS = "\"'("
_SPACES = re.compile(r" *+")
_HEADING = re.compile(r"#{1,6}(?:[ \t]|$)")
_FENCE = re.compile(r"(`{3,}+)[^`]*$|(~{3,}+)")
_FENCE_END = re.compile(r" {0,3}(`{3,}+|~{3,}+)[ \t]*$")
_UNDERLINE = re.compile(r"(?:=+|-+)[ \t]*$")
_ITEM = re.compile(r"(?:[-+*]|(\d{1,9})[.)])(?= |$)")
_DELIMITERS = re.compile(r"(?:[|:]|-[-|:])[-|: \t]*$")
_DELIMITER = re.compile(r":?-+:?")
_BAR = re.compile(r"(?<!\\)\|")

BLANK_LINE = re.compile(r"^[ \t]*$", re.MULTILINE)
_HTML_NAMES = (
    "address article aside base basefont blockquote body caption center col colgroup dd details dialog dir div dl dt fieldset figcaption "
    "figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hr html iframe legend li link main menu menuitem nav noframes ol "
    "optgroup option p param search section summary table tbody td tfoot th thead title tr track ul"
).replace(" ", "|")
_HTML_TEXTS = "script|pre|style|textarea"
# The seven kinds of HTML block: what begins one, and what its last line holds. The seventh does not interrupt a paragraph.
_HTML = [
    (re.compile(rf"<(?:{_HTML_TEXTS})(?=[ \t>]|$)", re.IGNORECASE), re.compile(rf"</(?:{_HTML_TEXTS})>", re.IGNORECASE)),
    (re.compile(r"<!--"), re.compile(r"-->")),
    (re.compile(r"<\?"), re.compile(r"\?>")),
    (re.compile(r"<![A-Za-z]"), re.compile(r">")),
    (re.compile(r"<!\[CDATA\["), re.compile(r"\]\]>")),
    (re.compile(rf"</?(?:{_HTML_NAMES})(?=[ \t]|/?>|$)", re.IGNORECASE), BLANK_LINE),
    (re.compile(rf"{tag()}[ \t]*$"), BLANK_LINE),
]


class Leaf(Enum):
    """What the innermost container is in the middle of."""

    NONE = auto()
    PARAGRAPH = auto()
    TABLE = auto()
    FENCE = auto()
    INDENTED = auto()
    HTML = auto()


@dataclass(frozen=True, slots=True)
class State:
    """What lines before have left open. `empty_item`: the innermost container is a list item without content yet.

    `may_be_head`: a row of delimiters would make a table of the paragraph's last line. `fence` is what opened a fenced block, `html_end`
    what ends an HTML block. `steps` are those known already, by line.
    """

    containers: tuple[int, ...] = ()
    leaf: Leaf = Leaf.NONE
    empty_item: bool = False
    may_be_head: bool = False
    fence: str = ""
    html_end: re.Pattern[str] = BLANK_LINE
    steps: "dict[str, Step]" = field(default_factory=dict, init=False, compare=False, repr=False)


class Role(Enum):
    """What the text of a line is."""

    NOTHING = auto()
    PARAGRAPH = auto()
    HEADING = auto()
    ROW = auto()
    # Decided by the paragraph before: it may be a heading or a table, or neither.
    UNDERLINE = auto()
    DELIMITERS = auto()


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """What a line does.

    Attributes:
        state: what is open after it.
        role: what its text is, which begins at `at`; -1 where it has none.
        goes_on: the line belongs to the paragraph that was open before.
        columns: of the table that a row of delimiters would make.
        otherwise: the step, where the paragraph before is no heading and no head of a table.
        afresh: the line begins in the containers that were open before, with no title: a definition before it has ended.
    """

    state: State
    role: Role = Role.NOTHING
    at: int = -1
    goes_on: bool = False
    columns: int = 0
    otherwise: "Step | None" = None
    afresh: bool = False

    @property
    def alternative(self) -> "Step":
        """`otherwise`, where there is one."""
        assert self.otherwise is not None
        return self.otherwise


class Lines:
    """The steps of one text."""

    def __init__(self) -> None:
        self._states: dict[State, State] = {}

    def state(self, state: State) -> State:
        """The one state that is equal to this one, with the steps that are known."""
        return self._states.setdefault(state, state)

    def step(self, state: State, text: str) -> Step:
        """What a line (without its end) does, to be kept in `state.steps`."""
        known = state.steps.get(text)
        if known is not None:
            return known
        lead = _LEAD_OF_TEXT.match(text)
        if lead is None or (state.leaf is Leaf.HTML and ">" in text):
            step = self._worked_out(state, text)
        else:
            first = text[lead.end()]
            alike = lead[0] + (first if first in _TITLE_STARTS else "a")
            step = state.steps.get(alike) or self._worked_out(state, alike)
            state.steps[alike] = step
        state.steps[text] = step
        return step

    def _worked_out(self, state: State, text: str) -> Step:
        line = _Line(text)
        depth = _continued(state, line)
        if line.is_blank:
            return Step(self.state(_after_blank(state, depth)))
        if depth == len(state.containers):
            if (after := _gone_on(state, line)) is not None:
                return Step(self.state(after))
            if state.leaf is Leaf.PARAGRAPH:
                return self._after_paragraph(state, text, line)
        return self._begun(state, line, depth)

    def _after_paragraph(self, state: State, text: str, line: "_Line") -> Step:
        """A line right after a paragraph's, in the same container."""
        none = self.state(State(state.containers))
        if line.indent < 4 and line.first in "=-" and _UNDERLINE.match(line.text, line.content):
            step = Step(none, Role.UNDERLINE, otherwise=self.step(none, text))
        else:
            step = self._begun(state, line, len(state.containers))
        may_delimit = state.may_be_head and line.indent < 4 and line.first in "|:-"
        columns = _columns(line.text[line.content :]) if may_delimit else 0
        if columns:
            step = Step(self.state(replace(none, leaf=Leaf.TABLE)), Role.DELIMITERS, columns=columns, otherwise=step)
        return replace(step, afresh=line.first not in _TITLE_STARTS)

    def _begun(self, state: State, line: "_Line", depth: int) -> Step:
        """Whatever begins in the line, container in container, down to a leaf."""
        opening = _Opening(state, depth)
        while line.indent < 4 and not line.is_blank and depth <= DEPTH_MAX:
            if (after := opening.leaf(line)) is not None:
                is_heading = line.first == "#"
                return Step(self.state(after), Role.HEADING, line.offset) if is_heading else Step(self.state(after))
            if not opening.container(line):
                break
            depth += 1
        if line.is_blank or depth > DEPTH_MAX:
            return Step(self.state(opening.state(Leaf.NONE)))
        if line.indent >= 4 and opening.leaf_before is not Leaf.PARAGRAPH:
            return Step(self.state(opening.state(Leaf.INDENTED)))
        if opening.leaf_before is Leaf.TABLE:
            return Step(state, Role.ROW, line.offset)
        if opening.leaf_before is Leaf.PARAGRAPH:
            is_lazy = depth < len(state.containers)
            after = replace(state, may_be_head=not is_lazy and line.indent < 4)
            return Step(self.state(after), Role.PARAGRAPH, line.offset, goes_on=True)
        return Step(self.state(replace(opening.state(Leaf.PARAGRAPH), may_be_head=True)), Role.PARAGRAPH, line.offset)


class _Opening:
    """What a line begins: the containers that are open in it so far, and the leaf that goes on if nothing begins."""

    def __init__(self, state: State, depth: int) -> None:
        self.leaf_before = state.leaf
        self._containers = list(state.containers[:depth])
        self._is_lazy = depth < len(state.containers)
        self._empty_item = False
        if state.leaf is not Leaf.PARAGRAPH and (self._is_lazy or state.leaf is not Leaf.TABLE):
            self.leaf_before = Leaf.NONE

    def state(self, leaf: Leaf) -> State:
        """What is open with this leaf in the innermost container."""
        return State(tuple(self._containers[:DEPTH_MAX]), leaf, self._empty_item)

    def leaf(self, line: "_Line") -> State | None:
        """What is open after the line, if a leaf other than a paragraph begins in it."""
        text, content = line.text, line.content
        if (line.first == "#" and _HEADING.match(text, content)) or line.is_rule:
            return self.state(Leaf.NONE)
        if line.first in "`~" and (fence := _FENCE.match(text, content)):
            return replace(self.state(Leaf.FENCE), fence=fence[1] or fence[2])
        if line.first == "<":
            kinds = _HTML if self.leaf_before is Leaf.NONE else _HTML[:-1]
            for begins, ends in kinds:
                if begins.match(text, content):
                    is_whole = ends is not BLANK_LINE and ends.search(text, content)
                    return self.state(Leaf.NONE) if is_whole else replace(self.state(Leaf.HTML), html_end=ends)
        return None

    def container(self, line: "_Line") -> bool:
        """Step over the marker of a quote or an item, if one begins here."""
        if line.takes_quote():
            self._began(QUOTE)
            return True
        item = _ITEM.match(line.text, line.content)
        if item is None:
            return False
        is_empty = _end_of_spaces(line.text, item.end()) == len(line.text)
        interrupts = self.leaf_before is Leaf.PARAGRAPH and not self._is_lazy
        if interrupts and (is_empty or (item[1] is not None and int(item[1]) != 1)):
            return False
        before = line.at
        line.move(item.end())
        # Five spaces and more belong to indented code within the item.
        width = item.end() - before + (1 if is_empty or line.indent > 4 else line.indent)
        line.move(before + width)
        self._began(width)
        self._empty_item = is_empty
        return True

    def _began(self, container: int) -> None:
        self._containers.append(container)
        self.leaf_before = Leaf.NONE


class _Line:
    """A line, tabs before its content spread out to columns. `at`: where begins what its containers have left of it; `content`: the
    first thing there that is no space, `indent` spaces on.
    """

    __slots__ = ("_lead", "_rule_begins", "_spread", "at", "content", "first", "indent", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._lead = ""
        self._spread = 0
        # Where begins what holds nothing but one character and spaces: looked for once, because a line may hold many markers.
        self._rule_begins: int | None = None
        if "\t" in text:
            self._lead = _LEAD.match(text)[0]  # type: ignore[index]  # it always matches
            self.text = self._lead.expandtabs(4) + text[len(self._lead) :]
            self._spread = len(self.text) - len(text)
        self.move(0)

    def move(self, at: int) -> None:
        """Leave what stands before `at` to a container."""
        self.at = at
        self.content = _end_of_spaces(self.text, at)
        self.indent = self.content - at
        self.first = self.text[self.content : self.content + 1]

    @property
    def is_blank(self) -> bool:
        """Whether nothing is left but spaces."""
        return not self.first

    @property
    def offset(self) -> int:
        """Where the content stands in the line as it was given."""
        if self.content >= len(self._lead) + self._spread:
            return self.content - self._spread
        columns = accumulate(self._lead, lambda column, one: column + 4 - column % 4 if one == "\t" else column + 1, initial=0)
        return bisect_left(list(columns), self.content)

    @property
    def is_rule(self) -> bool:
        """Whether what is left is a thematic break."""
        if self.first not in "-_*":
            return False
        if self._rule_begins is None:
            self._rule_begins = len(self.text.rstrip(" \t" + self.text.rstrip(" \t")[-1]))
        return self.content >= self._rule_begins and self.text.count(self.first, self.content) >= 3

    def takes_quote(self) -> bool:
        """Step over the marker of a quote, if here is one."""
        if self.first != ">" or self.indent > 3:
            return False
        after = self.content + 1
        self.move(after + 1 if self.text.startswith(" ", after) else after)
        return True


def _end_of_spaces(text: str, position: int) -> int:
    found = _SPACES.match(text, position)
    assert found is not None
    return found.end()


def _continued(state: State, line: _Line) -> int:
    """How many of the containers go on in this line."""
    for depth, width in enumerate(state.containers):
        if width == QUOTE:
            if not line.takes_quote():
                return depth
        elif line.is_blank:
            if state.empty_item and depth == len(state.containers) - 1:
                return depth
        elif line.indent >= width:
            line.move(line.at + width)
        else:
            return depth
    return len(state.containers)


def _after_blank(state: State, depth: int) -> State:
    if depth < len(state.containers):
        return State(state.containers[:depth])
    ends = state.leaf in (Leaf.PARAGRAPH, Leaf.TABLE) or (state.leaf is Leaf.HTML and state.html_end is BLANK_LINE)
    return State(state.containers) if ends else replace(state, empty_item=False)


def _gone_on(state: State, line: _Line) -> State | None:
    """What is open after one more line of code or HTML; None where the line is none."""
    if state.leaf is Leaf.INDENTED:
        return state if line.indent >= 4 else None
    if state.leaf is Leaf.FENCE:
        fence = _FENCE_END.match(line.text, line.at)
        ends = fence is not None and fence[1].startswith(state.fence)
    elif state.leaf is Leaf.HTML:
        ends = state.html_end.search(line.text, line.at) is not None
    else:
        return None
    return State(state.containers) if ends else state


def cells(row: str) -> list[tuple[int, str]]:
    """The cells of a table's row, each with its offset. A bar at either end parts nothing, and an escaped one neither."""
    row = row.rstrip(" \t")
    at = 1 if row.startswith("|") else 0
    if len(row) == at:
        return []
    ends = row.endswith("|") and not row.endswith("\\|")
    inner = row[at:-1] if ends else row[at:]
    found = []
    for cell in _BAR.split(inner) if "\\" in inner else inner.split("|"):
        found.append((at, cell))
        at += len(cell) + 1
    return found


def _columns(row: str) -> int:
    """How many columns a row of delimiters makes; 0 if the line is none."""
    if not _DELIMITERS.match(row):
        return 0
    delimiters = [cell.strip(" \t") for _, cell in cells(row)]
    return len(delimiters) if all(map(_DELIMITER.fullmatch, delimiters)) else 0
