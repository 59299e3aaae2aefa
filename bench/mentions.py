"""The mention menu over a big workspace: what the notes service takes to answer at each key, and what its index takes of memory.

The rows of `--notes` notes (100,000) are put into a real PostgreSQL, and the service's own parts answer in this process. For each kind of
typing: milliseconds per answer, median, 95 of 100, and the most, and those of this process's processor alone; then how long a committed
change takes to be offered, the memory of the index and the first reading of it. Promised: 95 of 100 answers within 10 ms, 200 MB, 2 s.
Each answer is the better one of two, since a machine that has other things to do tells about those.

`python -m bench.mentions [--notes 100000]`
"""

import argparse
import asyncio
import dataclasses
import gc
import itertools
import random
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import psutil

from local.home import Home
from local.ports import free_port
from local.postgres import Postgres
from local.stack import ROOT
from local.supervisor import Supervisor
from services.notes import changes
from services.notes.changes import Seen
from services.notes.file_threads import FileThreads
from services.notes.mention_candidates import MentionCandidates
from services.notes.mention_feed import MentionFeed
from services.notes.vault import FileStat
from shared.contracts.mentions import CandidatesRequest
from shared.database.migrate import migrate
from shared.database.pool import Pool, open_pool, transaction

SEED = 7
TIMES = 150
SYLLABLES = "ba co di fe gu ha li mo ne pra qui ro ste tra u ver wa xi yo zu an er in or"
CHINESE = "绿茶 冲泡 水温 笔记 计划 会议 预算 报告 厨房 花园 自行车 维修 数据库 服务器 索引 搜索 旅行 伦敦 巴黎 东京 阅读 清单 项目 总结"
COMMON = "tea green project plan meeting notes review budget weekly report kitchen garden repair server index search travel list"


@asynccontextmanager
async def database() -> AsyncIterator[Pool]:
    """A PostgreSQL with the service's tables."""
    with tempfile.TemporaryDirectory() as directory:
        home = Home.open(Path(directory) / "home")
        supervisor = Supervisor(home, ROOT, {}, print)
        try:
            postgres = Postgres(home, free_port(), home.secret("postgres"))
            program = await postgres.program()
            supervisor.start(dataclasses.replace(program, command=(*program.command, "--fsync=off")))
            await supervisor.ready([program.name], 60)
            pool = await open_pool(postgres.url, "notes")
            await migrate(pool, "notes", "services.notes")
            yield pool
            await pool.close()
        finally:
            await supervisor.stop()
            home.close()


class Writing:
    """Makes up notes: a few words are common, most are rare."""

    def __init__(self) -> None:
        self.random = random.Random(SEED)
        rare = {"".join(self.random.choices(SYLLABLES.split(), k=self.random.randint(2, 4))) for _ in range(40_000)}
        self.vocabulary = [*COMMON.split(), *CHINESE.split(), *sorted(rare)]
        self._weights = list(itertools.accumulate(1 / (rank + 8) for rank in range(len(self.vocabulary))))

    def words(self, count: int) -> list[str]:
        """Some of them, as often as they are used."""
        return self.random.choices(self.vocabulary, cum_weights=self._weights, k=count)

    def title(self) -> str:
        """A title."""
        return " ".join(self.words(self.random.randint(2, 6))).capitalize()

    def notes(self, count: int) -> Iterator[tuple[str, str, datetime, list[str]]]:
        """Path, title, time of change and words."""
        began = datetime(2020, 1, 1, tzinfo=UTC)
        for number in range(count):
            title = self.title()
            path = f"{self.random.choice(COMMON.split())}/{self.random.choice(CHINESE.split())}/{title[:60]} {number}.md"
            yield path, title, began + timedelta(minutes=self.random.randrange(3_000_000)), list(set(self.words(150)))


async def fill(pool: Pool, workspace: UUID, writing: Writing, count: int) -> None:
    """Put the notes into the tables."""
    async with pool.acquire(timeout=10) as connected:
        await connected.execute(
            "INSERT INTO workspaces (id, directory, root, title, notes_dir) VALUES ($1, 'big', '/none', 'big', '')", workspace
        )
        await connected.execute("DROP INDEX note_words_by_word")
        for part in itertools.batched(writing.notes(count), 2000):
            rows = [(workspace, path, title, moment) for path, title, moment, _ in part]
            await connected.executemany(
                """
                INSERT INTO notes
                (workspace, path, title, tags, tag_keys, content_hash, size, mtime_ns, ctime_ns, inode, modified_at, revision)
                VALUES ($1, $2, $3, '{}', '{}', $2, 1, 1, 1, 1, $4, 1)
                """,
                rows,
            )
            await connected.executemany(
                "INSERT INTO note_words (workspace, path, words) VALUES ($1, $2, array_to_tsvector($3::text[]))",
                [(workspace, path, words) for path, _, _, words in part],
            )
        await connected.execute("SET statement_timeout = 0")
        await connected.execute("CREATE INDEX note_words_by_word ON note_words USING gin (words)", timeout=600)
        await connected.execute("ANALYZE", timeout=600)
        await connected.execute("RESET statement_timeout")


def typed(writing: Writing) -> dict[str, list[str]]:
    """What is typed, by kind."""
    titles = [writing.title() for _ in range(TIMES)]
    rare = writing.vocabulary[-TIMES:]
    return {
        "nothing yet": [""] * TIMES,
        "titles, key by key": [title[: number % 12 + 1].lower() for number, title in enumerate(titles)],
        "the middle of words": [title[number % 5 + 1 :][:5] for number, title in enumerate(titles)],
        "Chinese": [writing.random.choice(CHINESE.split())[: number % 2 + 1] for number in range(TIMES)],
        "paths": [f"{writing.random.choice(COMMON.split())}/{writing.random.choice(CHINESE.split())}" for _ in range(TIMES)],
        "words of texts": [word[:6] for word in rare],
        "letters in order": [title.replace(" ", "")[::2][:6].lower() for title in titles],
        "several words": [" ".join(reversed(title.lower().split()[:3])) for title in titles],
        "nothing like it": [f"qqj{number}x" for number in range(TIMES)],
    }


async def answers(candidates: MentionCandidates, workspace: UUID, queries: list[str]) -> list[tuple[float, float]]:
    """Milliseconds of each, and of the processor."""
    took = []
    for query in queries:
        times = []
        for _ in range(2):
            began, worked = time.perf_counter(), time.process_time()
            await candidates.offer(CandidatesRequest(workspace=workspace, query=query), None)
            times.append(((time.perf_counter() - began) * 1000, (time.process_time() - worked) * 1000))
        took.append(min(times))
    return took


async def visible(pool: Pool, candidates: MentionCandidates, workspace: UUID) -> list[tuple[float, float]]:
    """Milliseconds from a change's commit to the answer that offers it, and of the processor."""
    took = []
    for number in range(50):
        note = Seen(f"new/{number}.md", FileStat(1, 1, 1, 1), str(number), f"Justwritten{number}", [], ["fresh"])
        async with transaction(pool) as connected:
            await changes.commit(connected, workspace, [note])
        began, worked = time.perf_counter(), time.process_time()
        found = await candidates.offer(CandidatesRequest(workspace=workspace, query=f"justwritten{number}"), None)
        took.append(((time.perf_counter() - began) * 1000, (time.process_time() - worked) * 1000))
        assert found.items[0].name == note.title
    return took


def row(what: str, took: list[tuple[float, float]]) -> str:
    """A line of the table."""
    times, processor = [one for one, _ in took], [one for _, one in took]
    return (
        f"| {what:22} | {statistics.median(times):6.2f} | {percentile(times):6.2f} | {max(times):6.2f} "
        f"| {statistics.median(processor):6.2f} | {percentile(processor):6.2f} |"
    )


def percentile(took: list[float]) -> float:
    """What 95 of 100 stay below."""
    return statistics.quantiles(took, n=20)[-1]


async def main(count: int) -> None:
    """Run it."""
    writing, workspace = Writing(), uuid4()
    async with database() as pool:
        await fill(pool, workspace, writing, count)
        gc.collect()
        before, began = psutil.Process().memory_info().rss, time.perf_counter()
        feed = MentionFeed(pool)
        await feed.index(workspace, 0)
        took = time.perf_counter() - began
        gc.collect()
        memory = (psutil.Process().memory_info().rss - before) / 1e6
        with closing(FileThreads()) as threads:
            candidates = MentionCandidates(pool, threads, feed)
            kinds = {what: await answers(candidates, workspace, queries) for what, queries in typed(writing).items()}
            changed = await visible(pool, candidates, workspace)
    print(f"| {count} notes, ms        | median |     95 |    max |    cpu | cpu 95 |\n|{'-' * 24}|{'-------:|' * 5}")
    print("\n".join(row(what, times) for what, times in kinds.items()))
    print(row("all", [one for times in kinds.values() for one in times]))
    print(row("a change is offered", changed))
    print(f"the index: {memory:.0f} MB, read in {took:.1f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--notes", type=int, default=100_000)
    asyncio.run(main(parser.parse_args().notes))
