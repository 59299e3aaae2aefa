"""What the path gateway → NATS → agent → provider adds to asking the provider itself, in one run.

For 1, 32 and 128 streams at once, unpaced and at 50 chunks a second: the median time to the first text, the same for the provider alone,
what is added; the CPU time of gateway, agent and nats-server for one answer of 64 chunks; lost answers. Absolute times belong to the
machine; the added milliseconds and the CPU time are what to compare. Unpaced streams all begin at once, which measures a burst; paced ones
begin evenly spread over the length of an answer, as independent people do. A last line is measured while the embedder is busy with a vault.

`python -m bench.relay [--quick]`
"""

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import uvloop

from bench.stack import Stack, quiet, running
from bench.upstream import CHUNKS, PAUSE_SECONDS
from local.ports import free_port

MEASURED = ("gateway", "agent", "nats")
SERVICES_AND_EMBEDDER = ("gateway", "agent", "retrieval", "notes", "contexts", "embedder")
# How many answers a line is made of, by pace and by how many are asked at once.
ANSWERS = {"unpaced": {1: 100, 32: 640, 128: 1024}, "paced": {1: 6, 32: 96, 128: 256}}
# Enough for the embedder to be at work for minutes.
BUSY_NOTES = 300
WORDS = CHUNKS
ANSWER_SECONDS = CHUNKS * PAUSE_SECONDS


@dataclass(frozen=True)
class Sample:
    """One answer: seconds to its first text and to its end, and whether it was whole."""

    first: float
    total: float
    whole: bool


async def direct(http: aiohttp.ClientSession, base_url: str, model: str) -> Sample:
    """Ask the provider itself."""
    started, first, text = time.perf_counter(), 0.0, b""
    body = {"model": model, "messages": [{"role": "user", "content": "Go"}], "stream": True}
    async with http.post(f"{base_url}/chat/completions", json=body) as answer:
        async for line in answer.content:
            if line.startswith(b"data: {") and b'"content"' in line:
                first = first or time.perf_counter() - started
                text += line
    return Sample(first, time.perf_counter() - started, text.count(b"word") == WORDS)


async def through(http: aiohttp.ClientSession, stack: Stack, model: str) -> Sample:
    """Ask Marginalia."""
    started, first, text, done = time.perf_counter(), 0.0, b"", False
    headers = {"authorization": f"Bearer {stack.token}"}
    async with http.post(f"{stack.base_url}/api/chat", json={"message": "Go", "provider": model}, headers=headers) as answer:
        async for line in answer.content:
            if line.startswith(b'data: {"type":"TextDelta"'):
                first = first or time.perf_counter() - started
                text += line
            done = done or line.startswith(b'data: {"type":"Done"')
    return Sample(first, time.perf_counter() - started, done and text.count(b"word") == WORDS)


async def measure(ask: Callable[[], Awaitable[Sample]], at_once: int, answers: int, spread_seconds: float = 0.0) -> list[Sample]:
    """`answers` samples from `at_once` askers, who ask one after the other; their beginnings are spread over `spread_seconds`."""
    left = iter(range(answers))

    async def asker(number: int) -> list[Sample]:
        await asyncio.sleep(spread_seconds * number / at_once)
        return [await ask() for _ in left]

    return [sample for samples in await asyncio.gather(*map(asker, range(at_once))) for sample in samples]


def row(name: str, samples: list[Sample], base: list[Sample], cpu: dict[str, float]) -> str:
    """One line of the table."""
    first = statistics.median(sample.first for sample in samples) * 1000
    base_first = statistics.median(sample.first for sample in base) * 1000
    total = statistics.median(sample.total for sample in samples) / statistics.median(sample.total for sample in base)
    lost = sum(not sample.whole for sample in samples)
    per = {part: seconds / len(samples) * 1000 for part, seconds in cpu.items()}
    costs = "".join(f"{per[part]:9.2f}" for part in MEASURED)
    both = per["gateway"] + per["agent"]
    return f"{name:>14}{base_first:9.1f}{first:9.1f}{first - base_first:9.1f}{total:9.2f}{costs}{both:12.2f}{lost:6d}"


def prepare(folder: Path, upstream: str) -> tuple[dict[str, str], Path, Path]:
    """The environment that names the provider by its two paces, a vault with next to nothing, and one that keeps the embedder busy."""
    toml = folder / "providers.toml"
    tables = (f'[[provider]]\nname = "{pace}"\nbase_url = "{upstream}"\nmodels = ["{pace}"]\n' for pace in ANSWERS)
    toml.write_text("".join(tables))
    small, busy = folder / "small", folder / "busy"
    small.mkdir()
    (small / "note.md").write_text("# A note\n")
    busy.mkdir()
    for number in range(BUSY_NOTES):
        words = " ".join(f"word{number * word}" for word in range(200))
        (busy / f"note-{number}.md").write_text(f"# Note {number}\n\n{words}\n")
    return {"MARGINALIA_PROVIDERS": str(toml), "MODEL_BASE_URL": upstream, "MODEL_NAME": "unpaced"}, small, busy


def heading() -> str:
    """The head of the table."""
    names = ("direct", "through", "added", "total", "gateway", "agent", "nats")
    units = ("ms", "ms", "ms", "ratio", "CPU ms", "CPU ms", "CPU ms")
    first = f"{'':>14}" + "".join(f"{name:>9}" for name in names) + f"{'gw+agent':>12}{'lost':>6}"
    return first + f"\n{'streams':>14}" + "".join(f"{unit:>9}" for unit in units) + f"{'CPU ms':>12}"


async def main(quick: bool) -> None:
    """Print the table."""
    port = free_port()
    upstream = f"http://127.0.0.1:{port}/v1"
    provider = await asyncio.create_subprocess_exec(sys.executable, "-m", "bench.upstream", str(port))
    try:
        with TemporaryDirectory() as folder:
            environment, small, busy = prepare(Path(folder), upstream)
            async with running(str(small), environment) as stack, session() as http:
                await quiet()
                print(heading())
                for pace, answers in ANSWERS.items():
                    for at_once, number in answers.items():
                        print(await compare(http, stack, upstream, pace, at_once, max(at_once, number // (4 if quick else 1))), flush=True)
                memory = {name: stack.resident_bytes(name) // 2**20 for name in stack.names}
                print("\nProportional memory, idle: " + ", ".join(f"{name} {size} MB" for name, size in memory.items()))
                print(f"Five services and embedder: {sum(memory[name] for name in SERVICES_AND_EMBEDDER)} MB\n")
            async with running(str(busy), environment) as stack, session() as http:
                print(await compare(http, stack, upstream, "unpaced", 1, 50) + "  while vectors are made")
                print(f"{await unembedded(http, stack)} notes still waited for their vectors at its end")
    finally:
        provider.kill()
        await provider.wait()


def session() -> aiohttp.ClientSession:
    """An HTTP client that opens as many connections as are asked for."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))


async def unembedded(http: aiohttp.ClientSession, stack: Stack) -> int:
    """How many notes wait for vectors."""
    headers = {"authorization": f"Bearer {stack.token}"}
    async with http.get(f"{stack.base_url}/api/retrieval/status", headers=headers) as answer:
        return int((await answer.json())["unembedded"])


async def compare(http: aiohttp.ClientSession, stack: Stack, upstream: str, pace: str, at_once: int, answers: int) -> str:
    """One line: the provider alone, then the whole path, on the same load."""
    spread = ANSWER_SECONDS if pace == "paced" else 0.0
    await measure(lambda: through(http, stack, pace), at_once, at_once)  # warm
    base = await measure(lambda: direct(http, upstream, pace), at_once, answers, spread)
    before = {name: stack.cpu_seconds(name) for name in MEASURED}
    samples = await measure(lambda: through(http, stack, pace), at_once, answers, spread)
    cpu = {name: stack.cpu_seconds(name) - before[name] for name in MEASURED}
    return row(f"{at_once} {pace}", samples, base, cpu)


if __name__ == "__main__":
    uvloop.run(main("--quick" in sys.argv))
