"""Search by words in PostgreSQL, over the same words and weights as in the index: the answer while the engine is away."""

from services.retrieval.documents import signed
from shared.contracts.index import Filter, Scored, SparseVector
from shared.database.pool import Connection

SECONDS = 5.0


async def search(db: Connection, words: SparseVector, condition: Filter, limit: int) -> list[Scored]:
    """BM25 over the chunks that have any of the words. Rarity is counted among the chunks of the searched workspaces."""
    rows = await db.fetch(
        """
        WITH hit AS (
            SELECT c.point AS id, w.token, w.weight
            FROM chunks c JOIN documents d ON d.id = c.document, unnest(c.tokens, c.weights) AS w(token, weight)
            WHERE c.tokens && $1::int[] AND w.token = ANY($1) AND c.workspace = ANY($2)
              AND ($3::uuid[] IS NULL OR c.document = ANY($3)) AND ($4 OR NOT c.exchange)
              AND ($5::text IS NULL OR starts_with(d.path, $5))
        ), rarity AS (
            SELECT token, ln(1 + (total - n + 0.5) / (n + 0.5)) AS idf
            FROM (SELECT token, count(*) AS n FROM hit GROUP BY token) AS counted,
                 (SELECT count(*) AS total FROM chunks WHERE workspace = ANY($2)) AS all_chunks
        )
        SELECT id, sum(weight * idf) AS score FROM hit JOIN rarity USING (token) GROUP BY id ORDER BY score DESC, id LIMIT $6
        """,
        signed(words.indices), condition.workspaces, condition.documents, condition.include_exchanges, condition.ancestor, limit,
        timeout=SECONDS,
    )  # fmt: skip
    return [Scored(id=row["id"], score=row["score"]) for row in rows]
