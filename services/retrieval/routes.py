"""What retrieval serves."""

from typing import Any
from uuid import UUID, uuid5

from services.retrieval.backlog import Backlog
from services.retrieval.documents import NAMESPACE
from services.retrieval.evidence import Evidence
from services.retrieval.indexer import Indexer
from services.retrieval.publications import Publications, begin, set_mode
from services.retrieval.runs import Runs
from services.retrieval.search import Found, Searcher, snapshot
from services.retrieval.status import status
from services.retrieval.vectors import Vectors
from shared.contracts import notes, retrieval
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.evidence import EVIDENCE_VERIFY, VerifiedEvidence, VerifyEvidence
from shared.contracts.retrieval import (
    ConfigurePublishing,
    Hit,
    ListRuns,
    Publication,
    PublicationList,
    PublicationRequest,
    Publish,
    Run,
    RunPage,
    RunRef,
    SearchReply,
    SearchRequest,
    Status,
    StatusRequest,
)
from shared.contracts.subject import Empty
from shared.database.pool import Pool, transaction
from shared.messaging.bus import Route
from shared.messaging.client import Client
from shared.messaging.scope import Scope


class Handlers:
    """From requests to functions, and back."""

    def __init__(
        self,
        pool: Pool,
        client: Client,
        searcher: Searcher,
        runs: Runs,
        evidence: Evidence,
        backlog: Backlog,
        indexer: Indexer,
        publications: Publications,
        vectors: Vectors | None,
    ) -> None:
        self._pool = pool
        self._client = client
        self._searcher = searcher
        self._runs = runs
        self._evidence = evidence
        self._backlog = backlog
        self._indexer = indexer
        self._publications = publications
        self._vectors = vectors

    def routes(self) -> list[Route[Any, Any]]:
        """The table."""
        return [
            Route(retrieval.SEARCH, self.search),
            Route(retrieval.RUN_CREATE, self._runs.create),
            Route(retrieval.RUN_GET, self.run_get),
            Route(retrieval.RUN_LIST, self.run_list),
            Route(EVIDENCE_VERIFY, self.verify),
            Route(retrieval.STATUS, self.status),
            Route(retrieval.PUBLICATION_LIST, self.publication_list),
            Route(retrieval.PUBLISH, self.publish),
            Route(retrieval.PUBLICATION_CONFIGURE, self.configure),
        ]

    async def search(self, request: SearchRequest, scope: Scope) -> SearchReply:
        """The agent's search: by words and by meaning."""
        answer = await self._searcher.search("hybrid", request.query, request.filters, request.limit, scope)
        return SearchReply(hits=[_hit(found) for found in answer.found], degraded=answer.degraded)

    async def run_get(self, request: RunRef, scope: Scope) -> Run:
        """One stored run."""
        return await self._runs.get(request.run, scope.account)

    async def run_list(self, request: ListRuns, scope: Scope) -> RunPage:
        """Stored runs."""
        return await self._runs.list(request, scope.account)

    async def verify(self, request: VerifyEvidence, scope: Scope) -> VerifiedEvidence:
        """A run against what is published now."""
        return await self._evidence.verify(request.run, scope)

    async def status(self, request: StatusRequest, scope: Scope) -> Status:
        """Progress."""
        return await status(self._pool, self._client, self._backlog, self._indexer, self._vectors, request.workspace, scope)

    async def publication_list(self, _: PublicationRequest, scope: Scope) -> PublicationList:
        """Every workspace's publication, for admins and services."""
        _check_admin(scope)
        served = await self._served(scope)
        async with snapshot(self._pool) as db:
            return PublicationList(items=await self._publications.all(db, served))

    async def publish(self, request: Publish, scope: Scope) -> Publication:
        """What is held of one workspace."""
        await self._require_admin(request.workspace, scope)
        async with transaction(self._pool) as db:
            await begin(db, request.workspace)
        await self._indexer.publish(request.workspace)
        return await self._publication(request.workspace)

    async def configure(self, request: ConfigurePublishing, scope: Scope) -> Publication:
        """By itself, or by hand."""
        await self._require_admin(request.workspace, scope)
        async with transaction(self._pool) as db:
            await set_mode(db, request.workspace, request.publish)
        if request.publish == "auto":
            await self._indexer.publish(request.workspace)
        return await self._publication(request.workspace)

    async def _require_admin(self, workspace: UUID, scope: Scope) -> None:
        _check_admin(scope)
        if workspace not in await self._served(scope):
            raise ServiceError(ErrorCode.WORKSPACE_NOT_FOUND, "There is no such workspace.")

    async def _served(self, scope: Scope) -> list[UUID]:
        return [one.id for one in (await self._client.ask(notes.WORKSPACE_LIST, Empty(), scope)).items]

    async def _publication(self, workspace: UUID) -> Publication:
        async with snapshot(self._pool) as db:
            (found,) = await self._publications.listed(db, [workspace])
        return found


def _check_admin(scope: Scope) -> None:
    if scope.account is not None and scope.account.role != "admin":
        raise ServiceError(ErrorCode.FORBIDDEN, "Only an admin may see the publications, or publish.")


def _hit(found: Found) -> Hit:
    return Hit(
        citation_id=str(uuid5(NAMESPACE, f"{found.chunk}\0{found.content_hash}")),
        block_id=str(found.chunk),
        workspace=found.workspace,
        file_path=found.path,
        title=found.title,
        heading_path=found.heading_path,
        start=found.start,
        end=found.end,
        content_hash=found.content_hash,
        text=found.text,
        score=found.score,
    )
