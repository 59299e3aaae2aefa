"""Committing what was seen in files: the index rows and the changes to tell, with their revisions, in one transaction.

A change is computed against the row as it is inside the transaction, under the workspace's lock: whoever sees an edit second, the writer
that made it or the scanner, commits no change, and revisions are given in the order in which they become visible.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal
from uuid import UUID

from services.notes.metadata import tag_keys
from services.notes.vault import FileStat
from shared.database.pool import Connection
from shared.telemetry import tracing

type Kind = Literal["created", "updated", "moved", "deleted"]

_EPOCH_NS_MAX = 253_402_300_799 * 10**9  # the last second of the year 9999


@dataclass(frozen=True, slots=True)
class Seen:
    """A note as its file was read. `words` are those of its text, for the mention menu."""

    path: str
    stat: FileStat
    content_hash: str
    title: str
    tags: list[str]
    words: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Before:
    """The part of an index row that tells what happened."""

    content_hash: str
    inode: int


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that happened; `from_path` of a move."""

    kind: Kind
    path: str
    content_hash: str | None
    from_path: str | None = None


def plan(before: Mapping[str, Before], seen: Sequence[Seen], gone: Collection[str]) -> list[Change]:
    """What happened, given the rows of all these paths as they were; moves and deletions first."""
    lost = [path for path in gone if path in before]
    moved = pair_moves({path: before[path] for path in lost}, [note for note in seen if note.path not in before])
    changes: list[Change] = []
    for path in lost:
        note = moved.get(path)
        changes.append(Change("deleted", path, None) if note is None else Change("moved", note.path, note.content_hash, path))
    arrived = {note.path for note in moved.values()}
    for note in seen:
        row = before.get(note.path)
        if row is None and note.path not in arrived:
            changes.append(Change("created", note.path, note.content_hash))
        elif row is not None and row.content_hash != note.content_hash:
            changes.append(Change("updated", note.path, note.content_hash))
    return changes


def pair_moves(lost: Mapping[str, Before], new: Iterable[Seen]) -> dict[str, Seen]:
    """Which lost path became which new note: the same file and text, or the same text where no other lost or new note has it."""
    candidates = list(new)
    pairs: dict[str, Seen] = {}
    for key_lost, key_new in ((_file_key, _seen_file_key), (_text_key, _seen_text_key)):
        taken = {note.path for note in pairs.values()}
        open_lost = {path: row for path, row in lost.items() if path not in pairs}
        open_new = [note for note in candidates if note.path not in taken]
        count_lost = Counter(key_lost(row) for row in open_lost.values())
        count_new = Counter(key_new(note) for note in open_new)
        by_key = {key_new(note): note for note in open_new}
        for path, row in open_lost.items():
            key = key_lost(row)
            if count_lost[key] == 1 and count_new[key] == 1:
                pairs[path] = by_key[key]
    return pairs


def _file_key(row: Before) -> tuple[str, int]:
    return row.content_hash, row.inode


def _seen_file_key(note: Seen) -> tuple[str, int]:
    return note.content_hash, note.stat.inode


def _text_key(row: Before) -> tuple[str, int]:
    return row.content_hash, 0


def _seen_text_key(note: Seen) -> tuple[str, int]:
    return note.content_hash, 0


async def commit(connected: Connection, workspace: UUID, seen: Sequence[Seen], gone: Collection[str] = ()) -> list[Change]:
    """Bring the index to what was seen, in the caller's transaction; the changes that this made, waiting to be told once it is committed.

    The caller holds the workspace's lock (`write_lock`), and has seen the files while holding it.
    """
    revision = await connected.fetchval("SELECT revision FROM workspaces WHERE id = $1 FOR UPDATE", workspace)
    rows = await connected.fetch(
        "SELECT path, content_hash, inode, EXISTS (SELECT FROM note_words w WHERE (w.workspace, w.path) = (n.workspace, n.path)) AS worded "
        "FROM notes n WHERE workspace = $1 AND path = ANY($2)",
        workspace, [*(note.path for note in seen), *gone],
    )  # fmt: skip
    before = {row["path"]: Before(row["content_hash"], row["inode"]) for row in rows}
    changes = plan(before, seen, gone)
    revisions = {change.path: revision + number for number, change in enumerate(changes, start=1)}
    await connected.execute("DELETE FROM notes WHERE workspace = $1 AND path = ANY($2)", workspace, list(gone))
    await connected.executemany(_UPSERT, [_row(workspace, note, revisions.get(note.path)) for note in seen])
    worded = {row["path"]: row["content_hash"] for row in rows if row["worded"]}
    await connected.executemany(
        _UPSERT_WORDS, [(workspace, note.path, " ".join(note.words)) for note in seen if worded.get(note.path) != note.content_hash]
    )
    await _remember(connected, workspace, revision, changes)
    await connected.executemany(_DEPART, list(_departures(workspace, changes, before)))
    kinds = Counter(change.kind for change in changes)
    if changes:
        await connected.execute(
            "UPDATE workspaces SET revision = $2, notes = notes + $3 WHERE id = $1",
            workspace, revision + len(changes), kinds["created"] - kinds["deleted"],
        )  # fmt: skip
    return changes


async def _remember(connected: Connection, workspace: UUID, revision: int, changes: Sequence[Change]) -> None:
    cause = tracing.traceparent()
    await connected.executemany(
        "INSERT INTO changes (workspace, revision, kind, path, content_hash, from_path, traceparent) VALUES ($1, $2, $3, $4, $5, $6, $7)",
        [
            (workspace, revision + number, change.kind, change.path, change.content_hash, change.from_path, cause)
            for number, change in enumerate(changes, start=1)
        ],
    )


# A note whose text did not change keeps its revision: only its file was touched.
_UPSERT = """
    INSERT INTO notes (workspace, path, title, tags, tag_keys, content_hash, size, mtime_ns, ctime_ns, inode, modified_at, revision)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, coalesce($12, 0))
    ON CONFLICT (workspace, path) DO UPDATE SET
        title = excluded.title, tags = excluded.tags, tag_keys = excluded.tag_keys, content_hash = excluded.content_hash,
        size = excluded.size, mtime_ns = excluded.mtime_ns, ctime_ns = excluded.ctime_ns, inode = excluded.inode,
        modified_at = excluded.modified_at, revision = coalesce($12, notes.revision)
"""


# One text is encoded many times as fast as an array of its words, none of which has a space.
_UPSERT_WORDS = """
    INSERT INTO note_words (workspace, path, words) VALUES ($1, $2, array_to_tsvector(string_to_array($3, ' ')))
    ON CONFLICT (workspace, path) DO UPDATE SET words = excluded.words
"""
_DEPART = """
    INSERT INTO departures (workspace, path, content_hash, moved_to) VALUES ($1, $2, $3, $4)
    ON CONFLICT (workspace, path) DO UPDATE SET content_hash = excluded.content_hash, moved_to = excluded.moved_to
"""


def _departures(workspace: UUID, changes: Sequence[Change], before: Mapping[str, Before]) -> Iterator[tuple[object, ...]]:
    """What is to be known of the notes that have left their paths."""
    for change in changes:
        left = change.path if change.kind == "deleted" else change.from_path
        if left is not None:
            yield workspace, left, before[left].content_hash, change.path if change.kind == "moved" else None


def _row(workspace: UUID, note: Seen, revision: int | None) -> tuple[object, ...]:
    stat = note.stat
    return (
        *(workspace, note.path, note.title, note.tags, tag_keys(note.tags), note.content_hash),
        *(stat.size, stat.mtime_ns, stat.ctime_ns, stat.inode, modified_at(stat), revision),
    )


def modified_at(stat: FileStat) -> datetime:
    """The time of the last write, as the file system has it; bounded to what a date can say."""
    return datetime.fromtimestamp(min(max(stat.mtime_ns, 0), _EPOCH_NS_MAX) / 10**9, UTC)
