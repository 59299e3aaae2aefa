"""Changing notes, over NATS: who may, what is answered, what the index and the told changes say afterwards."""

import asyncio
import errno
import hashlib
import logging
import os
import random
import unicodedata
from pathlib import Path
from uuid import UUID, uuid4

import asyncpg
import pytest

from services.notes import durable_file, replacement, writing
from services.notes.indexing import Indexer
from services.notes.place import NoteBusy
from services.notes.vault import NOTE_BYTES_MAX
from shared.contracts import notes
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.notes import (
    Appended,
    AppendExchange,
    CreateNote,
    DeleteNote,
    Member,
    MoveNote,
    Note,
    PatchNote,
    PutMembers,
    ReplaceNote,
)
from shared.messaging.scope import Account
from tests.integration.notes.conftest import NOTICED_SECONDS, Asker, Serving, refused
from tests.support.polling import eventually

logger = logging.getLogger(__name__)


def sha(data: bytes | str) -> str:
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def names(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


class Editor:
    """Asks for changes of one workspace's notes."""

    def __init__(self, asker: Asker, vault: Path, workspace: UUID, account: Account | None = None) -> None:
        self.asker = asker
        self.vault = vault
        self.workspace = workspace
        self.account = account

    async def create(self, path: str, content: str) -> Note:
        return await self.asker.ask(notes.NOTE_CREATE, CreateNote(workspace=self.workspace, path=path, content=content), self.account)

    async def replace(self, path: str, content_hash: str, content: str) -> Note:
        request = ReplaceNote(workspace=self.workspace, path=path, content_hash=content_hash, content=content)
        return await self.asker.ask(notes.NOTE_REPLACE, request, self.account)

    async def patch(self, path: str, content_hash: str, old_text: str, new_text: str) -> Note:
        request = PatchNote(workspace=self.workspace, path=path, content_hash=content_hash, old_text=old_text, new_text=new_text)
        return await self.asker.ask(notes.NOTE_PATCH, request, self.account)

    async def move(self, path: str, to: str, content_hash: str) -> Note:
        return await self.asker.ask(
            notes.NOTE_MOVE, MoveNote(workspace=self.workspace, path=path, to=to, content_hash=content_hash), self.account
        )

    async def delete(self, path: str, content_hash: str) -> None:
        await self.asker.ask(notes.NOTE_DELETE, DeleteNote(workspace=self.workspace, path=path, content_hash=content_hash), self.account)

    async def append(self, path: str, message_id: UUID, answer: str = "So.") -> Appended:
        request = AppendExchange(
            workspace=self.workspace, path=path, message_id=message_id, conversation_title="A talk", question="Why?", answer=answer
        )
        return await self.asker.ask(notes.NOTE_APPEND, request, self.account)

    async def kinds(self) -> list[tuple[str, str]]:
        """What was told, once everything is that was committed until now: a change by another program is told last."""
        last = f"told {uuid4()}.md"
        (self.vault / last).write_text(last)
        await self.asker.told(self.workspace, "created", last)
        return [(change.kind, change.path) for change in await self.asker.changes(self.workspace) if not change.path.startswith("told ")]


@pytest.fixture
async def editor(service: Asker, vault: Path) -> Editor:
    return Editor(service, vault, (await service.workspace()).id)


async def test_a_change_is_answered_with_the_note_and_the_index_has_it_at_once(vault: Path, editor: Editor) -> None:
    # MD-4: changed title and tags reach the index
    note = await editor.create("sub/a.md", "# One\n\n#first\n")
    assert (note.path, note.title, note.tags, note.content) == ("sub/a.md", "One", ["first"], "# One\n\n#first\n")
    assert note.content_hash == sha((vault / "sub/a.md").read_bytes())
    assert (await editor.asker.page(editor.workspace)).items[0].title == "One"

    note = await editor.replace("sub/a.md", note.content_hash, "# Two\n\n#second\n")
    page = await editor.asker.page(editor.workspace)
    assert [(item.title, item.tags, item.content_hash) for item in page.items] == [("Two", ["second"], note.content_hash)]

    note = await editor.patch("sub/a.md", note.content_hash, "Two", "Three")
    assert (note.title, note.content) == ("Three", "# Three\n\n#second\n")

    moved = await editor.move("sub/a.md", "b.md", note.content_hash)
    assert (moved.path, moved.content_hash) == ("b.md", note.content_hash)
    assert await editor.asker.hashes(editor.workspace) == {"b.md": note.content_hash}
    assert moved == await editor.asker.read(editor.workspace, "b.md")

    await editor.delete("b.md", note.content_hash)
    assert await editor.asker.hashes(editor.workspace) == {}
    assert (await editor.asker.workspace()).notes == 0
    assert (vault / ".trash" / "b.md").read_text() == note.content


async def test_each_change_is_told_once_though_the_watch_sees_it_too(vault: Path, editor: Editor, monkeypatch: pytest.MonkeyPatch) -> None:
    scans: list[object] = []
    scan = Indexer.scan

    async def counted(self: Indexer, below: object, **more: bool) -> object:
        try:
            return await scan(self, below, **more)  # type: ignore[arg-type]
        finally:
            scans.append(below)

    monkeypatch.setattr(Indexer, "scan", counted)
    note = await editor.create("a.md", "one")
    for number in range(20):
        note = await editor.replace("a.md", note.content_hash, f"text {number}")
    await editor.move("a.md", "b.md", note.content_hash)
    await editor.delete("b.md", note.content_hash)
    expected = [("created", "a.md"), *[("updated", "a.md")] * 20, ("moved", "b.md"), ("deleted", "b.md")]
    assert await editor.kinds() == expected
    assert scans
    assert (await editor.asker.changes(editor.workspace))[21].from_path == "a.md"


async def test_what_the_scanner_saw_before_a_change_of_ours_does_not_come_back(
    vault: Path, editor: Editor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads a note; we replace, move and delete notes; then it commits."""
    await editor.create("a.md", "one")
    await editor.create("b.md", "two")
    await editor.create("c.md", "three")
    workspace = editor.workspace
    read, held, go_on = Indexer._read, asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def late(self: Indexer, paths: list[str]) -> object:
        found = read(self, paths)
        if "theirs.md" in paths and not go_on.is_set():
            loop.call_soon_threadsafe(held.set)
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(10)
        return found

    monkeypatch.setattr(Indexer, "_read", late)
    for name in ("a.md", "b.md", "c.md", "theirs.md"):
        (vault / name).write_text(f"theirs {name}")
    async with asyncio.timeout(5):
        await held.wait()
    await editor.replace("a.md", sha("theirs a.md"), "ours")
    await editor.move("b.md", "d.md", sha("theirs b.md"))
    await editor.delete("c.md", sha("theirs c.md"))
    expected = {"a.md": sha("ours"), "d.md": sha("theirs b.md"), "theirs.md": sha("theirs theirs.md")}
    go_on.set()

    async def settled() -> bool:
        return await editor.asker.hashes(workspace) == expected

    await eventually(settled, NOTICED_SECONDS)
    await editor.kinds()  # all told
    told = await editor.asker.changes(workspace)
    of = {path: [(change.kind, change.content_hash) for change in told if change.path == path] for path in ("a.md", "c.md", "d.md")}
    assert of["a.md"][-1] == ("updated", sha("ours"))
    assert [kind for kind, _ in of["a.md"]].count("created") == 1
    assert len(of["a.md"]) == len(set(of["a.md"])) <= 3  # the first, perhaps theirs, ours
    assert of["c.md"][-1] == ("deleted", None)
    assert of["d.md"] == [("moved", sha("theirs b.md"))]


async def test_another_version_is_refused_with_the_present_one(editor: Editor) -> None:
    await editor.create("a.md", "present")
    past = sha("past")
    for asking in (
        editor.replace("a.md", past, "x"),
        editor.patch("a.md", past, "present", "x"),
        editor.move("a.md", "b.md", past),
        editor.delete("a.md", past),
    ):
        assert (await refused(asking, ErrorCode.NOTE_STALE)).extra["current_hash"] == sha("present")
    assert (await refused(editor.create("a.md", "x"), ErrorCode.NOTE_EXISTS)).extra["current_hash"] == sha("present")
    assert (await refused(editor.replace("gone.md", past, "x"), ErrorCode.NOTE_STALE)).extra["current_hash"] is None
    for asking in (editor.patch("gone.md", past, "a", "b"), editor.move("gone.md", "b.md", past), editor.delete("gone.md", past)):
        await refused(asking, ErrorCode.NOTE_NOT_FOUND)
    await editor.create("b.md", "taken")
    await refused(editor.move("a.md", "b.md", sha("present")), ErrorCode.NOTE_EXISTS)
    assert await editor.asker.hashes(editor.workspace) == {"a.md": sha("present"), "b.md": sha("taken")}


async def test_a_version_that_the_index_does_not_know_yet_can_be_changed(vault: Path, editor: Editor) -> None:
    (vault / "a.md").write_text("of another program")
    note = await editor.patch("a.md", sha("of another program"), "another", "some")
    assert note.content == "of some program"
    assert await editor.asker.hashes(editor.workspace) == {"a.md": sha("of some program")}


async def test_a_note_keeps_what_a_patch_does_not_name(vault: Path, editor: Editor) -> None:
    data = "\ufeff---\r\ntitle: T\r\n---\r\n\r\nold line\r\nend".encode()
    (vault / "a.md").write_bytes(data)
    note = await editor.patch("a.md", sha(data), "\nold line\n", "\nnew line\nand one more\n")
    assert (vault / "a.md").read_bytes() == data.replace(b"old line", b"new line\r\nand one more")
    assert note.title == "T"


async def test_what_is_no_text_is_not_patched_or_moved_and_stays(vault: Path, editor: Editor) -> None:
    data = b"text \xff\xfe text"
    (vault / "a.md").write_bytes(data)
    await refused(editor.patch("a.md", sha(data), "text", "x"), ErrorCode.NOTE_UNREADABLE)
    await refused(editor.move("a.md", "b.md", sha(data)), ErrorCode.NOTE_UNREADABLE)
    await refused(editor.append("a.md", uuid4()), ErrorCode.NOTE_UNREADABLE)
    os.mkfifo(vault / "fifo.md")
    await refused(editor.replace("fifo.md", sha(data), "x"), ErrorCode.NOTE_UNREADABLE)
    assert (vault / "a.md").read_bytes() == data


async def test_bad_requests_touch_nothing(vault: Path, editor: Editor, tmp_path: Path) -> None:
    for path in ("../a.md", "/etc/a.md", "a//b.md", "./a.md", "a\\b.md", "a\0.md", "", ".git/a.md", "a.txt", "con.md", "x" * 252 + ".md"):
        await refused(editor.create(path, "x"), ErrorCode.PATH_INVALID)
    note = await editor.create("a.md", "text")
    await refused(editor.move("a.md", "../b.md", note.content_hash), ErrorCode.PATH_INVALID)
    await refused(editor.create("nul.md", "a\0b"), ErrorCode.INVALID)
    await refused(editor.patch("a.md", note.content_hash, "text", "\0"), ErrorCode.INVALID)
    await refused(editor.patch("a.md", note.content_hash, "", "x"), ErrorCode.INVALID)
    await refused(editor.create("large.md", "x" * (NOTE_BYTES_MAX + 1)), ErrorCode.TOO_LARGE)
    await editor.create("full.md", "é" * (NOTE_BYTES_MAX // 2))
    await refused(editor.append("full.md", uuid4()), ErrorCode.TOO_LARGE)
    assert names(vault) == ["a.md", "full.md"]
    assert names(tmp_path) == ["vault"]


async def test_only_who_has_write_access_changes_notes(editor: Editor) -> None:
    reader, writer, stranger = (Account(uuid4(), "member") for _ in range(3))
    members = [Member(account_id=reader.id, access="read"), Member(account_id=writer.id, access="write")]
    await editor.asker.ask(notes.MEMBERS_PUT, PutMembers(workspace=editor.workspace, items=members))
    note = await editor.create("a.md", "text")
    for account, code in ((reader, ErrorCode.FORBIDDEN), (stranger, ErrorCode.WORKSPACE_NOT_FOUND)):
        other = Editor(editor.asker, editor.vault, editor.workspace, account)
        for asking in (
            other.create("b.md", "x"),
            other.replace("a.md", note.content_hash, "x"),
            other.patch("a.md", note.content_hash, "text", "x"),
            other.move("a.md", "b.md", note.content_hash),
            other.delete("a.md", note.content_hash),
            other.append("a.md", uuid4()),
        ):
            await refused(asking, code)
    assert await editor.asker.hashes(editor.workspace) == {"a.md": sha("text")}
    await Editor(editor.asker, editor.vault, editor.workspace, writer).replace("a.md", note.content_hash, "theirs")
    await Editor(editor.asker, editor.vault, editor.workspace, Account(uuid4(), "admin")).delete("a.md", sha("theirs"))


async def test_either_spelling_of_a_name_is_the_note(vault: Path, editor: Editor) -> None:
    decomposed = unicodedata.normalize("NFD", "café/é.md")
    (vault / decomposed).parent.mkdir()
    (vault / decomposed).write_text("one")
    await refused(editor.create("café/é.md", "other"), ErrorCode.NOTE_EXISTS)
    note = await editor.replace("café/é.md", sha("one"), "two")
    assert note.path == "café/é.md"
    assert (vault / decomposed).read_text() == "two"
    await editor.create("café/ö.md", "beside it")
    assert len(names(vault)) == 1


async def test_an_exchange_is_appended_once_and_makes_its_note(vault: Path, editor: Editor) -> None:
    # MN-9; logancyang/obsidian-copilot#2792, #636
    message = uuid4()
    first = await editor.append("talks/a.md", message, answer="$$x$$ and \\(y\\)\r\n")
    assert first.created
    again = await editor.append("talks/a.md", message, answer="another text")
    assert not again.created
    assert again.note.content == first.note.content == (vault / "talks/a.md").read_bytes().decode()
    other = await editor.append("talks/a.md", uuid4())
    assert other.note.content.startswith(first.note.content)
    assert [kind for kind, _ in await editor.kinds()] == ["created", "updated"]


async def test_twenty_at_once_append_one_exchange_once(editor: Editor) -> None:
    message = uuid4()
    answers = await asyncio.gather(*(editor.append("a.md", message) for _ in range(20)))
    assert sum(answer.created for answer in answers) == 1
    assert len({answer.note.content_hash for answer in answers}) == 1


async def test_exchanges_and_the_edits_of_another_program_all_arrive(vault: Path, editor: Editor, monkeypatch: pytest.MonkeyPatch) -> None:
    (vault / "a.md").write_text("start\n")
    put_in_place = replacement.put_in_place
    saves: list[str] = []

    def save_before(*arguments: object) -> None:
        if len(saves) < 3:
            saves.append(f"theirs {len(saves)}\n")
            (vault / "theirs.tmp").write_text((vault / "a.md").read_text() + saves[-1])
            (vault / "theirs.tmp").rename(vault / "a.md")
        put_in_place(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(replacement, "put_in_place", save_before)
    appended = await editor.append("a.md", uuid4())
    assert len(saves) == 3
    assert all(line in appended.note.content for line in saves)
    assert "Why?" in appended.note.content


async def test_of_many_writers_one_wins_each_round(editor: Editor, request: pytest.FixtureRequest) -> None:
    """Bar: 50 writers, 200 rounds (`--writers 50 --rounds 200`)."""
    writers, rounds = int(request.config.getoption("--writers")), int(request.config.getoption("--rounds"))
    current = (await editor.create("a.md", "start")).content_hash
    for number in range(rounds):
        asked = (editor.replace("a.md", current, f"round {number} writer {writer}") for writer in range(writers))
        answers = await asyncio.gather(*asked, return_exceptions=True)
        won = [answer for answer in answers if isinstance(answer, Note)]
        assert len(won) == 1, [answer for answer in answers if not isinstance(answer, ServiceError)]
        lost = [answer for answer in answers if isinstance(answer, ServiceError)]
        assert {(error.code, error.extra["current_hash"]) for error in lost} == {(ErrorCode.NOTE_STALE, won[0].content_hash)}
        current = won[0].content_hash
    await editor.asker.told(editor.workspace, "updated", "a.md")

    async def all_told() -> bool:
        return len(await editor.asker.changes(editor.workspace)) == rounds + 1

    await eventually(all_told, 10)


async def test_two_processes_do_not_write_at_once(vault: Path, serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    inside: list[str] = []
    survey = writing.in_vault

    def watched(*arguments: object) -> object:
        inside.append("in")
        assert len(inside) == 1
        try:
            return survey(*arguments)  # type: ignore[arg-type]
        finally:
            inside.pop()

    monkeypatch.setattr(writing, "in_vault", watched)
    async with serving() as asker, serving():
        editor = Editor(asker, vault, (await asker.workspace()).id)
        answers = await asyncio.gather(*(editor.create(f"{number}.md", "x") for number in range(40)))
        assert len(answers) == 40
        wanted = {f"{number}.md": sha("x") for number in range(40)}
        assert await asker.hashes(editor.workspace) == wanted


async def test_edits_of_another_program_in_between_are_never_overwritten(
    vault: Path, editor: Editor, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bar: 200 edits between our read and our write (`--edits 200`), in place and by rename."""
    seed = random.randrange(2**32)
    logger.warning("seed %d", seed)
    chance = random.Random(seed)
    put_in_place = replacement.put_in_place
    theirs: list[bytes] = []

    def their_edit_first(*arguments: object) -> None:
        theirs.append(b"theirs %d" % len(theirs))
        if chance.random() < 0.5:
            (vault / "a.md").write_bytes(theirs[-1])
        else:
            (vault / "a.tmp").write_bytes(theirs[-1])
            (vault / "a.tmp").rename(vault / "a.md")
        put_in_place(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(replacement, "put_in_place", their_edit_first)
    (vault / "a.md").write_bytes(b"start")
    for number in range(int(request.config.getoption("--edits"))):
        current = (vault / "a.md").read_bytes()
        error = await refused(editor.replace("a.md", sha(current), f"ours {number}"), ErrorCode.NOTE_STALE)
        assert (vault / "a.md").read_bytes() == theirs[-1]
        assert error.extra["current_hash"] == sha(theirs[-1])
    assert names(vault) == ["a.md"]


async def test_a_disk_that_does_not_take_it_says_so_and_the_note_stays(
    vault: Path, editor: Editor, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = await editor.create("a.md", "one")
    fsync = os.fsync
    for number, code in (
        (28, ErrorCode.STORAGE_FULL),
        (122, ErrorCode.STORAGE_FULL),
        (30, ErrorCode.VAULT_READ_ONLY),
        (5, ErrorCode.VAULT_UNAVAILABLE),
    ):

        def failing(_: int, number: int = number) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "fsync", failing)
        await refused(editor.replace("a.md", note.content_hash, "two"), code)
        await refused(editor.create("sub/b.md", "two"), code)
        monkeypatch.setattr(os, "fsync", fsync)
        assert names(vault) == ["a.md"]
        assert (await editor.asker.read(editor.workspace, "a.md")).content == "one"
    assert (await editor.replace("a.md", note.content_hash, "two")).content == "two"
    assert await editor.kinds() == [("created", "a.md"), ("updated", "a.md")]


async def test_a_move_to_another_file_system_is_refused_for_good(vault: Path, editor: Editor, monkeypatch: pytest.MonkeyPatch) -> None:
    note = await editor.create("a.md", "one")

    def elsewhere(*_: object) -> bool:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(durable_file, "_renameat2", elsewhere)
    error = await refused(editor.move("a.md", "mounted/a.md", note.content_hash), ErrorCode.PATH_INVALID)
    assert "another file system" in error.detail
    assert names(vault) == ["a.md"]


async def test_a_change_whose_index_fails_is_done_and_the_index_follows(
    database_url: str, vault: Path, editor: Editor, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = await editor.create("a.md", "one")
    in_vault = writing.in_vault
    connection = await asyncpg.connect(database_url)

    def and_then_the_database_goes(*arguments: object) -> object:
        done = in_vault(*arguments)  # type: ignore[arg-type]
        cut = connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        asyncio.run_coroutine_threadsafe(cut, loop).result(10)
        return done

    loop = asyncio.get_running_loop()
    with monkeypatch.context() as patched:
        patched.setattr(writing, "in_vault", and_then_the_database_goes)
        changed = await editor.replace("a.md", note.content_hash, "two")
    assert changed.content == (vault / "a.md").read_text() == "two"
    await connection.close()
    assert (await editor.asker.told(editor.workspace, "updated", "a.md", within=8)).content_hash == sha("two")


async def test_a_note_that_another_program_writes_for_long_is_busy(vault: Path, editor: Editor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "BUSY_SECONDS", 0.01)
    note = await editor.create("a.md", "one")
    with (vault / "a.md").open("r+") as theirs, (vault / "a.md").open("rb") as reader:
        with durable_file.writers_of(reader.fileno()) as writers:
            if writers() == "unknown":
                pytest.skip("the file system grants no leases")
        await refused(editor.replace("a.md", note.content_hash, "two"), ErrorCode.NOTE_BUSY)
        theirs.write("theirs")
    assert (await editor.replace("a.md", sha("theirs"), "two")).content == "two"


async def test_a_note_that_stays_open_is_tried_a_few_times_and_never_exchanged(
    vault: Path, editor: Editor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "BUSY_SECONDS", 0.001)
    in_vault = writing.in_vault
    tries: list[object] = []
    exchanges: list[object] = []

    def counted(*arguments: object) -> object:
        tries.append(arguments)
        return in_vault(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(writing, "in_vault", counted)
    monkeypatch.setattr(durable_file, "_renameat2", lambda *arguments: exchanges.append(arguments))
    (vault / "a.md").write_text("one")
    with (vault / "a.md").open("r+") as theirs:
        with durable_file.writers_of(theirs.fileno()) as writers:
            if writers() == "unknown":
                pytest.skip("the file system grants no leases")
        await refused(editor.append("a.md", uuid4()), ErrorCode.NOTE_BUSY)
    assert len(tries) == writing.BUSY_ATTEMPTS
    assert exchanges == []
    assert names(vault) == ["a.md"]


async def test_what_is_written_while_a_refused_version_bears_the_name_stands_and_is_told(
    vault: Path, editor: Editor, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = await editor.create("a.md", "one\n")
    exchange = durable_file.exchange
    done: list[bool] = []

    def with_others(directory: int, name: str, other: str) -> bool:
        exchanged = exchange(directory, name, other)
        if not done:
            done.append(True)
            with (vault / "a.md").open("a") as theirs:
                theirs.write("line\n")
        return exchanged

    def no_lease(*_: object) -> int:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(durable_file.fcntl, "fcntl", no_lease)
    monkeypatch.setattr(durable_file, "exchange", with_others)
    problem = replacement._problem
    asked: list[bool] = []

    def refuse_after(*arguments: object) -> object:
        asked.append(True)
        return NoteBusy() if len(asked) == 2 else problem(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(replacement, "_problem", refuse_after)
    error = await refused(editor.replace("a.md", note.content_hash, "two\n"), ErrorCode.NOTE_STALE)
    assert (vault / "a.md").read_text() == "two\nline\n"
    assert error.extra["current_hash"] == sha("two\nline\n")
    assert (await editor.asker.told(editor.workspace, "updated", "a.md")).content_hash == sha("two\nline\n")
    assert [file.read_text() for file in (vault / ".trash").iterdir()] == ["one\n"]


async def test_who_gives_up_waiting_leaves_no_half_change_and_no_lock(vault: Path, editor: Editor, monkeypatch: pytest.MonkeyPatch) -> None:
    note = await editor.create("a.md", "one")
    in_vault, begun, go_on = writing.in_vault, asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def slowly(*arguments: object) -> object:
        loop.call_soon_threadsafe(begun.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(10)
        return in_vault(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(writing, "in_vault", slowly)
    asking = asyncio.create_task(editor.replace("a.md", note.content_hash, "two"))
    async with asyncio.timeout(5):
        await begun.wait()
    asking.cancel()
    await asyncio.wait({asking})
    go_on.set()
    third = await eventually(lambda: replaced(editor, "two", "three"), 5)
    assert third.content == (vault / "a.md").read_text() == "three"
    assert await editor.kinds() == [("created", "a.md"), ("updated", "a.md"), ("updated", "a.md")]


async def replaced(editor: Editor, old: str, new: str) -> Note | None:
    try:
        return await editor.replace("a.md", sha(old), new)
    except ServiceError as error:
        assert error.code is ErrorCode.NOTE_STALE
        return None


async def test_what_a_crash_left_is_cleared_away_at_the_next_start(vault: Path, serving: Serving) -> None:
    name = f".marginalia-{'a' * 12}.{sha('one')[:16]}-{sha('two')[:16]}"
    (vault / "a.md").write_text("two")
    (vault / name).write_text("one")
    async with serving() as asker:
        workspace = (await asker.workspace()).id

        async def cleared() -> bool:
            return not (vault / name).exists()

        await eventually(cleared, 5)
        assert await asker.hashes(workspace) == {"a.md": sha("two")}


def unmount(vault: Path) -> None:
    """What is left is an empty directory."""
    vault.rename(vault.with_name("elsewhere"))
    vault.mkdir()


async def test_a_vault_that_is_held_to_be_away_takes_no_change(vault: Path, editor: Editor, monkeypatch: pytest.MonkeyPatch) -> None:
    await editor.create("a.md", "one")
    unmount(vault)

    await refused(editor.create("b.md", "lost"), ErrorCode.VAULT_UNAVAILABLE)
    assert names(vault) == []
