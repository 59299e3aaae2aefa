"""An exchange as it is written into a note: its texts byte for byte, marked where it stands, once per message (MN-9)."""

import re
from dataclasses import dataclass
from uuid import UUID

from markdown_it import MarkdownIt

from shared.contracts.exchanges import begin_mark, end_mark, exchanges

_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")
_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")
_blocks = MarkdownIt("commonmark")
_blocks.core.ruler.enableOnly(["normalize", "block"])
# Not in any text that people write.
_PROBE = "\ue000"


@dataclass(frozen=True, slots=True)
class Entry:
    """What is to be written."""

    message_id: UUID
    conversation_title: str
    question: str
    answer: str

    def is_in(self, content: str) -> bool:
        """Whether a note has it already."""
        return any(found.message_id == self.message_id for found in exchanges(content))

    def appended_to(self, content: str) -> str:
        """The note with the exchange at its end, which begins on a line of its own; lines of ours end as the note's do."""
        newline = "\r\n" if "\r\n" in content else "\n"
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
    """The text, and the fence that it leaves open: what follows is no part of its code."""
    last = _blocks.parse(f"{text}\n\n{_PROBE}")[-1]
    return f"{text}{newline}{last.markup}" if last.type == "fence" and last.content.rstrip("\n").endswith(_PROBE) else text
