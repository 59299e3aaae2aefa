"""Replacing the one place where a text stands in a note, and nothing else of its bytes (MD-4)."""

import re
from bisect import bisect_left

from shared.contracts.errors import ErrorCode, ServiceError


def patch(data: bytes, old_text: str, new_text: str) -> bytes:
    """The note with `new_text` where `old_text` stands.

    Who writes a carriage return in either text means exact bytes. Otherwise a line feed stands for whatever ends lines at that place: in
    `old_text` it is found as LF or CRLF, in `new_text` it is written as the lines of the place, or their neighbours, end.

    Raises:
        ServiceError: `invalid` for an empty `old_text`, `match_not_found`, `match_not_unique` with `matches`.
    """
    if not old_text:
        raise ServiceError(ErrorCode.INVALID, "old_text must not be empty: it says where the change goes.")
    old, new = old_text.encode(), new_text.encode()
    if b"\r" in old or b"\r" in new:
        start = _only(data, old)
        return data[:start] + new + data[start + len(old) :]
    # Where in the text with bare line feeds a carriage return was left out before one.
    left_out = [found.start() - number for number, found in enumerate(re.finditer(b"\r\n", data))]
    bare = data.replace(b"\r\n", b"\n")
    position = _only(bare, old)
    start = position + bisect_left(left_out, position)
    end = position + len(old) + bisect_left(left_out, position + len(old))
    if b"\n" in new and line_ending(data, start, end) == b"\r\n":
        new = new.replace(b"\n", b"\r\n")
    return data[:start] + new + data[end:]


def _only(data: bytes, text: bytes) -> int:
    """Where a text stands, once. UTF-8 has no letter that begins inside another, so bytes can be searched."""
    first = data.find(text)
    if first < 0:
        raise ServiceError(ErrorCode.MATCH_NOT_FOUND, "old_text does not stand in the note. Read it again and copy the text as it is.")
    if data.find(text, first + 1) >= 0:
        matches = max(2, data.count(text))
        raise ServiceError(
            ErrorCode.MATCH_NOT_UNIQUE, f"old_text stands {matches} times in the note; give more of what is around it.", matches=matches
        )
    return first


def line_ending(data: bytes, start: int, end: int) -> bytes:
    """How lines end in a place, else after it, else before it."""
    feed = data.find(b"\n", start, end)
    if feed < 0:
        feed = data.find(b"\n", end)
    if feed < 0:
        feed = data.rfind(b"\n", 0, start)
    return b"\r\n" if feed > 0 and data[feed - 1 : feed] == b"\r" else b"\n"
