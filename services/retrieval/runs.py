"""Stored runs: what was asked, what was found, and in which publications. Written once, never changed, never deleted (RC-19)."""

import hashlib
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID, uuid4

from services.retrieval.publications import Seen
from services.retrieval.search import Answer, Found, Searcher
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.notes import Workspace
from shared.contracts.retrieval import (
    CatalogRevision,
    CreateRun,
    ListRuns,
    Run,
    RunChunk,
    RunDocument,
    RunPage,
    RunResult,
    RunSummary,
    TextPublication,
    VectorPublication,
)
from shared.database.pool import Pool, connection
from shared.messaging.scope import Account, Scope
from shared.telemetry import tracing
from shared.telemetry import vocabulary as words

PAGE_SIZE_MAX = 100


class Runs:
    """Makes runs and reads them back."""

    def __init__(self, pool: Pool, searcher: Searcher) -> None:
        self._pool = pool
        self._searcher = searcher

    async def create(self, request: CreateRun, scope: Scope) -> Run:
        """Search, and keep what was found. Where nothing can be searched the run is kept as failed, if it can be."""
        began = time.perf_counter()
        told: dict[str, str | int] = {"mode": request.mode}
        try:
            answer = await self._searcher.search(request.mode, request.query, request.filters, request.limit, scope)
        except ServiceError as error:
            told[words.ERROR_TYPE] = error.code.value
            if error.code is not ErrorCode.RETRIEVAL_UNAVAILABLE:
                raise
            answer = None
        finally:
            told["duration_ms"] = took_ms = round((time.perf_counter() - began) * 1000)
            if words.ERROR_TYPE in told:
                tracing.tell(words.RUN_FAILED, told)
        owner = scope.account.id if scope.account else None
        run = _run(request, answer, took_ms, owner)
        async with connection(self._pool) as db:
            await db.execute(
                "INSERT INTO runs (id, account, created_at, body) VALUES ($1, $2, $3, $4)",
                run.id, owner, run.created_at, run.model_dump(mode="json"),
            )  # fmt: skip
        if answer is not None:
            tracing.tell(words.RUN_COMPLETED, {**told, "hits": len(run.results), "status": run.status})
        return run

    async def get(self, run: UUID, account: Account | None) -> Run:
        """One's own run, or any for an admin.

        Raises:
            ServiceError: `run_not_found`.
        """
        async with connection(self._pool) as db:
            body = await db.fetchval("SELECT body FROM runs WHERE id = $1 AND ($2::uuid IS NULL OR account = $2)", run, _owner(account))
        if body is None:
            raise ServiceError(ErrorCode.RUN_NOT_FOUND, "There is no such run.")
        return Run.model_validate(body)

    async def list(self, request: ListRuns, account: Account | None) -> RunPage:
        """Newest first, without results.

        Raises:
            ServiceError: `invalid`.
        """
        if not (1 <= request.page <= 1_000_000 and 1 <= request.page_size <= PAGE_SIZE_MAX):
            raise ServiceError(ErrorCode.INVALID, f"Pages count from 1 and have 1 to {PAGE_SIZE_MAX} items.")
        owner = _owner(account)
        async with connection(self._pool) as db:
            total = await db.fetchval("SELECT count(*) FROM runs WHERE $1::uuid IS NULL OR account = $1", owner)
            rows = await db.fetch(
                "SELECT body - 'results' AS body FROM runs WHERE $1::uuid IS NULL OR account = $1 "
                "ORDER BY created_at DESC, id OFFSET $2 LIMIT $3",
                owner, (request.page - 1) * request.page_size, request.page_size,
            )  # fmt: skip
        items = [RunSummary.model_validate(row["body"]) for row in rows]
        return RunPage(items=items, page=request.page, page_size=request.page_size, total=total)


def _owner(account: Account | None) -> UUID | None:
    """Whose runs may be read; None: everyone's."""
    return account.id if account is not None and account.role != "admin" else None


def _run(request: CreateRun, answer: Answer | None, took_ms: int, owner: UUID | None) -> Run:
    seen = answer.seen if answer else []
    vectors = vector_publications(seen) if answer is not None and answer.dense_used else None
    directories = {one.id: one for one in answer.searched} if answer else {}
    return Run(
        id=uuid4(),
        mode=request.mode,
        query=request.query,
        filters=request.filters,
        limit=request.limit,
        status="failed" if answer is None else "degraded" if answer.degraded else "completed",
        text_publication=[TextPublication(workspace=one.workspace, id=one.text.id, generation=one.text.generation) for one in seen],
        vector_publication=vectors,
        catalog_revision=[CatalogRevision(workspace=one.workspace, revision=one.catalog_revision) for one in seen],
        corpus_fingerprint=corpus_fingerprint(seen),
        results=[
            _result(rank, found, directories[found.workspace], whole_note=request.mode == "keyword")
            for rank, found in enumerate(answer.found if answer else [], 1)
        ],
        took_ms=took_ms,
        created_by=owner,
        created_at=datetime.now(UTC),
    )


def vector_publications(seen: Sequence[Seen]) -> list[VectorPublication]:
    """The vectors over what was seen, of the workspaces that have any."""
    return [
        VectorPublication(
            workspace=one.workspace, id=one.vector.id, generation=one.vector.generation, embedding_space=one.vector.embedding_space
        )
        for one in seen
        if one.vector is not None
    ]


def corpus_fingerprint(seen: Sequence[Seen]) -> str:
    """One SHA-256 over the workspaces' own."""
    lines = "".join(f"{one.workspace} {one.corpus_fingerprint}\n" for one in sorted(seen, key=lambda one: one.workspace))
    return hashlib.sha256(lines.encode()).hexdigest()


def _result(rank: int, found: Found, workspace: Workspace, *, whole_note: bool) -> RunResult:
    document = RunDocument(
        id=found.document,
        workspace=found.workspace,
        directory=workspace.directory,
        path=found.path,
        title=found.title,
        content_hash=found.content_hash,
    )
    chunk = RunChunk(
        id=found.chunk,
        block_id=str(found.chunk),
        ordinal=found.ordinal,
        heading_path=found.heading_path,
        text=found.text,
        start=found.start,
        end=found.end,
        sha256=found.sha256,
    )
    return RunResult(rank=rank, score=found.score, document=document, chunk=None if whole_note else chunk)
