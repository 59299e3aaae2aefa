"""Stores that go away and come back: nothing is lost, nothing needs a person."""

import base64

import asyncpg
import numpy as np
import pytest

from local.index_engine import Engine
from services.retrieval.documents import sparse
from shared.contracts.index import Point, SparseVector, Upsert
from shared.messaging.scope import Scope
from tests.integration.retrieval.conftest import DIMENSION, Stand, until
from tests.support.nats_server import RunningNats


async def test_changes_are_followed_again_after_nats_was_away(own_stand: tuple[Stand, RunningNats]) -> None:
    stand, nats = own_stand
    vault = stand.notes.workspace()
    async with stand.start_engine(), stand.start():
        await stand.notes.put(vault, "a.md", "heron")
        await stand.settled(1)
        await nats.stop()
        await nats.start()
        await until(lambda: _reached(stand), 20)
        await stand.notes.put(vault, "b.md", "otter")
        await until(lambda: _finds(stand, "otter"), 20)
        await stand.settled(2)


async def test_changes_are_taken_in_after_the_database_broke_every_connection(stand: Stand, postgres_url: str) -> None:
    vault = stand.notes.workspace()
    async with stand.start_engine(), stand.start():
        await stand.notes.put(vault, "a.md", "heron")
        await stand.settled(1)
        name = stand.database_url.rsplit("/", 1)[-1]
        connection = await asyncpg.connect(postgres_url)
        try:
            for number in range(20):
                await stand.notes.put(vault, f"{number}.md", f"otter {number}")
                if number % 5 == 0:
                    await connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
        finally:
            await connection.close()
        await stand.settled(21)
        assert await stand.fetchval("SELECT count(*) FROM chunks WHERE in_index") == 21


async def test_a_note_that_the_index_could_not_take_is_found_in_the_tables_at_once_and_in_the_index_when_it_is_back(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("services.retrieval.index_writer.CHECK_SECONDS", 3600)
    vault = stand.notes.workspace()
    async with stand.start():
        async with stand.start_engine():
            await stand.notes.put(vault, "a.md", "heron")
            await stand.settled(1)
        await stand.notes.put(vault, "b.md", "otter")
        await until(lambda: _said(caplog, "The index could not be written"))

        async def is_found_by_words() -> bool:
            now = await stand.status()
            return (now.indexed, now.pending, now.unembedded) == (1, 0, 1)

        await until(is_found_by_words)
        # No search has noticed that the engine was away.
        async with stand.start_engine():
            await until(lambda: _finds(stand, "otter"))
            await stand.settled(2)


@pytest.mark.parametrize("damaged", ["words", "vectors"])
async def test_an_index_that_has_all_points_and_does_not_find_them_is_filled_again(stand: Stand, damaged: str) -> None:
    vault = stand.notes.workspace()
    for number in range(10):
        stand.notes.write(vault, f"{number}.md", f"heron {number}")
    async with stand.start_engine() as engine, stand.start():
        await stand.settled(10)
        await until(lambda: _answers_completely(stand, "hybrid", "heron"))
        before = await stand.run("vector", "heron 3")
        points = [result.chunk.id for result in (await stand.run("hybrid", "heron")).results if result.chunk]
        assert len(points) == 10
        await _damage(stand, engine, damaged)
        if damaged == "words":
            run = await stand.run("hybrid", "heron")
            assert (run.status, len(run.results)) == ("degraded", 10)  # found by words, in the tables

        async def is_as_before() -> bool:
            run = await stand.run("vector", "heron 3")
            return (run.status, run.results) == ("completed", before.results)

        await until(is_as_before)
        assert await _answers_completely(stand, "keyword_chunks", "heron")


async def _damage(stand: Stand, engine: Engine, part: str) -> None:
    """Give every point what is not its own, as if its pages were another's."""
    connection = await asyncpg.connect(stand.database_url, server_settings={"search_path": "retrieval"})
    rows = await connection.fetch(
        "SELECT c.point, c.workspace, c.document, s.tokens, s.weights, v.vector FROM chunks c JOIN words s ON s.chunk = c.id "
        "JOIN vectors v USING (passage_sha)"
    )
    await connection.close()
    strange_words, strange_vector = SparseVector(indices=[1], values=[1.0]), np.eye(1, DIMENSION, 7, dtype="<f4")
    for row in rows:
        payload = {"workspace": str(row["workspace"]), "document": str(row["document"]), "ancestors": [], "tags": [], "exchange": False}
        words = strange_words if part == "words" else sparse(row["tokens"], row["weights"])
        dense = row["vector"] if part == "words" else strange_vector.tobytes()
        point = Point(id=row["point"], sparse=words, dense=base64.b64encode(dense).decode(), payload=payload)
        await engine.upsert(Upsert(points=[point]), Scope.root(10))


async def _answers_completely(stand: Stand, mode: str, query: str) -> bool:
    run = await stand.run(mode, query)
    return run.status == "completed" and len(run.results) == 10


async def _said(caplog: pytest.LogCaptureFixture, words: str) -> bool:
    return words in caplog.text


async def _reached(stand: Stand) -> bool:
    return stand.bus.connected and stand.notes.bus.connected


async def _finds(stand: Stand, query: str) -> bool:
    return any(query in hit.text for hit in (await stand.search(query)).hits)
