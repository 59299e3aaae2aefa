"""Points are written while others are published, and none counts as written that the index has lost meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import UUID, uuid4

import pytest

from services.retrieval.index_writer import IndexWriter
from shared.contracts.index import DenseVector, Point, Scored, Search, SearchReply
from shared.database.pool import Pool, transaction
from shared.database.publication_lock import hold_to_publish
from tests.integration.retrieval.conftest import WORKSPACE, cut
from tests.support.polling import eventually

OLD, NEW = "old model", "new model"


@dataclass
class HeldIndex:
    """An index that takes points before or after it is let to."""

    points: dict[UUID, str | None] = field(default_factory=dict)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    before: asyncio.Event = field(default_factory=asyncio.Event)
    after: asyncio.Event = field(default_factory=asyncio.Event)
    counting: asyncio.Event = field(default_factory=asyncio.Event)
    counted: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.before.set()
        self.after.set()
        self.counted.set()

    async def upsert(self, points: Sequence[Point]) -> None:
        self.asked.set()
        await self.before.wait()
        self.points |= {point.id: point.dense or self.points.get(point.id) for point in points}
        await self.after.wait()

    async def set_dense(self, vectors: Sequence[DenseVector]) -> None:
        self.points |= {vector.id: vector.dense for vector in vectors if vector.id in self.points}

    async def forget_dense(self) -> None:
        self.points = dict.fromkeys(self.points)

    async def delete(self, ids: Sequence[UUID]) -> None:
        for one in ids:
            self.points.pop(one, None)

    async def search(self, request: Search, seconds: float) -> SearchReply:
        return SearchReply(sparse=[Scored(id=one, score=1) for one in self.points], dense=[])

    async def count(self) -> int:
        self.counting.set()
        await self.counted.wait()
        return len(self.points)

    async def clear(self) -> None:
        self.points.clear()


@pytest.fixture
def index() -> HeldIndex:
    return HeldIndex()


@pytest.fixture
async def writer(pool: Pool, index: HeldIndex, monkeypatch: pytest.MonkeyPatch) -> IndexWriter:
    monkeypatch.setattr("services.retrieval.index_writer.CONFIRM_SECONDS", 0.01)
    made = IndexWriter(pool, index)
    await made.begin_space(OLD)
    await made.check()
    return made


@asynccontextmanager
async def publishing(writer: IndexWriter, index: HeldIndex, path: str) -> AsyncIterator[asyncio.Task[set[UUID]]]:
    """A note's points are asked of the index within the block, and the note is published at its end."""
    document = uuid4()
    index.asked.clear()
    task = asyncio.create_task(writer.publish([(cut(document, path, f"the text of {path}", 1), document)]))
    await asyncio.wait_for(index.asked.wait(), 10)
    yield task
    index.before.set()
    index.after.set()
    await asyncio.wait_for(task, 10)


async def test_points_are_written_while_others_are_published(pool: Pool, index: HeldIndex, writer: IndexWriter) -> None:
    async with transaction(pool) as db:
        await hold_to_publish(db, [WORKSPACE])
        first = asyncio.create_task(writer.publish([(cut(one := uuid4(), "a.md", "an otter", 1), one)]))
        await asyncio.wait_for(index.asked.wait(), 10)
        second = asyncio.create_task(writer.publish([(cut(two := uuid4(), "b.md", "a heron", 1), two)]))

        async def both_written() -> bool:
            return len(index.points) == 2

        await eventually(both_written, 10)
        assert not first.done()
        assert not second.done()
    await asyncio.wait_for(asyncio.gather(first, second), 10)
    assert await pool.fetchval("SELECT count(*) FROM chunks WHERE in_index") == 2


async def test_what_was_written_before_the_index_was_emptied_is_written_again(pool: Pool, index: HeldIndex, writer: IndexWriter) -> None:
    index.points |= dict.fromkeys(uuid4() for _ in range(3))  # nobody knows these: the index is not ours
    index.after.clear()
    async with publishing(writer, index, "a.md"):
        await asyncio.wait_for(writer.check(), 10)
        assert index.points == {}
    assert await pool.fetchval("SELECT count(*) FROM chunks WHERE in_index") == 0
    assert not writer.complete
    await writer.check()
    assert set(index.points) == {await pool.fetchval("SELECT point FROM chunks WHERE in_index")}
    assert writer.complete


async def test_what_is_published_while_the_index_is_found_complete_is_written_without_waiting_for_the_next_check(
    pool: Pool, index: HeldIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.retrieval.index_writer.CHECK_SECONDS", 3600)
    index.counted.clear()
    writer, document = IndexWriter(pool, index), uuid4()
    checking = asyncio.create_task(writer.run())
    await asyncio.wait_for(index.counting.wait(), 10)
    # It answers, and is compared with the tables.
    index.counting.clear()
    index.counted.set()
    index.counted.clear()
    await asyncio.wait_for(index.counting.wait(), 10)
    # Not known to be complete as yet, the index is not asked to take its points.
    publishing = asyncio.create_task(writer.publish([(cut(document, "a.md", "an otter", 1), document)]))
    await asyncio.sleep(0)
    index.counted.set()
    await asyncio.wait_for(publishing, 10)

    async def is_written() -> bool:
        return bool(await pool.fetchval("SELECT bool_and(in_index) FROM chunks"))

    await eventually(is_written, 10)
    checking.cancel()


async def test_a_note_is_published_while_an_index_is_asked_that_hangs(index: HeldIndex, writer: IndexWriter) -> None:
    index.counting.clear()
    index.counted.clear()
    writer.suspect()
    checking = asyncio.create_task(writer.check())
    await asyncio.wait_for(index.counting.wait(), 10)
    await asyncio.wait_for(writer.publish([(cut(one := uuid4(), "a.md", "an otter", 1), one)]), 10)
    assert not checking.done()
    index.counted.set()
    await asyncio.wait_for(checking, 10)
    assert len(index.points) == 1
    assert writer.complete


async def test_a_vector_of_the_old_model_does_not_come_after_the_new_models_space_has_begun(
    pool: Pool, index: HeldIndex, writer: IndexWriter
) -> None:
    (passage,) = cut(uuid4(), "a.md", "the text of a.md", 1).passages
    await pool.execute("INSERT INTO vectors VALUES ($1, $2, $3)", OLD, passage.passage_sha, b"\0\0\0\0")
    index.before.clear()
    async with publishing(writer, index, "a.md"):
        beginning = asyncio.create_task(writer.begin_space(NEW))
        # Whether it waits for what is being written cannot be seen; it would do its worst meanwhile.
        await asyncio.wait({beginning}, timeout=0.3)
    await asyncio.wait_for(beginning, 10)
    await writer.check()
    assert list(index.points.values()) == [None]
    assert await pool.fetchval("SELECT count(*) FROM chunks WHERE dense OR embedded") == 0
