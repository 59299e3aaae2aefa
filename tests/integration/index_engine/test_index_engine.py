"""The embedded engine: durable writes, generations, damage."""

import asyncio
import base64
import contextlib
import random
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest
from qdrant_edge import EdgeConfig, EdgeSparseVectorParams, Modifier

from local.index_engine import STARTS_MAX, Engine
from local.index_shard import LOG
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.index import Delete, DenseVector, Filter, Point, Search, SetDense, SparseVector, Upsert
from shared.contracts.subject import Empty
from shared.messaging.scope import Scope
from tests.support.polling import eventually

SCOPE = Scope.root(60)
WORKSPACE = uuid4()
RNG = np.random.default_rng(7)


@contextlib.asynccontextmanager
async def opened(path: Path, **options: Any) -> AsyncIterator[Engine]:
    engine = Engine(path, **options)
    await engine.open()
    try:
        yield engine
    finally:
        await engine.close()


def dense(dimension: int = 16) -> str:
    return base64.b64encode(RNG.standard_normal(dimension).astype("<f4").tobytes()).decode()


def point(one: UUID, token: int, *, vector: str | None = None, **payload: Any) -> Point:
    base = {"workspace": str(WORKSPACE), "document": str(one), "ancestors": ["a/"], "tags": [], "exchange": False}
    return Point(id=one, sparse=SparseVector(indices=[token], values=[1.5]), dense=vector, payload=base | payload)


def words(token: int, **conditions: Any) -> Search:
    condition = Filter(workspaces=[WORKSPACE], **conditions)
    return Search(filter=condition, sparse=SparseVector(indices=[token], values=[1.0]), limit=50)


def generations(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.glob("gen-*"))


def searched_one_by_one(path: Path) -> int:
    """Bytes that the engine keeps of points in segments that may still grow."""
    return sum(file.stat().st_size for file in path.glob("gen-*/segments/*/mutable_id_tracker.versions"))


async def fill(engine: Engine, *sizes: int) -> None:
    """So many points with vectors at a time, optimised after each time."""
    for some in sizes:
        await engine.upsert(Upsert(points=[point(uuid4(), 1, vector=dense()) for _ in range(some)]), SCOPE)
        await engine.rebuild()


async def found(engine: Engine, token: int, **conditions: Any) -> set[UUID]:
    reply = await engine.search(words(token, **conditions), SCOPE)
    return {hit.id for hit in reply.sparse}


async def test_what_was_written_is_found_and_what_was_deleted_is_not_after_a_restart(tmp_path: Path) -> None:
    kept, gone = uuid4(), uuid4()
    async with opened(tmp_path) as engine:
        await engine.upsert(Upsert(points=[point(kept, 1), point(gone, 1)]), SCOPE)
        await engine.delete(Delete(ids=[gone, uuid4()]), SCOPE)
    async with opened(tmp_path) as engine:
        assert await found(engine, 1) == {kept}
        assert (await engine.stats(Empty(), SCOPE)).points == 1


async def test_a_write_that_was_answered_survives_the_loss_of_all_that_was_not_flushed(tmp_path: Path) -> None:
    kept, gone, vector = uuid4(), uuid4(), dense()
    generation, flushed = tmp_path / "gen-0001", tmp_path / "flushed"
    async with opened(tmp_path) as engine:
        await engine.upsert(Upsert(points=[point(gone, 1), point(uuid4(), 2, vector=dense())]), SCOPE)
    # The segments as they are on disk at the least after a power failure.
    shutil.copytree(generation / "segments", flushed)
    async with opened(tmp_path) as engine:
        await engine.upsert(Upsert(points=[point(kept, 1)]), SCOPE)
        await engine.set_dense(SetDense(vectors=[DenseVector(id=kept, dense=vector)]), SCOPE)
        await engine.delete(Delete(ids=[gone]), SCOPE)
        shutil.copytree(generation / LOG, tmp_path / "logged")
    for name, state in (("segments", flushed), (LOG, tmp_path / "logged")):
        shutil.rmtree(generation / name)
        state.rename(generation / name)
    async with opened(tmp_path) as engine:
        assert await found(engine, 1) == {kept}
        reply = await engine.search(Search(filter=Filter(workspaces=[WORKSPACE]), dense=vector, limit=5), SCOPE)
        assert (reply.dense[0].id, round(reply.dense[0].score, 4)) == (kept, 1.0)


async def test_a_write_is_answered_while_the_log_gets_its_next_file(tmp_path: Path) -> None:
    async with opened(tmp_path) as engine:
        # As it is seen by who has read the folder before the file was renamed.
        (tmp_path / generations(tmp_path)[0] / LOG / "tmp-open-9").symlink_to("open-9")
        one = uuid4()
        await engine.upsert(Upsert(points=[point(one, 1)]), SCOPE)
        await engine.rebuild()
        assert await found(engine, 1) == {one}


async def test_the_filter_holds_every_condition(tmp_path: Path) -> None:
    plain, tagged, foreign, exchange = uuid4(), uuid4(), uuid4(), uuid4()
    async with opened(tmp_path) as engine:
        await engine.upsert(
            Upsert(
                points=[
                    point(plain, 1),
                    point(tagged, 1, tags=["x", "y"], ancestors=["a/", "a/b/"]),
                    point(foreign, 1, workspace=str(uuid4())),
                    point(exchange, 1, exchange=True),
                ]
            ),
            SCOPE,
        )
        assert await found(engine, 1) == {plain, tagged}
        assert await found(engine, 1, tags=["x", "y"]) == {tagged}
        assert await found(engine, 1, tags=["x", "z"]) == set()
        assert await found(engine, 1, ancestor="a/b/") == {tagged}
        assert await found(engine, 1, documents=[plain]) == {plain}
        assert await found(engine, 1, documents=[]) == set()
        assert await found(engine, 1, include_exchanges=True) == {plain, tagged, exchange}


async def test_a_point_keeps_its_dense_vector_when_its_words_are_replaced(tmp_path: Path) -> None:
    one, vector = uuid4(), dense()
    async with opened(tmp_path) as engine:
        await engine.upsert(Upsert(points=[point(one, 1)]), SCOPE)
        await engine.set_dense(SetDense(vectors=[DenseVector(id=one, dense=vector), DenseVector(id=uuid4(), dense=dense())]), SCOPE)
        await engine.upsert(Upsert(points=[point(one, 2)]), SCOPE)
        reply = await engine.search(Search(filter=Filter(workspaces=[WORKSPACE]), dense=vector, limit=5), SCOPE)
        assert [(hit.id, round(hit.score, 4)) for hit in reply.dense] == [(one, 1.0)]
        assert await found(engine, 1) == set()


async def test_vectors_of_another_dimension_replace_the_space(tmp_path: Path) -> None:
    one, other, vector = uuid4(), uuid4(), dense(32)
    async with opened(tmp_path) as engine:
        await engine.upsert(Upsert(points=[point(one, 1, vector=dense(16)), point(other, 1)]), SCOPE)
        await engine.set_dense(SetDense(vectors=[DenseVector(id=other, dense=vector)]), SCOPE)
        reply = await engine.search(Search(filter=Filter(workspaces=[WORKSPACE]), dense=vector, limit=5), SCOPE)
        assert [hit.id for hit in reply.dense] == [other]
        reply = await engine.search(Search(filter=Filter(workspaces=[WORKSPACE]), dense=dense(16), limit=5), SCOPE)
        assert reply.dense == []


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
async def test_a_vector_with_no_number_is_refused_and_nothing_written(tmp_path: Path, value: float) -> None:
    bad = base64.b64encode(np.full(16, value, "<f4").tobytes()).decode()
    async with opened(tmp_path) as engine:
        with pytest.raises(ServiceError) as raised:
            await engine.upsert(Upsert(points=[point(uuid4(), 1, vector=bad)]), SCOPE)
        assert raised.value.code is ErrorCode.INVALID
        assert (await engine.stats(Empty(), SCOPE)).points == 0


async def test_a_rebuild_loses_nothing_that_is_written_meanwhile(tmp_path: Path) -> None:
    before = [uuid4() for _ in range(300)]
    during = [uuid4() for _ in range(60)]
    async with opened(tmp_path) as engine:
        await engine.upsert(Upsert(points=[point(one, 1, vector=dense()) for one in before]), SCOPE)
        await engine.delete(Delete(ids=before[:10]), SCOPE)
        rebuild = asyncio.create_task(engine.rebuild())
        await engine.delete(Delete(ids=before[10:20]), SCOPE)
        for one in during:
            await engine.upsert(Upsert(points=[point(one, 2, vector=dense())]), SCOPE)
            await engine.search(words(1), SCOPE)
        await engine.upsert(Upsert(points=[point(before[20], 3)]), SCOPE)
        await rebuild
        assert (await engine.stats(Empty(), SCOPE)).model_dump() == {"points": 340, "generation": 2}
        assert await found(engine, 3) == {before[20]}
    async with opened(tmp_path) as engine:
        assert (await engine.stats(Empty(), SCOPE)).model_dump() == {"points": 340, "generation": 2}
        everything = Search(filter=Filter(workspaces=[WORKSPACE]), dense=dense(), limit=1000)
        assert {hit.id for hit in (await engine.search(everything, SCOPE)).dense} == set(before[20:]) | set(during)
    assert generations(tmp_path) == ["gen-0002"]


async def test_a_rebuild_leaves_no_vector_without_an_index(tmp_path: Path) -> None:
    async with opened(tmp_path) as engine:
        await fill(engine, 1000, 300)
    assert searched_one_by_one(tmp_path) == 0


async def test_an_index_made_with_other_settings_is_optimised_with_those_of_today(tmp_path: Path) -> None:
    former = EdgeConfig(sparse_vectors={"bm25": EdgeSparseVectorParams(modifier=Modifier.Idf)})
    with pytest.MonkeyPatch.context() as then:
        then.setattr("local.index_shard._config", lambda: former)
        async with opened(tmp_path) as engine:
            await engine.upsert(Upsert(points=[point(uuid4(), 1, vector=dense())]), SCOPE)
    async with opened(tmp_path) as engine:
        await fill(engine, 1000, 300)
        reply = await engine.search(Search(filter=words(1).filter, dense=dense(), limit=2000), SCOPE)
        assert len(reply.dense) == 1301
    assert searched_one_by_one(tmp_path) == 0


async def test_enough_unindexed_vectors_start_a_rebuild_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("local.index_engine.PROVEN_SECONDS", 0)
    monkeypatch.setattr("local.index_engine.CHECK_SECONDS", 0.05)
    async with opened(tmp_path, unindexed_max=100) as engine:
        await engine.upsert(Upsert(points=[point(uuid4(), 1, vector=dense()) for _ in range(120)]), SCOPE)
        upkeep = asyncio.create_task(engine.maintain())
        async with asyncio.timeout(30):
            while (await engine.stats(Empty(), SCOPE)).generation == 1:  # noqa: ASYNC110 - as its askers would notice it
                await asyncio.sleep(0.05)
        upkeep.cancel()
        assert (await engine.stats(Empty(), SCOPE)).points == 120


async def test_fewer_are_given_an_index_once_nothing_is_written_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path, unindexed_max=1000, settled_max=100) as engine:
        monkeypatch.setattr("local.index_engine.SETTLED_SECONDS", 600)
        await engine.upsert(Upsert(points=[point(uuid4(), 1, vector=dense()) for _ in range(120)]), SCOPE)
        assert not engine._wants_rebuild()
        monkeypatch.setattr("local.index_engine.SETTLED_SECONDS", 0)
        assert engine._wants_rebuild()
        assert not engine._wants_rebuild()  # nothing was written since


async def test_vectors_that_come_after_their_points_are_counted_as_without_an_index(tmp_path: Path) -> None:
    """As they always do: words are there first."""
    ids = [uuid4() for _ in range(200)]
    async with opened(tmp_path) as engine:
        await engine.upsert(Upsert(points=[point(one, 1) for one in ids]), SCOPE)
        await engine.set_dense(SetDense(vectors=[DenseVector(id=one, dense=dense()) for one in ids[:100]]), SCOPE)
        assert engine._unindexed == 100
        await engine._rebuild_once()
        assert engine._unindexed == 0
        await engine.set_dense(SetDense(vectors=[DenseVector(id=one, dense=dense()) for one in ids[100:]]), SCOPE)
        assert engine._unindexed == 100
    async with opened(tmp_path) as engine:
        assert engine._unindexed == 100
        await engine.upsert(Upsert(points=[point(ids[0], 2)]), SCOPE)  # keeps its vector, in another place
        assert engine._unindexed == 101
        await engine.clear(Empty(), SCOPE)
        assert engine._unindexed == 0
    (tmp_path / "unindexed").unlink()
    async with opened(tmp_path) as engine:
        await engine.upsert(Upsert(points=[point(one, 1, vector=dense()) for one in ids]), SCOPE)
    (tmp_path / "unindexed").unlink()
    async with opened(tmp_path) as engine:
        assert engine._unindexed == 200  # nobody knows: as if there were no index


async def test_an_interrupted_build_is_discarded_at_the_next_start(tmp_path: Path) -> None:
    one = uuid4()
    async with opened(tmp_path) as engine:
        await engine.upsert(Upsert(points=[point(one, 1)]), SCOPE)
    (tmp_path / "gen-0002.build").mkdir()
    (tmp_path / "gen-0002").mkdir()
    (tmp_path / "CURRENT.new").write_text("gen-00")
    async with opened(tmp_path) as engine:
        assert await found(engine, 1) == {one}
    assert generations(tmp_path) == ["gen-0001"]


async def test_clearing_during_a_rebuild_leaves_an_empty_index(tmp_path: Path) -> None:
    async with opened(tmp_path, unindexed_max=10) as engine:
        await engine.upsert(Upsert(points=[point(uuid4(), 1, vector=dense()) for _ in range(50)]), SCOPE)
        rebuild = asyncio.create_task(engine._rebuild_once())
        await asyncio.sleep(0)
        await engine.clear(Empty(), SCOPE)
        await rebuild
        assert (await engine.stats(Empty(), SCOPE)).points == 0
    async with opened(tmp_path) as engine:
        assert (await engine.stats(Empty(), SCOPE)).points == 0


async def test_a_folder_that_is_removed_beneath_the_engine_is_made_anew_and_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("local.index_engine.PROVEN_SECONDS", 0)
    monkeypatch.setattr("local.index_engine.CHECK_SECONDS", 0.05)
    async with opened(tmp_path / "qdrant") as engine:
        await engine.upsert(Upsert(points=[point(uuid4(), 1)]), SCOPE)
        maintaining = asyncio.create_task(engine.maintain())
        shutil.rmtree(tmp_path / "qdrant")

        async def is_empty() -> bool:
            return (await engine.stats(Empty(), SCOPE)).points == 0

        await eventually(is_empty, 15)
        await engine.upsert(Upsert(points=[point(uuid4(), 2)]), SCOPE)
        maintaining.cancel()
        await asyncio.wait({maintaining})
        assert maintaining.cancelled()
    async with opened(tmp_path / "qdrant") as engine:
        assert (await found(engine, 1), len(await found(engine, 2))) == (set(), 1)


@pytest.mark.parametrize("damage", ["config", "segment", "folder"])
async def test_a_damaged_shard_is_set_aside_and_an_empty_one_made(tmp_path: Path, damage: str) -> None:
    async with opened(tmp_path) as engine:
        await engine.upsert(Upsert(points=[point(uuid4(), 1)]), SCOPE)
    shard = tmp_path / "gen-0001"
    if damage == "config":
        (shard / "edge_config.json").write_text("{")
    elif damage == "segment":
        for file in shard.rglob("segment.json"):
            file.write_bytes(random.Random(1).randbytes(50))
    else:
        shard.rename(tmp_path / "elsewhere")
    async with opened(tmp_path) as engine:
        assert (await engine.stats(Empty(), SCOPE)).points == 0
        await engine.upsert(Upsert(points=[point(uuid4(), 1)]), SCOPE)
    async with opened(tmp_path) as engine:
        assert (await engine.stats(Empty(), SCOPE)).points == 1


async def test_a_shard_that_kills_the_process_again_and_again_is_given_up(tmp_path: Path) -> None:
    async with opened(tmp_path) as engine:
        await engine.upsert(Upsert(points=[point(uuid4(), 1)]), SCOPE)
    (tmp_path / "starts").write_text(str(STARTS_MAX))
    async with opened(tmp_path) as engine:
        assert (await engine.stats(Empty(), SCOPE)).points == 0
