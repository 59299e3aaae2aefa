"""An exchange as it is written into a note: its texts byte for byte, marked where it stands, once per message (MN-9)."""

import re
from dataclasses import dataclass
from uuid import UUID

from markdown_it import MarkdownIt

from services.notes import front_matter
from shared.contracts.exchanges import begin_mark, end_mark

_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")
_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")
_blocks = MarkdownIt("commonmark")
_blocks.core.ruler.enableOnly(["normalize", "block"])
# Not in any text that people write.
_PROBE = "\ue000"
# What opens a block that blank lines do not end; without any the text need not be parsed.
_OPENING = re.compile(r"```|~~~|<(?:[!?]|script|pre|style|textarea)", re.IGNORECASE)
# Kinds of HTML block (CommonMark 4.6, 1 to 5) and what ends them; `<!--` before `<!`.
_HTML_ENDS = [
    (re.compile(r"<!--"), "-->"),
    (re.compile(r"<\?"), "?>"),
    (re.compile(r"<!\[CDATA\["), "]]>"),
    (re.compile(r"<!"), ">"),
    (re.compile(r"<(?P<tag>script|pre|style|textarea)", re.IGNORECASE), "</{tag}>"),
]


@dataclass(frozen=True, slots=True)
class Entry:
    """What is to be written."""

    message_id: UUID
    conversation_title: str
    question: str
    answer: str

    def is_in(self, content: str) -> bool:
        """Whether a note has it already: its own begin mark, wherever. The sections of others may reach around it, as where the end of one
        was removed or is quoted, and a mark that was indented or quoted by hand still tells.
        """
        return begin_mark(self.message_id) in content

    def appended_to(self, content: str) -> str:
        """The note with the exchange at its end, which begins on a line of its own; lines of ours end as the note's do."""
        newline = "\r\n" if "\r\n" in content else "\n"
        # A fence or a tag that the note leaves open would swallow the exchange.
        if end := _open_end(front_matter.split(content).body):
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
    """The line that ends the block in which a text ends, if a blank line does not: a fence, or HTML."""
    if not _OPENING.search(text):
        return None
    last = _blocks.parse(f"{text}\n\n{_PROBE}")[-1]
    if not last.content.rstrip("\n").endswith(_PROBE):
        return None
    if last.type == "fence":
        return last.markup
    if last.type != "html_block":
        return None
    for begin, end in _HTML_ENDS:
        if found := begin.match(last.content.lstrip()):
            return end.format(**found.groupdict())
    return None
