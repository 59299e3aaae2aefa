"""Stored runs and publications."""

import hashlib
from uuid import uuid4

import pytest

from shared.contracts import retrieval
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.retrieval import Filters, ListRuns, Publication, PublicationRequest, Run, RunRef, RunSummary
from shared.messaging.scope import Account, Scope
from tests.integration.retrieval.conftest import Stand, until


async def test_a_run_holds_all_that_was_seen_and_stays_as_it_was(stand: Stand) -> None:  # RC-4, RC-5
    vault = stand.notes.workspace("Birds")
    note = stand.notes.write(vault, "a.md", "# Waders\n\nThe heron stands.\n\n# Fish\n\nThe trout swims.", title="Nature")
    async with stand.start_engine(), stand.start():
        await stand.settled(1)
        run = await stand.run("hybrid", "heron")
        assert run.status == "completed"
        first = run.results[0]
        assert [result.rank for result in run.results] == list(range(1, len(run.results) + 1))
        assert first.document.model_dump(exclude={"id"}) == {
            "workspace": vault,
            "directory": "Birds",
            "path": "a.md",
            "title": "Nature",
            "content_hash": note.content_hash,
        }
        assert first.chunk is not None
        assert first.chunk.text == "The heron stands."
        assert first.chunk.sha256 == hashlib.sha256(first.chunk.text.encode()).hexdigest()
        assert (first.chunk.ordinal, first.chunk.heading_path) == (0, ["Waders"])
        (publication,) = await publications(stand)
        assert publication.vector is not None
        assert publication.vector.complete
        assert [one.model_dump() for one in run.text_publication] == [
            {"workspace": vault, "id": publication.text.id, "generation": publication.text.generation}
        ]
        assert run.vector_publication is not None
        assert run.vector_publication[0].id == publication.vector.id
        assert run.vector_publication[0].embedding_space == "multilingual-e5-small+all-minilm-l6-v2/32/input_type"
        assert run.catalog_revision[0].revision == note.revision

        await stand.notes.put(vault, "a.md", "Nothing of it is left.")
        await until(lambda: _generation_above(stand, publication.text.generation))
        assert await read(stand, run) == run
        # Also a search that found nothing says where it looked, and who asked.
        filters, reader = Filters(path_prefix="b/", tags=["none"]), Account(id=uuid4(), role="member")
        nothing = await stand.run("keyword", "heron", account=reader, filters=filters, limit=3)
        assert (nothing.results, nothing.filters, nothing.limit, nothing.created_by) == ([], filters, 3, reader.id)
        assert (run.filters, run.limit, run.created_by) == (Filters(), 10, None)
        later = await stand.run("keyword", "left")
        assert later.corpus_fingerprint != run.corpus_fingerprint
        assert later.text_publication[0].id != run.text_publication[0].id


async def test_the_fingerprint_is_of_the_corpus_not_of_its_history(stand: Stand) -> None:
    vault = stand.notes.workspace()
    async with stand.start_engine(), stand.start():
        await stand.notes.put(vault, "a.md", "one")
        await stand.settled(1)
        before = await stand.run("keyword", "one")
        await stand.notes.put(vault, "a.md", "two")
        await until(lambda: _found(stand, "two"))
        await stand.notes.put(vault, "a.md", "one")
        await until(lambda: _found(stand, "one"))
        after = await stand.run("keyword", "one")
        assert after.corpus_fingerprint == before.corpus_fingerprint
        assert after.text_publication[0].generation > before.text_publication[0].generation


async def test_the_four_modes(stand: Stand) -> None:
    vault = stand.notes.workspace()
    stand.model.synonyms = {"crane": "heron"}
    stand.notes.write(vault, "a.md", "# One\n\nheron\n\n# Two\n\nheron again")
    stand.notes.write(vault, "b.md", "heron elsewhere")
    async with stand.start_engine(), stand.start():
        await stand.settled(2)
        notes = await stand.run("keyword", "heron")
        assert sorted(result.document.path for result in notes.results) == ["a.md", "b.md"]
        assert all(result.chunk is None for result in notes.results)
        chunks = await stand.run("keyword_chunks", "heron")
        assert len(chunks.results) == 3
        assert (notes.vector_publication, chunks.vector_publication) == (None, None)
        assert (await stand.run("keyword_chunks", "crane")).results == []
        by_meaning = await stand.run("vector", "crane")
        assert by_meaning.results[0].chunk is not None
        assert by_meaning.vector_publication is not None
        assert len((await stand.run("hybrid", "heron", limit=1)).results) == 1


async def test_a_run_without_its_vectors_or_engine_is_degraded(stand: Stand) -> None:
    vault = stand.notes.workspace()
    stand.notes.write(vault, "a.md", "heron")
    async with stand.start():
        async with stand.start_engine():
            await stand.settled(1)
            stand.model.down = True
            for mode, status in (("vector", "degraded"), ("hybrid", "degraded"), ("keyword", "completed")):
                run = await stand.run(mode, "heron")
                assert (run.status, len(run.results), run.vector_publication) == (status, 1, None)
        for mode in ("keyword", "hybrid"):
            run = await stand.run(mode, "heron")
            assert (run.status, len(run.results)) == ("degraded", 1)


async def test_vectors_that_the_index_has_and_are_not_published_are_not_seen(stand: Stand) -> None:
    vault = stand.notes.workspace()
    stand.notes.write(vault, "a.md", "heron")
    stand.notes.write(vault, "b.md", "heron")
    async with stand.start_engine(), stand.start():
        await stand.settled(2)
        for published in (False, True):
            await stand.fetchval(
                "UPDATE chunks SET embedded = $1 WHERE document = (SELECT id FROM documents WHERE path = 'b.md')", published
            )
            by_vectors, both = await stand.run("vector", "heron"), await stand.run("hybrid", "heron")
            # What is not there for vectors is there for words.
            assert (by_vectors.status, both.status) == ("completed" if published else "degraded", "completed")
            assert {result.document.path for result in by_vectors.results} == ({"a.md", "b.md"} if published else {"a.md"})
            assert {result.document.path for result in both.results} == {"a.md", "b.md"}
            assert by_vectors.vector_publication is not None


async def test_runs_are_their_owners_and_admins(stand: Stand) -> None:
    vault = stand.notes.workspace()
    stand.notes.write(vault, "a.md", "heron")
    owner, other, admin = (Account(uuid4(), role) for role in ("member", "member", "admin"))  # type: ignore[arg-type]
    async with stand.start_engine(), stand.start():
        await stand.settled(1)
        run = await stand.run("keyword", "heron", account=owner)
        assert await read(stand, run, owner) == await read(stand, run, admin) == run
        with pytest.raises(ServiceError) as raised:
            await read(stand, run, other)
        assert raised.value.code is ErrorCode.RUN_NOT_FOUND
        newest = await stand.run("keyword", "heron", account=admin)
        page = await stand.bus.client.ask(retrieval.RUN_LIST, ListRuns(page_size=1), Scope.root(5, account=admin))
        assert page.items == [RunSummary(**newest.model_dump(exclude={"results"}))]
        assert page.total == 2
        page = await stand.bus.client.ask(retrieval.RUN_LIST, ListRuns(), Scope.root(5, account=owner))
        assert [one.id for one in page.items] == [run.id]
        with pytest.raises(ServiceError) as raised:
            await stand.bus.client.ask(retrieval.PUBLICATION_LIST, PublicationRequest(), Scope.root(5, account=owner))
        assert raised.value.code is ErrorCode.FORBIDDEN


async def test_limits_and_foreign_workspaces_are_refused(stand: Stand) -> None:
    async with stand.start_engine(), stand.start():
        for limit in (0, 51):
            with pytest.raises(ServiceError) as raised:
                await stand.run("keyword", "heron", limit=limit)
            assert raised.value.code is ErrorCode.INVALID
        with pytest.raises(ServiceError) as raised:
            await stand.run("keyword", "heron", filters=Filters(workspaces=[uuid4()]))
        assert raised.value.code is ErrorCode.WORKSPACE_NOT_FOUND
        for page in (ListRuns(page=0), ListRuns(page_size=101)):
            with pytest.raises(ServiceError) as raised:
                await stand.bus.client.ask(retrieval.RUN_LIST, page, Scope.root(5))
            assert raised.value.code is ErrorCode.INVALID


async def publications(stand: Stand) -> list[Publication]:
    return (await stand.bus.client.ask(retrieval.PUBLICATION_LIST, PublicationRequest(), Scope.root(5))).items


async def read(stand: Stand, run: Run, account: Account | None = None) -> Run:
    return await stand.bus.client.ask(retrieval.RUN_GET, RunRef(run=run.id), Scope.root(5, account=account))


async def _generation_above(stand: Stand, generation: int) -> bool:
    return (await publications(stand))[0].text.generation > generation


async def _found(stand: Stand, text: str) -> bool:
    return any(hit.text == text for hit in (await stand.search(text)).hits)
