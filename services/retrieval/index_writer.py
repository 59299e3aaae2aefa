"""Brings the index to what the tables say, and notices when it is not.

Chunks that are not in the index and removals are worked off in order; whoever commits changes calls `drain`, and `run` repeats what
failed. An index that lost its points (wiped, damaged, another one) is filled again from the tables: words and dense vectors are kept
there, nothing is cut or embedded anew.
"""

import asyncio
import base64
import contextlib
import logging
from collections.abc import Sequence
from uuid import UUID

import asyncpg

from services.retrieval.documents import sparse
from services.retrieval.passages import ancestors, searchable_tags
from services.retrieval.vector_index import VectorIndex
from shared.contracts.errors import ServiceError
from shared.contracts.index import DenseVector, Point
from shared.database.pool import UNAVAILABLE, Connection, Pool, connection, transaction

logger = logging.getLogger(__name__)

POINTS_PER_WRITE = 128
REMOVALS_PER_WRITE = 512
RETRY_SECONDS = 2.0
CHECK_SECONDS = 15.0
CONFIRM_SECONDS = 1.0


class IndexWriter:
    """The index's one writer in this process."""

    def __init__(self, pool: Pool, index: VectorIndex) -> None:
        self._pool = pool
        self._index = index
        self._lock = asyncio.Lock()
        self._complete = False
        self._check_due = asyncio.Event()
        self.space: str | None = None

    @property
    def complete(self) -> bool:
        """Whether the index is known to hold all that the tables gave it; while not, words are looked up in the tables."""
        return self._complete

    def suspect(self) -> None:
        """The index did not answer a search, or did not take a write: have searches look in the tables, until it is known to hold all."""
        self._complete = False
        self._check_due.set()

    async def load(self) -> None:
        """Learn which embedding space the index's vectors are of."""
        async with connection(self._pool) as db:
            self.space = await db.fetchval("SELECT space FROM embedding_space")

    async def drain(self) -> None:
        """Write what is due. Raises `ServiceError` where the index or the database is away; all that is left stays due."""
        async with self._lock:
            while await self._write_removals() or await self._write_points():
                pass

    async def run(self) -> None:
        """Check the index now and then, and write what a failure left over; for ever."""
        while True:
            self._check_due.clear()
            try:
                await self.check()
                pause = CHECK_SECONDS
            except (ServiceError, *UNAVAILABLE, asyncpg.PostgresError) as error:
                logger.warning("The index cannot be brought up to date yet: %s", error)
                self._complete = False
                pause = RETRY_SECONDS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._check_due.wait()

    async def check(self) -> None:
        """Compare the number of points with the tables, and fill the index again where they differ."""
        await self.drain()
        if (counted := await self._count()) is None:
            self._complete = True
            return
        self._complete = False
        # Another instance may have been between its two writes: only what is the same a moment later is a difference.
        await asyncio.sleep(CONFIRM_SECONDS)
        async with self._lock:
            if await self._count() != counted:
                self._check_due.set()
                return
            points, expected = counted
            logger.warning("The index has %d points where the tables have %d; filling it again", points, expected)
            if points > expected:
                await self._index.clear()
            await self._forget()
        await self.drain()
        self._complete = True

    async def _count(self) -> tuple[int, int] | None:
        """The points in the index and those that the tables say are there; None where they agree."""
        points = await self._index.count()
        async with connection(self._pool) as db:
            expected = await db.fetchval("SELECT count(*) FROM chunks WHERE in_index")
        return None if points == expected else (points, expected)

    async def begin_space(self, space: str) -> None:
        """Start over with another embedding space: the old vectors are near to nothing in it. Words stay searchable in the tables."""
        async with self._lock:
            self._complete = False
            await self._index.clear()
            await self._forget()
            async with transaction(self._pool) as db:
                await db.execute(
                    "INSERT INTO embedding_space (space) VALUES ($1) ON CONFLICT (single) DO UPDATE SET space = excluded.space", space
                )
            self.space = space
        await self.drain()
        self._complete = True

    async def set_dense(self, vectors: Sequence[tuple[UUID, bytes, bytes]]) -> None:
        """Give chunks (id, passage hash, float32 vector) their dense vectors."""
        async with self._lock:
            await self._index.set_dense([DenseVector(id=one, dense=base64.b64encode(vector).decode()) for one, _, vector in vectors])
            async with transaction(self._pool) as db:
                workspaces = await db.fetch(
                    "UPDATE chunks c SET dense = true FROM unnest($1::uuid[], $2::bytea[]) AS v(id, sha) "
                    "WHERE c.id = v.id AND c.passage_sha = v.sha AND c.in_index RETURNING c.workspace",
                    [one for one, _, _ in vectors], [sha for _, sha, _ in vectors],
                )  # fmt: skip
                await _raise_vectors(db, {row["workspace"] for row in workspaces})

    async def _forget(self) -> None:
        async with connection(self._pool) as db:
            await db.execute("UPDATE chunks SET in_index = false, dense = false WHERE in_index OR dense", timeout=60)

    async def _write_removals(self) -> bool:
        async with connection(self._pool) as db:
            ids = [row["chunk"] for row in await db.fetch("SELECT chunk FROM removals LIMIT $1", REMOVALS_PER_WRITE)]
        if not ids:
            return False
        await self._index.delete(ids)
        async with connection(self._pool) as db:
            await db.execute("DELETE FROM removals WHERE chunk = ANY($1)", ids)
        return True

    async def _write_points(self) -> bool:
        async with connection(self._pool) as db:
            rows = await db.fetch(
                "SELECT c.id, c.workspace, c.document, c.tokens, c.weights, c.exchange, c.point_hash, d.path, d.tags, v.vector "
                "FROM chunks c JOIN documents d ON d.id = c.document "
                "LEFT JOIN vectors v ON v.space = $1 AND v.passage_sha = c.passage_sha WHERE NOT c.in_index LIMIT $2",
                self.space, POINTS_PER_WRITE,
            )  # fmt: skip
        if not rows:
            return False
        await self._index.upsert([_point(row) for row in rows])
        async with transaction(self._pool) as db:
            await db.execute(
                "UPDATE chunks c SET in_index = true, dense = c.dense OR w.dense "
                "FROM unnest($1::uuid[], $2::bytea[], $3::boolean[]) AS w(id, hash, dense) WHERE c.id = w.id AND c.point_hash = w.hash",
                [row["id"] for row in rows], [row["point_hash"] for row in rows], [row["vector"] is not None for row in rows],
            )  # fmt: skip
            # Gone since they were read: the removal may have been worked off before the point was written.
            await db.execute(
                "INSERT INTO removals SELECT one FROM unnest($1::uuid[]) AS one WHERE NOT EXISTS (SELECT FROM chunks WHERE id = one) "
                "ON CONFLICT DO NOTHING",
                [row["id"] for row in rows],
            )
            await _raise_vectors(db, {row["workspace"] for row in rows if row["vector"] is not None})
        return True


async def _raise_vectors(db: Connection, workspaces: set[UUID]) -> None:
    if workspaces:
        await db.execute(
            "UPDATE publications SET vector_generation = vector_generation + 1, vectors_at = now() WHERE workspace = ANY($1)",
            sorted(workspaces),
        )


def _point(row: asyncpg.Record) -> Point:
    return Point(
        id=row["id"],
        sparse=sparse(row["tokens"], row["weights"]),
        dense=base64.b64encode(row["vector"]).decode() if row["vector"] is not None else None,
        payload={
            "workspace": str(row["workspace"]),
            "document": str(row["document"]),
            "ancestors": ancestors(row["path"]),
            "tags": searchable_tags(row["tags"]),
            "exchange": row["exchange"],
        },
    )
