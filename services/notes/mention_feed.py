"""Has the mention indexes follow the notes' table, whoever changed what.

Each workspace's changes are numbered without gaps in the transaction that commits them. An index knows the number it is at, and takes in
what came since: in the background, and before every answer, so that what is committed is found by the next question.
"""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

import asyncpg

from services.notes.mention_index import IndexedNote, NoteIndex
from shared.contracts.errors import ServiceError
from shared.database.pool import UNAVAILABLE, Pool, connection
from shared.telemetry.logs import said

logger = logging.getLogger(__name__)

POLL_SECONDS = 1.0
# Rows fetched at once: the event loop breathes in between. A change takes some fifty microseconds.
CHUNK = 5000
CHANGES_CHUNK = 500


@dataclass(slots=True)
class _Followed:
    """One workspace's index, and the number of the last change in it; None before the first reading."""

    index: NoteIndex = field(default_factory=NoteIndex)
    revision: int | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    titles: tuple[int, list[str]] | None = None


class MentionFeed:
    """The indexes of this process, of all workspaces that are served."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._followed: dict[UUID, _Followed] = {}

    async def run(self) -> None:
        """Follow for ever."""
        while True:
            try:
                await self._follow()
            except (*UNAVAILABLE, ServiceError) as error:
                logger.info("The mention indexes wait for the database: %s", said(error))
            await asyncio.sleep(POLL_SECONDS)

    async def _follow(self) -> None:
        async with connection(self._pool) as connected:
            rows = await connected.fetch("SELECT id, revision FROM workspaces WHERE served")
        served = {row["id"]: row["revision"] for row in rows}
        for workspace in self._followed.keys() - served.keys():
            del self._followed[workspace]
        for workspace, revision in served.items():
            await self.index(workspace, revision)

    async def index(self, workspace: UUID, revision: int) -> NoteIndex:
        """A workspace's index, in which that change is."""
        return (await self._at(workspace, revision)).index

    async def titles(self, workspace: UUID, revision: int) -> tuple[int, list[str]]:
        """The distinct titles, sorted, and the revision that they are of."""
        followed = await self._at(workspace, revision)
        if followed.titles is None or followed.titles[0] != followed.revision:
            assert followed.revision is not None
            found, at = {note.title for note in followed.index.notes()}, followed.revision
            followed.titles = at, await asyncio.to_thread(sorted, found)
        return followed.titles

    async def _at(self, workspace: UUID, revision: int) -> _Followed:
        followed = self._followed.setdefault(workspace, _Followed())
        if followed.revision is None or followed.revision < revision:
            async with followed.lock:
                while followed.revision is not None and followed.revision < revision:
                    if not await self._take_in(workspace, followed, followed.revision):
                        followed.revision = None
                if followed.revision is None:
                    followed.revision, followed.index = await self._read_all(workspace)
        return followed

    async def _take_in(self, workspace: UUID, followed: _Followed, after: int) -> bool:
        """The next changes; False where they are not known any more."""
        async with connection(self._pool) as connected:
            rows = await connected.fetch(_CHANGES, workspace, after, CHANGES_CHUNK)
        if not rows or rows[0]["revision"] != after + 1:
            return False
        _apply(followed.index, rows)
        followed.revision = rows[-1]["revision"]
        return True

    async def _read_all(self, workspace: UUID) -> tuple[int, NoteIndex]:
        async with connection(self._pool) as connected:
            # Read before the notes: what changes meanwhile is taken in after them.
            revision = await connected.fetchval("SELECT revision FROM workspaces WHERE id = $1", workspace) or 0
            notes: list[IndexedNote] = []
            last = ""
            while rows := await connected.fetch(_NOTES, workspace, last, CHUNK):
                notes.extend(IndexedNote(*row) for row in rows)
                last = rows[-1]["path"]
        index = NoteIndex()
        # A second's work for a hundred thousand notes, at the start.
        await asyncio.to_thread(index.put, *notes)
        return revision, index


def _apply(index: NoteIndex, rows: Iterable[asyncpg.Record]) -> None:
    latest: dict[str, IndexedNote | None] = {}
    for row in rows:
        if row["from_path"] is not None:
            latest[row["from_path"]] = None
        latest[row["path"]] = None if row["title"] is None else IndexedNote(row["path"], row["title"], row["modified"])
    for path, note in latest.items():
        if note is None:
            index.remove(path)
    index.put(*(note for note in latest.values() if note is not None))


_NOTES = """
    SELECT path, title, extract(epoch FROM modified_at)::float8 AS modified FROM notes
    WHERE workspace = $1 AND path > $2 ORDER BY path LIMIT $3
"""
# A note as it is now; it may have changed again since, which then is a later change.
_CHANGES = """
    SELECT c.revision, c.path, c.from_path, n.title, extract(epoch FROM n.modified_at)::float8 AS modified
    FROM changes c LEFT JOIN notes n USING (workspace, path)
    WHERE workspace = $1 AND c.revision > $2 ORDER BY c.revision LIMIT $3
"""
