"""Stores that go away and come back: nothing is lost, nothing needs a person."""

import asyncpg
import pytest

from tests.integration.retrieval.conftest import Stand, until
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
        # No search has noticed that the engine was away.
        async with stand.start_engine():
            await until(lambda: _finds(stand, "otter"))
            await stand.settled(2)


async def _said(caplog: pytest.LogCaptureFixture, words: str) -> bool:
    return words in caplog.text


async def _reached(stand: Stand) -> bool:
    return stand.bus.connected and stand.notes.bus.connected


async def _finds(stand: Stand, query: str) -> bool:
    return any(query in hit.text for hit in (await stand.search(query)).hits)
