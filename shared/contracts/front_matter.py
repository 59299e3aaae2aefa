"""What of a note is front matter: the lines between its first one, `---`, and the next `---` or `...`.

A rule at the start of a note is written the same way, and so is front matter whose end was forgotten; what follows would then be lost as
metadata up to some later rule. So front matter is blank or has a key before all but comments, and each line that is not indented looks like
YAML: a key, an item, a comment, a bracket. Whether it is YAML, and which, is not asked here.
"""

import re
from dataclasses import dataclass

BYTES_MAX = 16 * 1024

_OPENING = re.compile(r"\ufeff?---[ \t]*(?:\r\n?|\n)")
_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n|\Z)")
_CLOSING = re.compile(r"(?:---|\.\.\.)[ \t]*(?:[\r\n]|\Z)")
_KEY = re.compile(r"(?:\"[^\"\r\n]*\"|'[^'\r\n]*'|[^\s#{\[\"'-][^:\r\n]*(?::\S[^:\r\n]*)*|-\S[^:\r\n]*)[ \t]*:(?:\s|\Z)|[?{]")
_OTHER = re.compile(r"-(?:\s|\Z)|[\]}#]|[ \t]|[\r\n]|\Z")


@dataclass(frozen=True, slots=True)
class Split:
    """A note's text in two: `source` between the fences (None without front matter), and the rest."""

    source: str | None
    body: str


def split(text: str) -> Split:
    """Parts a note. A byte order mark before the first fence is allowed; what does not end within `BYTES_MAX` is none."""
    whole = Split(None, text.removeprefix("\ufeff"))
    opening = _OPENING.match(text)
    if not opening:
        return whole
    # Bytes are at least as many as characters, so no fence further away can close.
    position, limit, begun = opening.end(), opening.end() + BYTES_MAX, False
    while position <= min(limit, len(text) - 1):
        line = _LINE.match(text, position)
        assert line is not None
        if _CLOSING.match(line[0]):
            source = text[opening.end() : position]
            return Split(source, text[line.end() :]) if begun or not source.strip() else whole
        is_key = _KEY.match(line[0]) is not None
        if not is_key and not (_OTHER.match(line[0]) and (begun or line[0].startswith("#") or not line[0].strip())):
            return whole
        begun = begun or is_key
        position = line.end()
    return whole
