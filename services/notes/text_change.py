"""What a change makes of a note's bytes: the same for the draft that a person judges and for the write that follows. Pure."""

from services.notes.patch import line_ending, patch
from shared.contracts.notes import AppendText, Change, CreateText, PatchText


def changed(data: bytes, change: Change) -> bytes:
    """The note's bytes after the change; `b""` stands for a note that is not there yet.

    Raises:
        ServiceError: as `patch`.
    """
    match change:
        case CreateText():
            return change.content.encode()
        case PatchText():
            return patch(data, change.old_text, change.new_text)
        case AppendText():
            return _appended(data, change.text)


def _appended(data: bytes, text: str) -> bytes:
    """A blank line between what was there and the text; no byte before it changes."""
    end = line_ending(data, len(data), len(data))
    block = text.strip("\r\n").replace("\r\n", "\n").encode().replace(b"\n", end) + end
    if not data.strip(b"\xef\xbb\xbf"):
        return data + block
    if not data.endswith(b"\n"):
        return data + end + end + block
    return data + (b"" if data.endswith((b"\n\n", b"\n\r\n")) else end) + block
