"""A Markdown passage as plain sentences, each fit to be quoted by itself."""

import re
from collections.abc import Iterator
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.token import Token

_LONGEST = 420
_LONGEST_CODE_LINE = 100
_ENUMERATION = 360
_LONG_CLAUSE = 60
_INTRODUCED_LINES = 4

_FRONT_MATTER = re.compile(r"\A\ufeff?---\n.*?\n---\n", re.DOTALL)
_WIKI_LINK = re.compile(r"!?\[\[([^\[\]|]*\|)?([^\[\]]*)\]\]")
_FOOTNOTE = re.compile(r"\[\^[^\]\s]+\]:?")
_DEFINITION = re.compile(r"^\[(?!\^)[^\]]+\]:\s+\S+.*$")
_REFERENCE_LINK = re.compile(r"\[([^\[\]]+)\]\[[^\[\]]*\]")
_CALLOUT = re.compile(r"^\[![\w-]+\][+-]?\s*")
_TASK = re.compile(r"^\[[ xX]\]\s+")
_HIGHLIGHT = re.compile(r"==([^=]+)==")
_NUMBER_MARK = re.compile(r"[\[【](\d+(?:\s*[,，]\s*\d+)*)[\]】]")
_CODE_SPAN = re.compile(r"(`+)(?:.+?)\1")
_CJK_GAP = re.compile(r"(?<=[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]) (?=[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef])")
_CJK_END = "。！？；"
_LATIN_END = ".!?"
_CLOSING = "\"'”’」』）)]*"
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:e\.g|i\.e|etc|vs|cf|approx|resp|incl|ca|al|no|nos|fig|eq|sec|ch|vol|pp?|mr|mrs|ms|dr|prof|st|jr|sr|inc|ltd|co"
    r"|a\.m|p\.m|min|max|[a-z])\.$",
    re.IGNORECASE,
)


def sentences(markdown: str) -> Iterator[str]:
    """The sentences of the passage in reading order: without headings, link targets, fences and list marks.

    A table's row becomes "first cell – column: cell; ...", a sentence that ends in a colon takes the list after it along, and a short
    line of code stands in backticks. Numbers in brackets become numbers in parentheses: only the answer's own may count as citations.
    """
    for unit in _units(_FRONT_MATTER.sub("", markdown)):
        for sentence in split(unit):
            shown = _clipped(_without_number_marks(_trimmed(sentence)))
            if any(character.isalnum() for character in shown):
                yield shown


def split(text: str) -> list[str]:
    """Cuts a paragraph into sentences; never inside code, a URL or an abbreviation.

    A sentence ends after 。！？, after ； once it is long, and after .!? where another begins.
    """
    code = [match.span() for match in _CODE_SPAN.finditer(text)]
    found: list[str] = []
    start = 0
    for at, character in enumerate(text):
        if at < start or any(begin <= at < end for begin, end in code):
            continue
        end = _end_of_sentence(text, at, character, start)
        if end is not None:
            found.append(text[start:end].strip())
            start = end
    return [sentence for sentence in (*found, text[start:].strip()) if sentence]


def _trimmed(sentence: str) -> str:
    """Without the separators that joined it to its neighbours."""
    trimmed = sentence.strip(" ,;，；、")
    return trimmed + "。" if sentence.endswith("；") else trimmed


def _end_of_sentence(text: str, at: int, character: str, start: int) -> int | None:
    if character not in _CJK_END and character not in _LATIN_END:
        return None
    end = at + 1
    while end < len(text) and (text[end] in _CLOSING or text[end] in _CJK_END or text[end] in _LATIN_END):
        end += 1
    if character == "；" and end - start < _LONG_CLAUSE:
        return None
    if character in _CJK_END:
        return end
    if end < len(text) and not text[end].isspace():
        return None
    following = text[end:].lstrip()[:1]
    if following.islower() or (character == "." and _ABBREVIATION.search(text[start : at + 1])):
        return None
    return end


def _units(markdown: str) -> Iterator[str]:
    """Paragraphs, list items, table rows and code lines, as plain text."""
    tokens = _parser().parse(markdown)
    intro: list[str] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if token.type in ("heading_open", "table_open"):
            closing = _closing(tokens, at)
            yield from _flushed(intro)
            if token.type == "table_open":
                yield from _rows(tokens[at:closing])
            at = closing
        elif token.type == "inline":
            yield from _with_intro(intro, _plain(token), in_list=_is_in_list(tokens, at))
        elif token.type in ("fence", "code_block"):
            lines = list(_code_lines(token.content))
            if intro and len(lines) <= _INTRODUCED_LINES:
                intro += lines
                lines = []
            yield from _flushed(intro)
            yield from lines
        at += 1
    yield from _flushed(intro)


def _with_intro(intro: list[str], text: str, *, in_list: bool) -> Iterator[str]:
    """Holds a paragraph that ends in a colon back until the list it introduces has ended."""
    if intro and in_list and sum(map(len, intro)) + len(text) < _ENUMERATION:
        intro.append(text.rstrip(".。;；"))
        return
    yield from _flushed(intro)
    if text.endswith((":", "：")) and not in_list:
        intro.append(text)
    elif text:
        yield text


def _flushed(intro: list[str]) -> Iterator[str]:
    if intro:
        is_cjk = intro[0].endswith("：")
        listed = ("；" if is_cjk else "; ").join(intro[1:])
        end = "" if not listed or listed.endswith(("?", "!", "？", "！", "`")) else "。" if is_cjk else "."
        yield f"{intro[0]}{'' if is_cjk or not listed else ' '}{listed}{end}"
    intro.clear()


def _rows(tokens: list[Token]) -> Iterator[str]:
    rows: list[list[str]] = []
    for token in tokens:
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline":
            rows[-1].append(_plain(token))
    if not rows:
        return
    head, *body = rows
    for row in body:
        cells = [f"{name}: {cell}" if name else cell for name, cell in zip(head[1:], row[1:], strict=False) if cell]
        if row and row[0]:
            yield f"{row[0]} – {'; '.join(cells)}" if cells else row[0]


def _code_lines(code: str) -> Iterator[str]:
    for line in code.splitlines():
        stripped = line.strip()
        if 8 <= len(stripped) <= _LONGEST_CODE_LINE and "`" not in stripped:
            yield f"`{stripped}`"


def _plain(token: Token) -> str:
    parts: list[str] = []
    for child in token.children or []:
        match child.type:
            case "text":
                parts.append(_unmarked(child.content))
            case "code_inline":
                parts.append(f"`{child.content}`" if "`" not in child.content else child.content)
            case "softbreak" | "hardbreak":
                parts.append(" ")
            case "image":
                parts.append(child.content)
    text = _CALLOUT.sub("", _TASK.sub("", "".join(parts)))
    return _CJK_GAP.sub("", " ".join(text.split()))


def _unmarked(text: str) -> str:
    """Without the marks that CommonMark does not know, and those of links whose target may stand in another passage."""
    text = _WIKI_LINK.sub(lambda match: match[2], _DEFINITION.sub("", text))
    text = _REFERENCE_LINK.sub(r"\1", _FOOTNOTE.sub("", text))
    return _HIGHLIGHT.sub(r"\1", text)


def _without_number_marks(sentence: str) -> str:
    spans = [match.span() for match in _CODE_SPAN.finditer(sentence)]

    def replaced(match: re.Match[str]) -> str:
        inside = any(begin <= match.start() < end for begin, end in spans)
        return match[0] if inside else f"({match[1]})"

    return _NUMBER_MARK.sub(replaced, sentence)


def _clipped(sentence: str) -> str:
    if len(sentence) <= _LONGEST:
        return sentence
    cut = sentence[:_LONGEST].rsplit(" ", 1)[0] if " " in sentence[_LONGEST - 60 : _LONGEST] else sentence[:_LONGEST]
    return (cut.replace("`", "") if cut.count("`") % 2 else cut) + "…"


def _closing(tokens: list[Token], opening: int) -> int:
    wanted = tokens[opening].type.replace("_open", "_close")
    return next(at for at in range(opening, len(tokens)) if tokens[at].type == wanted)


def _is_in_list(tokens: list[Token], at: int) -> bool:
    return at >= 2 and (tokens[at - 2].type == "list_item_open" or tokens[at - 1].level > 1)


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable("reference")
