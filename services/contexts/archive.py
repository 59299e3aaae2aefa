"""Export and import: JSONL, a manifest first, then the records as they are stored, byte for byte (RC-17)."""

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from services.contexts import plain_json
from services.contexts.canonical_json import canonical
from services.contexts.snapshot import SnapshotInvalid, check
from services.contexts.snapshot_store import SnapshotStore

FORMAT = "marginalia-contexts-1"
# Of a record: it travels whole in one message. One that is made here has some hundred thousand at most.
LINE_CHARACTERS_MAX = 1_000_000


class ArchiveInvalid(Exception):
    """A file cannot be imported; the message names the line."""


def line(record: dict[str, Any]) -> str:
    """A record that was made here as its line."""
    return canonical(record)


class Manifest:
    """The first line of an archive: how many records, and the SHA-256 of them all with their line feeds."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._records = 0

    def take(self, lines: Iterable[str]) -> None:
        """The next records."""
        for one in lines:
            self._digest.update(one.encode() + b"\n")
            self._records += 1

    @property
    def line(self) -> str:
        """As the archive has it."""
        return canonical({"kind": "manifest", "format": FORMAT, "records": self._records, "sha256": self._digest.hexdigest()})


def manifest(lines: Iterable[str]) -> str:
    """The manifest of these records."""
    made = Manifest()
    made.take(lines)
    return made.line


async def manifest_of(store: SnapshotStore, until: int) -> str:
    """The manifest of what is stored up to a position."""
    made, after = Manifest(), 0
    while after < until:
        part = await store.part(after, until)
        made.take(part.lines)
        after = part.last
    return made.line


def read(data: bytes) -> list[str]:
    """The records of an archive as lines, each checked against itself.

    Raises:
        ArchiveInvalid: it is not whole, or not ours, or a record does not agree with itself.
    """
    try:
        first, *lines = data.decode().split("\n")
    except UnicodeDecodeError as error:
        raise ArchiveInvalid(f"it is no UTF-8 (byte {error.start})") from None
    if not lines or lines.pop() != "":
        raise ArchiveInvalid("its last line is not whole")
    head = _object(first, 1)
    if head.get("kind") != "manifest" or head.get("format") != FORMAT:
        raise ArchiveInvalid(f"its first line is no manifest of {FORMAT}")
    if first != manifest(lines):
        raise ArchiveInvalid("its records are not those that the manifest speaks of")
    seen: set[str] = set()
    for number, one in enumerate(lines, 2):
        if len(one) > LINE_CHARACTERS_MAX:
            raise ArchiveInvalid(f"line {number} has more than {LINE_CHARACTERS_MAX} characters")
        record = _object(one, number)
        try:
            check(record)
        except SnapshotInvalid as error:
            raise ArchiveInvalid(f"line {number}: {error}") from None
        if record["id"] in seen:
            raise ArchiveInvalid(f"line {number}: the id {record['id']} stands twice")
        seen.add(record["id"])
    return lines


def _object(text: str, number: int) -> dict[str, Any]:
    try:
        value = plain_json.loads(text.encode())
        plain_json.require_usable(value)
    except json.JSONDecodeError:
        raise ArchiveInvalid(f"line {number} is no JSON") from None
    except ValueError as error:
        raise ArchiveInvalid(f"line {number}: {error}") from None
    if not isinstance(value, dict):
        raise ArchiveInvalid(f"line {number} is no object")
    return value
