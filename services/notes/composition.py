"""What holds for a whole document while it is written: what is switched on, which labels there are, what has been counted."""

import re
from dataclasses import dataclass, field

from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.markdown import CHARACTERS_MAX, DEPTH_MAX, NODES_MAX, Preset

# Where a node stands in the document: field names and positions.
type Place = tuple[str | int, ...]

SCHEMES = frozenset({"http", "https", "mailto", "tel"})
# Directions, zero widths and separators that no editor shows. (The joiners U+200C and U+200D are part of words and emoji.)
UNSEEN = "\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
_UNSEEN = re.compile(f"[{UNSEEN}]")
# Controls, halves of pairs, and what Unicode says is no character: no parser gives them back.
_IMPOSSIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef"
    + "".join(f"{chr(plane * 0x10000 + 0xFFFE)}-{chr(plane * 0x10000 + 0xFFFF)}" for plane in range(17))
    + "]"
)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def refused(at: Place, why: str) -> ServiceError:
    """The refusal of one node."""
    location = ".".join(map(str, at))
    return ServiceError(ErrorCode.INVALID, f"{location}: {why}", errors=[{"location": location, "message": why}])


@dataclass(slots=True)
class Composition:
    """See the module. Each string and node of the document passes here once."""

    preset: Preset
    labels: frozenset[str]
    _nodes: int = field(default=0, init=False)
    _characters: int = field(default=0, init=False)

    def node(self, at: Place) -> None:
        """Count one.

        Raises:
            ServiceError: `invalid` when nested too deep, `too_large` when there are too many.
        """
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise ServiceError(ErrorCode.TOO_LARGE, f"A document has at most {NODES_MAX} nodes; write it in pieces.", limit=NODES_MAX)
        if sum(isinstance(step, int) for step in at) > DEPTH_MAX:
            raise refused(at, f"nodes nest at most {DEPTH_MAX} deep")

    def text(self, value: str, at: Place, *, lines: bool = False) -> str:
        """The string, counted and found writable. `lines`: whether it may hold line feeds.

        Raises:
            ServiceError: `invalid`, `too_large`.
        """
        self._characters += len(value)
        if self._characters > CHARACTERS_MAX:
            raise ServiceError(
                ErrorCode.TOO_LARGE, f"A document has at most {CHARACTERS_MAX} characters; write it in pieces.", limit=CHARACTERS_MAX
            )
        if "\r" in value:
            raise refused(at, "lines end in a line feed alone: Markdown cannot keep a carriage return")
        if _IMPOSSIBLE.search(value):
            raise refused(at, "holds a control character, half a surrogate pair or a noncharacter")
        if not lines and "\n" in value:
            raise refused(at, "must be one line")
        return value

    def target(self, value: str, at: Place, *, local: bool = False) -> str:
        """Where a link leads or an image lies, as it was given. `local`: whether it must be in the vault.

        Raises:
            ServiceError: `invalid`: empty, hides something, or leads where notes must not lead.
        """
        self.text(value, at)
        if not value or value != value.strip():
            raise refused(at, "must not be empty, nor begin or end with white space")
        if "\t" in value or "\\" in value or _UNSEEN.search(value):
            raise refused(at, "must not hold tabs, backslashes or invisible characters")
        if value.startswith("//"):
            raise refused(at, "needs its scheme: write https://")
        scheme = _SCHEME.match(value)
        if scheme and local:
            raise refused(at, "an image lies in the vault: give its relative path, or write a link")
        if scheme and scheme[1].lower() not in SCHEMES:
            raise refused(at, f"leads to {', '.join(sorted(SCHEMES))} or to a relative path; a colon in a path is written %3A")
        return value

    def require(self, preset: str, at: Place, *, on: bool) -> None:
        """Raises `invalid` unless what the node needs is on (MD-6)."""
        if not on:
            raise refused(at, f"{preset} are switched off in the account's preferences (markdown.{preset})")
