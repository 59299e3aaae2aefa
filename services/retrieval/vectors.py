"""Makes dense vectors in the background: newest notes first, a few passages at a time, nothing twice.

Vectors are kept in PostgreSQL by what was embedded, so that a rebuilt index, a moved note or an unchanged paragraph costs no embedding.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence
from uuid import UUID

import asyncpg

from services.retrieval.embedding import Embedder, EmbeddingError
from services.retrieval.index_writer import IndexWriter
from services.retrieval.indexer import Indexer
from services.retrieval.passages import embedded_text
from shared.contracts.errors import ServiceError
from shared.database.pool import UNAVAILABLE, Connection, Pool, connection

logger = logging.getLogger(__name__)

REUSED_PER_WRITE = 256
# Looked for at once: finding the newest takes longer the more there are without a vector.
LISTED = 4096
IDLE_SECONDS = 1.0
BUSY_SECONDS = 0.2
# Vectors of texts that are no longer anywhere are kept this long, mostly: what was deleted often comes back.
COLLECT_SECONDS = 3600.0
RETRY_SECONDS = 1.0
RETRY_SECONDS_MAX = 30.0


class Vectors:
    """The loop. `last_error` is a sentence, None after a success."""

    def __init__(self, pool: Pool, indexer: Indexer, writer: IndexWriter, embedder: Embedder) -> None:
        self._pool = pool
        self._indexer = indexer
        self._writer = writer
        self._embedder = embedder
        self._next_space: str | None = None
        self._refused: set[bytes] = set()
        self._listed: deque[UUID] = deque()
        self._listed_of = -1
        self._collected_at = time.monotonic()
        self.last_error: str | None = None

    async def run(self) -> None:
        """For ever."""
        retry = RETRY_SECONDS
        while True:
            if self._indexer.busy:
                # Words first: a model on this machine would take the time that they need.
                await asyncio.sleep(BUSY_SECONDS)
                continue
            try:
                worked = await self.step()
                if not worked and time.monotonic() - self._collected_at > COLLECT_SECONDS:
                    await self.collect()
                self.last_error = f"{len(self._refused)} passages are refused by the embedding model." if self._refused else None
                retry, pause = RETRY_SECONDS, 0.0 if worked else IDLE_SECONDS
            except (EmbeddingError, ServiceError, *UNAVAILABLE, asyncpg.PostgresError) as error:
                # PostgreSQL's own words may quote what was to be stored.
                self.last_error = str(error) if isinstance(error, EmbeddingError | ServiceError) else "The vectors could not be stored."
                logger.warning("Vectors cannot be made yet: %s: %s", type(error).__name__, self.last_error)
                asked_for = error.retry_after if isinstance(error, EmbeddingError) else 0.0
                pause, retry = max(retry, asked_for), min(2 * retry, RETRY_SECONDS_MAX)
            await asyncio.sleep(pause)

    async def step(self) -> bool:
        """Give some chunks their vectors; False when there is nothing to do."""
        space = self._writer.space
        if space is not None and not self._embedder.makes(space):
            return await self._prepare_next_space()
        rows = await self._due()
        ready = [row for row in rows if row["vector"] is not None]
        if ready:
            await self._writer.set_dense([(row["point"], row["vector"]) for row in ready])
            return True
        made = await self._make([row for row in rows if row["passage_sha"] not in self._refused])
        await self._writer.set_dense([(row["point"], vector) for row, vector in made])
        return bool(made)

    async def collect(self) -> int:
        """Forget the vectors of texts that no chunk has any more; how many there were."""
        self._collected_at = time.monotonic()
        async with connection(self._pool) as db:
            done = await db.execute("DELETE FROM vectors v WHERE NOT EXISTS (SELECT FROM chunks c WHERE c.passage_sha = v.passage_sha)")
        return int(done.removeprefix("DELETE "))

    async def _prepare_next_space(self) -> bool:
        """Another model than before: all its vectors are made before the index goes over to them, and the old ones answer meanwhile."""
        if self._next_space is None:
            # The dimension is known once the model has embedded something.
            (vector,) = await self._embedder.passages(["?"])
            self._next_space = self._embedder.space(len(vector) // 4)
        async with connection(self._pool) as db:
            rows = await db.fetch(
                "SELECT DISTINCT ON (c.passage_sha) c.heading_path, c.text, c.passage_sha FROM chunks c WHERE NOT c.passage_sha = ANY($3) "
                "AND NOT EXISTS (SELECT FROM vectors v WHERE v.space = $1 AND v.passage_sha = c.passage_sha) LIMIT $2",
                self._next_space, self._embedder.passages_at_once, list(self._refused),
            )  # fmt: skip
        if rows:
            await self._make(rows)
        else:
            await self._writer.begin_space(self._next_space)
            self._next_space = None
        return True

    async def _make(self, rows: Sequence[asyncpg.Record]) -> list[tuple[asyncpg.Record, bytes]]:
        """Vectors for some of these, kept. What the model refuses is left out from then on: one bad passage must not stop the others."""
        chosen = rows[: self._embedder.passages_at_once]
        while chosen:
            try:
                vectors = await self._embedder.passages([embedded_text(row["heading_path"], row["text"]) for row in chosen])
            except EmbeddingError as error:
                if not error.refused:
                    raise
                if len(chosen) == 1:
                    self._refused.add(chosen[0]["passage_sha"])
                    return []
                chosen = chosen[: len(chosen) // 2]
            else:
                await self._keep(chosen, vectors)
                return list(zip(chosen, vectors, strict=True))
        return []

    async def _due(self) -> list[asyncpg.Record]:
        """The next few, in the order of the list; it is made anew when it is worked off, and when something was published since."""
        async with connection(self._pool) as db:
            if self._listed_of != self._writer.published:
                self._listed.clear()
            most = self._writer.pace.piece(REUSED_PER_WRITE)
            while self._listed or await self._list(db):
                some = [self._listed[at] for at in range(min(most, len(self._listed)))]
                rows = await db.fetch(
                    "SELECT c.point, c.heading_path, c.text, c.passage_sha, v.vector "
                    "FROM unnest($2::uuid[]) WITH ORDINALITY AS l(point, place) JOIN chunks c ON c.point = l.point "
                    "LEFT JOIN vectors v ON v.space = $1 AND v.passage_sha = c.passage_sha "
                    "WHERE NOT c.dense AND c.in_index AND NOT c.passage_sha = ANY($3) ORDER BY l.place",
                    self._writer.space, some, list(self._refused),
                )  # fmt: skip
                # Those before got their vectors, have gone, or are refused.
                for _ in range(some.index(rows[0]["point"]) if rows else len(some)):
                    self._listed.popleft()
                if rows:
                    return rows
        return []

    async def _list(self, db: Connection) -> bool:
        """Whether there are any."""
        self._listed_of = self._writer.published
        rows = await db.fetch(
            "SELECT c.point FROM chunks c JOIN documents d ON d.id = c.document WHERE NOT c.dense AND c.in_index "
            "AND NOT c.passage_sha = ANY($2) ORDER BY d.modified_at DESC, d.id, c.ordinal LIMIT $1",
            LISTED, list(self._refused),
        )  # fmt: skip
        self._listed.extend(row["point"] for row in rows)
        return bool(rows)

    async def _keep(self, rows: Sequence[asyncpg.Record], vectors: Sequence[bytes]) -> None:
        """Also where the model has changed behind its name: vectors of another dimension are of another space."""
        space = self._embedder.space(len(vectors[0]) // 4)
        if self._next_space is not None:
            self._next_space = space
        elif space != self._writer.space:
            await self._writer.begin_space(space)
        async with connection(self._pool) as db:
            await db.execute(
                "INSERT INTO vectors (space, passage_sha, vector) SELECT $1, sha, vector "
                "FROM unnest($2::bytea[], $3::bytea[]) AS v(sha, vector) ON CONFLICT DO NOTHING",
                space, [row["passage_sha"] for row in rows], list(vectors),
            )  # fmt: skip
