"""Finds passages for a query, within what the asking account may read.

Words and meaning are looked up side by side and fused; where one of them is not to be had in time the other answers alone, and the
answer says that it is degraded. Where neither engine nor tables answer it is an error: never an empty success. All that one search reads
of the tables it reads in one snapshot, so that it sees one publication whole, whatever is published meanwhile.
"""

import asyncio
import logging
import time
import unicodedata
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import batched
from uuid import UUID

import asyncpg

from services.retrieval import word_search
from services.retrieval.embedding import Embedder, EmbeddingError
from services.retrieval.fusion import fuse, words_share
from services.retrieval.index_writer import IndexWriter
from services.retrieval.passages import normal_tag, searchable_tags
from services.retrieval.publications import Publications, Seen
from services.retrieval.tokens import query_vector
from services.retrieval.vector_index import VectorIndex
from shared.contracts import index, notes
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.index import Scored
from shared.contracts.notes import Workspace
from shared.contracts.retrieval import QUERY_CHARACTERS_MAX, RUN_LIMIT_MAX, Filters, Mode
from shared.contracts.subject import Empty
from shared.database.pool import UNAVAILABLE, Connection, Pool, connection
from shared.messaging.client import Client
from shared.messaging.scope import Scope
from shared.telemetry import tracing
from shared.telemetry import vocabulary as words

logger = logging.getLogger(__name__)

HITS_PER_LEG = 100
# For whole notes the best hundred passages may be of too few notes.
HITS_PER_LEG_FOR_NOTES = 400
# A leg is asked for more where some of it is no longer published, or not yet.
HITS_PER_LEG_MAX = 6400
# What a search waits for the engine, and for the query's vector.
ENGINE_SECONDS = 0.8
EMBEDDING_SECONDS = 0.8
# A former model that does not answer is left alone for so long.
FORMER_RESTS_SECONDS = 60.0


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
        seen: their publications, one of each, as all of `found` is of them.
        dense_used: vectors took part, or would have had there been any passage.
        degraded: the mode's vectors, or the engine, did not; or a search by vectors alone could not see every passage.
    """

    found: list[Found]
    searched: list[Workspace]
    seen: list[Seen]
    dense_used: bool
    degraded: bool


@dataclass(frozen=True, slots=True)
class _Legs:
    """The hits by words and by vectors. `all_words`: there are no others that have any of the words."""

    sparse: list[Scored]
    dense: list[Scored]
    all_words: bool
    engine_used: bool


@dataclass(frozen=True, slots=True)
class _Leg:
    """One leg of an engine's reply, without what is not published. `own`: what it found itself; `others`: the scores of what only the other
    leg found. `is_cut`: there is more.
    """

    own: list[Scored]
    others: list[Scored]
    is_cut: bool

    @classmethod
    def of(cls, hits: Sequence[Scored], limit: int, published: set[UUID]) -> "_Leg":
        own, others = ([hit for hit in part if hit.id in published] for part in (hits[:limit], hits[limit:]))
        return cls(own, others, is_cut=len(hits) >= limit)

    def first(self, size: int, other: "_Leg") -> list[Scored]:
        """Its best hits, and what it says of the best of the other."""
        wanted = {hit.id for hit in other.own[:size]}
        return [*self.own[:size], *(hit for hit in (*self.own[size:], *self.others) if hit.id in wanted)]


@dataclass(frozen=True, slots=True)
class _Published:
    """Points, and which of them are so with their vectors."""

    points: set[UUID]
    with_vector: set[UUID]


class Searcher:
    """Answers searches; without an `embedder` by words alone."""

    def __init__(
        self, pool: Pool, client: Client, engine: VectorIndex, writer: IndexWriter, publications: Publications, embedder: Embedder | None
    ) -> None:
        self._pool = pool
        self._client = client
        self._engine = engine
        self._writer = writer
        self._publications = publications
        self._embedder = embedder
        self._former: Embedder | None = None
        self._former_rests_until = 0.0

    async def close(self) -> None:
        """Let go of the connections to a former model."""
        if self._former is not None:
            await self._former.close()

    async def search(self, mode: Mode, query: str, filters: Filters, limit: int, scope: Scope) -> Answer:
        """See the module.

        Raises:
            ServiceError: `invalid`, `workspace_not_found`, `retrieval_unavailable`; what the notes service says.
        """
        check(query, filters, limit)
        asked: tracing.Attributes = {words.GEN_AI_OPERATION: "retrieval", words.GEN_AI_TOP_K: limit, words.SEARCH_MODE: mode}
        with tracing.span(words.RETRIEVAL, asked) as span:
            answer = await self._search(mode, query, filters, limit, scope)
            span.set_attributes({words.HITS: len(answer.found), words.DEGRADED: answer.degraded})
            return answer

    async def _search(self, mode: Mode, query: str, filters: Filters, limit: int, scope: Scope) -> Answer:
        wants_dense = mode in ("vector", "hybrid")
        self._writer.pace.searched()
        async with asyncio.TaskGroup() as group:
            embedded = group.create_task(self._query_vector(query) if wants_dense else _nothing())
            allowed = group.create_task(self._allowed(filters, scope))
        if isinstance(searched := allowed.result(), ServiceError):
            raise searched
        try:
            async with snapshot(self._pool) as db:
                seen = await self._publications.seen(db, [one.id for one in searched])
                condition = await _condition(db, filters, [one.id for one in searched])
                in_index = all(one.in_index for one in seen)
                legs = await self._legs(db, mode, query, embedded.result(), condition, in_index=in_index)
                ranked = fuse(legs.sparse, legs.dense, words_share(query), all_words=legs.all_words)
                found = await _read(db, ranked, limit, whole_notes=mode == "keyword")
                # Each passage is near to any query: only where there are none may the engine's vectors find nothing.
                without_vectors = wants_dense and legs.engine_used and not legs.dense and await _any_passage(db, condition)
                # Where words are looked up, too, they find what has no vector yet.
                complete = all(one.vector is not None and one.vector.complete for one in seen)
                partly_blind = mode == "vector" and not complete and await _any_passage(db, condition, without_vector=True)
        except (ServiceError, *UNAVAILABLE, asyncpg.PostgresError) as error:
            logger.warning("A search could not be answered: %s", type(error).__name__)
            raise ServiceError(
                ErrorCode.RETRIEVAL_UNAVAILABLE, "The notes cannot be searched just now; try again shortly.", retry_after=2
            ) from error
        dense_used = wants_dense and legs.engine_used and not without_vectors
        return Answer(found, searched, seen, dense_used, not legs.engine_used or without_vectors or partly_blind)

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
        space = self._writer.space
        if self._embedder is None or space is None:
            return None
        embedder = self._embedder if self._embedder.makes(space) else self._former_embedder(space)
        if embedder is None:
            return None
        try:
            return await embedder.query(query, EMBEDDING_SECONDS)
        except EmbeddingError as error:
            logger.warning("Searching by words alone: %s", error)
            if embedder is self._former:
                self._former_rests_until = time.monotonic() + FORMER_RESTS_SECONDS
            return None

    def _former_embedder(self, space: str) -> Embedder | None:
        """While the vectors of another model are being made the old ones answer, as long as the old model can be asked."""
        if self._former is None or not self._former.makes(space):
            assert self._embedder is not None  # so it is asked only then
            self._former = self._embedder.of_space(space)
        return self._former if time.monotonic() >= self._former_rests_until else None

    async def _legs(
        self, db: Connection, mode: Mode, query: str, vector: bytes | None, condition: index.Filter, *, in_index: bool
    ) -> _Legs:
        sparse = query_vector(query)
        by_words = mode != "vector" or vector is None
        dense = index.encoded(vector) if vector is not None else None
        size = HITS_PER_LEG_FOR_NOTES if mode == "keyword" else HITS_PER_LEG
        if self._writer.complete and in_index:
            try:
                request = index.Search(filter=condition, sparse=sparse if by_words else None, dense=dense, limit=size)
                legs = await self._ask(db, request)
                if not by_words and not legs.dense:
                    # No passage has a vector yet.
                    legs = await self._ask(db, request.model_copy(update={"sparse": sparse, "dense": None}))
                # An engine that was wiped or damaged knows no words. Where there really are none the tables say so quickly.
                missed = await _words_in_tables(db, sparse, condition, 1) if not legs.sparse and (by_words or not legs.dense) else []
                if not missed:
                    return legs
                logger.warning("The engine does not know what the tables know; looking words up there")
                self._writer.suspect(missed[0].id)
            except ServiceError as error:
                logger.warning("The engine did not answer a search (%s); looking words up in the tables", error.code)
                self._writer.suspect()
        found = await _words_in_tables(db, sparse, condition, size)
        return _Legs(found, [], all_words=len(found) < size, engine_used=False)

    async def _ask(self, db: Connection, request: index.Search) -> _Legs:
        """The engine's hits that are of this publication, as if it had nothing else: how a leg ends decides what its scores count for.

        It also has points of the next publication and of the last, and vectors that are not published yet. For what these take of a leg
        it is asked for more.
        """
        limit = request.limit
        while True:
            reply = await self._engine.search(request.model_copy(update={"limit": limit}), ENGINE_SECONDS)
            seen = await _published(db, reply, request.filter)
            sparse, dense = _Leg.of(reply.sparse, limit, seen.points), _Leg.of(reply.dense, limit, seen.with_vector)
            if limit >= HITS_PER_LEG_MAX or not any(leg.is_cut and len(leg.own) < request.limit for leg in (sparse, dense)):
                break
            limit *= 2
        all_words = not sparse.is_cut and len(sparse.own) <= request.limit
        return _Legs(sparse.first(request.limit, dense), dense.first(request.limit, sparse), all_words=all_words, engine_used=True)


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


@asynccontextmanager
async def snapshot(pool: Pool) -> AsyncIterator[Connection]:
    """A connection on which everything is read as it was at one moment: one publication of each workspace, whole."""
    async with connection(pool) as db, db.transaction(isolation="repeatable_read", readonly=True):
        yield db


async def _condition(db: Connection, filters: Filters, workspaces: list[UUID]) -> index.Filter:
    prefix = unicodedata.normalize("NFC", filters.path_prefix or "")
    folder = prefix[: prefix.rfind("/") + 1]
    documents = None
    if prefix != folder:
        rows = await db.fetch("SELECT id FROM documents WHERE workspace = ANY($1) AND starts_with(path, $2)", workspaces, prefix)
        documents = [row["id"] for row in rows]
    tags = [normal_tag(tag) for tag in filters.tags or []]
    return index.Filter(
        workspaces=workspaces, ancestor=folder or None, tags=tags, documents=documents, include_exchanges=filters.include_exchanges
    )


async def _words_in_tables(db: Connection, sparse: index.SparseVector, condition: index.Filter, limit: int) -> list[Scored]:
    return await word_search.search(db, sparse, await _without_tags(db, condition), limit)


async def _any_passage(db: Connection, condition: index.Filter, *, without_vector: bool = False) -> bool:
    return await word_search.any_passage(db, await _without_tags(db, condition), without_vector=without_vector)


async def _without_tags(db: Connection, condition: index.Filter) -> index.Filter:
    """The same filter as the tables can apply it: the documents that have the tags."""
    if not condition.tags:
        return condition
    rows = await db.fetch(
        "SELECT id, tags FROM documents WHERE workspace = ANY($1) AND ($2::uuid[] IS NULL OR id = ANY($2))",
        condition.workspaces, condition.documents,
    )  # fmt: skip
    tagged = [row["id"] for row in rows if set(condition.tags) <= set(searchable_tags(row["tags"]))]
    return condition.model_copy(update={"documents": tagged})


async def _published(db: Connection, reply: index.SearchReply, condition: index.Filter) -> _Published:
    """Those of the hits that are of the present publication, and of what the account may read."""
    rows = await db.fetch(
        "SELECT point, embedded FROM chunks WHERE point = ANY($1) AND workspace = ANY($2) AND ($3 OR NOT exchange)",
        list({hit.id for hit in (*reply.sparse, *reply.dense)}), condition.workspaces, condition.include_exchanges,
    )  # fmt: skip
    return _Published({row["point"] for row in rows}, {row["point"] for row in rows if row["embedded"]})


async def _read(db: Connection, ranked: Sequence[tuple[UUID, float]], limit: int, *, whole_notes: bool) -> list[Found]:
    """The best passages, or the best of each note."""
    found: dict[UUID, Found] = {}
    for some in batched(ranked, limit):
        rows = await db.fetch(
            "SELECT c.point, c.id AS chunk, c.document, c.workspace, d.path, d.title, d.content_hash, c.ordinal, c.heading_path, "
            'c.start_at AS start, c.end_at AS "end", c.text, c.sha256 FROM chunks c JOIN documents d ON d.id = c.document '
            "WHERE c.point = ANY($1)",
            [one for one, _ in some],
        )  # fmt: skip
        by_point = {row["point"]: row for row in rows}
        for one, score in some:
            passage = _found(by_point[one], score)
            found.setdefault(passage.document if whole_notes else passage.chunk, passage)
        if len(found) >= limit:
            break
    return list(found.values())[:limit]


def _found(row: asyncpg.Record, score: float) -> Found:
    values = dict(row.items())
    del values["point"]
    return Found(**values, score=round(score, 6))


async def _nothing() -> None:
    return None
