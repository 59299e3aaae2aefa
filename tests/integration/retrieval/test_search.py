"""What a search finds, and what it says when parts are away."""

from typing import Any
from uuid import uuid4

import pytest

from shared.contracts.errors import ErrorCode, ServiceError
from shared.messaging.scope import Account
from tests.integration.retrieval.conftest import Stand, until


async def test_a_search_finds_by_words_by_headings_and_by_meaning(stand: Stand) -> None:
    vault = stand.notes.workspace()
    stand.model.synonyms = {"crane": "heron"}
    stand.notes.write(vault, "birds.md", "# Waders\n\n## Feeding\n\nThe heron stands still.")
    stand.notes.write(vault, "fish.md", "# Fish\n\nThe trout swims.")
    stand.notes.write(vault, "ids.md", "Order NX-7731-b was shipped; 数据库的备份。")
    async with stand.start_engine(), stand.start():
        await stand.settled(3)
        assert (await stand.paths("crane"))[0] == "birds.md"
        assert (await stand.paths("feeding"))[0] == "birds.md"
        assert (await stand.paths("NX-7731-b"))[0] == "ids.md"
        assert (await stand.paths("数据"))[0] == "ids.md"
        reply = await stand.search("heron")
        assert not reply.degraded
        hit = reply.hits[0]
        content = stand.notes.notes[vault, "birds.md"].content
        assert content[hit.start : hit.end] == hit.text == "The heron stands still."
        assert (hit.heading_path, hit.workspace, hit.title) == (["Waders", "Feeding"], vault, "birds")
        assert 0 < hit.score <= 1
        assert len((await stand.search("the", limit=1)).hits) <= 1


async def test_the_filters_hold_with_and_without_the_engine(stand: Stand) -> None:  # ON-5
    one, two = stand.notes.workspace("one"), stand.notes.workspace("two")
    stand.notes.write(one, "a/x.md", "heron", tags=("Bird/Wader",))
    stand.notes.write(one, "a/b/xy.md", "heron", tags=("bird", "draft"))
    stand.notes.write(one, "ab.md", "heron")
    stand.notes.write(two, "a/x.md", "heron two")

    async def paths(**filters: Any) -> set[str]:
        return set(await stand.paths("heron", limit=20, workspaces=[one], **filters))

    async def hold() -> None:
        assert await paths() == {"a/x.md", "a/b/xy.md", "ab.md"}
        assert await paths(path_prefix="a/") == {"a/x.md", "a/b/xy.md"}
        assert await paths(path_prefix="a/b/x") == {"a/b/xy.md"}
        assert await paths(path_prefix="a") == {"a/x.md", "a/b/xy.md", "ab.md"}
        assert await paths(path_prefix="a%") == set()
        assert await paths(tags=["#bird"]) == {"a/x.md", "a/b/xy.md"}
        assert await paths(tags=["bird/wader"]) == {"a/x.md"}
        assert await paths(tags=["bird", "draft"]) == {"a/b/xy.md"}
        assert await paths(tags=["bir"]) == set()
        assert {hit.workspace for hit in (await stand.search("heron", workspaces=[two])).hits} == {two}

    async with stand.start():
        async with stand.start_engine():
            await stand.settled(4)
            await hold()
        await hold()


async def test_an_account_finds_only_what_it_may_read(stand: Stand) -> None:
    mine, theirs = stand.notes.workspace("mine"), stand.notes.workspace("theirs")
    stand.notes.write(mine, "a.md", "heron")
    stand.notes.write(theirs, "secret.md", "heron")
    member = Account(uuid4(), "member")
    stand.notes.members[member.id] = [mine]
    async with stand.start_engine(), stand.start():
        await stand.settled(2)
        assert await stand.paths("heron", account=member) == ["a.md"]
        for workspace in (theirs, uuid4()):
            with pytest.raises(ServiceError) as raised:
                await stand.search("heron", account=member, workspaces=[mine, workspace])
            assert raised.value.code is ErrorCode.WORKSPACE_NOT_FOUND


@pytest.mark.parametrize("query", ["", "  \n", "x" * 10_001, "a\0b"])
async def test_a_query_that_is_none_is_refused(stand: Stand, query: str) -> None:
    async with stand.start_engine(), stand.start():
        with pytest.raises(ServiceError) as raised:
            await stand.search(query)
        assert raised.value.code is ErrorCode.INVALID


async def test_odd_queries_are_answered(stand: Stand) -> None:
    vault = stand.notes.workspace()
    stand.notes.write(vault, "a.md", "heron")
    async with stand.start_engine(), stand.start():
        await stand.settled(1)
        for query in ("the", "???", "🦩", "x" * 10_000, "数" * 10_000, "\ufeff'; DROP TABLE chunks; --"):
            await stand.search(query)


async def test_without_the_engine_words_are_found_in_the_tables(stand: Stand) -> None:
    vault = stand.notes.workspace()
    stand.notes.write(vault, "a.md", "The heron stands. 数据库")
    stand.notes.write(vault, "b.md", "The trout swims.")
    async with stand.start():
        async with stand.start_engine():
            await stand.settled(2)
            by_engine = await stand.search("heron")
        by_tables = await stand.search("heron")
        assert by_tables.degraded
        assert not by_engine.degraded
        assert [hit.text for hit in by_tables.hits] == [by_engine.hits[0].text]
        assert await stand.paths("数据库") == ["a.md"]
        # What changes meanwhile is found too, and is in the index when that is back.
        await stand.notes.put(vault, "c.md", "kingfisher")
        await until(lambda: _finds(stand, "kingfisher"))
        async with stand.start_engine():
            await stand.settled(3)
            await until(lambda: _answers_whole(stand, "kingfisher"))


async def test_without_the_model_words_answer_and_say_so(stand: Stand) -> None:
    vault = stand.notes.workspace()
    stand.notes.write(vault, "a.md", "heron")
    async with stand.start_engine(), stand.start():
        await stand.settled(1)
        stand.model.down = True
        reply = await stand.search("heron")
        assert reply.degraded
        assert [hit.file_path for hit in reply.hits] == ["a.md"]


async def test_without_engine_and_database_it_is_an_error_never_an_empty_answer(stand: Stand) -> None:
    vault = stand.notes.workspace()
    stand.notes.write(vault, "a.md", "heron")
    async with stand.start():
        async with stand.start_engine():
            await stand.settled(1)
        await stand.fetchval("ALTER TABLE chunks RENAME TO chunks_away")
        with pytest.raises(ServiceError) as raised:
            await stand.search("heron")
        assert raised.value.code is ErrorCode.RETRIEVAL_UNAVAILABLE
        await stand.fetchval("ALTER TABLE chunks_away RENAME TO chunks")
        assert await stand.paths("heron") == ["a.md"]


async def _answers_whole(stand: Stand, query: str) -> bool:
    return not (await stand.search(query)).degraded


async def _finds(stand: Stand, query: str) -> bool:
    return bool((await stand.search(query)).hits)
