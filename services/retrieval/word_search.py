"""Search by words in PostgreSQL, over the same words and weights as in the index: the answer while the engine is away."""

from services.retrieval.documents import signed
from shared.contracts.index import Filter, Scored, SparseVector
from shared.database.pool import Connection

SECONDS = 5.0


async def search(db: Connection, words: SparseVector, condition: Filter, limit: int) -> list[Scored]:
    """BM25 over the chunks that have any of the words. Rarity is counted, as the engine does, among all chunks. `db`: in a transaction."""
    # While much is written the planner takes the table for smaller than it is, and reads the whole of it, in as many processes as it may.
    await db.execute("SET LOCAL enable_seqscan = off; SET LOCAL max_parallel_workers_per_gather = 0")
    rows = await db.fetch(
        """
        WITH hit AS MATERIALIZED (
            SELECT s.point AS id, q.token, s.weights[array_position(s.tokens, q.token)] AS weight
            FROM unnest($1::int[]) AS q(token) JOIN words s ON s.tokens @> ARRAY[q.token]
            WHERE s.workspace = ANY($2) AND ($3::uuid[] IS NULL OR s.document = ANY($3)) AND ($4 OR NOT s.exchange)
              AND ($5::text IS NULL OR EXISTS (SELECT FROM documents d WHERE d.id = s.document AND starts_with(d.path, $5)))
        ), rarity AS (
            SELECT token, ln(1 + (total - n + 0.5::float8) / (n + 0.5::float8)) AS idf
            FROM (SELECT token, count(*) AS n FROM hit GROUP BY token) AS counted,
                 (SELECT greatest((SELECT count(DISTINCT id) FROM hit), (SELECT reltuples FROM pg_class WHERE oid = 'words'::regclass))
                      AS total) AS all_chunks
        )
        SELECT id, sum(weight * idf) AS score FROM hit JOIN rarity USING (token) GROUP BY id ORDER BY score DESC, id LIMIT $6
        """,
        signed(words.indices), condition.workspaces, condition.documents, condition.include_exchanges, condition.ancestor, limit,
        timeout=SECONDS,
    )  # fmt: skip
    return [Scored(id=row["id"], score=row["score"]) for row in rows]


async def any_passage(db: Connection, condition: Filter) -> bool:
    """Whether there is anything to be found at all."""
    found: bool = await db.fetchval(
        "SELECT EXISTS (SELECT FROM chunks c JOIN documents d ON d.id = c.document WHERE c.workspace = ANY($1) "
        "AND ($2::uuid[] IS NULL OR c.document = ANY($2)) AND ($3 OR NOT c.exchange) AND ($4::text IS NULL OR starts_with(d.path, $4)))",
        condition.workspaces, condition.documents, condition.include_exchanges, condition.ancestor,
        timeout=SECONDS,
    )  # fmt: skip
    return found
