"""A conversation as a Markdown document: what was said, and below each reply the sources that it cites (open-webui/open-webui#11527).

The texts stay as they are, markers included. What comes from elsewhere than the texts (titles, paths, headings) is escaped; a text that
leaves a block open (a fence, a comment) has it closed, so that it cannot take in what follows.
"""

import re
from typing import Any

from markdown_it import MarkdownIt

from shared.contracts.chat import ChatMessage, Conversation

NAMES = {"user": "User", "assistant": "Assistant"}
STATES = {"changed": "the note has changed since", "gone": "the note is gone"}
# Characters that begin something inside a line, in CommonMark, GFM or Obsidian.
SPECIAL = re.compile(r"[\\`*_\[\]<>&#|~$=%^@:]|(?<=www)\.", re.IGNORECASE)
BLANKS = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029]+")
MAY_LEAVE_OPEN = ("```", "~~~", "<")
# How an HTML block begins that does not end at a blank line (CommonMark, HTML blocks 1 to 5), and what ends it.
ENDS = {
    "<!--": "-->",
    "<![cdata[": "]]>",
    "<!": ">",
    "<?": "?>",
    **{f"<{name}": f"</{name}>" for name in ("script", "pre", "style", "textarea")},
}

_blocks = MarkdownIt("commonmark")
_blocks.core.ruler.enableOnly(["normalize", "block"])


def document(conversation: Conversation) -> str:
    """The active path, a heading per message."""
    parts = [f"# {escaped(conversation.title)}"]
    for message in conversation.messages:
        parts.append(f"## {NAMES[message.role]}, {message.created_at:%Y-%m-%d %H:%M} UTC")
        parts += [part for part in (closed(message.content.strip("\r\n")), _sources(message)) if part]
    return "\n\n".join(parts) + "\n"


def _sources(message: ChatMessage) -> str:
    by_number = {source["number"]: source for source in message.sources}
    lines = [_source(by_number[number]) for number in message.cited if number in by_number]
    return "\n".join(["Sources:", "", *lines]) if lines else ""


def _source(source: dict[str, Any]) -> str:
    where = " › ".join(escaped(name) for name in [source["file_path"] or source["citation_id"], *source["heading_path"]])
    state = STATES.get(source.get("state") or "")
    return f"- [{source['number']}] {where}" + (f" ({state})" if state else "")


def escaped(text: str) -> str:
    """Text as one line that any Markdown reader shows as it is."""
    return SPECIAL.sub(lambda match: "\\" + match[0], BLANKS.sub(" ", text).strip())


def closed(text: str) -> str:
    """The text, with what its last block needs to end there."""
    if not any(opener in text for opener in MAY_LEAVE_OPEN) or not _swallows(text):
        return text
    last = _blocks.parse(text)[-1]
    begun = last.content.lstrip().lower()
    return f"{text}\n{last.markup or next(end for begin, end in ENDS.items() if begun.startswith(begin))}"


def _swallows(text: str) -> bool:
    """Whether a heading after it would be none."""
    tokens = _blocks.parse(f"{text}\n\n# next\n")
    return len(tokens) < 3 or tokens[-3].type != "heading_open" or tokens[-3].level != 0
