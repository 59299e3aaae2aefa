"""What the tables refuse: states that come late."""

from uuid import UUID, uuid4

from services.retrieval import documents, word_search
from services.retrieval.documents import Change, Gone, Moved
from services.retrieval.tokens import query_vector
from shared.contracts.index import Filter
from shared.database.pool import Pool, connection
from tests.integration.retrieval.conftest import WORKSPACE, cut


async def store(pool: Pool, path: str, content: str, revision: int) -> UUID:
    document = await documents.document_id(pool, WORKSPACE, path)
    await documents.commit(pool, [(cut(document, path, content, revision), document)])
    return document


async def apply(pool: Pool, change: Change) -> bool:
    return bool(await documents.commit(pool, [(change, None)]))


async def texts(pool: Pool) -> list[str]:
    return [row["text"] for row in await pool.fetch("SELECT text FROM chunks ORDER BY text")]


async def test_a_state_that_comes_late_is_refused(pool: Pool) -> None:
    await store(pool, "a.md", "new", 5)
    await store(pool, "a.md", "old", 4)
    assert await texts(pool) == ["new"]
    assert not await apply(pool, Gone(WORKSPACE, "a.md", revision=4))
    assert not await apply(pool, Gone(WORKSPACE, "a.md", content_hash="another"))
    assert not await apply(pool, Moved(WORKSPACE, "a.md", "b.md", 5))
    assert await texts(pool) == ["new"]
    assert await apply(pool, Gone(WORKSPACE, "a.md", revision=6))
    assert await texts(pool) == []
    assert await pool.fetchval("SELECT count(*) FROM removals") == 1


async def test_storing_the_same_again_publishes_nothing(pool: Pool) -> None:
    await store(pool, "a.md", "one\n\n# H\n\ntwo", 1)
    await pool.execute("UPDATE chunks SET in_index = true, dense = true")
    before = await pool.fetchrow("SELECT * FROM publications")
    await store(pool, "a.md", "one\n\n# H\n\ntwo", 1)
    assert await pool.fetchrow("SELECT * FROM publications") == before
    assert await pool.fetchval("SELECT count(*) FROM chunks WHERE in_index AND dense") == 2


async def test_only_what_changed_is_written_again(pool: Pool) -> None:
    await store(pool, "a.md", "# A\n\none\n\n# B\n\ntwo", 1)
    await pool.execute("UPDATE chunks SET in_index = true, dense = true")
    await store(pool, "a.md", "new\n\n# A\n\none\n\n# B\n\ntwo more", 2)
    rows = await pool.fetch("SELECT text, ordinal, in_index FROM chunks ORDER BY ordinal")
    assert [tuple(row.values()) for row in rows] == [("new", 0, False), ("one", 1, True), ("two more", 2, False)]


async def test_a_moved_document_keeps_its_id_and_a_new_note_at_its_old_path_gets_another(pool: Pool) -> None:
    document = await store(pool, "a.md", "text", 1)
    assert await apply(pool, Moved(WORKSPACE, "a.md", "b/a.md", 2))
    assert await documents.document_id(pool, WORKSPACE, "b/a.md") == document
    another = await store(pool, "a.md", "text", 3)
    assert another != document
    assert await texts(pool) == ["text", "text"]
    # A move onto a note that is there takes nothing away from it.
    assert not await apply(pool, Moved(WORKSPACE, "a.md", "b/a.md", 4))


async def test_the_search_in_the_tables_looks_only_where_it_may(pool: Pool) -> None:
    await store(pool, "a.md", "heron heron", 1)
    async with connection(pool) as db:
        for workspaces, hits in (([WORKSPACE], 1), ([uuid4()], 0), ([], 0)):
            found = await word_search.search(db, query_vector("heron"), Filter(workspaces=workspaces), 10)
            assert len(found) == hits


async def test_removed_and_written_again_is_no_removal(pool: Pool) -> None:
    await store(pool, "a.md", "text", 1)
    await store(pool, "a.md", "other", 2)
    assert await pool.fetchval("SELECT count(*) FROM removals") == 1
    await store(pool, "a.md", "text", 3)
    assert await pool.fetch("SELECT point FROM removals INTERSECT SELECT point FROM chunks") == []


async def test_a_note_with_a_character_that_cannot_be_stored_is_stored(pool: Pool) -> None:
    await store(pool, "a.md", "before\0after", 1)
    assert await texts(pool) == ["before\ufffdafter"]


async def test_a_note_that_comes_again_goes_on_counting_its_versions(pool: Pool) -> None:  # RC-5
    async def version() -> int:
        return int(await pool.fetchval("SELECT published FROM documents WHERE id = $1", document))

    document = await store(pool, "a.md", "one", 1)
    await store(pool, "a.md", "two", 2)
    await apply(pool, Moved(WORKSPACE, "a.md", "b.md", 3))
    assert await version() == 3
    await apply(pool, Moved(WORKSPACE, "b.md", "a.md", 4))
    await apply(pool, Gone(WORKSPACE, "a.md", 5))
    assert await store(pool, "a.md", "one", 6) == document
    assert await version() == 5
    await apply(pool, Gone(WORKSPACE, "a.md", 7))
    assert await store(pool, "a.md", "one", 8) == document
    assert await version() == 6
