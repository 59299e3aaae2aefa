"""Makes dense vectors in the background: newest notes first, a few passages at a time, nothing twice.

Vectors are kept in PostgreSQL by what was embedded, so that a rebuilt index, a moved note or an unchanged paragraph costs no embedding.
"""

import asyncio
import logging
from collections.abc import Sequence

import asyncpg

from services.retrieval.embedding import Embedder, EmbeddingError
from services.retrieval.index_writer import IndexWriter
from services.retrieval.indexer import Indexer
from services.retrieval.passages import embedded_text
from shared.contracts.errors import ServiceError
from shared.database.pool import UNAVAILABLE, Pool, connection

logger = logging.getLogger(__name__)

PASSAGES_PER_REQUEST = 8
REUSED_PER_WRITE = 128
IDLE_SECONDS = 1.0
BUSY_SECONDS = 0.2
RETRY_SECONDS = 1.0
RETRY_SECONDS_MAX = 30.0


class Vectors:
    """The loop. `last_error` is a sentence, None after a success."""

    def __init__(self, pool: Pool, indexer: Indexer, writer: IndexWriter, embedder: Embedder) -> None:
        self._pool = pool
        self._indexer = indexer
        self._writer = writer
        self._embedder = embedder
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
                self.last_error, retry = None, RETRY_SECONDS
                pause = 0.0 if worked else IDLE_SECONDS
            except (EmbeddingError, ServiceError, *UNAVAILABLE, asyncpg.PostgresError) as error:
                # PostgreSQL's own words may quote what was to be stored.
                self.last_error = str(error) if isinstance(error, EmbeddingError | ServiceError) else "The vectors could not be stored."
                logger.warning("Vectors cannot be made yet: %s", error)
                pause, retry = retry, min(2 * retry, RETRY_SECONDS_MAX)
            await asyncio.sleep(pause)

    async def step(self) -> bool:
        """Give some chunks their vectors; False when there is nothing to do."""
        if self._writer.space is not None and not self._embedder.makes(self._writer.space):
            # Another model than before: its dimension is known once it has embedded something.
            (vector,) = await self._embedder.passages(["?"])
            await self._writer.begin_space(self._embedder.space(len(vector) // 4))
        rows = await self._due()
        if not rows:
            return False
        ready = [row for row in rows if row["vector"] is not None]
        if ready:
            await self._writer.set_dense([(row["point"], row["vector"]) for row in ready])
            return True
        chosen = rows[:PASSAGES_PER_REQUEST]
        vectors = await self._embedder.passages([embedded_text(row["heading_path"], row["text"]) for row in chosen])
        await self._keep(chosen, vectors)
        await self._writer.set_dense([(row["point"], vector) for row, vector in zip(chosen, vectors, strict=True)])
        return True

    async def _due(self) -> list[asyncpg.Record]:
        async with connection(self._pool) as db:
            return await db.fetch(
                "SELECT c.point, c.heading_path, c.text, c.passage_sha, v.vector FROM chunks c JOIN documents d ON d.id = c.document "
                "LEFT JOIN vectors v ON v.space = $1 AND v.passage_sha = c.passage_sha WHERE NOT c.dense AND c.in_index "
                "ORDER BY d.modified_at DESC, d.id, c.ordinal LIMIT $2",
                self._writer.space, REUSED_PER_WRITE,
            )  # fmt: skip

    async def _keep(self, rows: Sequence[asyncpg.Record], vectors: Sequence[bytes]) -> None:
        space = self._embedder.space(len(vectors[0]) // 4)
        if space != self._writer.space:
            await self._writer.begin_space(space)
        async with connection(self._pool) as db:
            await db.execute(
                "INSERT INTO vectors (space, passage_sha, vector) SELECT $1, sha, vector "
                "FROM unnest($2::bytea[], $3::bytea[]) AS v(sha, vector) ON CONFLICT DO NOTHING",
                space, [row["passage_sha"] for row in rows], list(vectors),
            )  # fmt: skip
