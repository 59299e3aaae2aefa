"""Stands in for retrieval and notes on a real NATS server, so that a test decides what a search finds and when it answers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import pytest

from shared.contracts import notes, retrieval
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.notes import Hashes, HashesRequest, Workspace, WorkspaceList, WorkspaceRef
from shared.contracts.retrieval import Hit, SearchReply, SearchRequest
from shared.contracts.subject import Empty
from shared.messaging.bus import Bus, Route
from shared.messaging.scope import Scope
from tests.support.scripted_provider import Gate

WORKSPACE = UUID("11111111-1111-4111-8111-111111111111")


def hit(block: str, text: str, path: str = "note.md", heading: tuple[str, ...] = ("Heading",)) -> Hit:
    return Hit(
        citation_id=f"cit_{block}",
        block_id=block,
        workspace=WORKSPACE,
        file_path=path,
        title=path.removesuffix(".md"),
        heading_path=list(heading),
        start=0,
        end=len(text),
        content_hash="0" * 64,
        text=text,
        score=1.0,
    )


class ScriptedRetrieval:
    """`hits` maps words to what they find; `gate` holds every search, `gates` those of certain words, alone or with more after them;
    `failing` makes them fail.
    """

    def __init__(self) -> None:
        self.hits: dict[str, list[Hit]] = {}
        self.asked: list[SearchRequest] = []
        self.scopes: list[str] = []
        self.interrupted = 0
        self.gate: Gate | None = None
        self.gates: dict[str, Gate] = {}
        self.failing = False
        self.hashes: dict[str, str | None] = {}

    async def search(self, request: SearchRequest, scope: Scope) -> SearchReply:
        self.asked.append(request)
        self.scopes.append(scope.id)
        held = (gate for words, gate in self.gates.items() if f"{request.query} ".startswith(f"{words} "))
        gate = self.gate or next(held, None)
        if gate is not None:
            try:
                await gate.wait()
            except BaseException:
                self.interrupted += 1
                raise
        if self.failing:
            raise ServiceError(ErrorCode.RETRIEVAL_UNAVAILABLE, "Nothing can be searched just now.")
        return SearchReply(hits=self.hits.get(request.query, [])[: request.limit])

    async def workspace(self, request: WorkspaceRef, _: Scope) -> Workspace:
        if request.workspace != WORKSPACE:
            raise ServiceError(ErrorCode.WORKSPACE_NOT_FOUND, "There is no such workspace.")
        return Workspace(id=WORKSPACE, title="Vault", directory="vault", notes_dir="", notes=1)

    async def hashes_of(self, request: HashesRequest, _: Scope) -> Hashes:
        return Hashes(items=[self.hashes.get(note.path, "0" * 64) for note in request.items])

    async def workspaces(self, _: Empty, scope: Scope) -> WorkspaceList:
        return WorkspaceList(items=[await self.workspace(WorkspaceRef(workspace=WORKSPACE), scope)])


@pytest.fixture
async def scripted_retrieval(nats_url: str) -> AsyncIterator[ScriptedRetrieval]:
    """Answers `retrieval.search` and `notes.workspace.*`."""
    async with serving(nats_url) as scripted:
        yield scripted


@asynccontextmanager
async def serving(nats_url: str, *, with_notes: bool = True) -> AsyncIterator[ScriptedRetrieval]:
    """`with_notes` is false where the real notes service is there."""
    scripted = ScriptedRetrieval()
    bus = Bus(f"scripted-{uuid4().hex[:8]}", nats_url)
    await bus.connect()
    notes_routes: list[Route[Any, Any]] = [
        Route(notes.WORKSPACE_GET, scripted.workspace),
        Route(notes.WORKSPACE_LIST, scripted.workspaces),
        Route(notes.NOTE_HASHES, scripted.hashes_of),
    ]
    await bus.serve([Route(retrieval.SEARCH, scripted.search), *(notes_routes if with_notes else [])])
    try:
        yield scripted
    finally:
        for gate in filter(None, (scripted.gate, *scripted.gates.values())):
            gate.open()
        await bus.stop()
