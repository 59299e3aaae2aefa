"""What readers see: one publication whole, made by each change or by hand."""

import asyncio
import contextlib
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID, uuid4

import numpy as np
import pytest

from shared.contracts import retrieval
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.evidence import EVIDENCE_VERIFY, VerifiedEvidence, VerifyEvidence
from shared.contracts.index import Point, SparseVector, Upsert, encoded
from shared.contracts.retrieval import ConfigurePublishing, Filters, Publication, PublicationRequest, Publish, PublishMode, Run
from shared.database.pool import connection, open_pool
from shared.database.publication_lock import hold_to_verify
from shared.messaging.scope import Account, Scope
from tests.integration.retrieval.conftest import Stand, until


async def publication(stand: Stand, workspace: UUID) -> Publication:
    listed = await stand.bus.client.ask(retrieval.PUBLICATION_LIST, PublicationRequest(), Scope.root(5))
    return next(one for one in listed.items if one.workspace == workspace)


async def publish(stand: Stand, workspace: UUID, account: Account | None = None) -> Publication:
    return await stand.bus.client.ask(retrieval.PUBLISH, Publish(workspace=workspace), Scope.root(20, account=account))


async def configure(stand: Stand, workspace: UUID, mode: PublishMode) -> Publication:
    request = ConfigurePublishing(workspace=workspace, publish=mode)
    return await stand.bus.client.ask(retrieval.PUBLICATION_CONFIGURE, request, Scope.root(20))


async def held(stand: Stand, count: int) -> None:
    """Until so many notes are held, and none is pending."""

    async def reached() -> bool:
        now = await stand.status()
        return (now.held, now.pending) == (count, 0)

    await until(reached)


async def texts(stand: Stand, query: str) -> dict[str, str]:
    return {hit.file_path: hit.text for hit in (await stand.search(query, limit=20)).hits}


async def test_by_hand_nothing_is_seen_before_and_all_of_it_after(stand: Stand) -> None:
    vault = stand.notes.workspace()
    for name in ("edited", "moved", "deleted", "kept"):
        stand.notes.write(vault, f"{name}.md", f"heron {name}")
    async with stand.start_engine(), stand.start():
        await stand.settled(4)
        before = await configure(stand, vault, "manual")
        seen = await texts(stand, "heron")
        moved = await stand.fetchval("SELECT id FROM documents WHERE path = 'moved.md'")
        await stand.notes.put(vault, "edited.md", "heron otherwise")
        await stand.notes.put(vault, "new.md", "heron new")
        await stand.notes.move(vault, "moved.md", "elsewhere/moved.md")
        await stand.notes.put(vault, "moved.md", "heron where another was")
        await stand.notes.delete(vault, "deleted.md")
        await held(stand, 5)
        status = await stand.status()
        assert (status.indexed, status.unembedded) == (1, 0)
        assert await texts(stand, "heron") == seen
        assert await publication(stand, vault) == before

        after = await publish(stand, vault)
        assert await texts(stand, "heron") == {
            "edited.md": "heron otherwise",
            "new.md": "heron new",
            "elsewhere/moved.md": "heron moved",
            "moved.md": "heron where another was",
            "kept.md": "heron kept",
        }
        # One publication, whatever was in it; and nobody sees another in between.
        assert after.text.generation == before.text.generation + 1
        assert after.catalog_revision > before.catalog_revision
        assert await stand.fetchval("SELECT id FROM documents WHERE path = 'elsewhere/moved.md'") == moved
        await stand.settled(5)
        assert (await stand.status()).held == 0
        again = await publish(stand, vault)
        assert (again.text, again.documents, again.chunks) == (after.text, 5, 5)


async def test_a_workspace_that_was_never_indexed_is_listed_and_one_that_is_not_served_any_more_is_too(stand: Stand) -> None:
    left, empty = stand.notes.workspace("left"), stand.notes.workspace("empty")
    stand.notes.write(left, "a.md", "heron")
    async with stand.start_engine(), stand.start():
        await stand.settled(1)
        never = await publication(stand, empty)
        assert (never.publish, never.text.generation, never.text.created_at, never.catalog_revision) == ("auto", 0, None, 0)
        assert (never.documents, never.chunks, never.vector and never.vector.created_at) == (0, 0, None)
        assert (await publication(stand, empty)).text == never.text
        chosen = await configure(stand, empty, "manual")
        assert (chosen.publish, chosen.text) == ("manual", never.text)
        del stand.notes.workspaces[left]
        assert (await publication(stand, left)).documents == 1


async def test_a_note_that_comes_back_to_what_is_published_waits_no_longer(stand: Stand) -> None:
    vault = stand.notes.workspace()
    stand.notes.write(vault, "a.md", "heron")
    async with stand.start_engine(), stand.start():
        await stand.settled(1)
        await configure(stand, vault, "manual")
        await stand.notes.put(vault, "a.md", "otter")
        await stand.notes.put(vault, "b.md", "kingfisher")
        await held(stand, 2)
        await stand.notes.put(vault, "a.md", "heron")
        await stand.notes.delete(vault, "b.md")
        await held(stand, 0)
        await stand.settled(1)


async def test_what_is_held_is_told_truly_after_a_restart_and_read_once(stand: Stand) -> None:
    vault = stand.notes.workspace()
    stand.notes.write(vault, "a.md", "heron")
    stand.notes.write(vault, "b.md", "otter")
    async with stand.start_engine():
        async with stand.start():
            await stand.settled(2)
            await configure(stand, vault, "manual")
            await stand.notes.put(vault, "a.md", "heron once more")
            await held(stand, 1)
        del stand.notes.notes[vault, "b.md"]
        stand.notes.write(vault, "c.md", "of which no fact was told")
        stand.notes.reads.clear()
        async with stand.start():
            await held(stand, 3)
            assert Counter(stand.notes.reads)["a.md"] == 0
            assert set(await texts(stand, "heron otter fact")) == {"a.md", "b.md"}
            await publish(stand, vault)
            assert set(await texts(stand, "heron otter fact")) == {"a.md", "c.md"}


async def test_going_over_to_auto_publishes_what_was_held(stand: Stand) -> None:
    vault = stand.notes.workspace()
    async with stand.start_engine(), stand.start():
        assert (await configure(stand, vault, "manual")).documents == 0
        await stand.notes.put(vault, "a.md", "heron")
        await held(stand, 1)
        assert (await configure(stand, vault, "auto")).documents == 1
        await stand.notes.put(vault, "a.md", "otter")
        await until(lambda: _finds(stand, "otter"))


async def test_all_is_published_or_nothing(stand: Stand) -> None:
    vault = stand.notes.workspace()
    async with stand.start_engine(), stand.start():
        await configure(stand, vault, "manual")
        for number in range(3):
            await stand.notes.put(vault, f"{number}.md", f"heron {number}")
        await held(stand, 3)
        stand.notes.away.add(vault)
        with pytest.raises(ServiceError) as raised:
            await publish(stand, vault)
        assert raised.value.code is ErrorCode.VAULT_UNAVAILABLE
        assert await texts(stand, "heron") == {}
        assert (await stand.status()).held == 3
        stand.notes.away.clear()
        assert (await publish(stand, vault)).documents == 3


async def test_only_admins_publish_and_only_what_there_is(stand: Stand) -> None:
    vault = stand.notes.workspace()
    async with stand.start_engine(), stand.start():
        for workspace, account, code in (
            (vault, Account(uuid4(), "member"), ErrorCode.FORBIDDEN),
            (uuid4(), Account(uuid4(), "admin"), ErrorCode.WORKSPACE_NOT_FOUND),
        ):
            with pytest.raises(ServiceError) as raised:
                await publish(stand, workspace, account)
            assert raised.value.code is code
        assert (await publish(stand, vault, Account(uuid4(), "admin"))).documents == 0


async def test_a_search_sees_one_publication_whole(stand: Stand) -> None:  # RC-4
    """Two notes and a folder change together, again and again; no search sees one of them without the other."""
    vault = stand.notes.workspace()
    async with stand.start_engine(), stand.start():
        await configure(stand, vault, "manual")
        done = asyncio.Event()
        answers: list[tuple[int, list[str]]] = []

        async def look() -> None:
            while not done.is_set():
                run = await stand.run("hybrid", "heron", limit=50)
                versions = [result.chunk.text.split()[-1] for result in run.results if result.chunk is not None]
                answers.append((run.text_publication[0].generation, versions))

        looking = [asyncio.create_task(look()) for _ in range(2)]
        try:
            for version in range(1, 13):
                for name in range(3):
                    stand.notes.write(vault, f"{name}.md", f"# About\n\nheron {name} of {version}", title=f"title {version}")
                    note = stand.notes.notes[vault, f"{name}.md"]
                    await stand.notes.tell(vault, "updated", note.path, note.content_hash)
                await held(stand, 3)
                published = await publish(stand, vault)
                assert published.text.generation == version
        finally:
            done.set()
            await asyncio.gather(*looking)
        assert len(answers) > 24
        for generation, versions in answers:
            assert versions == [str(generation)] * 3 if generation else versions == []


async def test_what_was_published_before_goes_from_the_index_when_nobody_reads_it(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.retrieval.documents.READERS_SECONDS", 0.5)
    vault = stand.notes.workspace()
    async with stand.start_engine() as engine, stand.start():
        for text in ("heron", "otter", "kingfisher"):
            await stand.notes.put(vault, "a.md", text)
            await stand.settled(1)
            await until(lambda text=text: _finds(stand, text))  # type: ignore[misc]

        await until(lambda: _is(stand, "SELECT count(*) FROM removals", 0))
        assert engine._shard.points() == 1
        assert await _finds(stand, "kingfisher")


async def test_what_was_written_and_never_published_goes(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.retrieval.index_writer.STAGED_SECONDS", 0.5)
    vault = stand.notes.workspace()
    async with stand.start_engine() as engine, stand.start():
        await stand.notes.put(vault, "a.md", "heron")
        await stand.settled(1)
        # The transaction fails after the index has the points, again and again.
        await stand.fetchval("ALTER TABLE documents ADD CONSTRAINT broken CHECK (path <> 'b.md')")
        await stand.notes.put(vault, "b.md", "otter")

        async def two_points() -> bool:
            return engine._shard.points() == 2

        await until(two_points)
        assert not await _finds(stand, "otter")
        await stand.notes.delete(vault, "b.md")
        await until(lambda: _is(stand, "SELECT count(*) FROM removals", 0))
        assert engine._shard.points() == 1
        assert (await stand.search("heron")).degraded is False


async def test_what_is_staged_changes_nothing_of_what_is_found(stand: Stand) -> None:
    vault = stand.notes.workspace()
    for number in range(120):
        # Each somewhat further away.
        stand.notes.write(vault, f"{number}.md", "heron" + " otter" * number)
    async with stand.start_engine() as engine, stand.start():
        await stand.settled(120)
        before = await stand.run("vector", "heron", limit=50)
        staged = [uuid4() for _ in range(40)]
        await stand.fetchval("INSERT INTO removals (point, due_at) SELECT unnest($1::uuid[]), now() + interval '1 hour'", staged)
        payload = {"workspace": str(vault), "document": str(uuid4()), "ancestors": [], "tags": [], "exchange": False}
        nearest = encoded(np.array(stand.model.vector("heron"), "<f4").tobytes())
        words = SparseVector(indices=[1], values=[1.0])
        points = [Point(id=one, sparse=words, dense=nearest, payload=payload) for one in staged]
        await engine.upsert(Upsert(points=points), Scope.root(10))
        after = await stand.run("vector", "heron", limit=50)
        assert [(result.chunk, result.score) for result in after.results] == [(result.chunk, result.score) for result in before.results]
        assert after.status == before.status == "completed"


async def test_no_publication_slips_in_while_evidence_is_verified(stand: Stand) -> None:  # RC-4
    vault = stand.notes.workspace()
    async with stand.start_engine(), stand.start():
        await stand.notes.put(vault, "a.md", "heron")
        await stand.settled(1)
        before = await publication(stand, vault)
        async with verifying(stand, vault), verifying(stand, vault):
            await stand.notes.put(vault, "a.md", "otter")
            await until(lambda: _waits_for_the_lock(stand))
            assert await publication(stand, vault) == before
        await until(lambda: _finds(stand, "otter"))


async def test_filling_a_wiped_index_again_makes_no_other_publication(stand: Stand, tmp_path: Path) -> None:  # RC-4
    vault = stand.notes.workspace()
    stand.notes.write(vault, "a.md", "heron")
    async with stand.start():
        async with stand.start_engine():
            await stand.settled(1)
            before = await publication(stand, vault)
            assert before.vector is not None
            assert before.vector.complete
        shutil.rmtree(tmp_path / "qdrant")
        async with stand.start_engine():
            await until(lambda: _answers_whole(stand, "heron"))
            await stand.settled(1)
            assert await publication(stand, vault) == before


async def test_documents_keep_what_evidence_will_say(stand: Stand) -> None:  # RC-5
    vault = stand.notes.workspace()
    stand.notes.write(vault, "birds/a.md", "heron", properties={"source": "not an address", "url": "https://example.org/heron"})
    stand.notes.write(vault, "b.md", "otter", properties={"category": " Animals ", "url": "https://me:secret@example.org/otter"})
    async with stand.start_engine(), stand.start():
        await stand.settled(2)
        assert await stand.fetchval("SELECT row(source_url, category) FROM documents WHERE path = 'b.md'") == (None, "Animals")
        await stand.notes.put(vault, "b.md", "otter again", properties={"source": "javascript:alert(1)"})
        await until(lambda: _finds(stand, "again"))
        kept = "SELECT row(source_url, category, published) FROM documents WHERE path = $1"
        assert await stand.fetchval(kept, "birds/a.md") == ("https://example.org/heron", "birds", 1)
        assert await stand.fetchval(kept, "b.md") == (None, None, 2)


@contextlib.asynccontextmanager
async def verifying(stand: Stand, workspace: UUID) -> AsyncIterator[None]:
    pool = await open_pool(stand.database_url, "retrieval")
    async with connection(pool) as db, db.transaction():
        await hold_to_verify(db, [workspace])
        yield
    await pool.close()


async def _finds(stand: Stand, query: str) -> bool:
    return any(query in hit.text for hit in (await stand.search(query)).hits)


async def _answers_whole(stand: Stand, query: str) -> bool:
    return not (await stand.search(query)).degraded


async def _is(stand: Stand, query: str, value: object) -> bool:
    return bool(await stand.fetchval(query) == value)


async def _waits_for_the_lock(stand: Stand) -> bool:
    return bool(await stand.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))


async def test_a_run_that_rightly_finds_nothing_is_evidence_of_that(stand: Stand) -> None:  # RC-7
    vault, empty = stand.notes.workspace(), stand.notes.workspace()
    stand.notes.write(vault, "a.md", "heron")
    async with stand.start_engine(), stand.start():
        await stand.settled(1)
        for mode in ("keyword_chunks", "vector", "hybrid"):
            for filters in (Filters(workspaces=[empty]), Filters(path_prefix="nowhere/"), Filters(tags=["none"]), Filters(workspaces=[])):
                run = await stand.run(mode, "heron", filters=filters)
                assert (run.status, run.results) == ("completed", []), (mode, filters)
                assert (await verified(stand, run)).candidates == [], (mode, filters)


async def test_where_vectors_could_have_found_something_an_empty_answer_is_not_whole(stand: Stand) -> None:  # RC-3
    stand.notes.write(stand.notes.workspace(), "a.md", "heron")
    async with stand.start_engine(), stand.start():
        await stand.settled(1)
        stand.model.down = True
        for mode in ("vector", "hybrid"):
            run = await stand.run(mode, "otter")
            assert (run.status, run.results, run.vector_publication) == ("degraded", [], None), mode


async def test_a_workspace_without_notes_was_searched_too_and_its_first_note_makes_a_difference(stand: Stand) -> None:  # RC-4
    vault, empty = stand.notes.workspace(), stand.notes.workspace()
    stand.notes.write(vault, "a.md", "heron")
    async with stand.start_engine(), stand.start():
        await stand.settled(1)
        run = await stand.run("hybrid", "heron")
        assert {one.workspace: one.generation for one in run.text_publication} == {vault: 1, empty: 0}
        assert {one.workspace for one in run.catalog_revision} == {vault, empty}
        assert run.vector_publication is not None
        assert {one.workspace for one in run.vector_publication} == {vault, empty}
        assert len((await verified(stand, run)).candidates) == 1
        await stand.notes.put(empty, "b.md", "another heron")
        await stand.settled(2)
        with pytest.raises(ServiceError) as raised:
            await verified(stand, run)
        assert raised.value.code is ErrorCode.EVIDENCE_STALE
        assert {"text_publication", "catalog_revision", "corpus_fingerprint"} <= set(raised.value.extra["changed"])


async def test_what_a_workspace_held_that_is_served_no_longer_is_no_evidence(stand: Stand) -> None:  # RC-4
    vault = stand.notes.workspace()
    stand.notes.write(vault, "a.md", "heron")
    async with stand.start_engine(), stand.start():
        await stand.settled(1)
        run = await stand.run("keyword_chunks", "heron")
        del stand.notes.workspaces[vault]
        with pytest.raises(ServiceError) as raised:
            await verified(stand, run)
        assert (raised.value.code, raised.value.extra["changed"]) == (ErrorCode.EVIDENCE_STALE, ["source"])


async def test_no_other_embedding_space_begins_while_evidence_is_verified(stand: Stand) -> None:  # RC-4
    vault = stand.notes.workspace()
    stand.notes.write(vault, "a.md", "heron")
    async with stand.start_engine(), stand.start():
        await stand.settled(1)
        before = await publication(stand, vault)
        stand.model.dimension *= 2
        async with verifying(stand, vault):
            await stand.notes.put(stand.notes.workspace(), "b.md", "otter")
            await until(lambda: _waits_for_the_lock(stand))
            assert await publication(stand, vault) == before
        await stand.settled(2)
        after = await publication(stand, vault)
        assert before.vector is not None
        assert after.vector is not None
        assert after.vector.embedding_space != before.vector.embedding_space


async def verified(stand: Stand, run: Run) -> VerifiedEvidence:
    return await stand.bus.client.ask(EVIDENCE_VERIFY, VerifyEvidence(run=run.id), Scope.root(10))
