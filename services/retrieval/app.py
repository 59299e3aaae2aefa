"""Retrieval, put together."""

import asyncio
import sys
from contextlib import AsyncExitStack

from services.retrieval.backlog import Backlog
from services.retrieval.embedded_index import EmbeddedIndex
from services.retrieval.embedding import Embedder
from services.retrieval.evidence import Evidence
from services.retrieval.feed import Feed
from services.retrieval.index_writer import IndexWriter
from services.retrieval.indexer import Indexer
from services.retrieval.publications import Publications
from services.retrieval.reconciliation import Reconciliation
from services.retrieval.routes import Handlers
from services.retrieval.runs import Runs
from services.retrieval.search import Searcher
from services.retrieval.settings import RetrievalSettings
from services.retrieval.vector_index import VectorIndex
from services.retrieval.vectors import Vectors
from shared.contracts.errors import ServiceError
from shared.database.migrate import migrate
from shared.database.pool import open_pool
from shared.messaging.client import Client
from shared.service import Check, background, database_check, health_routes, joined, settled

NAME = "retrieval"

# Notes are cut in a thread; the event loop gets the interpreter back after this long, so that searches do not wait for it.
SWITCH_SECONDS = 0.001
HEALTH_SECONDS = 1.0


async def serve(settings: RetrievalSettings, stop: asyncio.Event) -> None:
    """Run retrieval until `stop` is set."""
    sys.setswitchinterval(SWITCH_SECONDS)
    async with AsyncExitStack() as stack:
        pool = await open_pool(settings.database, NAME, size=10)
        stack.push_async_callback(pool.close)
        await migrate(pool, NAME, "services.retrieval")
        bus = await stack.enter_async_context(joined(NAME, settings))
        engine = await _engine(settings, bus.client, stack)
        embedder = await _embedder(settings, stack)

        backlog = Backlog()
        writer = IndexWriter(pool, engine)
        await writer.load()
        indexer = Indexer(pool, bus.client, writer, backlog)
        stack.callback(indexer.close)
        vectors = Vectors(pool, indexer, writer, embedder) if embedder else None
        publications = Publications(writer)
        searcher = Searcher(pool, bus.client, engine, writer, publications, embedder)
        stack.push_async_callback(searcher.close)
        runs = Runs(pool, searcher)
        evidence = Evidence(pool, bus.client, runs, publications)
        handlers = Handlers(pool, bus.client, searcher, runs, evidence, backlog, indexer, publications, vectors)
        feed = Feed(bus.nats, indexer, backlog)
        await feed.open()
        stack.push_async_callback(feed.close)
        reconciliation = Reconciliation(pool, bus.client, indexer, backlog)
        for what, work in (("index writer", writer.run()), ("feed", feed.run()), ("reconciliation", reconciliation.run())):
            await stack.enter_async_context(background(work, what))
        if vectors is not None:
            await stack.enter_async_context(background(vectors.run(), "vectors"))
        checks = {"database": database_check(pool), "index": _index_check(engine)}
        await bus.serve([*handlers.routes(), *health_routes(NAME, checks)])
        settled(NAME)
        await stop.wait()


def _index_check(engine: VectorIndex) -> Check:
    async def check() -> str | None:
        try:
            async with asyncio.timeout(HEALTH_SECONDS):
                await engine.count()
        except (ServiceError, TimeoutError):
            return "the search engine does not answer; words are looked up in the tables"
        return None

    return check


async def _engine(settings: RetrievalSettings, client: Client, stack: AsyncExitStack) -> VectorIndex:
    if settings.qdrant_url is None:
        return EmbeddedIndex(client)
    # 60 MB of memory that only this needs.
    from services.retrieval import server_index

    key = settings.qdrant_api_key.get_secret_value() if settings.qdrant_api_key else None
    qdrant = server_index.connect(settings.qdrant_url, key, settings.tls)
    stack.push_async_callback(qdrant.close)
    return server_index.ServerIndex(qdrant)


async def _embedder(settings: RetrievalSettings, stack: AsyncExitStack) -> Embedder | None:
    if settings.embedding_base_url is None:
        return None
    key = settings.embedding_api_key.get_secret_value() if settings.embedding_api_key else None
    embedder = Embedder(settings.embedding_base_url, key, settings.embedding_model)
    stack.push_async_callback(embedder.close)
    return embedder
