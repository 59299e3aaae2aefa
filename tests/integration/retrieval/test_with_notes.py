"""Retrieval beside the real notes service: a vault on disk, edited by another program."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

from local.index_engine import Engine
from local.index_engine import routes as engine_routes
from services.notes.app import serve as serve_notes
from services.notes.settings import NotesSettings
from services.retrieval.app import serve as serve_retrieval
from services.retrieval.settings import RetrievalSettings
from shared.contracts import notes, retrieval
from shared.contracts.errors import ServiceError
from shared.contracts.notes import AppendExchange, Workspace
from shared.contracts.retrieval import Filters, SearchRequest, Status, StatusRequest
from shared.contracts.subject import Empty
from shared.messaging.bus import Bus
from shared.messaging.scope import Scope
from shared.telemetry import tracing
from shared.telemetry import vocabulary as words
from tests.support.polling import eventually
from tests.support.traces import ExportedSpan, Spans


@asynccontextmanager
async def running(nats_url: str, database_url: str, vault: Path, home: Path) -> AsyncIterator[Bus]:
    stop = asyncio.Event()
    engine, index, asker = Engine(home / "qdrant"), Bus("index", nats_url), Bus("test", nats_url)
    await engine.open()
    await index.connect()
    await index.serve(engine_routes(engine))
    await asker.connect()
    services = asyncio.gather(
        serve_notes(NotesSettings(NATS_URL=nats_url, DATABASE_URL=database_url, MARGINALIA_HOME=home, MARGINALIA_VAULTS=str(vault)), stop),
        serve_retrieval(RetrievalSettings(NATS_URL=nats_url, DATABASE_URL=database_url), stop),
    )
    try:
        yield asker
    finally:
        stop.set()
        await services
        await asker.stop()
        await index.stop()
        await engine.close()


async def test_a_vault_on_disk_is_found_and_followed(nats_url: str, database_url: str, tmp_path: Path) -> None:
    vault = tmp_path / "vault"
    (vault / "birds").mkdir(parents=True)
    (vault / "birds" / "wader.md").write_bytes("\ufeff---\ntags: [bird]\n---\r\n# Waders\r\n\r\nThe heron stands. 苍鹭站立。\r\n".encode())
    async with running(nats_url, database_url, vault, tmp_path / "home") as bus:

        async def paths(query: str) -> list[str]:
            try:
                reply = await bus.client.ask(retrieval.SEARCH, SearchRequest(query=query), Scope.root(10))
            except ServiceError:
                return ["not yet"]
            return [hit.file_path for hit in reply.hits]

        async def finds(query: str, *expected: str) -> None:
            async def found() -> bool:
                return await paths(query) == list(expected)

            await eventually(found, 15)

        await finds("heron", "birds/wader.md")
        await finds("苍鹭", "birds/wader.md")
        (vault / "fish.md").write_text("The trout swims.")
        await finds("trout", "fish.md")
        (vault / "birds" / "wader.md").rename(vault / "moved.md")
        await finds("heron", "moved.md")
        (vault / "fish.md").unlink()
        await finds("trout")
        settled = Status(indexed=0, pending=0, held=0, unembedded=1, oldest_pending_seconds=0, last_error=None)

        async def is_settled() -> bool:
            return await bus.client.ask(retrieval.STATUS, StatusRequest(), Scope.root(10)) == settled

        await eventually(is_settled, 15)


async def test_an_exchange_that_was_written_into_a_note_is_found_only_when_asked_for(
    nats_url: str, database_url: str, tmp_path: Path
) -> None:  # MN-9
    vault = tmp_path / "vault"
    vault.mkdir()
    (vault / "birds.md").write_text("The heron stands in the reeds.")
    async with running(nats_url, database_url, vault, tmp_path / "home") as bus:

        async def texts(query: str, *, exchanges: bool) -> list[str]:
            request = SearchRequest(query=query, filters=Filters(include_exchanges=exchanges))
            try:
                return [hit.text for hit in (await bus.client.ask(retrieval.SEARCH, request, Scope.root(10))).hits]
            except ServiceError:
                return []

        (workspace,) = await eventually(lambda: workspaces(bus), 15)
        append = AppendExchange(
            workspace=workspace.id, path="birds.md", message_id=uuid4(), conversation_title="T", question="Who?", answer="A heron flies."
        )
        await bus.client.ask(notes.NOTE_APPEND, append, Scope.root(10))
        await eventually(lambda: both(texts), 15)
        assert await texts("flies heron", exchanges=False) == ["The heron stands in the reeds."]


async def workspaces(bus: Bus) -> list[Workspace]:
    try:
        return (await bus.client.ask(notes.WORKSPACE_LIST, Empty(), Scope.root(5))).items
    except ServiceError:
        return []


async def both(texts: Callable[..., Awaitable[list[str]]]) -> bool:
    """The note and the exchange in it."""
    return len(await texts("flies heron", exchanges=True)) == 2


async def test_taking_a_note_in_is_linked_to_the_write_that_was_its_cause(  # OP-1
    spans: Spans, nats_url: str, database_url: str, tmp_path: Path
) -> None:
    vault = tmp_path / "vault"
    vault.mkdir()
    (vault / "a.md").write_text("A heron.")
    async with running(nats_url, database_url, vault, tmp_path / "home") as bus:

        async def taken_in() -> bool:
            try:
                return (await bus.client.ask(retrieval.STATUS, StatusRequest(), Scope.root(10))).unembedded == 1
            except ServiceError:
                return False

        await eventually(taken_in, 15)
        (workspace,) = await workspaces(bus)
        append = AppendExchange(workspace=workspace.id, path="a.md", message_id=uuid4(), conversation_title="T", question="?", answer="!")
        with tracing.span(words.RETRIEVAL) as cause:
            await bus.client.ask(notes.NOTE_APPEND, append, Scope.root(10))
        trace = format(cause.get_span_context().trace_id, "032x")

        async def linked() -> list[ExportedSpan]:
            return [span for span in spans.named("index notes") if span.links == [trace]]

        (span,) = await eventually(linked, 15)
        # Thousands of notes may be taken in for one cause, or one batch for many: none of their traces is gone on with.
        assert (span.parent, span.trace != trace) == (None, True)
