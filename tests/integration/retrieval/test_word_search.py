"""The search by words in the tables, over more passages than have a rare word."""

import pytest

from services.retrieval import documents, word_search
from services.retrieval.documents import signed
from services.retrieval.tokens import query_vector
from shared.contracts.index import Filter, Scored
from shared.database.pool import Pool, connection
from tests.integration.retrieval.conftest import WORKSPACE, cut

HERONS = 120


@pytest.fixture
async def planets(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> Pool:
    """Three thousand passages: all but a tenth with `planet`, too many to be read; a few with `heron`, three with `osprey`."""
    monkeypatch.setattr(word_search, "READ_MAX", 2000)
    for note in range(3):
        sections = (_section(1000 * note + number) for number in range(1000))
        document = await documents.document_id(pool, WORKSPACE, f"{note}.md")
        await documents.commit(pool, [(cut(document, f"{note}.md", "\n\n".join(sections), 1), document)])
    assert await pool.fetchval("SELECT count(*) FROM words") == 3000
    return pool


def _section(number: int) -> str:
    words = (
        [f"line{number}"] + ["planet"] * (number % 10) + ["heron"] * (number % (3000 // HERONS) == 1) + ["osprey"] * (number % 1000 == 7)
    )
    return f"# Part {number}\n\n{' '.join(words)}"


async def _found(pool: Pool, query: str, limit: int) -> list[Scored]:
    async with connection(pool) as db, db.transaction():
        return await word_search.search(db, query_vector(query), Filter(workspaces=[WORKSPACE]), limit)


async def test_a_common_word_adds_to_what_the_rarer_ones_found_as_if_all_had_been_read(
    planets: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await planets.execute("ANALYZE words")
    async with connection(planets) as db:
        common = await word_search.too_common(db, signed(query_vector("heron planet").indices))
    assert [round(chunks) for chunks in common.values()] == [2700]
    found = await _found(planets, "heron planet", 100)
    monkeypatch.setattr(word_search, "READ_MAX", 10_000)
    exactly = await _found(planets, "heron planet", 100)
    assert [one.id for one in found] == [one.id for one in exactly]
    assert [one.score for one in found] == pytest.approx([one.score for one in exactly], rel=0.01)


async def test_common_words_alone_are_found(planets: Pool) -> None:
    await planets.execute("ANALYZE words")
    assert len(await _found(planets, "planet", 3000)) == 2700


async def test_where_the_rarer_words_found_too_little_the_common_ones_are_looked_up(planets: Pool) -> None:
    await planets.execute("ANALYZE words")
    found = await _found(planets, "osprey planet", 100)
    assert len(found) == 100
    assert found[2].score > 2 * found[3].score
