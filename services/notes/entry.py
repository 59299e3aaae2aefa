"""An exchange as it is written into a note: its texts byte for byte, marked where it stands, once per message (MN-9)."""

import re
from bisect import bisect_right
from dataclasses import dataclass
from uuid import UUID

from markdown_it import MarkdownIt

from shared.contracts.exchanges import begin_mark, end_mark, whole_sections
from shared.contracts.front_matter import split

_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")
_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")
_blocks = MarkdownIt("commonmark")
_blocks.core.ruler.enableOnly(["normalize", "block"])
# Not in any text that people write.
_PROBE = "\ue000"
_LINE_START = r"(?:\A|(?<=[\r\n]))"
# What opens a block that blank lines do not end, at the beginning of a line, in whatever containers.
_OPENING = re.compile(
    _LINE_START + r"(?:[ \t>]|[-*+][ \t]|\d{1,9}[.)][ \t])*(?:```|~~~|<(?:[!?]|script|pre|style|textarea))", re.IGNORECASE
)
_FENCE = re.compile(r"(?P<marker>`{3,}(?=[^`\r\n]*(?:[\r\n]|\Z))|~{3,})")
# A blank line and then one that nothing before it could go on with, but for a fence or HTML left open.
_CUT = re.compile(r"(?>\r\n?|\n)[ \t]*(?>\r\n?|\n)(?=\S)")
# Kinds of HTML block (CommonMark 4.6, 1 to 5), where they end, and what ends them; `<!--` before `<!`.
_HTML = [
    (re.compile(r"<!--"), re.compile("-->"), "-->"),
    (re.compile(r"<\?"), re.compile(r"\?>"), "?>"),
    (re.compile(r"<!\[CDATA\["), re.compile(r"\]\]>"), "]]>"),
    (re.compile(r"<![A-Z]", re.IGNORECASE), re.compile(">"), ">"),
    (
        re.compile(r"<(?P<tag>script|pre|style|textarea)(?=[\s>]|\Z)", re.IGNORECASE),
        re.compile(r"</(?:script|pre|style|textarea)>", re.IGNORECASE),
        "</{tag}>",
    ),
]
_REST_OF_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n|\Z)")


@dataclass(frozen=True, slots=True)
class Entry:
    """What is to be written."""

    message_id: UUID
    conversation_title: str
    question: str
    answer: str

    def is_in(self, content: str) -> bool:
        """Whether a note has it already: its own begin mark, also indented or quoted by hand, or in a section whose
        end was removed. Within the whole section of another message it is what that message quotes.
        """
        mark, position = begin_mark(self.message_id), 0
        for section in whole_sections(content):
            if section.message_id != self.message_id:
                if content.find(mark, position, section.start) >= 0:
                    return True
                position = section.end
        return content.find(mark, position) >= 0

    def appended_to(self, content: str) -> str:
        """The note with the exchange at its end, which begins on a line of its own; lines of ours end as the note's do."""
        newline = "\r\n" if "\r\n" in content else "\n"
        # A fence or a tag that the note leaves open would swallow the exchange.
        if end := _open_end(split(content).body):
            content = f"{content}{'' if content.endswith('\n') else newline}{end}{newline}"
        before = content.removeprefix("\ufeff")
        gap = "" if not before or before.endswith(("\n\n", "\r\n\r\n")) else newline if before.endswith("\n") else 2 * newline
        return content + gap + self._markdown(newline)

    def _markdown(self, newline: str) -> str:
        question, answer = ("提问", "回答") if _HAN.search(self.question) else ("Question", "Answer")
        title = _PUNCTUATION.sub(r"\\\g<0>", " ".join(self.conversation_title.split()))
        parts = [
            begin_mark(self.message_id) + newline + f"## {title}".rstrip(),
            f"**{question}**",
            _closed(self.question, newline),
            f"**{answer}**",
            _closed(self.answer, newline),
            end_mark(self.message_id) + newline,
        ]
        return (2 * newline).join(parts)


def _closed(text: str, newline: str) -> str:
    """The text, and the end of the block that it leaves open: what follows is no part of that."""
    end = _open_end(text)
    return text if end is None else f"{text}{newline}{end}"


def _open_end(text: str) -> str | None:
    """The line that ends the block in which a text ends, if a blank line does not: a fence, or HTML.

    A long note is not read whole: only from cuts before what may open something to cuts at which nothing is open, looking twice as far each
    time.
    """
    cuts = [0, *(cut.end() for cut in _CUT.finditer(text)), len(text)]
    clean = 0
    while found := _OPENING.search(text, clean):
        first = bisect_right(cuts, found.start(), hi=len(cuts) - 1) - 1
        start = max(clean, cuts[first])
        if start == found.start() and (block := _block_at(text, start)):
            if not (closed := block.closing.search(text, block.after)):
                return block.end
            rest = _REST_OF_LINE.match(text, closed.end())
            assert rest is not None
            clean = rest.end()
            continue
        length = 1
        while end_found := _end_of(text[start : (clean := cuts[min(first + length, len(cuts) - 1)])]):
            if clean == len(text):
                return end_found
            length *= 2
    return None


@dataclass(frozen=True, slots=True)
class _Opened:
    """What closes a block, where to look for it from, and the line to write where it is missing."""

    closing: re.Pattern[str]
    after: int
    end: str


def _block_at(text: str, start: int) -> _Opened | None:
    """The block that begins here, given that nothing is open."""
    if fence := _FENCE.match(text, start):
        marker = fence["marker"]
        closing = rf"(?<=[\r\n]) {{0,3}}{marker[0]}{{{len(marker)},}}[ \t]*(?=[\r\n]|\Z)"
        return _Opened(re.compile(closing), fence.end(), marker)
    for begin, ends, end in _HTML:
        if found := begin.match(text, start):
            return _Opened(ends, start, end.format(**found.groupdict()))
    return None


def _end_of(part: str) -> str | None:
    last = _blocks.parse(f"{part}\n\n{_PROBE}")[-1]
    if not last.content.rstrip("\n").endswith(_PROBE):
        return None
    if last.type == "fence":
        return last.markup
    if last.type != "html_block":
        return None
    block = _block_at(last.content.lstrip(), 0)
    return None if block is None else block.end
