"""The index of notes, as it is read: pages of summaries, single rows, and what is known of files."""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg

from services.notes.metadata import tag_key
from services.notes.note_path import is_plain_text, nfc
from services.notes.vault import FileStat
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.notes import ListNotes, NotePage, NoteSummary, ReadNote
from shared.database import cursor as cursors
from shared.database.pool import Connection, Pool, connection, transaction

LIMIT_MAX = 1000
# Rows fetched at once where all are needed: the event loop breathes in between.
CHUNK = 5000
_LAST = 0x10FFFF


@dataclass(frozen=True, slots=True)
class Known:
    """What the index has of a note's file."""

    stat: FileStat
    content_hash: str


@dataclass(frozen=True, slots=True)
class Entry:
    """What the index has of a note itself."""

    title: str
    tags: list[str]
    content_hash: str
    revision: int


async def page(pool: Pool, request: ListNotes) -> NotePage:
    """One page of a workspace's notes, by path; the caller has checked the access.

    Raises:
        ServiceError: `invalid`, `malformed` for a cursor that is none.
    """
    if not 1 <= request.limit <= LIMIT_MAX:
        raise ServiceError(ErrorCode.INVALID, f"The limit is 1 to {LIMIT_MAX}.")
    if not is_plain_text(request.prefix + (request.tag or "")):
        raise ServiceError(ErrorCode.INVALID, "The prefix or tag has characters that no name can have.")
    conditions = ["workspace = $1", "path > $2"]
    values: list[Any] = [request.workspace, "" if request.cursor is None else cursors.decode(request.cursor, 1)[0]]
    if request.prefix:
        # Of two directories that differ in their spelling alone one has a path that is not NFC.
        conditions.append(f"({' OR '.join(_begins(prefix, values) for prefix in dict.fromkeys((nfc(request.prefix), request.prefix)))})")
    if request.tag is not None:
        values.append([tag_key(request.tag.removeprefix("#").strip("/"))])
        conditions.append(f"tag_keys @> ${len(values)}")
    values.append(request.limit + 1)
    async with connection(pool) as connected:
        rows = await connected.fetch(
            "SELECT path, title, tags, content_hash, size, modified_at FROM notes "  # noqa: S608 - only placeholders are put in
            f"WHERE {' AND '.join(conditions)} ORDER BY path LIMIT ${len(values)}",
            *values,
        )
    items = [NoteSummary.model_validate(dict(row)) for row in rows[: request.limit]]
    return NotePage(items=items, next_cursor=cursors.encode(items[-1].path) if len(rows) > request.limit else None)


async def hashes(pool: Pool, wanted: Sequence[ReadNote], readable: Set[UUID]) -> list[str | None]:
    """The present hash of each note, None where it is gone or its workspace is not readable."""
    asked = [(note.workspace, note.path) if note.workspace in readable and is_plain_text(note.path) else None for note in wanted]
    # One of two notes that differ in their spelling alone has a path that is not NFC.
    pairs = {(workspace, path) for pair in asked if pair for workspace, path in (pair, (pair[0], nfc(pair[1])))}
    async with connection(pool) as connected:
        rows = await connected.fetch(
            """
            SELECT workspace, path, content_hash FROM notes
            WHERE (workspace, path) IN (SELECT * FROM unnest($1::uuid[], $2::text[]))
            """,
            [workspace for workspace, _ in pairs],
            [path for _, path in pairs],
        )
    present = {(row["workspace"], row["path"]): row["content_hash"] for row in rows}
    return [(present.get(pair) or present.get((pair[0], nfc(pair[1])))) if pair else None for pair in asked]


async def entries(connected: Connection, workspace: UUID, paths: Sequence[str]) -> dict[str, Entry]:
    """What is known of these notes, by path."""
    rows = await connected.fetch(
        "SELECT path, title, tags, content_hash, revision FROM notes WHERE workspace = $1 AND path = ANY($2)", workspace, paths
    )
    return {row["path"]: Entry(row["title"], row["tags"], row["content_hash"], row["revision"]) for row in rows}


async def known_files(pool: Pool, workspace: UUID, below: list[str] | None = None) -> dict[str, Known]:
    """Every file at or below these paths, or all, by path."""
    found: dict[str, Known] = {}
    async with connection(pool) as connected:
        if below is None:
            last = ""
            while rows := await connected.fetch(f"{_FILES} AND path > $2 ORDER BY path LIMIT {CHUNK}", workspace, last):
                found.update(map(_known, rows))
                last = rows[-1]["path"]
            return found
        return dict(map(_known, await connected.fetch(_FILES_BELOW, workspace, below)))


async def forget_outdated(pool: Pool, workspace: UUID, edition: int) -> bool:
    """Forget what is known of the files where other rules than `edition` read it, or `workspaces.rebuild` asked for it: the next look at
    them reads each, and tells only what has changed in the texts. False where there was nothing to forget.
    """
    async with connection(pool) as connected:
        if await connected.fetchval("SELECT read_as FROM workspaces WHERE id = $1", workspace) == edition:
            return False
    async with transaction(pool) as connected:
        await connected.execute("UPDATE notes SET ctime_ns = -1 WHERE workspace = $1", workspace)
        await connected.execute(
            "UPDATE workspaces SET read_as = $2, notes = (SELECT count(*) FROM notes WHERE workspace = $1) WHERE id = $1",
            workspace,
            edition,
        )
    return True


_FILES = "SELECT path, size, mtime_ns, ctime_ns, inode, content_hash FROM notes WHERE workspace = $1"
# "0" follows "/": the range holds what is below the directory.
_FILES_BELOW = """
    SELECT path, size, mtime_ns, ctime_ns, inode, content_hash FROM notes WHERE workspace = $1 AND path = ANY($2)
    UNION ALL
    SELECT note.path, note.size, note.mtime_ns, note.ctime_ns, note.inode, note.content_hash
    FROM unnest($2::text[]) AS touched (path)
    JOIN notes AS note ON note.workspace = $1 AND note.path >= touched.path || '/' AND note.path < touched.path || '0'
"""


def _known(row: asyncpg.Record) -> tuple[str, Known]:
    path, size, mtime_ns, ctime_ns, inode, content_hash = row
    return path, Known(FileStat(size, mtime_ns, ctime_ns, inode), content_hash)


def _begins(prefix: str, values: list[Any]) -> str:
    """The condition that a path begins so, its values added."""
    values.append(prefix)
    condition = f"path >= ${len(values)}"
    if (end := _after_prefix(prefix)) is not None:
        values.append(end)
        condition += f" AND path < ${len(values)}"
    return condition


def _after_prefix(prefix: str) -> str | None:
    """The first text after all that begin with `prefix`, in the order of code points; None where there is none."""
    while prefix:
        following = ord(prefix[-1]) + 1
        if following <= _LAST:
            # Surrogates are no characters, and so in no text.
            return prefix[:-1] + chr(0xE000 if following == 0xD800 else following)
        prefix = prefix[:-1]
    return None
