"""Indexing and searching a vault with the real services: `python -m bench.retrieval <vault> [--vectors]`.

Prints how long after readiness the vault is found by words, chunks per second, and search latencies: words alone while vectors are
being made, and (with `--vectors`, which waits for them) hybrid with and without the embedding of the query.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from local.home import Home
from local.settings import LocalSettings
from local.stack import ROOT, base_environment, compose
from local.supervisor import Supervisor
from shared.contracts import retrieval
from shared.contracts.control import HEALTH
from shared.contracts.errors import ServiceError
from shared.contracts.retrieval import CreateRun, PublicationRequest, SearchRequest, Status, StatusRequest
from shared.contracts.subject import Empty
from shared.messaging.bus import Bus
from shared.messaging.client import Client
from shared.messaging.scope import Scope

STORES = ("nats", "postgres")
PROGRAMS = ("embedder", "index", "notes", "retrieval")


@asynccontextmanager
async def running(vault: Path, directory: Path) -> AsyncIterator[tuple[Client, Mapping[str, str]]]:
    """The stores, the embedder, the index, notes and retrieval; nothing else. Also where everything is."""
    settings = LocalSettings(MARGINALIA_HOME=directory, MARGINALIA_VAULTS=str(vault))  # type: ignore[call-arg]
    home = Home.open(directory)
    supervisor = Supervisor(home, ROOT, base_environment(settings, home), print)
    try:
        stack = await compose(settings, home, settings.vaults, "unused-password")
        programs = {program.name: program for program in (*stack.stores, *stack.models, *stack.services)}
        for names in (STORES, PROGRAMS):
            present = [name for name in names if name in programs]
            for name in present:
                supervisor.start(programs[name])
            await supervisor.ready(present, 60)
            if names is STORES and stack.postgres is not None:
                await stack.postgres.prepare()
        bus = Bus("bench", stack.endpoints["nats"])
        await bus.connect()
        try:
            yield bus.client, stack.endpoints
        finally:
            await bus.stop()
    finally:
        await supervisor.stop()
        home.close()


async def answering(client: Client) -> None:
    """Until notes and retrieval say that they are ready."""
    for name in ("notes", "retrieval"):
        while True:
            try:
                if (await client.ask(HEALTH[name], Empty(), Scope.root(2))).ready:
                    break
            except ServiceError:
                pass
            await asyncio.sleep(0.02)


async def status(client: Client) -> Status:
    """Progress now."""
    return await client.ask(retrieval.STATUS, StatusRequest(), Scope.root(30))


async def latencies(client: Client, queries: list[str], mode: str | None = None) -> list[float]:
    """Milliseconds of each query, one after the other."""
    took = []
    for query in queries:
        began = time.perf_counter()
        if mode is None:
            await client.ask(retrieval.SEARCH, SearchRequest(query=query), Scope.root(30))
        else:
            await client.ask(retrieval.RUN_CREATE, CreateRun(mode=mode, query=query), Scope.root(30))  # type: ignore[arg-type]
        took.append((time.perf_counter() - began) * 1000)
    return took


def say(what: str, took: list[float]) -> None:
    """One line: median and 95th percentile."""
    print(f"{what:<58} p50 {statistics.median(took):7.1f} ms   p95 {statistics.quantiles(took, n=20)[-1]:7.1f} ms   n {len(took)}")


def queries_from(vault: Path) -> Iterator[str]:
    """The vault's own headings."""
    for path in sorted(vault.rglob("*.md")):
        for line in path.read_text("utf-8", errors="replace").splitlines():
            if line.startswith("## "):
                yield line[3:].strip()


async def main(vault: Path, queries: list[str], *, vectors: bool) -> None:
    """Run it."""
    with tempfile.TemporaryDirectory() as directory:
        async with running(vault, Path(directory)) as (client, _):
            await answering(client)
            ready = time.perf_counter()
            while (now := await status(client)).pending or not now.indexed + now.unembedded:  # noqa: ASYNC110 - as a client sees it
                await asyncio.sleep(0.02)
            seconds = time.perf_counter() - ready
            (publication,) = (await client.ask(retrieval.PUBLICATION_LIST, PublicationRequest(), Scope.root(10))).items
            print(f"{publication.documents} notes, {publication.chunks} chunks")
            print(f"found by words {seconds:.2f} s after readiness ({publication.chunks / max(seconds, 1e-3):.0f} chunks/s, first start)")
            say("words alone, stored run, vectors being made", await latencies(client, queries, "keyword_chunks"))
            say("search with the query's embedding, vectors being made", await latencies(client, queries))
            say("search, embedding remembered, vectors being made", await latencies(client, queries))
            while vectors and (now := await status(client)).unembedded:  # noqa: ASYNC110
                await asyncio.sleep(1)
            if vectors:
                fresh = [f"{query} in detail" for query in queries]
                say("search with the query's embedding, idle", await latencies(client, fresh))
                say("search, embedding remembered, idle", await latencies(client, fresh))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("vault", type=Path)
    parser.add_argument("--vectors", action="store_true")
    options = parser.parse_args()
    headings = [query for query in dict.fromkeys(queries_from(options.vault)) if query][:200]
    asyncio.run(main(options.vault.resolve(), headings, vectors=options.vectors))
