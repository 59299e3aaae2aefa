"""Search by words in PostgreSQL, over the same words and weights as in the index: the answer while the engine is away.

What a word costs is the number of passages that have it, and those that most of them have decide least. Beyond what can be read in some
15 ms the commonest words of a query only add to what the rarer ones found, as long as these found enough.
"""

from itertools import accumulate

from services.retrieval.documents import signed
from shared.contracts.index import Filter, Scored, SparseVector
from shared.database.pool import Connection

SECONDS = 5.0
# So many times a passage is read for a word of it.
READ_MAX = 9_000


async def search(db: Connection, words: SparseVector, condition: Filter, limit: int) -> list[Scored]:
    """BM25 over the chunks that have any of the words, or of enough rarer ones to find `limit`. Rarity is counted, as the engine does,
    among all chunks. `db`: in a transaction.
    """
    # While much is written the planner takes the table for smaller than it is, and reads the whole of it, in as many processes as it may.
    await db.execute("SET LOCAL enable_seqscan = off; SET LOCAL max_parallel_workers_per_gather = 0")
    tokens = signed(words.indices)
    common = await too_common(db, tokens)
    rarer = [token for token in tokens if token not in common]
    if common and rarer and len(found := await _search(db, rarer, common, condition, limit)) == limit:
        return found
    return await _search(db, tokens, {}, condition, limit)


async def too_common(db: Connection, tokens: list[int]) -> dict[int, float]:
    """Those beyond what is to be read, and in how many chunks they are: PostgreSQL knows it of frequent ones, since it last looked through
    the table.
    """
    rows = await db.fetch(
        """
        SELECT word.token, word.share * c.reltuples AS chunks
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            JOIN pg_stats s ON s.schemaname = n.nspname AND s.tablename = c.relname AND s.attname = 'tokens',
            unnest(s.most_common_elems::text::int[], s.most_common_elem_freqs) AS word(token, share)
        WHERE c.oid = 'words'::regclass AND word.token = ANY($1) ORDER BY word.share
        """,
        tokens,
    )  # fmt: skip
    read = accumulate(row["chunks"] for row in rows)
    return {row["token"]: row["chunks"] for row, so_far in zip(rows, read, strict=True) if so_far > READ_MAX}


async def _search(db: Connection, tokens: list[int], common: dict[int, float], condition: Filter, limit: int) -> list[Scored]:
    rows = await db.fetch(
        """
        WITH everything AS (
            SELECT reltuples::float8 AS chunks FROM pg_class WHERE oid = 'words'::regclass
        ), common AS MATERIALIZED (
            SELECT token, ln(1 + (chunks - n + 0.5) / (n + 0.5)) AS idf FROM everything, unnest($7::int[], $8::float8[]) AS c(token, n)
        ), hit AS MATERIALIZED (
            SELECT s.point AS id, q.token, s.weights[array_position(s.tokens, q.token)] AS weight,
                   (SELECT sum(s.weights[array_position(s.tokens, c.token)] * c.idf) FROM common c) AS with_common
            FROM unnest($1::int[]) AS q(token) JOIN words s ON s.tokens @> ARRAY[q.token]
            WHERE s.workspace = ANY($2) AND ($3::uuid[] IS NULL OR s.document = ANY($3)) AND ($4 OR NOT s.exchange)
              AND ($5::text IS NULL OR EXISTS (SELECT FROM documents d WHERE d.id = s.document AND starts_with(d.path, $5)))
        ), counted AS MATERIALIZED (
            SELECT token, count(*) AS n FROM hit GROUP BY token
        ), rarity AS MATERIALIZED (
            SELECT token, ln(1 + (total - n + 0.5) / (n + 0.5)) AS idf
            FROM counted, (
                -- What was written since PostgreSQL looked through the table is not in its number.
                SELECT CASE WHEN chunks >= (SELECT max(n) FROM counted) THEN chunks ELSE (SELECT count(DISTINCT id) FROM hit) END AS total
                FROM everything
            ) AS known
        )
        SELECT id, sum(weight * idf) + coalesce(max(with_common), 0) AS score
        FROM hit JOIN rarity USING (token) GROUP BY id ORDER BY score DESC, id LIMIT $6
        """,
        tokens, condition.workspaces, condition.documents, condition.include_exchanges, condition.ancestor, limit,
        list(common), list(common.values()),
        timeout=SECONDS,
    )  # fmt: skip
    return [Scored(id=row["id"], score=row["score"]) for row in rows]


async def any_passage(db: Connection, condition: Filter, *, without_vector: bool = False) -> bool:
    """Whether there is anything to be found at all; with `without_vector`, anything whose vector is not published."""
    found: bool = await db.fetchval(
        "SELECT EXISTS (SELECT FROM chunks c JOIN documents d ON d.id = c.document WHERE c.workspace = ANY($1) "
        "AND ($2::uuid[] IS NULL OR c.document = ANY($2)) AND ($3 OR NOT c.exchange) AND ($4::text IS NULL OR starts_with(d.path, $4)) "
        "AND NOT ($5 AND c.embedded))",
        condition.workspaces, condition.documents, condition.include_exchanges, condition.ancestor, without_vector,
        timeout=SECONDS,
    )  # fmt: skip
    return found
