"""The one codec of references: how a message names a note, and how that is read back (MN-3, MN-4).

    ref         notes/my tea.md#Brewing              plain, from the session workspace's root; what clients carry
    link        [My tea](notes/my%20tea.md#Brewing)  in a message: Markdown's escapes in the title, percent-encoding in each segment
    Reference   directory None, path notes/my tea.md, fragment Brewing

Another workspace's note is `../<directory>/notes/x.md`, by the directory's name, which never changes; without a session workspace
`/<directory>/notes/x.md`. Everything here is pure and knows nothing of which notes there are.
"""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, Protocol
from urllib.parse import quote, unquote

type Locale = Literal["zh", "en"]

NOTE_ENDINGS = (".md", ".markdown")

_INTRODUCTION: dict[Locale, str] = {"zh": "引用笔记", "en": "Referenced note"}
_MISSING: dict[Locale, str] = {"zh": "{title} 无法找到，请删除该引用", "en": "{title} cannot be found, remove the reference"}
# A fragment begins behind a note's name: a `#` before that is part of a name, as in `C# basics.md`.
_FRAGMENT = re.compile(r"(?<=\.md)#|(?<=\.markdown)#", re.IGNORECASE)
# What begins something within a link's text, in CommonMark, GFM or Obsidian.
_SPECIAL = re.compile(
    r"[\\`*\[\]<>~$|^]|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w{1,64};)|(?<==)=|(?<=%)%|:(?=//)|(?<=\w)@(?=\w)|(?<=www)\.", re.IGNORECASE
)
# What may have to be encoded in a link's destination. The rest that can be seen stays as it is, so that a path can be read.
_UNSAFE_IN_PATHS = re.compile(r"[^\w\-.~!$'*+,;=@]")
# They shape letters and join emoji; nothing is hidden by them.
_JOINERS = "\u200c\u200d"
_SURROGATES = re.compile("[\ud800-\udfff]")


class Place(Protocol):
    """A workspace, as far as references go: its directory, and where its notes lie below that."""

    @property
    def directory(self) -> str: ...  # noqa: D102
    @property
    def notes_dir(self) -> str: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Reference:
    """A note, or the section of it that `fragment` names.

    Attributes:
        directory: the workspace's; None for the session's own.
        path: from the workspace's root, the directory of its notes included.
    """

    directory: str | None
    path: str
    fragment: str | None = None

    def seen_from(self, session: str | None) -> "Reference":
        """The one spelling of this reference in a session whose workspace has that directory: equal for one file, NFC."""
        directory = None if self.directory is None else nfc(self.directory)
        own = directory is None or (session is not None and directory == nfc(session))
        return replace(self, directory=None if own else directory, path=nfc(self.path))

    @property
    def note(self) -> "Reference":
        """Without the fragment."""
        return replace(self, fragment=None)

    def ref(self, *, in_session: bool) -> str:
        """As clients carry it. `in_session`: whether there is a session workspace to start from."""
        path = self.path if self.directory is None else f"{'../' if in_session else '/'}{self.directory}/{self.path}"
        return path if self.fragment is None else f"{path}#{self.fragment}"

    def destination(self, *, in_session: bool) -> str:
        """As it stands in a link's parentheses."""
        path = "/".join(map(_encoded, self.note.ref(in_session=in_session).split("/")))
        return path if self.fragment is None else f"{path}#{_encoded(self.fragment)}"


def nfc(text: str) -> str:
    """The spelling in which names are compared."""
    return unicodedata.normalize("NFC", text)


def of_note[P: Place](workspace: P, path: str, session: P | None, fragment: str | None = None) -> Reference:
    """The reference to a note of a workspace, by its path below the notes' directory, in a session."""
    below = f"{workspace.notes_dir}/{path}" if workspace.notes_dir else path
    return Reference(workspace.directory, below, fragment).seen_from(None if session is None else session.directory)


def located[P: Place](reference: Reference, session: P | None, workspaces: Iterable[P]) -> tuple[P, str] | None:
    """The workspace, of these, and the path below its notes' directory; None where the reference leads to none of their notes."""
    seen = reference.seen_from(None if session is None else session.directory)
    place = session if seen.directory is None else next((one for one in workspaces if nfc(one.directory) == seen.directory), None)
    if place is None:
        return None
    prefix = f"{nfc(place.notes_dir)}/" if place.notes_dir else ""
    return (place, seen.path.removeprefix(prefix)) if seen.path.startswith(prefix) and seen.path != prefix else None


def from_destination(destination: str) -> Reference | None:
    """What a link leads to, its destination without Markdown's escapes. Each segment is percent-decoded once. None where to no note:
    another ending, an address, or a path that leads out of every workspace.
    """
    path, fragment = _split(destination)
    if ":" in path.split("/", 1)[0]:
        return None
    try:
        segments = [unquote(segment, errors="strict") for segment in path.split("/")]
        fragment = None if fragment is None else unquote(fragment, errors="strict")
    except UnicodeDecodeError:
        return None
    if any("/" in segment for segment in segments):
        return None
    return _resolved(segments, fragment)


def from_ref(ref: str) -> list[Reference]:
    """What a client's ref may mean, the longest path first: a file's name may hold `.md#`, too, so that only the notes can tell."""
    ends = [found.start() for found in _FRAGMENT.finditer(ref) if found.end() < len(ref)]
    readings = [_resolved(ref.removesuffix("#").split("/"), None)]
    readings += [_resolved(ref[:end].split("/"), ref[end + 1 :]) for end in reversed(ends)]
    return [reading for reading in readings if reading is not None]


def link(title: str, reference: Reference, *, in_session: bool) -> str:
    """A CommonMark link on one line, from which any parser gets back this title and this path."""
    return f"[{escaped(title)}]({reference.destination(in_session=in_session)})"


def line(title: str, reference: Reference, locale: Locale, *, in_session: bool) -> str:
    """A reference as it stands in a message (MN-4)."""
    return f"{_INTRODUCTION[locale]} {link(title, reference, in_session=in_session)}"


def missing(title: str, locale: Locale) -> str:
    """What is said of a reference to a note that is not there (MN-5)."""
    return _MISSING[locale].format(title=title)


def escaped(title: str) -> str:
    """A link's text that reads as this title. What cannot be seen is written by its number; NUL, which Markdown has none of, as U+FFFD."""
    visible = _SURROGATES.sub("\ufffd", title).replace("\0", "\ufffd")
    text = _SPECIAL.sub(r"\\\g<0>", visible)
    return text if text.isprintable() else "".join(map(_shown, text))


def _split(text: str) -> tuple[str, str | None]:
    found = _FRAGMENT.search(text)
    if found is None:
        return text, None
    return text[: found.start()], text[found.end() :] or None


def _resolved(segments: list[str], fragment: str | None) -> Reference | None:
    """By the rules of relative addresses; at most one step above the session's workspace, where its neighbours are."""
    if segments[:2] == ["", ""] or any("\0" in segment or _SURROGATES.search(segment) for segment in segments):
        return None
    above = 1 if segments[0] == "" and len(segments) > 1 else 0
    absolute, path = bool(above), list[str]()
    for segment in segments[above:-1]:
        if segment not in ("", ".", ".."):
            path.append(segment)
        elif segment == "..":
            if path:
                path.pop()
            elif absolute:
                return None
            else:
                above += 1
    path.append(segments[-1])
    if above > 1 or not path[-1].lower().endswith(NOTE_ENDINGS):
        return None
    if not above:
        return Reference(None, "/".join(path), fragment)
    return Reference(path[0], "/".join(path[1:]), fragment) if len(path) > 1 else None


def _encoded(text: str) -> str:
    return _UNSAFE_IN_PATHS.sub(_encoded_character, text)


def _encoded_character(found: re.Match[str]) -> str:
    character = found[0]
    if not character.isascii() and (character.isprintable() or character in _JOINERS):
        return character
    return quote(character, safe="", errors="replace")


def _shown(character: str) -> str:
    if character in "\t\n\r" or (not character.isprintable() and _has_number(character)):
        return f"&#{ord(character)};"
    return character


def _has_number(character: str) -> bool:
    """Whether it is one that every parser gives back for its number, and that hides something: no space, control or noncharacter."""
    code = ord(character)
    is_noncharacter = code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF
    return not is_noncharacter and character not in _JOINERS and unicodedata.category(character) not in ("Cc", "Zs")
