"""What stands within a line or paragraph, as Markdown: texts, emphasis, code, links.

A content becomes a row of pieces, each knowing its neighbours; only then is it written:

    ["a ", bold("重点。"), "后"]  →  Text("a "), Mark(bold), Text("重点。"), Mark(bold), Text("后")  →  a **重点。**&#21518;

CommonMark (0.31, section 6.2) opens and closes emphasis by the characters around its delimiters. Where those do not allow it, the
neighbouring character is written as a character reference, whose `&` and `;` count as punctuation. Italic is written `*`, or `_` where a
`**` touches it, so that runs of stars never merge; with neither kind within itself, every delimiter then finds its own partner.

A web address in a text stays text, and many readers make a link of it by themselves, backslashes included. So it is written as it is where
nothing in it could pair with anything, and else with an escape in its beginning, where nobody takes it for an address any more.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, pairwise
from typing import Literal

from markdown_it import MarkdownIt

from services.notes.composition import UNSEEN, Composition, Place, refused
from shared.contracts.markdown import Bold, Code, Content, HardBreak, Html, Image, Inline, Italic, Link, Math, ReferenceLink, Strikethrough

type Items = list[tuple[Inline, Place]]
type Edge = Literal["letter", "symbol", "punctuation", "space", "line"]
type Marked = Bold | Italic | Strikethrough

commonmark = MarkdownIt("commonmark")

_DELIMITERS = {"bold": "**", "italic": "*", "strikethrough": "~~"}
# What may stand outside a delimiter, whatever stands inside.
_BOUNDARIES = frozenset({"punctuation", "space", "line"})
_ENTITY = r"&(?=#?\w{1,64};)"
_SPECIAL = rf"[\\`*\[\]<$~]|(?<![^\W_])[_#^]|_(?![^\W_])|%(?=%)|(?<=%)%|=(?==)|(?<==)=|{_ENTITY}|[{UNSEEN}]"
_TEXT = re.compile(rf"{_SPECIAL}|\|")
_CELL_TEXT = re.compile(_SPECIAL)
# GitHub's parser may take a quote for escaped by a backslash that is itself escaped.
_TITLE = re.compile(rf'(?P<as_reference>\\(?="|$))|[\\"]|{_ENTITY}|[{UNSEEN}]')
_TARGET = re.compile(rf"[<>]|{_ENTITY}")
_NEEDS_BRACKETS = re.compile(r"[\s<>()]")
_UNSEEN = re.compile(f"[{UNSEEN}]")
_BLOCK_STARTS = frozenset("-+=:>")
_NUMBER = re.compile(r"([0-9]+)([.)])(?=\s|$)")
_BACKTICKS = re.compile("`+")
# What GitHub (extended autolinks), Obsidian and others make a link of.
_ADDRESS = re.compile(r"(?:(?:https?|ftp)(?=://)|www(?=\.))[^ \t\n<]+", re.IGNORECASE)
_BEFORE_SIGN = re.compile(r"(?i)(?:(?<=http)|(?<=https)|(?<=ftp))(?=://)|(?<=www)(?=\.)")
_PAIRING = re.compile(r"[*~$]|==+|(?<![^\W_])_|_(?![^\W_])")
_NOT_BARE = re.compile(rf"[\\`\[\]]|\(#|%%|{_ENTITY}|[{UNSEEN}]")
# A pipe after an odd number of backslashes.
_ESCAPED_PIPE = re.compile(r"(?<!\\)(?:\\\\)*\\\|")


@dataclass(slots=True)
class Text:
    """A run of text. Its outermost characters may have to be written as references."""

    raw: str
    encode_first: bool = False
    encode_last: bool = False

    def edge(self, side: int) -> Edge:
        """What the parser will see at the beginning (0) or the end (-1)."""
        single = len(self.raw) == 1
        if (self.encode_first and (side == 0 or single)) or (self.encode_last and (side == -1 or single)):
            return "punctuation"
        return _edge(self.raw[side])

    def encode(self, side: int) -> None:
        """Have the character at that side written as a reference."""
        if side == 0:
            self.encode_first = True
        else:
            self.encode_last = True


@dataclass(frozen=True, slots=True)
class Mark:
    """One end of an emphasis."""

    kind: str
    opens: bool
    at: Place
    delimiter: str


@dataclass(frozen=True, slots=True)
class Atom:
    """Markdown that stays as it is. All of it begins and ends with punctuation."""

    kind: Literal["code", "math", "image", "html", "link", "link end"]
    markdown: str
    at: Place


@dataclass(frozen=True, slots=True)
class Break:
    """A hard line break."""

    at: Place


type Piece = Text | Mark | Atom | Break


@dataclass(frozen=True, slots=True)
class Line:
    """Where the content stands.

    Attributes:
        several: it may have line breaks.
        starts_block: its first line is the first thing in its block, so that it could be taken for the start of another.
        cell: it is a cell of a table.
        lonely: delimiters that may stand bare in an address, since the content has none other with which they could pair.
    """

    several: bool = False
    starts_block: bool = False
    cell: bool = False
    lonely: frozenset[str] = frozenset()


def write(content: Content, at: Place, line: Line, composition: Composition) -> str:
    """The content as Markdown; empty for empty content.

    Raises:
        ServiceError: `invalid` where something cannot be said there, `too_large`.
    """
    pieces = list(_pieces(_items(content, at), frozenset(), line, composition))
    _refuse_neighbours(pieces)
    _choose_delimiters(pieces)
    _set_off(pieces)
    marks = [index for index, piece in enumerate(pieces) if isinstance(piece, Mark)]
    while [index for index in marks if not _flanked(pieces, index)]:
        pass  # what was changed beside one delimiter may stand beside another
    markdown = "".join(_written(pieces, replace(line, lonely=_lonely(pieces))))
    if not line.several:
        return _in_cell(markdown, at) if line.cell else markdown
    _check_lines(pieces, markdown, at, starts_block=line.starts_block)
    return markdown


def destination(target: str, title: str | None, at: Place, composition: Composition) -> str:
    """Target and title of a link as they stand between its parentheses, or after a reference's colon."""
    escaped = _TARGET.sub(_escape, target)
    written = f"<{escaped}>" if _NEEDS_BRACKETS.search(target) else escaped
    if title is None:
        return written
    if not composition.text(title, (*at, "title")):
        raise refused((*at, "title"), "must not be empty; leave it out")
    return f'{written} "{_TITLE.sub(_escape, title)}"'


def _items(content: Content, at: Place) -> Items:
    return [(content, at)] if isinstance(content, str) else [(node, (*at, position)) for position, node in enumerate(content)]


def _pieces(items: Items, within: frozenset[str], line: Line, composition: Composition) -> Iterator[Piece]:
    """Pieces of a content that stands `within` these kinds. Neighbouring texts are one, and so are neighbours of one emphasis."""
    for _, at in items:
        composition.node(at)
    present = [(node, at) for node, at in items if node != ""]
    for (kind, _), group in groupby(enumerate(present), _groups):
        nodes = [item for _, item in group]
        node, at = nodes[0]
        if kind == "text":
            yield Text("".join(composition.text(str(text), place, lines=line.several) for text, place in nodes))
        elif isinstance(node, Bold | Italic | Strikethrough):
            yield from _marked(
                kind, [(one, place) for one, place in nodes if isinstance(one, Bold | Italic | Strikethrough)], within, line, composition
            )
        elif isinstance(node, Link | ReferenceLink):
            yield from _link(node, at, within, line, composition)
        elif isinstance(node, HardBreak):
            if not line.several:
                raise refused(at, "a line break cannot stand here")
            yield Break(at)
        elif not isinstance(node, str):
            yield _atom(node, at, line, composition)


def _groups(numbered: tuple[int, tuple[Inline, Place]]) -> tuple[str, int]:
    position, (node, _) = numbered
    if isinstance(node, str):
        return "text", 0
    return node.type, 0 if isinstance(node, Bold | Italic | Strikethrough) else position


def _marked(
    kind: str, nodes: Sequence[tuple[Marked, Place]], within: frozenset[str], line: Line, composition: Composition
) -> Iterator[Piece]:
    at = nodes[0][1]
    if kind in within:
        raise refused(at, f"{kind} stands within {kind}: leave the inner one out")
    items = list(chain.from_iterable(_items(node.content, (*place, "content")) for node, place in nodes))
    inner = list(_pieces(items, within | {kind}, line, composition))
    if not inner:
        raise refused(at, f"{kind} without content cannot be written")
    yield Mark(kind, True, at, _DELIMITERS[kind])
    yield from inner
    yield Mark(kind, False, at, _DELIMITERS[kind])


def _link(node: Link | ReferenceLink, at: Place, within: frozenset[str], line: Line, composition: Composition) -> Iterator[Piece]:
    if "link" in within:
        raise refused(at, "a link cannot stand within a link")
    inner = list(_pieces(_items(node.content, (*at, "content")), within | {"link"}, line, composition))
    if not inner:
        raise refused(at, "a link needs a text")
    if isinstance(node, Link):
        target = composition.target(node.target, (*at, "target"))
        end = f"]({destination(target, node.title, at, composition)})"
    else:
        if composition.text(node.label, (*at, "label")) not in composition.labels:
            raise refused((*at, "label"), "is not among the document's references")
        end = f"][{node.label}]"
    yield Atom("link", "[", at)
    yield from inner
    yield Atom("link end", end, at)


def _atom(node: Code | Math | Image | Html, at: Place, line: Line, composition: Composition) -> Atom:
    if isinstance(node, Code):
        return Atom("code", _code(composition.text(node.text, (*at, "text")), at), at)
    if isinstance(node, Math):
        composition.require("math", at, on=composition.preset.math)
        return Atom("math", _math(composition.text(node.tex, (*at, "tex")), at), at)
    if isinstance(node, Image):
        target = composition.target(node.target, (*at, "target"), local=True)
        alt = _escaped(composition.text(node.alt, (*at, "alt")), line)
        return Atom("image", f"![{alt}]({destination(target, node.title, at, composition)})", at)
    html = composition.text(node.html, (*at, "html"))
    tokens = commonmark.parseInline(f"x{html}x")[0].children or []
    if [token.type for token in tokens] != ["text", "html_inline", "text"] or tokens[1].content != html:
        raise refused((*at, "html"), "must be exactly one tag or comment; what stands between tags is content of its own")
    return Atom("html", html, at)


def _code(text: str, at: Place) -> str:
    if not text.strip(" "):
        raise refused((*at, "text"), "code of nothing but spaces cannot be written")
    runs = {len(run) for run in _BACKTICKS.findall(text)}
    fence = "`" * next(length for length in range(1, len(runs) + 2) if length not in runs)
    bare = not (text.startswith("`") or text.endswith("`") or (text.startswith(" ") and text.endswith(" ")))
    return f"{fence}{text}{fence}" if bare else f"{fence} {text} {fence}"


def _math(tex: str, at: Place) -> str:
    if not tex or tex != tex.strip():
        raise refused((*at, "tex"), "must not be empty, nor begin or end with white space")
    if "$" in tex or "`" in tex or (len(tex) - len(tex.rstrip("\\"))) % 2:
        raise refused((*at, "tex"), "must not hold dollars or backticks, nor end in a backslash")
    return f"${tex}$"


def _refuse_neighbours(pieces: Sequence[Piece]) -> None:
    for left, right in pairwise(pieces):
        if isinstance(left, Atom) and isinstance(right, Atom) and left.kind == right.kind and left.kind in ("code", "math"):
            raise refused(right.at, f"{right.kind} directly after {right.kind} would be read as one: join them, or write something between")


def _choose_delimiters(pieces: list[Piece]) -> None:
    """Italic has underscores where a bold's stars touch it at either end."""
    opened = 0
    for index, piece in enumerate(pieces):
        if not isinstance(piece, Mark) or piece.kind != "italic":
            continue
        if piece.opens:
            opened = index
        elif _touches_bold(pieces, opened) or _touches_bold(pieces, index):
            for end in (opened, index):
                pieces[end] = replace(piece, opens=end == opened, delimiter="_")


def _touches_bold(pieces: Sequence[Piece], index: int) -> bool:
    near = (_at(pieces, index - 1), _at(pieces, index + 1))
    return any(isinstance(piece, Mark) and piece.kind == "bold" for piece in near)


def _set_off(pieces: Sequence[Piece]) -> None:
    """White space at the ends of lines, and what would join with a neighbouring dollar or bracket, become references."""
    for index, piece in enumerate(pieces):
        if not isinstance(piece, Text):
            continue
        before, after = _at(pieces, index - 1), _at(pieces, index + 1)
        first, last = piece.raw[0], piece.raw[-1]
        if (_ends_line(before) and first != "\n" and first.isspace()) or _joins_math(before, first) or (_is_link(before) and first == "!"):
            piece.encode(0)
        if (_ends_line(after) and last != "\n" and last.isspace()) or _joins_math(after, last) or (_is_link(after) and last == "!"):
            piece.encode(-1)


def _ends_line(piece: Piece | None) -> bool:
    return piece is None or isinstance(piece, Break)


def _joins_math(piece: Piece | None, character: str) -> bool:
    return isinstance(piece, Atom) and piece.kind == "math" and (character.isdigit() or character in "$\\")


def _is_link(piece: Piece | None) -> bool:
    return isinstance(piece, Atom) and piece.kind == "link"


def _flanked(pieces: Sequence[Piece], index: int) -> bool:
    """Whether the delimiter at `index` will be read as one; where not, a neighbour was changed so that it will."""
    mark = pieces[index]
    assert isinstance(mark, Mark)
    inwards, near, far = (1, 0, -1) if mark.opens else (-1, -1, 0)
    # For CommonMark the tildes beside it are punctuation; GitHub's parser looks through them.
    for through in (False, True):
        inside, outside = _neighbour(pieces, index, inwards, through=through), _neighbour(pieces, index, -inwards, through=through)
        inner, outer = _edge_of(inside, near), _edge_of(outside, far)
        if inner == "line":
            raise refused(mark.at, f"{mark.kind} cannot begin or end with a line break")
        if inner == "space":
            assert isinstance(inside, Text)
            inside.encode(near)
            return False
        if outer not in _BOUNDARIES and (inner != "letter" or mark.delimiter == "_"):
            assert isinstance(outside, Text)
            outside.encode(far)
            return False
    return True


def _neighbour(pieces: Sequence[Piece], index: int, step: int, *, through: bool) -> Piece | None:
    """The piece beside the one at `index`; `through` strikethrough's delimiters, if so asked."""
    piece = _at(pieces, index + step)
    return _at(pieces, index + 2 * step) if through and isinstance(piece, Mark) and piece.kind == "strikethrough" else piece


def _edge_of(piece: Piece | None, side: int) -> Edge:
    if piece is None:
        return "space"
    if isinstance(piece, Break):
        return "line"
    return piece.edge(side) if isinstance(piece, Text) else "punctuation"


def _edge(character: str) -> Edge:
    """What a parser takes a character for. `symbol`: versions and parsers differ on whether it is punctuation, so it is no help."""
    if character == "\n":
        return "line"
    if _UNSEEN.match(character):
        return "punctuation"  # is written as a reference
    if character.isspace():
        return "space"
    category = unicodedata.category(character)
    if character < "\x80" and not character.isalnum():
        return "punctuation"
    if category[0] == "P" and character <= "\uffff":
        return "punctuation"
    return "symbol" if category[0] in "PS" else "letter"


def _at(pieces: Sequence[Piece], index: int) -> Piece | None:
    return pieces[index] if 0 <= index < len(pieces) else None


def _lonely(pieces: Sequence[Piece]) -> frozenset[str]:
    paired = {piece.delimiter[0] for piece in pieces if isinstance(piece, Mark)}
    paired |= {"$" for piece in pieces if isinstance(piece, Atom) and piece.kind == "math"}
    addresses = (found[0] for piece in pieces if isinstance(piece, Text) for found in _ADDRESS.finditer(piece.raw))
    counts = Counter(delimiter[0][0] for address in addresses for delimiter in _PAIRING.finditer(address))
    return frozenset(kind for kind, count in counts.items() if count == 1) - paired


def _written(pieces: Sequence[Piece], line: Line) -> Iterator[str]:
    for index, piece in enumerate(pieces):
        if isinstance(piece, Text):
            yield _text(piece, _at(pieces, index - 1), line, first=index == 0, goes_on=_goes_on(pieces, index))
        elif isinstance(piece, Mark):
            yield piece.delimiter
        else:
            yield "\\\n" if isinstance(piece, Break) else piece.markdown


def _goes_on(pieces: Sequence[Piece], index: int) -> bool:
    """Whether what follows a text would be taken for part of an address at its end. Delimiters at the end of one are not."""
    after = next((piece for piece in pieces[index + 1 :] if not isinstance(piece, Mark)), None)
    if isinstance(after, Text):
        return after.raw[0] not in " \t\n" or after.encode_first
    return isinstance(after, Break) or (isinstance(after, Atom) and after.kind != "link end")


def _text(text: Text, before: Piece | None, line: Line, *, first: bool, goes_on: bool) -> str:
    lines = text.raw.split("\n")
    last = len(lines) - 1
    written = []
    for number, one in enumerate(lines):
        starts = line.starts_block if number == 0 and first else number > 0 or isinstance(before, Break)
        encode_first = text.encode_first if number == 0 else one[:1].isspace()
        encode_last = text.encode_last if number == last else one[-1:].isspace()
        joined = goes_on and number == last
        written.append(_line(one, line, starts=starts, encode_first=encode_first, encode_last=encode_last, goes_on=joined))
    return "\n".join(written)


def _line(raw: str, line: Line, *, starts: bool, encode_first: bool, encode_last: bool, goes_on: bool) -> str:
    """One line of a text. `starts`: it could be taken for the start of a block."""
    head = _reference(raw[0]) if encode_first and raw else ""
    rest = raw[1:] if head else raw
    tail = _reference(rest[-1]) if encode_last and rest else ""
    escaped = _escaped(rest[:-1] if tail else rest, line, goes_on=goes_on or bool(tail))
    if starts and not head:
        if escaped[:1] in _BLOCK_STARTS:
            escaped = "\\" + escaped
        elif number := _NUMBER.match(escaped):
            escaped = f"{number[1]}\\{escaped[number.end(1) :]}"
    return head + escaped + tail


def _escaped(text: str, line: Line, *, goes_on: bool = False) -> str:
    """`goes_on`: what follows would become part of an address that ends here."""
    special = _CELL_TEXT if line.cell else _TEXT
    parts, position = [], 0
    for found in _ADDRESS.finditer(text):
        parts.append(special.sub(_escape, text[position : found.start()]))
        address, position = found[0], found.end()
        if _may_be_bare(address, line) and not (goes_on and position == len(text)):
            parts.append(address)
        else:
            # The colon, or the dot of www, becomes one that is escaped; others may begin within.
            parts.append("\\".join(special.sub(_escape, piece) for piece in _BEFORE_SIGN.split(address)))
    return "".join([*parts, special.sub(_escape, text[position:])])


def _may_be_bare(address: str, line: Line) -> bool:
    return not _NOT_BARE.search(address) and all(found[0][0] in line.lonely for found in _PAIRING.finditer(address))


def _escape(match: re.Match[str]) -> str:
    if match.groupdict().get("as_reference"):
        return _reference(match[0])
    if match[0] == "&":
        return "&amp;"  # some parsers resolve references in targets and titles before they look at backslashes
    return f"\\{match[0]}" if match[0] < "\x80" else _reference(match[0])


def _reference(character: str) -> str:
    return f"&#{ord(character)};"


def _in_cell(markdown: str, at: Place) -> str:
    """A table is cut into cells before anything else is read, so that every pipe needs its backslash."""
    if _ESCAPED_PIPE.search(markdown):
        raise refused(at, "a backslash before a pipe cannot be written in a table's cell; in TeX write \\Vert")
    return markdown.replace("|", "\\|")


def _check_lines(pieces: Sequence[Piece], markdown: str, at: Place, *, starts_block: bool) -> None:
    if pieces and isinstance(pieces[-1], Break):
        raise refused(pieces[-1].at, "a line break cannot be the last in a paragraph")
    for number, line in enumerate(markdown.split("\n")):
        if not line.strip() and markdown:
            raise refused(at, "a line of a paragraph must not be blank; begin another paragraph")
        if line.startswith("<") and (number or starts_block) and commonmark.parse(line)[0].type == "html_block":
            raise refused(at, "HTML that begins a line of a paragraph is read as a block: make it a block, or write something before it")
