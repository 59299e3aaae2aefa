"""One suite for both adapters of the port to the Qdrant engine: the embedded engine over real NATS, and the client in its local mode."""

import base64
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest
from qdrant_client import AsyncQdrantClient

from local.index_engine import Engine, routes
from services.retrieval.embedded_index import EmbeddedIndex
from services.retrieval.server_index import ServerIndex
from services.retrieval.vector_index import VectorIndex
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.index import DenseVector, Filter, Point, Search, SearchReply, SparseVector
from shared.messaging.bus import Bus
from shared.telemetry import tracing
from shared.telemetry import vocabulary as words
from tests.support.traces import Spans

WORKSPACE, OTHER = uuid4(), uuid4()


@pytest.fixture(params=["embedded", "server"])
async def index(request: pytest.FixtureRequest, tmp_path: Path, nats_url: str) -> AsyncIterator[VectorIndex]:
    if request.param == "server":
        client = AsyncQdrantClient(":memory:")
        yield ServerIndex(client)
        await client.close()
        return
    engine, server, asker = Engine(tmp_path), Bus("index", nats_url), Bus("test", nats_url)
    await engine.open()
    await server.connect()
    await asker.connect()
    await server.serve(routes(engine))
    yield EmbeddedIndex(asker.client)
    await asker.stop()
    await server.stop()
    await engine.close()


pytestmark = pytest.mark.filterwarnings("ignore:Payload indexes have no effect:UserWarning")


def vector(*values: float) -> str:
    return base64.b64encode(np.array(values, "<f4").tobytes()).decode()


def point(*tokens: int, one: UUID | None = None, dense: str | None = None, workspace: UUID = WORKSPACE, **payload: Any) -> Point:
    base = {"workspace": str(workspace), "document": str(uuid4()), "ancestors": [], "tags": [], "exchange": False}
    words = SparseVector(indices=sorted(tokens), values=[1.0] * len(tokens))
    return Point(id=one or uuid4(), sparse=words, dense=dense, payload=base | payload)


async def look(index: VectorIndex, *tokens: int, dense: str | None = None, limit: int = 10, **conditions: Any) -> SearchReply:
    words = SparseVector(indices=sorted(tokens), values=[1.0] * len(tokens)) if tokens else None
    condition = Filter(**{"workspaces": [WORKSPACE], **conditions})
    return await index.search(Search(filter=condition, sparse=words, dense=dense, limit=limit), 5)


async def found(index: VectorIndex, *tokens: int, **more: Any) -> list[UUID]:
    return [hit.id for hit in (await look(index, *tokens, **more)).sparse]


async def test_words_are_ranked_by_how_rare_they_are(index: VectorIndex) -> None:
    rare, common = point(1, 2), point(2, 3)
    await index.upsert([rare, common, *(point(2) for _ in range(5))])
    reply = await look(index, 1, 2)
    assert reply.sparse[0].id == rare.id
    assert len(reply.sparse) == 7
    assert reply.dense == []
    assert reply.sparse[0].score > reply.sparse[1].score


async def test_vectors_are_ranked_by_cosine(index: VectorIndex) -> None:
    near, far, none = point(1, dense=vector(1, 0)), point(1, dense=vector(1, 1)), point(1)
    await index.upsert([near, far, none])
    reply = await look(index, dense=vector(2, 0))
    assert [hit.id for hit in reply.dense] == [near.id, far.id]
    assert [hit.score for hit in reply.dense] == pytest.approx([1, math.sqrt(0.5)], abs=1e-4)
    assert reply.sparse == []


async def test_both_legs_come_in_one_answer_each_with_its_limit(index: VectorIndex) -> None:
    both = [point(1, 2, dense=vector(1, 0)), point(1, 2, dense=vector(1, 0.1))]
    await index.upsert([*both, *(point(1, dense=vector(0, 1)) for _ in range(5))])
    reply = await look(index, 1, 2, dense=vector(1, 0), limit=2)
    assert {hit.id for hit in reply.sparse} == {hit.id for hit in reply.dense} == {one.id for one in both}
    assert (len(reply.sparse), len(reply.dense)) == (2, 2)


async def test_what_one_leg_finds_has_its_score_in_the_other_too(index: VectorIndex) -> None:
    worded, near, wordless = point(1, 2, dense=vector(-1, 1)), point(2, dense=vector(1, 0)), point(3, dense=vector(1, 0.5))
    await index.upsert([worded, near, wordless, point(1), *(point(2, dense=vector(0, 1)) for _ in range(3))])
    whole = await look(index, 1, 2, dense=vector(1, 0), limit=10)
    sparse, dense = ({hit.id: hit.score for hit in leg} for leg in (whole.sparse, whole.dense))
    reply = await look(index, 1, 2, dense=vector(1, 0), limit=1)
    assert [hit.id for hit in reply.sparse] == [worded.id, near.id]
    assert [hit.id for hit in reply.dense] == [near.id, worded.id]
    assert [hit.score for hit in reply.sparse] == pytest.approx([sparse[worded.id], sparse[near.id]])
    assert [hit.score for hit in reply.dense] == pytest.approx([dense[near.id], dense[worded.id]], abs=1e-5)
    two = await look(index, 1, 2, dense=vector(1, 0), limit=2)
    assert wordless.id in {hit.id for hit in two.dense}
    assert wordless.id not in {hit.id for hit in two.sparse}


async def test_the_workspace_is_part_of_every_leg(index: VectorIndex) -> None:
    mine, theirs = point(1, dense=vector(1, 0)), point(1, dense=vector(1, 0), workspace=OTHER)
    await index.upsert([mine, theirs])
    reply = await look(index, 1, dense=vector(1, 0))
    assert {hit.id for hit in reply.sparse + reply.dense} == {mine.id}
    assert await found(index, 1, workspaces=[]) == []
    assert set(await found(index, 1, workspaces=[WORKSPACE, OTHER])) == {mine.id, theirs.id}


async def test_each_condition_of_the_filter_holds(index: VectorIndex) -> None:
    document = uuid4()
    plain = point(1)
    special = point(1, document=str(document), ancestors=["a/", "a/b/"], tags=["x", "y"])
    exchange = point(1, exchange=True)
    await index.upsert([plain, special, exchange])
    assert set(await found(index, 1)) == {plain.id, special.id}
    assert set(await found(index, 1, include_exchanges=True)) == {plain.id, special.id, exchange.id}
    assert await found(index, 1, ancestor="a/") == [special.id]
    assert await found(index, 1, ancestor="b/") == []
    assert await found(index, 1, tags=["y", "x"]) == [special.id]
    assert await found(index, 1, tags=["x", "z"]) == []
    assert await found(index, 1, documents=[document]) == [special.id]
    assert await found(index, 1, documents=[]) == []


async def test_writing_again_changes_nothing_but_what_is_different(index: VectorIndex) -> None:
    first = point(1, dense=vector(1, 0))
    await index.upsert([first])
    await index.upsert([first])
    assert await index.count() == 1
    await index.upsert([point(2, one=first.id)])
    assert await found(index, 1) == []
    assert await found(index, 2) == [first.id]
    # The dense vector stayed.
    assert [hit.id for hit in (await look(index, dense=vector(1, 0))).dense] == [first.id]


async def test_dense_vectors_come_later_and_unknown_points_are_passed_over(index: VectorIndex) -> None:
    known = point(1)
    await index.upsert([known])
    await index.set_dense([DenseVector(id=uuid4(), dense=vector(0, 1)), DenseVector(id=known.id, dense=vector(1, 0))])
    assert [hit.id for hit in (await look(index, dense=vector(1, 0))).dense] == [known.id]
    assert await index.count() == 1


async def test_points_go_and_unknown_ones_are_passed_over(index: VectorIndex) -> None:
    stays, goes = point(1), point(1)
    await index.upsert([stays, goes])
    await index.delete([goes.id, uuid4()])
    assert await found(index, 1) == [stays.id]
    await index.clear()
    assert await index.count() == 0
    assert await found(index, 1) == []


async def test_a_vector_of_another_dimension_begins_anew(index: VectorIndex) -> None:
    one, other = point(1, dense=vector(1, 0)), point(1)
    await index.upsert([one, other])
    await index.set_dense([DenseVector(id=other.id, dense=vector(1, 0, 0))])
    assert [hit.id for hit in (await look(index, dense=vector(1, 0, 0))).dense] == [other.id]
    assert (await look(index, 1, dense=vector(1, 0))).dense == []


async def test_dense_vectors_are_forgotten_and_the_words_stay(index: VectorIndex) -> None:
    one = point(1, dense=vector(1, 0))
    await index.forget_dense()
    await index.upsert([one])
    await index.forget_dense()
    reply = await look(index, 1, dense=vector(1, 0))
    assert ([hit.id for hit in reply.sparse], reply.dense, await index.count()) == ([one.id], [], 1)
    await index.upsert([point(1, one=one.id)])
    await index.set_dense([DenseVector(id=one.id, dense=vector(0, 1))])
    assert [(hit.id, round(hit.score, 4)) for hit in (await look(index, dense=vector(0, 1))).dense] == [(one.id, 1.0)]


async def test_an_index_nobody_wrote_to_answers_with_nothing(index: VectorIndex) -> None:
    reply = await look(index, 1, dense=vector(1, 0))
    assert (reply.sparse, reply.dense, await index.count()) == ([], [], 0)


async def test_a_server_that_is_not_there_is_a_passing_failure() -> None:
    client = AsyncQdrantClient(url="http://127.0.0.1:9", timeout=1, check_compatibility=False)
    try:
        with pytest.raises(ServiceError) as raised:
            await ServerIndex(client).count()
        assert raised.value.code is ErrorCode.UNAVAILABLE
    finally:
        await client.close()


async def test_what_the_engine_does_on_a_question_is_a_span_of_its_trace(spans: Spans, index: VectorIndex) -> None:
    # OP-1
    with tracing.span(words.RETRIEVAL):
        await index.upsert([point(1)])
        await look(index, 1)
    (trace,) = spans.traces
    for operation in ("upsert", "search"):
        span = trace.one(f"{operation} points")
        assert trace.path(span)[0] == "retrieval"
        assert (span.kind, span.attributes["db.system.name"], span.attributes["db.operation.name"]) == ("CLIENT", "qdrant", operation)
        assert span.attributes.keys() <= set(words.POINTS.attributes)
