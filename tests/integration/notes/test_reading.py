"""Lists and reads, over NATS."""

import asyncio
import hashlib
import os
import unicodedata
from pathlib import Path

import pytest

from services.notes.indexing import Indexer, Outcome
from shared.contracts import notes
from shared.contracts.errors import ErrorCode
from shared.contracts.notes import NOTES_PER_READ, NoteRead, ReadNotes
from tests.integration.notes.conftest import Asker, Serving, refused


async def test_a_vault_is_listed_and_its_notes_are_read_from_their_files(vault: Path, serving: Serving) -> None:
    (vault / "sub").mkdir()
    (vault / "a.md").write_bytes(b"---\ntitle: Alpha\ntags: [x, y/z]\n---\n# Not this\ntext #inline\n")
    (vault / "sub" / "b.markdown").write_bytes(b"# Beta\n")
    (vault / "c.txt").write_bytes(b"no note")
    (vault / ".obsidian").mkdir()
    (vault / ".obsidian" / "d.md").write_bytes(b"passed over")
    async with serving() as asker:
        workspace = await asker.workspace()
        assert (workspace.title, workspace.notes_dir, workspace.notes, workspace.available) == ("vault", "", 2, True)
        page = await asker.page(workspace.id)
        assert [(note.path, note.title, note.tags) for note in page.items] == [
            ("a.md", "Alpha", ["x", "y/z", "inline"]),
            ("sub/b.markdown", "Beta", []),
        ]
        note = await asker.read(workspace.id, "a.md")
        assert note.content == (vault / "a.md").read_text()
        assert note.content_hash == page.items[0].content_hash == hashlib.sha256((vault / "a.md").read_bytes()).hexdigest()
        assert note.size == (vault / "a.md").stat().st_size
        assert note.revision > 0


async def test_a_byte_order_mark_and_line_endings_are_content(vault: Path, serving: Serving) -> None:
    data = "\ufeff---\r\ntitle: T\r\n---\r\nline\rold mac\u2028\n\n".encode()
    (vault / "a.md").write_bytes(data)
    async with serving() as asker:
        note = await asker.read((await asker.workspace()).id, "a.md")
        assert note.content.encode() == data
        assert note.title == "T"
        assert note.content_hash == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("path", ["../vault/a.md", "/etc/passwd", "a//b.md", "sub/../a.md", "./a.md", "a\\b.md", "a\0.md", "", "a.md/"])
async def test_a_path_out_of_the_vault_is_invalid(service: Asker, path: str) -> None:
    await refused(service.read((await service.workspace()).id, path), ErrorCode.PATH_INVALID)


async def test_what_is_no_note_is_not_found_and_what_cannot_be_read_says_so(vault: Path, serving: Serving, tmp_path: Path) -> None:
    (tmp_path / "outside.md").write_text("outside")
    (vault / "link.md").symlink_to(tmp_path / "outside.md")
    (vault / "up").symlink_to(tmp_path)
    (vault / "text.txt").write_text("text")
    (vault / ".hidden").mkdir()
    (vault / ".hidden" / "a.md").write_text("hidden")
    (vault / "directory.md").mkdir()
    os.mkfifo(vault / "fifo.md")
    (vault / "latin.md").write_bytes(b"caf\xe9")
    (vault / "zeros.md").write_bytes(bytes(100))
    with (vault / "huge.md").open("wb") as file:
        file.truncate(1 << 33)
    async with serving() as asker:
        workspace = (await asker.workspace()).id
        for path in ("none.md", "link.md", "up/outside.md", "text.txt", ".hidden/a.md", "directory.md", "none/none.md"):
            await refused(asker.read(workspace, path), ErrorCode.NOTE_NOT_FOUND)
        for path in ("fifo.md", "latin.md", "zeros.md", "huge.md"):
            await refused(asker.read(workspace, path), ErrorCode.NOTE_UNREADABLE)
        # Listed by its bytes, under its file's name.
        listed = {note.path: note for note in (await asker.page(workspace)).items}
        assert listed.keys() == {"latin.md", "zeros.md", "huge.md"}
        assert (listed["huge.md"].title, listed["huge.md"].size) == ("huge", 1 << 33)
        assert (listed["latin.md"].title, listed["latin.md"].content_hash) == ("latin", hashlib.sha256(b"caf\xe9").hexdigest())


async def test_names_compare_after_nfc(vault: Path, serving: Serving) -> None:
    composed, decomposed = (unicodedata.normalize(form, "Ärger/café.md") for form in ("NFC", "NFD"))
    (vault / decomposed).parent.mkdir()
    (vault / decomposed).write_text("found")
    async with serving() as asker:
        workspace = (await asker.workspace()).id
        for path in (composed, decomposed):
            note = await asker.read(workspace, path)
            assert (note.path, note.content) == (composed, "found")
        assert list(await asker.hashes(workspace)) == [composed]
        assert [note.path for note in (await asker.page(workspace, prefix=decomposed[:3])).items] == [composed]


async def test_two_notes_whose_names_differ_in_their_spelling_alone_are_two(vault: Path, serving: Serving) -> None:
    composed, decomposed = (unicodedata.normalize(form, "café.md") for form in ("NFC", "NFD"))
    for path in (composed, decomposed):
        (vault / path).write_text(f"# {len(path)}")
    async with serving() as asker:
        workspace = (await asker.workspace()).id
        for path in (composed, decomposed):
            note = await asker.read(workspace, path)
            assert (note.path, note.content, note.revision > 0) == (path, f"# {len(path)}", True)
        assert (await asker.hashes(workspace)).keys() == {composed, decomposed}
        assert [note.path for note in (await asker.page(workspace, prefix=decomposed)).items] == [decomposed, composed]
        (vault / decomposed).write_text("# other")
        await asker.told(workspace, "updated", decomposed)
        (vault / decomposed).unlink()
        await asker.told(workspace, "deleted", decomposed)
        assert (await asker.read(workspace, decomposed)).path == composed


async def test_the_read_text_decides_where_the_index_is_behind(vault: Path, service: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    async def blind(*_: object, **__: object) -> Outcome:
        return Outcome(0, [])

    monkeypatch.setattr(Indexer, "scan", blind)
    (vault / "a.md").write_text("# New title\n#new")
    workspace = (await service.workspace()).id
    note = await service.read(workspace, "a.md")
    assert (note.title, note.tags, note.revision) == ("New title", ["new"], 0)
    assert note.content_hash == hashlib.sha256(b"# New title\n#new").hexdigest()
    assert await service.hashes(workspace) == {}


async def test_a_list_goes_page_by_page_in_the_order_of_paths(vault: Path, serving: Serving) -> None:
    names = ["B.md", "a-1.md", "a/1.md", "a/2.md", "a0.md", "b.md", "é.md", "中文.md", "𝒜.md"]
    (vault / "a").mkdir()
    for name in names:
        (vault / name).write_text("#Topic/sub" if name.startswith("a") else "#topical")
    async with serving() as asker:
        workspace = (await asker.workspace()).id
        found: list[str] = []
        cursor = None
        while True:
            page = await asker.page(workspace, limit=2, cursor=cursor)
            assert len(page.items) <= 2
            found += [note.path for note in page.items]
            if (cursor := page.next_cursor) is None:
                break
        assert found == sorted(names)

        async def listed(**more: object) -> list[str]:
            return [note.path for note in (await asker.page(workspace, **more)).items]

        assert await listed(prefix="a/") == ["a/1.md", "a/2.md"]
        assert await listed(prefix="a") == ["a-1.md", "a/1.md", "a/2.md", "a0.md"]
        assert await listed(prefix="中") == ["中文.md"]
        assert await listed(prefix="%") == await listed(prefix="\U0010ffff") == []
        for tag in ("topic", "TOPIC/Sub", "#topic"):
            assert await listed(tag=tag) == ["a-1.md", "a/1.md", "a/2.md", "a0.md"]
        assert await listed(tag="top") == []
        assert await listed(tag="topic", prefix="a/", limit=1) == ["a/1.md"]
        for limit in (0, -1, 1001):
            await refused(asker.page(workspace, limit=limit), ErrorCode.INVALID)
        for cursor in ("", "%", "AAAA", "////", "x" * 10_000 + "=", "é"):
            await refused(asker.page(workspace, cursor=cursor), ErrorCode.MALFORMED)
        await refused(asker.page(workspace, prefix="\0"), ErrorCode.INVALID)


async def test_a_read_during_replacements_is_always_one_whole_version(vault: Path, serving: Serving) -> None:
    (vault / "a.md").write_text("0" * 50_000)
    async with serving() as asker:
        workspace = (await asker.workspace()).id
        for version in range(1, 100):
            (vault / "draft").write_text(str(version % 10) * 50_000)
            replacing = asyncio.get_running_loop().run_in_executor(None, (vault / "draft").replace, vault / "a.md")
            notes = await asyncio.gather(*(asker.read(workspace, "a.md") for _ in range(3)))
            await replacing
            for note in notes:
                assert len(set(note.content)) == 1
                assert note.content_hash == hashlib.sha256(note.content.encode()).hexdigest()


async def test_odd_files_do_not_keep_the_others_from_being_indexed(vault: Path, serving: Serving) -> None:
    deep = vault / "/".join(["d" * 250] * 12)
    deep.mkdir(parents=True)
    (deep / "long path.md").write_text("a path that is longer than a key of an index")
    (vault / "future.md").write_text("from a time after 2262")
    os.utime(vault / "future.md", ns=(2**63 + 10**18, 2**63 + 10**18))
    (vault / "past.md").write_text("from before the epoch")
    os.utime(vault / "past.md", ns=(-(10**18), -(10**18)))
    (vault / "tags.md").write_text("#" + "x" * 5000 + " #" + "/".join("abc" * 50) + '\n---\ntitle: "\\ud800"\n---\n')
    (vault / "title.md").write_text("# " + "t" * 100_000)
    (vault / "new\nline.md").write_text("#a")
    async with serving() as asker:
        workspace = await asker.workspace()
        assert list(await asker.hashes(workspace.id)) == ["future.md", "new\nline.md", "past.md", "tags.md", "title.md"]
        assert (await asker.read(workspace.id, "new\nline.md")).tags == ["a"]


async def test_some_notes_are_read_at_once_each_as_it_would_be_alone(vault: Path, serving: Serving) -> None:
    (vault / "a.md").write_text("---\ntitle: Alpha\n---\nheron")
    (vault / "bytes.md").write_bytes(b"\xff\xfe")
    async with serving() as asker:
        workspace = (await asker.workspace()).id

        async def some(*paths: str) -> list[NoteRead]:
            return (await asker.ask(notes.NOTE_READ_SOME, ReadNotes(workspace=workspace, paths=list(paths)))).items

        gone, broken, alpha, outside = await some("gone.md", "bytes.md", "a.md", "../a.md")
        assert alpha.note == await asker.read(workspace, "a.md")
        problems = [one.problem.code for one in (gone, broken, outside) if one.problem is not None]
        assert problems == [ErrorCode.NOTE_NOT_FOUND, ErrorCode.NOTE_UNREADABLE, ErrorCode.PATH_INVALID]
        assert [one.note for one in (gone, broken, outside)] == [None] * 3

        for number in range(3):
            (vault / f"long{number}.md").write_text(f"{number}" * 700_000)
        answer = await some("long0.md", "long1.md", "a.md")
        assert [one.note.path if one.note else None for one in answer] == ["long0.md", None, None]
        assert [one.problem for one in answer] == [None] * 3  # to be asked for again
        assert [one.note.path for one in await some("long1.md", "a.md") if one.note] == ["long1.md", "a.md"]

        for paths in ([], ["a.md"] * (NOTES_PER_READ + 1)):
            await refused(some(*paths), ErrorCode.INVALID)
