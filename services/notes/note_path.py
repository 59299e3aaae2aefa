"""Which paths name a note, and which names a directory of one may have.

Names compare after NFC, files keep their bytes: `NotePath.text` is NFC, whatever the file's own spelling is, unless
another file has that name.
"""

import unicodedata
from dataclasses import dataclass, field
from typing import Self

from shared.contracts.errors import ErrorCode, ServiceError

SUFFIXES = (".md", ".markdown")
NAME_BYTES_MAX = 200
# Windows allows none of them, and a vault may be synchronised to it.
_FORBIDDEN = frozenset('<>:"|?*')
# Letters by their category, and yet nothing is seen of them.
_BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0")
# They shape the letters on both sides in some scripts, and join emoji.
_JOINERS = frozenset("\u200c\u200d")
# Names that another operating system keeps for devices; a vault may be synchronised to it.
_RESERVED = frozenset({"con", "prn", "aux", "nul", *(f"{device}{number}" for device in ("com", "lpt") for number in range(1, 10))})


def nfc(text: str) -> str:
    """The spelling that names are compared in."""
    return unicodedata.normalize("NFC", text)


def is_note_name(name: str) -> bool:
    """Whether a file of that name is a note, should it be a regular file."""
    stem, dot, suffix = name.rpartition(".")
    return bool(stem) and f"{dot}{suffix}".lower() in SUFFIXES


def is_passed_over(name: str) -> bool:
    """Whether a directory of that name is no part of the notes: `.obsidian`, `.git`, the trash."""
    return name.startswith(".")


def is_plain_text(text: str) -> bool:
    """Whether a name can be written in UTF-8 and kept in a database."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


@dataclass(frozen=True, slots=True)
class NotePath:
    """Where a note lies below the notes' directory: relative, `/`-separated, without `.`, `..` or empty segments. NFC, but for one of two
    notes that differ in nothing else (`Vault.named`).
    """

    text: str
    # As a client spelled it.
    asked: str = field(default="", compare=False)

    @classmethod
    def parse(cls, path: str) -> Self:
        """The path a client names.

        Raises:
            ServiceError: `path_invalid`; nothing was touched.
        """
        segments = path.split("/")
        if not is_plain_text(path) or "\\" in path or any(segment in ("", ".", "..") for segment in segments):
            raise ServiceError(
                ErrorCode.PATH_INVALID,
                "A note's path is relative, with / between its parts, and has no empty part, '.', '..', backslash or NUL.",
            )
        return cls(nfc(path), path)

    @property
    def segments(self) -> list[str]:
        """The directories and the file name."""
        return self.text.split("/")

    @property
    def names_a_note(self) -> bool:
        """Whether a regular file there would be a note."""
        *directories, name = self.segments
        return is_note_name(name) and not any(map(is_passed_over, directories))


def safe_name(name: str) -> str:
    """A new directory's name, NFC: one that every file system and shell can bear.

    Raises:
        ServiceError: `invalid`.
    """
    name = nfc(name)
    if problem := new_name_problem(name):
        raise ServiceError(ErrorCode.INVALID, f"The name {problem}.")
    return name


def safe_directory_path(path: str) -> str:
    """A new relative directory path, NFC; `""` is none. One leading dot is allowed in its parts, as in `.notes`.

    Raises:
        ServiceError: `invalid`.
    """
    if not path:
        return ""
    return "/".join("." * part.startswith(".") + safe_name(part.removeprefix(".")) for part in path.split("/"))


def new_name_problem(name: str) -> str | None:
    """Why a file or directory should not get a name, as the end of a sentence; None where it may. Names that are there are borne."""
    if not name or not name.strip():
        return "is empty"
    if not is_plain_text(name) or any(_is_invisible(name, position) for position in range(len(name))):
        return "has characters that cannot be seen"
    if not _FORBIDDEN.isdisjoint(name):
        return f"has one of {' '.join(sorted(_FORBIDDEN))}, which not every system allows"
    if "/" in name or "\\" in name:
        return "has a slash or a backslash"
    if len(name.encode()) > NAME_BYTES_MAX:
        return f"is longer than {NAME_BYTES_MAX} bytes"
    if name[0] in ".-" or name[-1] in ". " or name[0].isspace():
        return "begins with a dot, a dash or a space, or ends with a dot or a space"
    if name.partition(".")[0].lower() in _RESERVED:
        return "is reserved by an operating system"
    return None


def _is_invisible(name: str, position: int) -> bool:
    character = name[position]
    if character in _JOINERS:
        around = name[position - 1 : position] + name[position + 1 : position + 2]
        return len(around) < 2 or around.isascii() or not _JOINERS.isdisjoint(around)
    return character in _BLANK or unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp")
