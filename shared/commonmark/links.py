"""Where the inline links of a text lead: those that a reader sees, in no code, HTML, image or escape."""

import re
from collections.abc import Iterator
from html.entities import html5

from shared.commonmark.blocks import inline_text
from shared.commonmark.grammar import DESTINATION, PUNCTUATION, SPACE
from shared.commonmark.inline import links

_PARENTHESES = re.compile(r"\]\(")
_DESTINATION = re.compile(rf"\({SPACE}*+({DESTINATION})")
_WRITTEN = re.compile(rf"\\([{PUNCTUATION}])|&(?:#([0-9]{{1,7}})|#[xX]([0-9a-fA-F]{{1,6}})|([A-Za-z][A-Za-z0-9]{{1,31}};));?")
_LAST = 0x10FFFF


def destinations(text: str) -> Iterator[str]:
    """The destinations, in order, without Markdown's own escapes; percent-encoding stays. A link by label (`[a][1]`) is not inline."""
    if "](" not in text:
        return
    inline = inline_text(text)
    for link in links(inline, _PARENTHESES):
        if not link.is_image and link.parentheses >= 0 and (found := _DESTINATION.match(inline.text, link.parentheses, link.end)):
            raw = found[1]
            yield _WRITTEN.sub(_meant, raw[1:-1] if raw.startswith("<") else raw)


def _meant(found: re.Match[str]) -> str:
    """The character that an escape or a character reference stands for (CommonMark 2.4, 2.5)."""
    escaped, decimal, hexadecimal, name = found.groups()
    if escaped is not None:
        return str(escaped)
    if name is not None:
        return html5.get(name, found[0])
    if not found[0].endswith(";"):
        return found[0]
    code = int(decimal) if decimal is not None else int(hexadecimal, 16)
    return "\ufffd" if code == 0 or code > _LAST or 0xD800 <= code <= 0xDFFF else chr(code)
