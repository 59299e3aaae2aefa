"""The whole retrieval service in this process, on real NATS, PostgreSQL and Qdrant engine; notes and embedding model are stand-ins."""

import asyncio
import contextlib
import hashlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from aiohttp import web

from local.index_engine import Engine
from local.index_engine import routes as engine_routes
from services.retrieval.app import serve
from services.retrieval.passages import CutNote, cut_note
from services.retrieval.settings import RetrievalSettings
from shared.contracts import retrieval
from shared.contracts.errors import ServiceError
from shared.contracts.notes import Note
from shared.contracts.retrieval import CreateRun, Filters, Run, SearchReply, SearchRequest, Status, StatusRequest
from shared.database.migrate import migrate
from shared.database.pool import Pool, open_pool
from shared.messaging.bus import Bus
from shared.messaging.scope import Account, Scope
from tests.support.nats_server import RunningNats
from tests.support.polling import eventually
from tests.support.scripted_notes import ScriptedNotes

DIMENSION = 32
# Of notes that are cut without the service.
WORKSPACE = uuid4()


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[Pool]:
    made = await open_pool(database_url, "retrieval")
    await migrate(made, "retrieval", "services.retrieval")
    yield made
    await made.close()


def cut(document: UUID, path: str, content: str, revision: int) -> CutNote:
    note = Note(
        path=path,
        title="t",
        tags=[],
        content_hash=str(hash(content)),
        size=1,
        modified_at=datetime(2026, 1, 1, tzinfo=UTC),
        content=content,
        revision=revision,
    )
    return cut_note(WORKSPACE, document, note)


@dataclass
class FakeModel:
    """An OpenAI-compatible `/embeddings`: each word is a direction, so that texts with common words are near."""

    url: str = ""
    down: bool = False
    passages: list[str] = field(default_factory=list)
    # models that make no passages just now
    busy: set[str] = field(default_factory=set)
    # words that it does not take
    refused: set[str] = field(default_factory=set)
    models: list[str] = field(default_factory=list)
    kinds: list[str | None] = field(default_factory=list)
    dimension: int = DIMENSION
    # words that mean the same: only vectors know
    synonyms: dict[str, str] = field(default_factory=dict)

    def vector(self, text: str) -> list[float]:
        values = [1e-3] * self.dimension
        for word in text.lower().split():
            digest = hashlib.sha256(self.synonyms.get(word, word).encode()).digest()
            values[digest[0] % self.dimension] += 1.0
        norm = math.sqrt(sum(value * value for value in values))
        return [value / norm for value in values]

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        if self.down or (body["model"] in self.busy and body.get("input_type") != "query"):
            return web.Response(status=503)
        if any(word in text for text in body["input"] for word in self.refused):
            return web.Response(status=400)
        self.models.append(body["model"])
        if body.get("input_type") != "query":
            self.passages += body["input"]
        self.kinds.append(body.get("input_type"))
        return web.json_response({"data": [{"index": n, "embedding": self.vector(text)} for n, text in enumerate(body["input"])]})


@pytest.fixture
async def model() -> AsyncIterator[FakeModel]:
    fake = FakeModel()
    app = web.Application()
    app.router.add_post("/v1/embeddings", fake.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    yield fake
    await runner.cleanup()


@dataclass
class Stand:
    """What a test has in hand."""

    notes: ScriptedNotes
    model: FakeModel
    bus: Bus
    database_url: str
    start: Callable[[], AbstractAsyncContextManager[None]]
    start_engine: Callable[[], AbstractAsyncContextManager[Engine]]

    async def search(self, query: str, *, account: Account | None = None, limit: int = 6, **filters: Any) -> SearchReply:
        request = SearchRequest(query=query, filters=Filters(**filters), limit=limit)
        return await self.bus.client.ask(retrieval.SEARCH, request, Scope.root(10, account=account))

    async def paths(self, query: str, **more: Any) -> list[str]:
        return list(dict.fromkeys(hit.file_path for hit in (await self.search(query, **more)).hits))

    async def run(self, mode: str, query: str, *, account: Account | None = None, **more: Any) -> Run:
        return await self.bus.client.ask(retrieval.RUN_CREATE, CreateRun(mode=mode, query=query, **more), Scope.root(10, account=account))  # type: ignore[arg-type]

    async def status(self) -> Status:
        return await self.bus.client.ask(retrieval.STATUS, StatusRequest(), Scope.root(10))

    async def settled(self, indexed: int, *, within: float = 20) -> None:
        """Until so many notes are found by words and by vectors, and nothing is due."""

        async def reached() -> bool:
            now = await self.status()
            return (now.indexed, now.pending, now.unembedded) == (indexed, 0, 0)

        await eventually(reached, within)

    async def fetchval(self, query: str, *arguments: Any) -> Any:
        connection = await asyncpg.connect(self.database_url, server_settings={"search_path": "retrieval"})
        try:
            return await connection.fetchval(query, *arguments)
        finally:
            await connection.close()


async def until(check: Callable[[], Awaitable[bool]], within: float = 15) -> None:
    await eventually(check, within)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops that wait for seconds in production wait for moments."""
    monkeypatch.setattr("services.retrieval.index_writer.CHECK_SECONDS", 0.3)
    monkeypatch.setattr("services.retrieval.index_writer.CONFIRM_SECONDS", 0.2)
    monkeypatch.setattr("services.retrieval.index_writer.RETRY_SECONDS", 0.1)
    monkeypatch.setattr("services.retrieval.vectors.IDLE_SECONDS", 0.05)
    monkeypatch.setattr("services.retrieval.vectors.RETRY_SECONDS", 0.1)
    monkeypatch.setattr("services.retrieval.feed.RETRY_SECONDS", 0.1)
    monkeypatch.setattr("services.retrieval.feed.FETCH_SECONDS", 0.5)
    monkeypatch.setattr("services.retrieval.reconciliation.RETRY_SECONDS", 0.1)


@pytest.fixture
async def stand(nats_url: str, database_url: str, tmp_path: Path, model: FakeModel, impatient: None) -> AsyncIterator[Stand]:
    async with standing(nats_url, database_url, tmp_path, model) as made:
        yield made


@pytest.fixture
async def own_stand(
    own_nats: RunningNats, database_url: str, tmp_path: Path, model: FakeModel, impatient: None
) -> AsyncIterator[tuple[Stand, RunningNats]]:
    """With a NATS server that the test may stop and start again."""
    async with standing(own_nats.url, database_url, tmp_path, model) as made:
        yield made, own_nats


@contextlib.asynccontextmanager
async def standing(nats_url: str, database_url: str, tmp_path: Path, model: FakeModel) -> AsyncIterator[Stand]:
    settings = RetrievalSettings(NATS_URL=nats_url, DATABASE_URL=database_url, EMBEDDING_BASE_URL=model.url)
    notes_bus, tester = Bus("notes", nats_url), Bus("test", nats_url)
    await notes_bus.connect()
    await tester.connect()
    scripted = ScriptedNotes(notes_bus)
    await scripted.serve()

    @contextlib.asynccontextmanager
    async def start() -> AsyncIterator[None]:
        stop = asyncio.Event()
        task = asyncio.create_task(serve(settings, stop))

        async def answers() -> bool:
            if task.done():
                await task
            try:
                await tester.client.ask(retrieval.STATUS, StatusRequest(), Scope.root(5))
            except ServiceError:
                return False
            return True

        await eventually(answers, 20)
        try:
            yield
        finally:
            stop.set()
            await task

    @contextlib.asynccontextmanager
    async def start_engine() -> AsyncIterator[Engine]:
        engine = Engine(tmp_path / "qdrant")
        await engine.open()
        bus = Bus("index", nats_url)
        await bus.connect()
        await bus.serve(engine_routes(engine))
        try:
            yield engine
        finally:
            await bus.stop()
            await engine.close()

    yield Stand(scripted, model, tester, database_url, start, start_engine)
    await notes_bus.stop()
    await tester.stop()
