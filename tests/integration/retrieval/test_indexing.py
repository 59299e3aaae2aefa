"""From changed notes to what is found: the whole service on real NATS, PostgreSQL and Qdrant engine."""

import shutil
from pathlib import Path

import asyncpg
import pytest

from shared.database.publication_lock import hold_to_verify
from tests.integration.retrieval.conftest import Stand, until


async def test_notes_that_were_there_before_are_found(stand: Stand) -> None:
    vault = stand.notes.workspace()
    stand.notes.write(vault, "tea.md", "# Tea\n\nGreen tea wants water of eighty degrees.")
    stand.notes.write(vault, "数据/向量.md", "# 向量数据库\n\n笔记检索需要向量数据库和倒排索引。")
    async with stand.start_engine(), stand.start():
        await stand.settled(2)
        assert (await stand.paths("green water"))[0] == "tea.md"
        assert (await stand.paths("数据库"))[0] == "数据/向量.md"


async def test_edits_moves_and_deletions_are_followed(stand: Stand) -> None:
    vault = stand.notes.workspace()
    async with stand.start_engine(), stand.start():
        await stand.notes.put(vault, "a.md", "# One\n\nThe heron stands.\n\n# Two\n\nThe otter swims.")
        await stand.settled(1)
        first = {hit.text: hit.block_id for hit in (await stand.search("heron otter")).hits}
        await stand.notes.put(vault, "a.md", "# One\n\nThe kingfisher dives.\n\n# Two\n\nThe otter swims.")
        await until(lambda: _finds(stand, "kingfisher", "a.md"))
        await stand.settled(1)
        hits = (await stand.search("heron otter kingfisher")).hits
        assert {hit.text for hit in hits} == {"The kingfisher dives.", "The otter swims."}
        assert {hit.block_id for hit in hits if "otter" in hit.text} == {first["The otter swims."]}
        document = await stand.fetchval("SELECT id FROM documents")

        await stand.notes.move(vault, "a.md", "birds/b.md")
        await until(lambda: _finds(stand, "kingfisher", "birds/b.md"))
        await stand.settled(1)
        assert await stand.fetchval("SELECT id FROM documents") == document
        assert await stand.paths("otter", path_prefix="birds/") == ["birds/b.md"]
        # One text was embedded once, whatever moved. The query's vectors are not among them.
        assert len(stand.model.passages) == len(set(stand.model.passages)) == 3

        await stand.notes.delete(vault, "birds/b.md")
        await until(lambda: _finds_nothing(stand, "otter"))
        assert await stand.fetchval("SELECT count(*) FROM chunks") == 0


async def test_a_note_that_goes_while_its_text_is_being_published_goes(stand: Stand) -> None:
    vault = stand.notes.workspace()
    async with stand.start_engine(), stand.start():
        await stand.notes.put(vault, "b.md", "The otter swims.")
        await stand.settled(1)
        reader = await asyncpg.connect(stand.database_url, server_settings={"search_path": "retrieval"})
        try:
            async with reader.transaction():
                await hold_to_verify(reader, [vault])
                await stand.notes.put(vault, "a.md", "The heron stands.")
                await until(lambda: _is(stand, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", 1))
                # What it is taken for must not be decided by tables that do not have it yet.
                await stand.notes.delete(vault, "a.md")
                await stand.notes.put(vault, "b.md", "The kingfisher dives.")
                await until(lambda: _is(stand, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", 1))
        finally:
            await reader.close()
        await until(lambda: _finds(stand, "kingfisher", "b.md"))
        await stand.settled(1)
        assert await stand.fetchval("SELECT array_agg(path) FROM documents") == ["b.md"]


async def test_a_second_start_reads_nothing_and_writes_nothing(stand: Stand) -> None:
    vault = stand.notes.workspace()
    for number in range(20):
        stand.notes.write(vault, f"{number}.md", f"Note number {number} about something.")
    async with stand.start_engine():
        async with stand.start():
            await stand.settled(20)
        generation = await stand.fetchval("SELECT generation FROM publications")
        stand.notes.reads.clear()
        stand.model.passages.clear()
        async with stand.start():
            await stand.settled(20)
            assert stand.notes.reads == []
            assert stand.model.passages == []
            assert await stand.fetchval("SELECT generation FROM publications") == generation


async def test_notes_that_an_older_version_cut_are_cut_anew(stand: Stand) -> None:
    vault = stand.notes.workspace()
    stand.notes.write(vault, "a.md", "heron")
    async with stand.start_engine():
        async with stand.start():
            await stand.settled(1)
        await stand.fetchval("UPDATE documents SET cut_version = 0")
        await stand.fetchval("UPDATE chunks SET ordinal = 7, point = gen_random_uuid()")
        async with stand.start():
            await until(lambda: _is(stand, "SELECT ordinal FROM chunks", 0))
            await stand.settled(1)
            assert await stand.paths("heron") == ["a.md"]


async def test_two_instances_share_the_work_and_agree_on_what_is_pending(stand: Stand) -> None:
    vault = stand.notes.workspace()
    async with stand.start_engine(), stand.start(), stand.start():
        for number in range(30):
            await stand.notes.put(vault, f"{number}.md", f"heron {number}")
        await until(lambda: _is(stand, "SELECT count(*) FROM chunks WHERE in_index AND dense", 30))
        for _ in range(6):  # whichever of them answers
            await stand.settled(30)


async def test_what_changed_while_the_service_was_away_is_taken_in(stand: Stand) -> None:
    vault = stand.notes.workspace()
    async with stand.start_engine():
        async with stand.start():
            await stand.notes.put(vault, "a.md", "alpha")
            await stand.notes.put(vault, "b.md", "beta")
            await stand.settled(2)
        await stand.notes.put(vault, "a.md", "gamma")
        await stand.notes.delete(vault, "b.md")
        stand.notes.write(vault, "c.md", "delta, of which no fact was published")
        async with stand.start():
            await stand.settled(2)
            assert await stand.paths("gamma delta") == ["a.md", "c.md"] or await stand.paths("gamma delta") == ["c.md", "a.md"]
            assert not any("beta" in hit.text or "alpha" in hit.text for hit in (await stand.search("alpha beta")).hits)


async def test_a_wiped_index_is_filled_from_the_tables_without_embedding_again(stand: Stand, tmp_path: Path) -> None:
    vault = stand.notes.workspace()
    stand.notes.write(vault, "a.md", "The heron stands.")
    async with stand.start():
        async with stand.start_engine():
            await stand.settled(1)
        shutil.rmtree(tmp_path / "qdrant")
        stand.model.passages.clear()
        reads = len(stand.notes.reads)
        async with stand.start_engine() as engine:
            await until(lambda: _points(engine, 1))
            await stand.settled(1)
            run = await stand.run("vector", "heron")
            assert (run.status, len(run.results)) == ("completed", 1)
        assert stand.model.passages == []
        assert len(stand.notes.reads) == reads


async def test_an_index_with_points_of_elsewhere_is_replaced(stand: Stand) -> None:
    vault = stand.notes.workspace()
    for number in range(3):
        stand.notes.write(vault, f"{number}.md", f"heron {number}")
    async with stand.start_engine() as engine, stand.start():
        await stand.settled(3)
        await stand.fetchval("TRUNCATE documents, chunks, words")
        await until(lambda: _points(engine, 0))


async def test_withdrawn_and_unreadable_notes_are_not_found(stand: Stand) -> None:  # RC-19
    vault = stand.notes.workspace()
    stand.notes.write(vault, "secret.md", "---\nretrieval: false\n---\nThe heron stands.")
    stand.notes.write(vault, "broken.md", "The heron stands.")
    stand.notes.write(vault, "good.md", "The heron stands.")
    stand.notes.unreadable.add("broken.md")
    async with stand.start_engine(), stand.start():
        await stand.settled(1)
        assert await stand.paths("heron") == ["good.md"]
        await stand.notes.put(vault, "good.md", "---\nretrieval: false\n---\nThe heron stands.")
        await until(lambda: _finds_nothing(stand, "heron"))


async def test_a_vault_that_is_away_is_an_outage_not_a_deletion(stand: Stand) -> None:
    vault = stand.notes.workspace()
    async with stand.start_engine(), stand.start():
        await stand.notes.put(vault, "a.md", "heron")
        await stand.settled(1)
        stand.notes.away.add(vault)
        await stand.notes.put(vault, "a.md", "otter")
        await until(lambda: _pending(stand, 1))
        assert (await stand.status()).last_error is not None
        assert await stand.paths("heron") == ["a.md"]
        stand.notes.away.clear()
        await until(lambda: _finds(stand, "otter", "a.md"))
        await stand.settled(1)
        assert (await stand.status()).last_error is None


async def test_words_are_found_while_the_model_is_away_and_vectors_follow(stand: Stand) -> None:
    vault = stand.notes.workspace()
    stand.model.down = True
    stand.notes.write(vault, "a.md", "heron")
    async with stand.start_engine(), stand.start():
        await until(lambda: _finds(stand, "heron", "a.md"))

        async def waits_for_vectors() -> bool:
            status = await stand.status()
            return (status.indexed, status.unembedded, status.pending) == (0, 1, 0)

        # Found a moment before it is counted as such.
        await until(waits_for_vectors)
        assert (await stand.search("heron")).degraded
        stand.model.down = False
        await stand.settled(1)
        assert not (await stand.search("heron")).degraded


async def test_another_model_begins_a_new_space_and_the_old_one_answers_until_it_is_whole(stand: Stand) -> None:
    vault = stand.notes.workspace()
    stand.notes.write(vault, "a.md", "heron")
    async with stand.start_engine():
        async with stand.start():
            await stand.settled(1)
        # As if another model had made all this.
        await stand.fetchval("UPDATE embedding_space SET space = 'another/32/plain'")
        stand.model.busy.add("multilingual-e5-small+all-minilm-l6-v2")
        stand.model.models.clear()
        async with stand.start():
            await until(lambda: _answers_whole(stand, "heron"))
            run = await stand.run("vector", "heron")
            assert run.vector_publication is not None
            assert (run.status, run.vector_publication[0].embedding_space) == ("completed", "another/32/plain")
            assert set(stand.model.models) == {"another"}
            stand.model.busy.clear()

            async def made_anew() -> bool:
                return await stand.fetchval("SELECT space FROM embedding_space") == "multilingual-e5-small+all-minilm-l6-v2/32/input_type"

            await until(made_anew)
            await stand.settled(1)
            await until(lambda: _answers_whole(stand, "heron"))
            stand.model.models.clear()
            assert (await stand.run("vector", "heron anew")).status == "completed"
            assert stand.model.models == ["multilingual-e5-small+all-minilm-l6-v2"]


async def test_a_passage_that_the_model_refuses_does_not_keep_the_others_from_their_vectors(stand: Stand) -> None:
    vault = stand.notes.workspace()
    stand.model.refused.add("otter")
    for number in range(20):
        stand.notes.write(vault, f"{number}.md", f"otter {number}" if number % 10 == 3 else f"heron {number}")
    async with stand.start_engine(), stand.start():

        async def all_but_two() -> bool:
            status = await stand.status()
            return (status.indexed, status.unembedded) == (18, 2) and status.last_error is not None

        await until(all_but_two)
        assert set(await stand.paths("otter")) == {"3.md", "13.md"}


async def test_notes_of_a_workspace_that_was_not_looked_through_yet_are_pending(stand: Stand) -> None:
    vault, other = stand.notes.workspace(), stand.notes.workspace()
    stand.notes.write(vault, "known.md", "heron")
    async with stand.start_engine():
        async with stand.start():
            await stand.settled(1)
        stand.notes.write(vault, "new.md", "otter")
        stand.notes.write(other, "new.md", "otter")
        stand.notes.reads_until_held = 0
        async with stand.start():
            status = await stand.status()
            assert (status.indexed, status.pending) == (1, 2)
            stand.notes.released.set()
            await stand.settled(3)


async def test_a_thousand_notes_are_taken_in_while_searches_answer(stand: Stand) -> None:
    vault = stand.notes.workspace()
    stand.model.down = True
    stand.notes.reads_until_held = 100
    for number in range(300):
        stand.notes.write(
            vault, f"n/{number}.md", "\n\n".join(f"# Part {part}\n\n" + f"word{number} some text here " * 20 for part in range(4))
        )
    async with stand.start_engine(), stand.start():
        await until(lambda: _finds_something(stand, "some text"))
        assert (await stand.status()).pending >= 200
        stand.notes.released.set()
        while (await stand.status()).pending:
            assert (await stand.search("some text")).hits
        assert await stand.fetchval("SELECT count(*) FROM chunks") == 1200


async def _answers_whole(stand: Stand, query: str) -> bool:
    return not (await stand.search(query)).degraded


async def _finds(stand: Stand, query: str, path: str) -> bool:
    return any(hit.file_path == path and query in hit.text for hit in (await stand.search(query)).hits)


async def _finds_something(stand: Stand, query: str) -> bool:
    return bool((await stand.search(query)).hits)


async def _finds_nothing(stand: Stand, query: str) -> bool:
    return not (await stand.search(query)).hits


async def _is(stand: Stand, query: str, value: object) -> bool:
    return bool(await stand.fetchval(query) == value)


async def _pending(stand: Stand, count: int) -> bool:
    return (await stand.status()).pending == count


async def _points(engine: object, count: int) -> bool:
    return engine._shard.points() == count  # type: ignore[attr-defined]


async def test_vectors_of_gone_texts_are_forgotten_and_the_others_kept(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.retrieval.vectors.COLLECT_SECONDS", 0.1)
    vault = stand.notes.workspace()
    stand.notes.write(vault, "a.md", "heron")
    stand.notes.write(vault, "b.md", "trout")
    async with stand.start_engine(), stand.start():
        await stand.settled(2)
        await stand.notes.delete(vault, "a.md")
        await until(lambda: _is(stand, "SELECT count(*) FROM vectors", 1))
        await stand.notes.move(vault, "b.md", "c.md")
        await stand.settled(1)
        assert stand.model.passages.count("trout") == 1
