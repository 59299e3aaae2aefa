"""Whether a stored run still is what is published: everything it names is looked at again, nothing is searched or embedded (RC-4).

Whoever saves something that depends on the answer holds the publication lock of the run's workspaces meanwhile (`publication_lock`).
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID, uuid5

import asyncpg

from services.retrieval.documents import NAMESPACE
from services.retrieval.publications import Publications, Seen
from services.retrieval.runs import Runs, corpus_fingerprint, vector_publications
from services.retrieval.search import snapshot
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.evidence import Candidate, Difference, VerifiedEvidence
from shared.contracts.retrieval import CatalogRevision, Run, RunChunk, RunResult, TextPublication
from shared.database.pool import Pool
from shared.messaging.scope import Account

WITH_VECTORS = frozenset({"vector", "hybrid"})


class Evidence:
    """See the module."""

    def __init__(self, pool: Pool, runs: Runs, publications: Publications) -> None:
        self._pool = pool
        self._runs = runs
        self._publications = publications

    async def verify(self, run_id: UUID, account: Account | None) -> VerifiedEvidence:
        """The run with its candidates, where it agrees with the present in everything.

        Raises:
            ServiceError: `run_not_found`; `invalid` for a run of whole notes, or one that is not `completed` (RC-3); `evidence_stale` with
                `changed`.
        """
        run = await self._runs.get(run_id, account)
        if run.mode == "keyword":
            raise ServiceError(ErrorCode.INVALID, "A run of mode keyword finds whole notes; evidence is made of passages.")
        if run.status != "completed":
            raise ServiceError(ErrorCode.INVALID, f"The run is {run.status}; search again once everything answers.")
        if not _is_consistent(run):
            raise _stale(["run"])
        async with snapshot(self._pool) as db:
            seen = await self._publications.seen(db, [one.workspace for one in run.text_publication])
            rows = await db.fetch(
                """
                SELECT c.id AS chunk, c.ordinal, c.text, c.sha256, c.start_at, c.end_at, d.id, d.workspace, d.path, d.title, d.content_hash,
                    d.published, d.source_url, d.category
                FROM documents d LEFT JOIN chunks c ON c.document = d.id AND c.id = ANY($2)
                WHERE d.id = ANY($1) AND NOT d.excluded
                """,
                [result.document.id for result in run.results],
                [result.chunk.id for result in run.results if result.chunk is not None],
            )
            incomplete = run.mode in WITH_VECTORS and await db.fetchval(
                "SELECT EXISTS (SELECT FROM chunks WHERE workspace = ANY($1) AND NOT embedded)", [one.workspace for one in seen]
            )
        changed = [*_publications_that_differ(run, seen, incomplete=incomplete), *_results_that_differ(run.results, rows)]
        if changed:
            raise _stale(list(dict.fromkeys(changed)))
        return _verified(run, seen, rows)


def _is_consistent(run: Run) -> bool:
    """Whether the record agrees with itself."""
    workspaces = {one.workspace for one in run.text_publication}
    if [result.rank for result in run.results] != list(range(1, len(run.results) + 1)):
        return False
    if {one.workspace for one in run.catalog_revision} != workspaces or (run.mode in WITH_VECTORS and run.vector_publication is None):
        return False
    return all(
        result.chunk is not None
        and result.document.workspace in workspaces
        and hashlib.sha256(result.chunk.text.encode()).hexdigest() == result.chunk.sha256
        and result.chunk.end - result.chunk.start == len(result.chunk.text)
        for result in run.results
    )


def _publications_that_differ(run: Run, seen: Sequence[Seen], *, incomplete: bool) -> Iterator[Difference]:
    if run.text_publication != [TextPublication(workspace=one.workspace, id=one.text.id, generation=one.text.generation) for one in seen]:
        yield "text_publication"
    if run.catalog_revision != [CatalogRevision(workspace=one.workspace, revision=one.catalog_revision) for one in seen]:
        yield "catalog_revision"
    if run.corpus_fingerprint != corpus_fingerprint(seen):
        yield "corpus_fingerprint"
    if run.mode not in WITH_VECTORS or run.vector_publication is None:
        return
    present = vector_publications(seen)
    if {one.embedding_space for one in present} != {one.embedding_space for one in run.vector_publication}:
        yield "embedding_space"
    if incomplete or present != run.vector_publication:
        yield "vector_publication"


def _results_that_differ(results: Sequence[RunResult], rows: Sequence[asyncpg.Record]) -> Iterator[Difference]:
    documents: dict[UUID, asyncpg.Record] = {row["id"]: row for row in rows}
    chunks: dict[tuple[UUID, UUID], asyncpg.Record] = {(row["id"], row["chunk"]): row for row in rows}
    for result in results:
        document, chunk = result.document, _chunk(result)
        present = documents.get(document.id)
        if present is None or present["content_hash"] != document.content_hash:
            yield "document"
        elif (present["workspace"], present["path"], present["title"]) != (document.workspace, document.path, document.title):
            yield "source"
        stored = chunks.get((document.id, chunk.id))
        if stored is None or (stored["ordinal"], stored["text"], stored["sha256"], stored["start_at"], stored["end_at"]) != (
            chunk.ordinal, chunk.text, chunk.sha256, chunk.start, chunk.end,
        ):  # fmt: skip
            yield "chunk"


def _verified(run: Run, seen: Sequence[Seen], rows: Sequence[asyncpg.Record]) -> VerifiedEvidence:
    revisions = {one.workspace: one.catalog_revision for one in seen}
    documents: Mapping[UUID, asyncpg.Record] = {row["id"]: row for row in rows}
    assert run.mode != "keyword"
    return VerifiedEvidence(
        mode=run.mode,
        query=run.query,
        text_publication=run.text_publication,
        vector_publication=run.vector_publication,
        catalog_revision=run.catalog_revision,
        corpus_fingerprint=run.corpus_fingerprint,
        candidates=[_candidate(result, documents[result.document.id], revisions) for result in run.results],
    )


def _candidate(result: RunResult, document: asyncpg.Record, revisions: Mapping[UUID, int]) -> Candidate:
    chunk = _chunk(result)
    return Candidate(
        knowledge_id=document["id"],
        knowledge_version=document["published"],
        document_id=uuid5(NAMESPACE, f"{document['id']}\0text"),
        document_version=document["content_hash"],
        source_id=document["workspace"],
        source_version=revisions[document["workspace"]],
        source_url=document["source_url"],
        title=document["title"],
        category=document["category"],
        chunk_id=chunk.id,
        ordinal=chunk.ordinal,
        text=chunk.text,
        start=chunk.start,
        end=chunk.end,
        sha256=chunk.sha256,
        rank=result.rank,
    )


def _chunk(result: RunResult) -> RunChunk:
    assert result.chunk is not None  # a consistent run of passages
    return result.chunk


def _stale(changed: list[Difference]) -> ServiceError:
    return ServiceError(
        ErrorCode.EVIDENCE_STALE, f"What the run found is not what is published now ({', '.join(changed)}); search again.", changed=changed
    )
