"""A hundred thousand passages with the real services: `python -m bench.scale <vault> [<vault> ...] [--chunks 100000]`.

Notes are made of the vaults' own sections, each once more with other words until there are enough. The embedding model is replaced by one
that costs nothing, so that indexing is measured without embedding and searches without that of their query; its vectors have neighbours as
real ones do. Printed: chunks per second by words and by vectors, with the processor time of each program; latencies of a stored hybrid
search while the index is being optimised, idle, and while it is being filled again after it was wiped; the share of the exact ten nearest
that a search by vectors finds; how long after its file a note's text is found, or no longer.
"""

import argparse
import asyncio
import contextlib
import hashlib
import itertools
import multiprocessing
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path

import asyncpg
import numpy as np
import psutil
from aiohttp import web

from bench.retrieval import answering, running, status
from services.retrieval.chunking import chunk_note
from services.retrieval.documents import NAMESPACE
from shared.contracts import index, retrieval
from shared.contracts.retrieval import CreateRun, Run
from shared.contracts.subject import Empty
from shared.messaging.client import Client
from shared.messaging.scope import Scope

DIMENSION = 384
TOPICS = 2000
CHUNKS_PER_NOTE = 10
SEARCHES = 300
EDITS = 40
# The engine looks every 5 s, and waits for 10 without a write.
REST_SECONDS = 20.0


def vector(text: str) -> np.ndarray:
    """Near to others of its topic, which its first words decide."""
    topic = int.from_bytes(hashlib.blake2b(text.split(maxsplit=1)[0].encode() if text.strip() else b"", digest_size=4).digest()) % TOPICS
    seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
    made = np.random.default_rng(topic).standard_normal(DIMENSION) + 0.6 * np.random.default_rng(seed).standard_normal(DIMENSION)
    return (made / np.linalg.norm(made)).astype("<f4")


@contextmanager
def model() -> Iterator[tuple[str, Event]]:
    """Its address, and what lets it make passages. In a process of its own: searches are measured in this one."""
    processes = multiprocessing.get_context("spawn")
    may_embed, port = processes.Event(), processes.Queue()
    process = processes.Process(target=_serve_model, args=(may_embed, port), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{port.get(timeout=60)}/v1", may_embed
    finally:
        process.terminate()
        process.join()


def _serve_model(may_embed: Event, port: "multiprocessing.Queue[int]") -> None:
    async def answer(request: web.Request) -> web.Response:
        body = await request.json()
        if body.get("input_type") != "query" and not may_embed.is_set():
            return web.Response(status=503)
        data = [{"index": at, "embedding": vector(text).tolist()} for at, text in enumerate(body["input"])]
        return web.json_response({"data": data})

    async def serve() -> None:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/v1/embeddings", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port.put(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(serve())


def write_notes(vaults: list[Path], target: Path, chunks: int) -> list[str]:
    """Until there are so many; returns things to search for."""
    texts = [path.read_text("utf-8", errors="replace") for vault in vaults for path in sorted(vault.rglob("*.md"))]
    sections = [chunk.text for text in texts for chunk in chunk_note(NAMESPACE, text)]
    vocabulary = sorted({word for section in sections for word in section.split() if word.isalpha() and len(word) > 4})
    chosen = random.Random(7)
    queries = []
    for note in range(chunks // CHUNKS_PER_NOTE):
        parts = []
        for part in range(CHUNKS_PER_NOTE):
            words = " ".join(chosen.sample(vocabulary, 3))
            parts.append(f"## {words} {note} {part}\n\n{words} {chosen.choice(sections)}")
            if note % 97 == 0 and part == 0:
                queries.append(words)
        folder = target / f"{note % 100:02}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{note}.md").write_text("\n\n".join(parts), "utf-8")
    return queries


async def search(client: Client, mode: str, query: str) -> Run:
    """One stored search."""
    return await client.ask(retrieval.RUN_CREATE, CreateRun(mode=mode, query=query), Scope.root(30))  # type: ignore[arg-type]


async def latencies(client: Client, queries: Iterator[str], goes_on: Callable[[], bool], most: int = SEARCHES) -> tuple[list[float], int]:
    """Milliseconds of hybrid searches, one after the other, and how many of them were degraded."""
    took, degraded = [], 0
    while goes_on() and len(took) < most:
        query = next(queries)
        began = time.perf_counter()
        degraded += (await search(client, "hybrid", query)).status != "completed"
        took.append((time.perf_counter() - began) * 1000)
        await asyncio.sleep(0.01)
    return took, degraded


def say(what: str, took: list[float], degraded: int) -> None:
    """One line."""
    if len(took) < 2:
        print(f"{what:<44} too short to be measured")
        return
    p95 = statistics.quantiles(took, n=20)[-1]
    print(f"{what:<44} p50 {statistics.median(took):7.1f} ms   p95 {p95:7.1f} ms   n {len(took)}   degraded {degraded}", flush=True)


@contextmanager
def measured(of: str) -> Iterator[list[int]]:
    """How many of them there were in a second, and what each cost in processor time, by program; the machine's other work is not in it.
    Whoever did them adds their number.
    """
    before, began, done = _processor_seconds(), time.perf_counter(), list[int]()
    yield done
    seconds, times = time.perf_counter() - began, sum(done)
    spent = {name: now - before.get(name, 0.0) for name, now in _processor_seconds().items()}
    parts = ", ".join(f"{name} {one * 1000 / times:.2f}" for name, one in sorted(spent.items()) if one > 0.005)
    print(f"{of}: {times / seconds:.0f}/s; processor ms {sum(spent.values()) * 1000 / times:.2f} ({parts}); load {os.getloadavg()[0]:.1f}")


def _processor_seconds() -> dict[str, float]:
    spent: dict[str, float] = {}
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            command, times = process.cmdline(), process.cpu_times()
            name = "bench" if process.pid == os.getpid() else _program(command)
            spent[name] = spent.get(name, 0.0) + times.user + times.system
            if name == "postgres":  # connections that have ended
                spent[name] += times.children_user + times.children_system
    return spent


def _program(command: list[str]) -> str:
    if any("multiprocessing" in word for word in command):
        return "model"
    if "-m" in command:
        return command[command.index("-m") + 1].rpartition(".")[2]
    return Path(command[0]).name.partition(":")[0] if command else "?"


async def recall(client: Client, database: str, queries: list[str]) -> float:
    """Of the ten nearest passages, which a search by vectors finds."""
    connection = await asyncpg.connect(database, server_settings={"search_path": "retrieval"})
    rows = await connection.fetch("SELECT c.id, v.vector FROM chunks c JOIN vectors v USING (passage_sha)")
    await connection.close()
    everything = np.stack([np.frombuffer(row["vector"], "<f4") for row in rows])
    shares = []
    for query in queries:
        scores = everything @ vector(query)
        found = {result.chunk.id for result in (await search(client, "vector", query)).results if result.chunk}
        # Whatever is as near as the tenth counts.
        least = np.partition(scores, -10)[-10] - 1e-6
        near = {rows[at]["id"] for at in np.flatnonzero(scores >= least)}
        shares.append(len(found & near) / 10)
    return statistics.mean(shares)


async def say_freshness(client: Client, notes: list[Path]) -> None:
    """Write a word into notes and take it out again."""
    came, went = [], []
    for number, path in enumerate(notes):
        before, word = path.read_text("utf-8"), f"quetzal{number}x"
        for text, took in ((f"{before}\n\n{word}\n", came), (before, went)):
            path.write_text(text, "utf-8")
            began = time.perf_counter()
            while await _is_found(client, word) is (text is before):  # noqa: ASYNC110 - as a client sees it
                await asyncio.sleep(0.01)
            took.append((time.perf_counter() - began) * 1000)
    say("from a file's change to its words", came, 0)
    say("from a file's change to no more of them", went, 0)


async def _is_found(client: Client, word: str) -> bool:
    results = (await search(client, "keyword_chunks", word)).results
    return any(result.chunk is not None and word in result.chunk.text for result in results)


async def main(vaults: list[Path], chunks: int) -> None:
    """Run it."""
    with tempfile.TemporaryDirectory() as directory:
        vault, home = Path(directory) / "vault", Path(directory) / "home"
        queries = write_notes(vaults, vault, chunks)
        asked = itertools.cycle(queries)
        with model() as (url, may_embed):
            os.environ["EMBEDDING_BASE_URL"] = url
            async with running(vault, home) as (client, endpoints):
                await answering(client)
                with measured("chunk by words") as done:
                    while (now := await status(client)).pending or not now.unembedded:  # noqa: ASYNC110 - as a client sees it
                        await asyncio.sleep(1)
                    # Some sections are cut into several.
                    points = await _points(client)
                    done.append(points)
                may_embed.set()
                with measured("chunk by vectors") as done:
                    embedding = asyncio.create_task(_embedded(client))
                    say("while vectors are written", *await latencies(client, asked, lambda: not embedding.done()))
                    await embedding
                    done.append(points)
                say("while the index is optimised", *await latencies(client, asked, _unsettled(home), 10_000))
                with measured("search") as done:
                    say("idle", *await latencies(client, asked, lambda: True))
                    done.append(SEARCHES)
                print(f"recall@10 against exact: {await recall(client, endpoints['postgres'], queries[:60]):.4f}", flush=True)
                await say_freshness(client, sorted(vault.rglob("*.md"))[:EDITS])
                await client.ask(index.CLEAR, Empty(), Scope.root(30))
                with measured("chunk filled again") as done:
                    filling = asyncio.create_task(_filled(client, points))
                    say("while a wiped index is filled", *await latencies(client, asked, lambda: not filling.done(), 10_000))
                    await filling
                    done.append(points)


async def _embedded(client: Client) -> None:
    while (await status(client)).unembedded:  # noqa: ASYNC110
        await asyncio.sleep(0.5)


async def _filled(client: Client, points: int) -> None:
    while await _points(client) < points:  # noqa: ASYNC110
        await asyncio.sleep(0.5)


async def _points(client: Client) -> int:
    return (await client.ask(index.STATS, Empty(), Scope.root(10))).points


def _unsettled(home: Path) -> Callable[[], bool]:
    """Whether the engine is making its index, or may begin to: until it has left it alone for a while."""
    until = time.monotonic() + REST_SECONDS

    def building() -> bool:
        nonlocal until
        if any((home / "qdrant").glob("*.build")):
            until = time.monotonic() + REST_SECONDS
        return time.monotonic() < until

    return building


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vaults", type=Path, nargs="+")
    parser.add_argument("--chunks", type=int, default=100_000)
    options = parser.parse_args()
    asyncio.run(main([path.resolve() for path in options.vaults], options.chunks))
