"""Markdown made of structure, so that reading it gives the structure back (MD-2). Saves nothing.

    Document → blocks, each as lines → containers put their prefix before each line → one text

What Markdown cannot say is refused, with the node's place; nothing is left out or changed silently. The ways of writing are those that
mean one thing wherever they stand: rules are `***` (`---` at the start of a note would open front matter, below a line of text a
heading), headings have `#`, code has fences longer than any run of backticks in it.
"""

import re
from collections.abc import Sequence
from functools import singledispatch

import yaml

from services.notes import inline_markdown
from services.notes.composition import Composition, Place, refused
from services.notes.inline_markdown import Line, commonmark
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.front_matter import BYTES_MAX as FRONT_MATTER_BYTES_MAX
from shared.contracts.markdown import (
    MARKDOWN_BYTES_MAX,
    Block,
    Callout,
    CodeBlock,
    Content,
    Document,
    FrontMatter,
    Heading,
    Html,
    ItemList,
    ListItem,
    Math,
    Mermaid,
    Paragraph,
    Preset,
    Quote,
    Reference,
    Rule,
    Table,
)

MERMAID = "mermaid"
RULE = "***"
ORDINAL_MAX = 999_999_999

_PARAGRAPH = Line(several=True, starts_block=True)
# What follows a box or stands below a callout's title is no start of a block.
_AFTER_BOX = Line(several=True)
_ONE_LINE = Line()
_CELL = Line(cell=True)
_DELIMITERS = {None: "---", "left": ":--", "center": ":-:", "right": "--:"}
_LANGUAGE = re.compile(r"[A-Za-z0-9_+#.-]{1,50}")
_LABEL = re.compile(r"[^\W_](?:[\w .-]{0,98}[^\W_])?")
_TAG = re.compile(r"(?!/)[^\s#,]{1,200}(?<!/)")
_BACKTICKS = re.compile("`+")
_TILDE_FENCE = re.compile(r"^[ \t]*~~~", re.MULTILINE)


def compose(document: Document, preset: Preset) -> str:
    """The document as Markdown, which ends in a line feed.

    Raises:
        ServiceError: `invalid` with the place in the document, where it holds what is switched off or cannot be written; `too_large`
            beyond the limits of `shared.contracts.markdown`.
    """
    composition = Composition(preset, frozenset(reference.label for reference in document.references))
    parts = []
    if document.front_matter is not None:
        parts.append(_front_matter(document.front_matter, composition))
    if document.blocks:
        parts.append(_siblings(document.blocks, ("blocks",), composition))
    if document.references:
        parts.append(_references(document.references, composition))
    if not parts:
        raise refused(("blocks",), "there is nothing to write")
    markdown = "\n".join(_spaced(parts)) + "\n"
    if len(markdown.encode()) > MARKDOWN_BYTES_MAX:
        raise ServiceError(
            ErrorCode.TOO_LARGE,
            f"The Markdown would have more than {MARKDOWN_BYTES_MAX} bytes; write it in pieces.",
            limit=MARKDOWN_BYTES_MAX,
        )
    return markdown


# Blocks beside each other


def _siblings(blocks: Sequence[Block], at: Place, composition: Composition, *, skip: int = 0, tight: bool = False) -> list[str]:
    """The lines of neighbouring blocks, but for the first `skip`. Two lists that would read as one get different markers."""
    if not blocks:
        raise refused(at, "needs at least one block")
    written: list[list[str]] = []
    second = False
    for position, block in enumerate(blocks[skip:], skip):
        place = (*at, position)
        if not isinstance(block, str):  # which is counted as the text it is
            composition.node(place)
        if isinstance(block, ItemList):
            before = blocks[position - 1] if position else None
            second = isinstance(before, ItemList) and _is_ordered(before) == _is_ordered(block) and not second
            written.append(_list(block, place, composition, second=second))
        else:
            written.append(_lines(block, place, composition))
    return [line for lines in written for line in lines] if tight else _spaced(written)


def _spaced(parts: Sequence[list[str]]) -> list[str]:
    """Lines with a blank one between the parts."""
    lines = list(parts[0])
    for part in parts[1:]:
        lines += ["", *part]
    return lines


def _prefixed(lines: Sequence[str], first: str, rest: str) -> list[str]:
    """Lines within a container. Blank ones get no white space at their end."""
    return [(prefix + line) if line else prefix.rstrip() for line, prefix in zip(lines, [first, *[rest] * (len(lines) - 1)], strict=True)]


# One block. Each returns its lines without those of the containers around it.


@singledispatch
def _lines(block: Block, _at: Place, _composition: Composition) -> list[str]:
    raise TypeError(f"no way to write {type(block).__name__}")


@_lines.register
def _text(block: str, at: Place, composition: Composition) -> list[str]:
    return _paragraph(block, at, composition, _PARAGRAPH)


@_lines.register
def _paragraph_node(block: Paragraph, at: Place, composition: Composition) -> list[str]:
    return _paragraph(block.content, (*at, "content"), composition, _PARAGRAPH)


def _paragraph(content: Content, at: Place, composition: Composition, line: Line) -> list[str]:
    if not (markdown := inline_markdown.write(content, at, line, composition)):
        raise refused(at, "a paragraph needs a content")
    return markdown.split("\n")


@_lines.register
def _heading(block: Heading, at: Place, composition: Composition) -> list[str]:
    if not (markdown := inline_markdown.write(block.content, (*at, "content"), _ONE_LINE, composition)):
        raise refused((*at, "content"), "a heading needs a content")
    return [f"{'#' * block.level} {markdown}"]


@_lines.register
def _quote(block: Quote, at: Place, composition: Composition) -> list[str]:
    return _prefixed(_siblings(block.blocks, (*at, "blocks"), composition), "> ", "> ")


@_lines.register
def _callout(block: Callout, at: Place, composition: Composition) -> list[str]:
    composition.require("callouts", at, on=composition.preset.callouts)
    head = f"[!{block.kind}]" + {None: "", "open": "+", "closed": "-"}[block.fold]
    if block.title is not None:
        if not (title := inline_markdown.write(block.title, (*at, "title"), _ONE_LINE, composition)):
            raise refused((*at, "title"), "must not be empty; leave it out")
        head += f" {title}"
    lines = [head]
    if block.blocks:
        # The title's line and a paragraph below it are told apart by the line alone; other blocks need a blank one.
        gap = [] if isinstance(block.blocks[0], str | Paragraph) else [""]
        lines += [*gap, *_siblings(block.blocks, (*at, "blocks"), composition)]
    return _prefixed(lines, "> ", "> ")


@_lines.register
def _code_block(block: CodeBlock, at: Place, composition: Composition) -> list[str]:
    language = block.language or ""
    if block.language is not None and not _LANGUAGE.fullmatch(composition.text(language, (*at, "language"))):
        raise refused((*at, "language"), "is one word of letters, digits and _+#.-")
    if language.lower() == MERMAID:
        raise refused((*at, "language"), "a diagram has a node of its own: mermaid")
    return _fenced(composition.text(block.code, (*at, "code"), lines=True), language)


@_lines.register
def _mermaid(block: Mermaid, at: Place, composition: Composition) -> list[str]:
    composition.require("diagrams", at, on=composition.preset.diagrams)
    return _fenced(composition.text(block.code, (*at, "code"), lines=True), MERMAID)


def _fenced(code: str, language: str) -> list[str]:
    longest = max((len(run) for run in _BACKTICKS.findall(code)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence + language, *(code.split("\n") if code else []), fence]


@_lines.register
def _math(block: Math, at: Place, composition: Composition) -> list[str]:
    composition.require("math", at, on=composition.preset.math)
    lines = composition.text(block.tex, (*at, "tex"), lines=True).split("\n")
    if not all(line.strip() for line in lines):
        raise refused((*at, "tex"), "must not be empty nor have blank lines, which TeX does not allow in a formula")
    if "$$" in block.tex or "`" in block.tex or _TILDE_FENCE.search(block.tex):
        raise refused((*at, "tex"), "must not hold $$, backticks, or a line that begins with ~~~")
    return ["$$", *lines, "$$"]


@_lines.register
def _table(block: Table, at: Place, composition: Composition) -> list[str]:
    columns = len(block.header)
    if not columns:
        raise refused((*at, "header"), "a table needs at least one column")
    align = block.align if block.align is not None else [None] * columns
    if len(align) != columns:
        raise refused((*at, "align"), f"has {len(align)} entries where the header has {columns} cells")
    lines = [_row(block.header, (*at, "header"), composition), f"| {' | '.join(_DELIMITERS[one] for one in align)} |"]
    for position, row in enumerate(block.rows):
        place = (*at, "rows", position)
        if len(row) != columns:
            raise refused(place, f"has {len(row)} cells where the header has {columns}")
        lines.append(_row(row, place, composition))
    return lines


def _row(cells: Sequence[Content], at: Place, composition: Composition) -> str:
    written = [inline_markdown.write(cell, (*at, position), _CELL, composition) for position, cell in enumerate(cells)]
    return f"| {' | '.join(written)} |"


@_lines.register
def _rule(_block: Rule, _at: Place, _composition: Composition) -> list[str]:
    return [RULE]


@_lines.register
def _html(block: Html, at: Place, composition: Composition) -> list[str]:
    html = composition.text(block.html, (*at, "html"), lines=True)
    lines = html.split("\n")
    if not html.startswith("<") or not all(line.strip() for line in lines):
        raise refused((*at, "html"), "begins with a tag and has no blank lines")
    tokens = commonmark.parse(f"{html}\n\nx")
    if [token.type for token in tokens[:2]] != ["html_block", "paragraph_open"] or tokens[0].content != f"{html}\n":
        raise refused(
            (*at, "html"), "is not one block of HTML that ends where it ends: begin with a tag of a block, and close what is open"
        )
    return lines


# Lists


def _list(block: ItemList, at: Place, composition: Composition, *, second: bool) -> list[str]:
    """`second`: with the other marker, since a list of its kind stands right before it."""
    if not block.items:
        raise refused((*at, "items"), "a list needs at least one item")
    if block.start is not None and not _is_ordered(block):
        raise refused((*at, "start"), "belongs to ordered lists")
    items = [ListItem(blocks=[item]) if isinstance(item, str) else item for item in block.items]
    start = 1 if block.start is None else block.start
    if start + len(items) - 1 > ORDINAL_MAX:
        raise refused((*at, "start"), f"an item's number is at most {ORDINAL_MAX}")
    tight = all(_is_tight(item) for item in items)
    written = []
    for position, item in enumerate(items):
        place = (*at, "items", position)
        composition.node(place)
        bullet = f"{start + position}{')' if second else '.'} " if _is_ordered(block) else ("+ " if second else "- ")
        lines = _item(item, place, composition, task=block.style == "task", tight=tight)
        written.append(_prefixed(lines, bullet, " " * len(bullet)))
    return [line for lines in written for line in lines] if tight else _spaced(written)


def _item(item: ListItem, at: Place, composition: Composition, *, task: bool, tight: bool) -> list[str]:
    if not task:
        if item.checked is not None:
            raise refused((*at, "checked"), "belongs to task lists")
        return _siblings(item.blocks, (*at, "blocks"), composition, tight=tight)
    first, place = _first(item), (*at, "blocks", 0)
    if not isinstance(first, str | Paragraph):
        raise refused(place, "a task begins with a paragraph")
    if isinstance(first, Paragraph):
        composition.node(place)
    content, inner = (first, place) if isinstance(first, str) else (first.content, (*place, "content"))
    lines = _paragraph(content, inner, composition, _AFTER_BOX)
    lines[0] = f"[{'x' if item.checked else ' '}] {lines[0]}"
    if len(item.blocks) == 1:
        return lines
    return [*lines, *([] if tight else [""]), *_siblings(item.blocks, (*at, "blocks"), composition, skip=1, tight=tight)]


def _first(item: ListItem) -> Block | None:
    return item.blocks[0] if item.blocks else None


def _is_ordered(block: ItemList) -> bool:
    return block.style == "ordered"


def _is_tight(item: ListItem) -> bool:
    """Whether the item needs no blank line: a paragraph, at most followed by a list that can interrupt it."""
    rest = item.blocks[1:]
    if not isinstance(_first(item), str | Paragraph) or len(rest) > 1:
        return False
    return not rest or (isinstance(rest[0], ItemList) and (not _is_ordered(rest[0]) or rest[0].start in (None, 1)))


# What belongs to the whole document


def _front_matter(matter: FrontMatter, composition: Composition) -> list[str]:
    at = ("front_matter",)
    fields: dict[str, str | list[str]] = {}
    if matter.title is not None:
        title = composition.text(matter.title, (*at, "title"))
        if not title or title != title.strip():
            raise refused((*at, "title"), "must not be empty, nor begin or end with white space")
        fields["title"] = title
    for position, tag in enumerate(matter.tags):
        if not _TAG.fullmatch(composition.text(tag, (*at, "tags", position))) or tag.isdigit():
            raise refused((*at, "tags", position), "a tag is one word without #, commas or outer slashes, and not only digits")
    if matter.tags:
        fields["tags"] = list(matter.tags)
    if not fields:
        raise refused(at, "needs a title or tags; leave it out")
    source = yaml.safe_dump(fields, allow_unicode=True, sort_keys=False, default_flow_style=False, width=float("inf"))
    if len(source.encode()) > FRONT_MATTER_BYTES_MAX:
        raise refused(at, f"has at most {FRONT_MATTER_BYTES_MAX} bytes")
    return ["---", *source.removesuffix("\n").split("\n"), "---"]


def _references(references: Sequence[Reference], composition: Composition) -> list[str]:
    lines, seen = [], set()
    for position, reference in enumerate(references):
        at = ("references", position)
        composition.node(at)
        if not _LABEL.fullmatch(composition.text(reference.label, (*at, "label"))):
            raise refused((*at, "label"), "is at most 100 letters, digits, spaces and _.-, and begins and ends with a letter or digit")
        # Parsers compare labels without regard to case and the length of spaces.
        if (key := " ".join(reference.label.split()).casefold()) in seen:
            raise refused((*at, "label"), "stands twice")
        seen.add(key)
        target = composition.target(reference.target, (*at, "target"))
        lines.append(f"[{reference.label}]: {inline_markdown.destination(target, reference.title, at, composition)}")
    return lines
