"""What other programs do to the files is in the index and told within 2 s."""

import asyncio
import hashlib
import os
from collections.abc import Collection
from pathlib import Path
from uuid import UUID

import pytest

from services.notes import keeping, metadata
from services.notes import vault as vault_module
from services.notes.__main__ import rebuild
from services.notes.indexing import Indexer, Outcome
from services.notes.settings import NotesSettings
from services.notes.vault import NOTE_BYTES_MAX, Survey, Vault
from services.notes.watching import Hints
from shared.contracts.errors import ErrorCode
from shared.database.pool import open_pool
from tests.integration.notes.conftest import NOTICED_SECONDS, Asker, Serving, refused
from tests.support.polling import eventually


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


async def become(asker: Asker, workspace: object, expected: dict[str, str], within: float = NOTICED_SECONDS) -> None:
    """The index has exactly these texts by path, in time."""
    wanted = {path: sha(text) for path, text in expected.items()}

    async def look() -> bool:
        return await asker.hashes(workspace) == wanted  # type: ignore[arg-type]

    await eventually(look, within)


async def test_creations_edits_moves_and_deletions_of_other_programs_are_told(vault: Path, service: Asker) -> None:
    workspace = (await service.workspace()).id
    (vault / "a.md").write_text("one")
    assert (await service.told(workspace, "created", "a.md")).content_hash == sha("one")

    (vault / "a.md").write_text("two")  # in place
    assert (await service.told(workspace, "updated", "a.md")).content_hash == sha("two")

    (vault / ".a.md.tmp").write_text("three")  # as editors do that replace
    (vault / ".a.md.tmp").replace(vault / "a.md")
    await become(service, workspace, {"a.md": "three"})

    (vault / "sub" / "deep").mkdir(parents=True)
    (vault / "a.md").rename(vault / "sub" / "deep" / "b.md")
    moved = await service.told(workspace, "moved", "sub/deep/b.md")
    assert (moved.from_path, moved.content_hash) == ("a.md", sha("three"))

    (vault / "sub").rename(vault / "renamed")
    assert (await service.told(workspace, "moved", "renamed/deep/b.md")).from_path == "sub/deep/b.md"

    (vault / "renamed" / "deep" / "b.md").unlink()
    assert (await service.told(workspace, "deleted", "renamed/deep/b.md")).content_hash is None
    assert await service.hashes(workspace) == {}
    assert (await service.workspace()).notes == 0

    kinds = [(change.kind, change.path) for change in await service.changes(workspace)]
    assert [kind for kind, _ in kinds] == ["created", "updated", "updated", "moved", "moved", "deleted"]


async def test_a_note_that_grows_too_large_is_updated_and_a_note_again_when_it_shrinks(vault: Path, service: Asker) -> None:
    workspace = (await service.workspace()).id
    (vault / "a.md").write_text("# A")
    await service.told(workspace, "created", "a.md")
    with (vault / "a.md").open("r+b") as file:
        file.truncate(NOTE_BYTES_MAX + 1)
    grown = await service.told(workspace, "updated", "a.md")
    await refused(service.read(workspace, "a.md"), ErrorCode.NOTE_UNREADABLE)
    (vault / "a.md").rename(vault / "b.md")
    assert (await service.told(workspace, "moved", "b.md")).content_hash == grown.content_hash
    (vault / "b.md").write_text("# B")
    assert (await service.told(workspace, "updated", "b.md")).content_hash == sha("# B")
    assert [change.kind for change in await service.changes(workspace)] == ["created", "updated", "moved", "updated"]


async def test_the_last_state_of_a_file_written_bit_by_bit_wins(vault: Path, service: Asker) -> None:
    workspace = (await service.workspace()).id
    text = ""
    with (vault / "a.md").open("w") as file:
        for number in range(40):
            line = f"line {number}\n"
            file.write(line)
            file.flush()
            text += line
            await asyncio.sleep(0.02)
    await become(service, workspace, {"a.md": text})


async def test_an_edit_within_one_tick_of_the_clock_is_not_missed(vault: Path, service: Asker) -> None:
    """Same size, same times: nothing in the stat tells it."""
    workspace = (await service.workspace()).id
    for number in range(10, 30):
        (vault / "a.md").write_text(f"{number}")
        os.utime(vault / "a.md", ns=(10**18, 10**18))
        if number % 3 == 0:
            await asyncio.sleep(0.1)
    await become(service, workspace, {"a.md": "29"})


async def test_an_editor_that_deletes_before_it_writes_makes_an_update(
    vault: Path, service: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = (await service.workspace()).id
    (vault / "a.md").write_text("one")
    await become(service, workspace, {"a.md": "one"})
    survey = Vault.survey

    def look_in_between(self: Vault, below: Collection[str] | None = None) -> Survey:
        seen = survey(self, below)
        if not seen.notes:
            (vault / "a.md").write_text("two")
        return seen

    monkeypatch.setattr(Vault, "survey", look_in_between)
    (vault / "a.md").unlink()
    await service.told(workspace, "updated", "a.md")
    assert [change.kind for change in await service.changes(workspace)] == ["created", "updated"]


async def test_what_was_written_a_moment_ago_is_looked_at_once_more(vault: Path, service: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second write in the same tick of the clock would leave the same stat."""
    looks: list[Collection[str] | None] = []
    scan = Indexer.scan

    async def counting(self: Indexer, below: Collection[str] | None, **more: bool) -> Outcome:
        looks.append(below)
        return await scan(self, below, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Indexer, "scan", counting)
    monkeypatch.setattr(vault_module, "TICK_NS", 10**18)  # a moment that outlasts a busy machine
    workspace = (await service.workspace()).id
    (vault / "a.md").write_text("one")
    await service.told(workspace, "created", "a.md")

    async def again() -> bool:
        return looks.count({"a.md"}) >= 2

    await eventually(again)


async def test_a_move_is_one_though_its_ends_are_heard_of_one_after_the_other(
    vault: Path, service: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a note is moved right after it was written: its old path is being looked at already."""
    take = Hints.take

    async def in_turn(hints: Hints, seconds: float) -> set[str] | None:
        taken = await take(hints, seconds)
        if taken and "old.md" in taken and "new.md" in taken:
            hints.add("new.md")
            return {"old.md"}
        return taken

    monkeypatch.setattr(Hints, "take", in_turn)
    workspace = (await service.workspace()).id
    (vault / "old.md").write_text("text")
    await service.told(workspace, "created", "old.md")
    (vault / "old.md").rename(vault / "new.md")
    assert (await service.told(workspace, "moved", "new.md")).from_path == "old.md"
    assert [change.kind for change in await service.changes(workspace)] == ["created", "moved"]


async def test_a_tree_that_is_moved_in_and_out_again(vault: Path, tmp_path: Path, service: Asker) -> None:
    workspace = (await service.workspace()).id
    expected = {f"tree/d{number % 3}/{number}.md": f"text {number}" for number in range(9)}
    for path, text in expected.items():
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    (tmp_path / "tree").rename(vault / "tree")
    await become(service, workspace, expected)
    (vault / "tree" / "d0" / "new.md").write_text("seen below a directory that came later")
    await become(service, workspace, {**expected, "tree/d0/new.md": "seen below a directory that came later"})
    (vault / "tree").rename(tmp_path / "back")
    await become(service, workspace, {})


async def test_a_big_directory_that_moves_is_no_loss(vault: Path, serving: Serving) -> None:
    (vault / "old").mkdir()
    for number in range(300):
        (vault / "old" / f"{number}.md").write_text(f"text {number}")
    async with serving() as asker:
        workspace = (await asker.workspace()).id
        (vault / "old").rename(vault / "new")
        await become(asker, workspace, {f"new/{number}.md": f"text {number}" for number in range(300)})
        await asker.told(workspace, "moved", "new/299.md", within=5)
        assert {change.kind for change in (await asker.changes(workspace))[300:]} == {"moved"}


async def test_nothing_is_read_twice_across_a_restart(vault: Path, serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        (vault / f"{number}.md").write_text(f"text {number}")
    await asyncio.sleep(vault_module.TICK_NS / 1e9)  # younger files are looked at twice
    async with serving() as asker:
        workspace = await asker.workspace()
        before = await asker.hashes(workspace.id)
    opened: list[str] = []
    really_open = os.open

    def counting(path: str, *arguments: int, **more: int) -> int:
        if str(path).endswith(".md"):
            opened.append(path)
        return really_open(path, *arguments, **more)

    monkeypatch.setattr(vault_module.os, "open", counting)
    (vault / "7.md").write_text("changed while nobody looked")
    os.utime(vault / "8.md")
    (vault / "9.md").unlink()
    async with serving() as asker:
        await asker.told(workspace.id, "updated", "7.md")
        await asker.told(workspace.id, "deleted", "9.md")
        assert set(opened) == {"7.md", "8.md"}
        del before["9.md"]
        assert await asker.hashes(workspace.id) == before | {"7.md": sha("changed while nobody looked")}
        assert len(await asker.changes(workspace.id)) == 30 + 2


async def test_the_index_is_made_anew_from_the_files_when_asked_and_when_its_rules_have_changed(
    vault: Path, serving: Serving, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "RESCAN_SECONDS", 0.2)
    for name in ("a", "b"):
        (vault / f"{name}.md").write_text(f"# Title {name}\n\n#tag\n")
    good = {("a.md", "Title a", ("tag",)), ("b.md", "Title b", ("tag",))}
    spoiled = await open_pool(database_url, "notes", size=1)

    async def is_good(asker: Asker, workspace: UUID) -> bool:
        return {(note.path, note.title, tuple(note.tags)) for note in (await asker.page(workspace)).items} == good

    async with serving() as asker:
        workspace = (await asker.workspace()).id
        await asker.told(workspace, "created", "b.md")
        await spoiled.execute("UPDATE notes SET title = 'wrong', tags = '{}', tag_keys = '{}'")
        await spoiled.execute("UPDATE workspaces SET notes = 7")
        assert not await is_good(asker, workspace)
        assert await rebuild(NotesSettings(DATABASE_URL=database_url), "vault") == 0
        assert await rebuild(NotesSettings(DATABASE_URL=database_url), "none") == 1
        await eventually(lambda: is_good(asker, workspace))
        assert (await asker.workspace()).notes == 2
    await spoiled.execute("UPDATE notes SET title = 'read by older rules'")
    await spoiled.close()
    monkeypatch.setattr(metadata, "EDITION", metadata.EDITION + 1)
    async with serving() as asker:
        await eventually(lambda: is_good(asker, workspace))
        assert [change.kind for change in await asker.changes(workspace)] == ["created", "created"]


async def test_without_a_watch_the_rescan_finds_all(vault: Path, serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")  # inotify's way to say: too many watches

    monkeypatch.setattr("watchfiles.watch", broken)
    monkeypatch.setattr(keeping, "UNWATCHED_RESCAN_SECONDS", 0.5)
    async with serving() as asker:
        workspace = (await asker.workspace()).id
        (vault / "a.md").write_text("found")
        await become(asker, workspace, {"a.md": "found"}, within=4)


async def test_two_processes_keep_one_index_and_one_takes_over(vault: Path, serving: Serving) -> None:
    async with serving() as asker:
        async with serving():
            workspace = (await asker.workspace()).id
            for number in range(20):
                (vault / f"{number}.md").write_text(str(number))
            await become(asker, workspace, {f"{number}.md": str(number) for number in range(20)})
        # Whichever of the two kept the index, the one that is left does now.
        (vault / "after.md").write_text("after")
        await asker.told(workspace, "created", "after.md", within=5)
        assert [change.kind for change in await asker.changes(workspace)] == ["created"] * 21
