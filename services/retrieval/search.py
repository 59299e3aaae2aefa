"""Finds passages for a query, within what the asking account may read.

Words and meaning are looked up side by side and fused; where one of them is not to be had in time the other answers alone, and the
answer says that it is degraded. Where neither engine nor tables answer it is an error: never an empty success.
"""

import asyncio
import base64
import logging
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import batched
from uuid import UUID

import asyncpg

from services.retrieval import word_search
from services.retrieval.embedding import Embedder, EmbeddingError
from services.retrieval.fusion import fuse
from services.retrieval.index_writer import IndexWriter
from services.retrieval.passages import normal_tag, searchable_tags
from services.retrieval.tokens import query_vector
from services.retrieval.vector_index import VectorIndex
from shared.contracts import index, notes
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.index import Scored
from shared.contracts.notes import Workspace
from shared.contracts.retrieval import QUERY_CHARACTERS_MAX, RUN_LIMIT_MAX, Filters, Mode
from shared.contracts.subject import Empty
from shared.database.pool import UNAVAILABLE, Pool, connection
from shared.messaging.client import Client
from shared.messaging.scope import Scope
from shared.telemetry.tracing import tracer

logger = logging.getLogger(__name__)

HITS_PER_LEG = 100
# For whole notes the best hundred passages may be of too few notes.
HITS_PER_LEG_FOR_NOTES = 400
# Read beyond the limit, for hits that have gone since.
READ_AHEAD = 10
# What a search waits for the engine, and for the query's vector.
ENGINE_SECONDS = 0.8
EMBEDDING_SECONDS = 0.8


@dataclass(frozen=True, slots=True)
class Found:
    """A passage of a note, with its score from 0 to 1."""

    chunk: UUID
    document: UUID
    workspace: UUID
    path: str
    title: str
    content_hash: str
    ordinal: int
    heading_path: list[str]
    start: int
    end: int
    text: str
    sha256: str
    score: float


@dataclass(frozen=True, slots=True)
class Answer:
    """The best passages, best first, and what they were looked for in.

    Attributes:
        searched: the workspaces.
        dense_used: vectors took part.
        degraded: the mode's vectors, or the engine, did not.
    """

    found: list[Found]
    searched: list[Workspace]
    dense_used: bool
    degraded: bool


class Searcher:
    """Answers searches; without an `embedder` by words alone."""

    def __init__(self, pool: Pool, client: Client, engine: VectorIndex, writer: IndexWriter, embedder: Embedder | None) -> None:
        self._pool = pool
        self._client = client
        self._engine = engine
        self._writer = writer
        self._embedder = embedder

    async def search(self, mode: Mode, query: str, filters: Filters, limit: int, scope: Scope) -> Answer:
        """See the module.

        Raises:
            ServiceError: `invalid`, `workspace_not_found`, `retrieval_unavailable`; what the notes service says.
        """
        check(query, filters, limit)
        with tracer().start_as_current_span("retrieval", attributes={"marginalia.mode": mode}) as span:
            answer = await self._search(mode, query, filters, limit, scope)
            span.set_attribute("marginalia.hits", len(answer.found))
            span.set_attribute("marginalia.degraded", answer.degraded)
            return answer

    async def _search(self, mode: Mode, query: str, filters: Filters, limit: int, scope: Scope) -> Answer:
        wants_dense = mode in ("vector", "hybrid")
        async with asyncio.TaskGroup() as group:
            embedded = group.create_task(self._query_vector(query) if wants_dense else _nothing())
            allowed = group.create_task(self._allowed(filters, scope))
        if isinstance(searched := allowed.result(), ServiceError):
            raise searched
        try:
            condition = await self._condition(filters, [one.id for one in searched])
            per_leg = HITS_PER_LEG_FOR_NOTES if mode == "keyword" else HITS_PER_LEG
            sparse, dense, engine_used = await self._legs(mode, query, embedded.result(), condition, per_leg)
            ranked = fuse(sparse, dense, per_leg)
            found = await self._read(ranked, condition, limit, whole_notes=mode == "keyword")
        except (ServiceError, *UNAVAILABLE, asyncpg.PostgresError) as error:
            logger.warning("A search could not be answered: %s", type(error).__name__)
            raise ServiceError(
                ErrorCode.RETRIEVAL_UNAVAILABLE, "The notes cannot be searched just now; try again shortly.", retry_after=2
            ) from error
        degraded = not engine_used or (wants_dense and not dense and bool(sparse))
        return Answer(found, searched, bool(dense), degraded)

    async def _allowed(self, filters: Filters, scope: Scope) -> list[Workspace] | ServiceError:
        try:
            readable = {one.id: one for one in (await self._client.ask(notes.WORKSPACE_LIST, Empty(), scope)).items}
        except ServiceError as error:
            return error
        if filters.workspaces is None:
            return list(readable.values())
        if any(one not in readable for one in filters.workspaces):
            return ServiceError(ErrorCode.WORKSPACE_NOT_FOUND, "There is no such workspace.")
        return [readable[one] for one in dict.fromkeys(filters.workspaces)]

    async def _query_vector(self, query: str) -> bytes | None:
        if self._embedder is None or not self._embedder.makes(self._writer.space):
            return None
        try:
            return await self._embedder.query(query, EMBEDDING_SECONDS)
        except EmbeddingError as error:
            logger.warning("Searching by words alone: %s", error)
            return None

    async def _condition(self, filters: Filters, workspaces: list[UUID]) -> index.Filter:
        prefix = unicodedata.normalize("NFC", filters.path_prefix or "")
        folder = prefix[: prefix.rfind("/") + 1]
        documents = None
        if prefix != folder:
            async with connection(self._pool) as db:
                rows = await db.fetch("SELECT id FROM documents WHERE workspace = ANY($1) AND starts_with(path, $2)", workspaces, prefix)
            documents = [row["id"] for row in rows]
        tags = [normal_tag(tag) for tag in filters.tags or []]
        return index.Filter(
            workspaces=workspaces, ancestor=folder or None, tags=tags, documents=documents, include_exchanges=filters.include_exchanges
        )

    async def _legs(
        self, mode: Mode, query: str, vector: bytes | None, condition: index.Filter, limit: int
    ) -> tuple[list[Scored], list[Scored], bool]:
        """The hits by words, those by vectors, and whether the engine gave them."""
        words = query_vector(query)
        by_words = mode != "vector" or vector is None
        request = index.Search(
            filter=condition,
            sparse=words if by_words else None,
            dense=base64.b64encode(vector).decode() if vector is not None else None,
            limit=limit,
        )
        if self._writer.complete:
            try:
                reply = await self._engine.search(request, ENGINE_SECONDS)
                if reply.dense or by_words:
                    return reply.sparse, reply.dense, True
                # No passage has a vector yet.
                reply = await self._engine.search(request.model_copy(update={"sparse": words, "dense": None}), ENGINE_SECONDS)
                return reply.sparse, [], True
            except ServiceError as error:
                logger.warning("The engine did not answer a search (%s); looking words up in the tables", error.code)
                self._writer.suspect()
        return await self._words_in_tables(words, condition, limit), [], False

    async def _words_in_tables(self, words: index.SparseVector, condition: index.Filter, limit: int) -> list[Scored]:
        async with connection(self._pool) as db:
            if condition.tags:
                rows = await db.fetch(
                    "SELECT id, tags FROM documents WHERE workspace = ANY($1) AND ($2::uuid[] IS NULL OR id = ANY($2))",
                    condition.workspaces, condition.documents,
                )  # fmt: skip
                tagged = [row["id"] for row in rows if set(condition.tags) <= set(searchable_tags(row["tags"]))]
                condition = condition.model_copy(update={"documents": tagged})
            return await word_search.search(db, words, condition, limit)

    async def _read(self, ranked: Sequence[tuple[UUID, float]], condition: index.Filter, limit: int, *, whole_notes: bool) -> list[Found]:
        """The passages from the tables. Ids that the tables no longer have, and what the account may not read, are left out."""
        found: list[Found] = []
        size = len(ranked) if whole_notes else limit + READ_AHEAD
        async with connection(self._pool) as db:
            for some in batched(ranked, max(size, 1)):
                rows = await db.fetch(
                    "SELECT c.id AS chunk, c.document, c.workspace, d.path, d.title, d.content_hash, c.ordinal, c.heading_path, "
                    'c.start_at AS start, c.end_at AS "end", c.text, c.sha256 '
                    "FROM chunks c JOIN documents d ON d.id = c.document "
                    "WHERE c.id = ANY($1) AND c.workspace = ANY($2) AND NOT d.excluded AND ($3 OR NOT c.exchange)",
                    [one for one, _ in some], condition.workspaces, condition.include_exchanges,
                )  # fmt: skip
                by_id = {row["chunk"]: row for row in rows}
                found += [_found(by_id[one], score) for one, score in some if one in by_id]
                if len(found) >= limit:
                    break
        return (_best_of_each_note(found) if whole_notes else found)[:limit]


def check(query: str, filters: Filters, limit: int) -> None:
    """Refuse what cannot be searched for.

    Raises:
        ServiceError: `invalid`.
    """
    if not query.strip() or len(query) > QUERY_CHARACTERS_MAX or "\0" in query:
        raise ServiceError(ErrorCode.INVALID, f"A query has 1 to {QUERY_CHARACTERS_MAX} characters, not all blank.")
    if not 1 <= limit <= RUN_LIMIT_MAX:
        raise ServiceError(ErrorCode.INVALID, f"The limit is 1 to {RUN_LIMIT_MAX}.")
    if "\0" in (filters.path_prefix or "") or any("\0" in tag or not normal_tag(tag) for tag in filters.tags or []):
        raise ServiceError(ErrorCode.INVALID, "A path prefix or a tag is not one that a note can have.")


def _found(row: asyncpg.Record, score: float) -> Found:
    return Found(**dict(row.items()), score=round(score, 6))


def _best_of_each_note(found: Sequence[Found]) -> list[Found]:
    best: dict[UUID, Found] = {}
    for one in found:
        best.setdefault(one.document, one)
    return list(best.values())


async def _nothing() -> None:
    return None
