"""Facts of the notes service as they come: many at once, in chains, and of a vault that is away."""

import functools
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from services.retrieval import documents
from services.retrieval.documents import Change
from services.retrieval.passages import CutNote
from shared.database.pool import Pool
from tests.integration.retrieval.conftest import Stand, until


async def test_a_vault_that_is_away_holds_up_no_other_however_much_changed_in_it(stand: Stand) -> None:
    away, other = stand.notes.workspace(), stand.notes.workspace()
    async with stand.start_engine(), stand.start():
        await stand.notes.put(other, "a.md", "heron")
        await stand.settled(1)
        stand.notes.away.add(away)
        for number in range(600):
            await stand.notes.put(away, f"{number}.md", "otter")
        await stand.notes.put(other, "b.md", "kingfisher")
        await until(lambda: _finds(stand, "kingfisher", "b.md"))
        assert (await stand.status()).pending == 600
        stand.notes.away.clear()
        await stand.settled(602)


async def test_documents_keep_their_ids_through_chains_and_exchanges_of_names(stand: Stand) -> None:
    vault = stand.notes.workspace()
    texts = {"a.md": "heron", "b.md": "otter", "c.md": "kingfisher"}
    async with stand.start_engine(), stand.start():
        for path, text in texts.items():
            await stand.notes.put(vault, path, text)
        await stand.settled(3)
        before = await _documents(stand)
        # A question is held, so that all that follows is heard at once.
        stand.notes.reads_until_held = len(stand.notes.reads)
        await stand.notes.put(vault, "d.md", "trout")
        await until(lambda: _is_reading(stand, "d.md"))
        for path, to in (("a.md", "x.md"), ("b.md", "a.md"), ("x.md", "b.md"), ("c.md", "y.md"), ("y.md", "deep/z.md")):
            await stand.notes.move(vault, path, to)
        stand.notes.released.set()
        await until(lambda: _finds(stand, "kingfisher", "deep/z.md"))
        await stand.settled(4)
        after = await _documents(stand)
        assert {path: after[path] for path in ("b.md", "a.md", "deep/z.md")} == {
            "b.md": before["a.md"],
            "a.md": before["b.md"],
            "deep/z.md": before["c.md"],
        }
        assert await _finds(stand, "heron", "b.md")
        assert await _finds(stand, "otter", "a.md")


async def test_a_move_that_comes_too_late_to_be_one_makes_another_document(stand: Stand) -> None:
    vault = stand.notes.workspace()
    async with stand.start_engine(), stand.start():
        await stand.notes.put(vault, "a.md", "heron")
        # By a comparison, say: what stands there now is known to be of later than the move.
        await stand.notes.put(vault, "a.md", "otter")
        await until(lambda: _finds(stand, "otter", "a.md"))
        await stand.settled(1)
        moved = stand.notes.write(vault, "b.md", "heron")
        stand.notes.revision = 1
        await stand.notes.tell(vault, "moved", "b.md", moved.content_hash, from_path="a.md")
        await until(lambda: _finds(stand, "heron", "b.md"))
        await stand.settled(2)
        assert len(set((await _documents(stand)).values())) == 2
        assert await _finds(stand, "otter", "a.md")


async def test_a_note_that_the_tables_refuse_keeps_no_other_from_being_found(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    vault, commit = stand.notes.workspace(), documents.commit

    async def strict(pool: Pool, changes: Sequence[tuple[Change, UUID | None]], *more: Any, **named: Any) -> set[UUID]:
        if any(change.path == "bad.md" for change, _ in changes if isinstance(change, CutNote)):
            raise asyncpg.UniqueViolationError
        return await commit(pool, changes, *more, **named)

    monkeypatch.setattr(documents, "commit", strict)
    for path in ("a.md", "bad.md", "z.md"):
        stand.notes.write(vault, path, f"heron of {path}")
    async with stand.start_engine(), stand.start():
        for path in ("a.md", "z.md"):
            await until(functools.partial(_finds, stand, "heron", path))
        status = await stand.status()
        assert (status.pending, status.last_error) == (1, "A note could not be stored.")
        monkeypatch.setattr(documents, "commit", commit)
        await stand.settled(3)


async def test_a_note_that_moved_and_is_not_taken_in_as_yet_is_counted_once(stand: Stand) -> None:
    vault = stand.notes.workspace()
    async with stand.start_engine(), stand.start():
        for number in range(5):
            await stand.notes.put(vault, f"{number}.md", f"heron {number}")
        await stand.settled(5)
        stand.notes.reads_until_held = len(stand.notes.reads)
        for number in range(4):
            await stand.notes.move(vault, f"{number}.md", f"once/{number}.md")
            await stand.notes.move(vault, f"once/{number}.md", f"twice/{number}.md")

        async def all_are_heard() -> bool:
            return (await stand.status()).pending == 4

        await until(all_are_heard)
        status = await stand.status()
        assert (status.pending, status.indexed + status.unembedded, status.held) == (4, 1, 0)
        stand.notes.released.set()
        await stand.settled(5)


async def _documents(stand: Stand) -> dict[str, object]:
    connection = await asyncpg.connect(stand.database_url, server_settings={"search_path": "retrieval"})
    try:
        return {row["path"]: row["id"] for row in await connection.fetch("SELECT path, id FROM documents")}
    finally:
        await connection.close()


async def _is_reading(stand: Stand, path: str) -> bool:
    return path in stand.notes.reads


async def _finds(stand: Stand, query: str, path: str) -> bool:
    return any(hit.file_path == path and query in hit.text for hit in (await stand.search(query)).hits)
