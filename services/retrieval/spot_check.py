"""Whether the index finds what it is said to hold: some passages are looked up by their own words and their own vector.

As many points as there should be say nothing about what they hold: pages of a damaged disk, a folder copied while it was written.
"""

from collections.abc import Collection
from uuid import UUID, uuid4

import asyncpg

from services.retrieval.documents import sparse
from services.retrieval.vector_index import VectorIndex
from shared.contracts.index import Filter, Scored, Search, encoded
from shared.database.pool import Pool, connection

POINTS = 8
SECONDS = 5.0
# A vector is this near to itself, rounded as an engine may keep it.
SELF = 0.9
# Of the notes that have more passages than that, others may come before.
HITS = 64


async def sample(pool: Pool) -> list[UUID]:
    """Some of the points that the index should have, others each time: their ids have no order."""
    async with connection(pool) as db:
        rows = await db.fetch("SELECT point FROM chunks WHERE in_index AND point >= $1 ORDER BY point LIMIT $2", uuid4(), POINTS)
    return [row["point"] for row in rows]


async def lost(pool: Pool, index: VectorIndex, space: str | None, points: Collection[UUID]) -> set[UUID]:
    """Those of the points that the index should find and does not.

    Raises:
        ServiceError: the index or the database does not answer.
    """
    async with connection(pool) as db:
        rows = await db.fetch(
            "SELECT c.point, c.workspace, c.document, c.dense, s.tokens, s.weights, v.vector FROM chunks c JOIN words s ON s.chunk = c.id "
            "LEFT JOIN vectors v ON c.dense AND v.space = $1 AND v.passage_sha = c.passage_sha WHERE c.in_index AND c.point = ANY($2)",
            space, list(points),
        )  # fmt: skip
    return {row["point"] for row in rows if not await _is_found(index, row)}


async def _is_found(index: VectorIndex, row: asyncpg.Record) -> bool:
    words = sparse(row["tokens"], row["weights"]) if row["tokens"] else None
    vector = encoded(row["vector"]) if row["vector"] is not None else None
    if words is None and vector is None:
        return True
    of_note = Filter(workspaces=[row["workspace"]], documents=[row["document"]], include_exchanges=True)
    reply = await index.search(Search(filter=of_note, sparse=words, dense=vector, limit=HITS), SECONDS)
    return (words is None or _has(reply.sparse, row["point"], 0.0)) and (vector is None or _has(reply.dense, row["point"], SELF))


def _has(leg: list[Scored], point: UUID, least: float) -> bool:
    if len(leg) >= HITS:
        return leg[0].score >= least
    return any(hit.id == point and hit.score >= least for hit in leg)
