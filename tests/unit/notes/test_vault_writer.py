"""Changing files: wholly or not at all, and never over what another program wrote."""

import contextlib
import errno
import fcntl
import logging
import os
import random
import shutil
import stat
import subprocess
import sys
import threading
import time
import unicodedata
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

import pytest

from services.notes import durable_file, place, replacement, trash, vault_writer
from services.notes import vault as vault_module
from services.notes.durable_file import digest
from services.notes.note_path import NotePath
from services.notes.place import NoteBusy, NoteExists, NoteStale
from services.notes.vault import NOTE_BYTES_MAX, NoSuchNote, NoteUnreadable, RawNote, Vault, VaultUnavailable
from services.notes.vault_writer import VaultWriter
from shared.contracts.errors import ErrorCode, ServiceError
from tests.support.interrupted_system import Interrupted


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "vault"
    directory.mkdir()
    return directory


@pytest.fixture(params=["renameat2", "links", "renames alone"])
def writer(root: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> VaultWriter:
    """On file systems that know more or less."""
    knowing(monkeypatch, request.param)
    return VaultWriter(Vault(root), None)


def knowing(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    def no_links(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    if what != "renameat2":
        monkeypatch.setattr(durable_file, "_renameat2", lambda *_: False)
    if what == "renames alone":
        monkeypatch.setattr(os, "link", no_links)


def path(text: str) -> NotePath:
    return NotePath.parse(text)


def replace(writer: VaultWriter, name: str, old: bytes, new: bytes) -> RawNote:
    return writer.replace(path(name), lambda _: new, digest(old))


def change(writer: VaultWriter, what: str) -> None:
    """One change of `a.md`, which is `one`; a new note is `sub/b.md`."""
    if what == "replace":
        replace(writer, "a.md", b"one", b"two")
    elif what == "create":
        writer.create(path("sub/b.md"), b"two")
    elif what == "move":
        writer.move(path("a.md"), path("sub/b.md"), digest(b"one"), lambda _: None)
    else:
        writer.trash(path("a.md"), digest(b"one"))


def files(root: Path) -> dict[str, bytes]:
    return {str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*") if file.is_file()}


def refused(action: Callable[[], object], code: ErrorCode) -> None:
    with pytest.raises(ServiceError) as caught:
        action()
    assert caught.value.code == code


def test_a_note_is_created_replaced_moved_and_trashed_and_nothing_else_is_left(root: Path, writer: VaultWriter) -> None:
    created = writer.create(path("sub/deep/a.md"), b"one")
    assert created.stat.size == 3
    assert replace(writer, "sub/deep/a.md", b"one", b"two").data == b"two"
    assert writer.move(path("sub/deep/a.md"), path("other/b.md"), digest(b"two"), lambda _: None).data == b"two"
    assert files(root) == {"other/b.md": b"two"}
    writer.trash(path("other/b.md"), digest(b"two"))
    assert files(root) == {".trash/other/b.md": b"two"}


def test_the_stat_that_is_answered_is_that_of_the_file_in_its_place(root: Path, writer: VaultWriter) -> None:
    """The index would otherwise take the note for changed."""
    for write in (lambda: writer.create(path("a.md"), b"one"), lambda: replace(writer, "a.md", b"one", b"two")):
        assert write().stat == vault_module.FileStat.of((root / "a.md").stat())
    moved = writer.move(path("a.md"), path("b.md"), digest(b"two"), lambda _: None)
    assert moved.stat == vault_module.FileStat.of((root / "b.md").stat())


def test_another_version_is_refused_and_named(root: Path, writer: VaultWriter) -> None:
    # maxkuminov/obsidian-mcp#205
    (root / "a.md").write_bytes(b"present")
    for action in (
        lambda: replace(writer, "a.md", b"past", b"new"),
        lambda: writer.move(path("a.md"), path("b.md"), digest(b"past"), lambda _: None),
        lambda: writer.trash(path("a.md"), digest(b"past")),
    ):
        with pytest.raises(NoteStale) as caught:
            action()
        assert caught.value.current == digest(b"present")
    assert files(root) == {"a.md": b"present"}


def test_nothing_that_bears_a_name_is_overwritten(root: Path, writer: VaultWriter, tmp_path: Path) -> None:
    (root / "a.md").write_bytes(b"a")
    (root / "b.md").write_bytes(b"b")
    (root / "directory.md").mkdir()
    (root / "link.md").symlink_to(tmp_path / "nowhere.md")
    for name, current in (("b.md", digest(b"b")), ("directory.md", None), ("link.md", None)):
        for action in (
            lambda name=name: writer.create(path(name), b"new"),
            lambda name=name: writer.move(path("a.md"), path(name), digest(b"a"), lambda _: None),
        ):
            with pytest.raises(NoteExists) as caught:
                action()
            assert caught.value.current == current
    assert files(root) == {"a.md": b"a", "b.md": b"b"}
    assert not (tmp_path / "nowhere.md").exists()


def test_a_name_that_is_taken_at_the_last_moment_stays_as_it_is(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By another program, between our look and our rename; with renames alone that moment cannot be closed."""
    writer = VaultWriter(Vault(root), None)
    look = durable_file.name_is_taken

    def taken_just_after(directory: int, name: str) -> bool:
        taken = look(directory, name)
        if name == "a.md":
            (root / "a.md").write_bytes(b"theirs")
        return taken

    monkeypatch.setattr(durable_file, "name_is_taken", taken_just_after)
    with pytest.raises(NoteExists):
        writer.create(path("a.md"), b"ours")
    assert files(root) == {"a.md": b"theirs"}


@pytest.mark.parametrize("on_disk", ["NFC", "NFD"])
@pytest.mark.parametrize("asked", ["NFC", "NFD"])
def test_either_spelling_finds_the_note_which_keeps_its_own(root: Path, writer: VaultWriter, on_disk: str, asked: str) -> None:
    name = unicodedata.normalize(on_disk, "é.md")  # type: ignore[arg-type]
    spelled = unicodedata.normalize(asked, "é.md")  # type: ignore[arg-type]
    (root / name).write_bytes(b"one")
    with pytest.raises(NoteExists):
        writer.create(path(spelled), b"other")
    replace(writer, spelled, b"one", b"two")
    assert [entry.name for entry in root.iterdir()] == [name]
    assert files(root)[name] == b"two"


def test_of_two_notes_whose_names_differ_in_their_spelling_alone_the_one_named_is_changed(root: Path, writer: VaultWriter) -> None:
    composed, decomposed = (unicodedata.normalize(form, "é.md") for form in ("NFC", "NFD"))
    for name in (composed, decomposed):
        (root / name).write_bytes(name.encode())
    for name in (decomposed, composed):
        named = Vault(root).named(path(name))
        assert writer.replace(named, lambda _: b"new", digest(name.encode())).data == b"new"
        with pytest.raises(NoteExists):
            writer.create(named, b"x")
    writer.trash(Vault(root).named(path(decomposed)), digest(b"new"))
    assert files(root) == {composed: b"new", f".trash/{decomposed}": b"new"}


def test_links_lead_nowhere(root: Path, writer: VaultWriter, tmp_path: Path) -> None:
    # bitbonsai/mcpvault#78
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_bytes(b"secret")
    (root / "up").symlink_to(outside)
    (root / "link.md").symlink_to(outside / "secret.md")
    (root / ".trash").symlink_to(outside)
    (root / "a.md").write_bytes(b"a")
    for name in ("up/secret.md", "link.md"):
        with pytest.raises(NoSuchNote):
            replace(writer, name, b"secret", b"ours")
        with pytest.raises(NoSuchNote):
            writer.trash(path(name), digest(b"secret"))
    refused(lambda: writer.create(path("up/new.md"), b"x"), ErrorCode.PATH_INVALID)
    refused(lambda: writer.move(path("a.md"), path("up/new.md"), digest(b"a"), lambda _: None), ErrorCode.PATH_INVALID)
    writer.trash(path("a.md"), digest(b"a"))
    assert files(outside) == {"secret.md": b"secret"}
    assert (root / ".trash 2" / "a.md").read_bytes() == b"a"


BAD_NAMES = [
    *("a.txt", "a", ".md", ".hidden.md", ".git/a.md", "sub/.obsidian/a.md", ".trash/a.md", "-rf.md", "con.md", "sub/NUL.md", "x/ .md"),
    *("a:b.md", "what?.md", "a:b/c.md", "zero\u200bwidth.md", "soft\u00adhyphen/a.md"),
    *("bidi\u202e.md", "line\nbreak.md", "tab\t/a.md", "dot./a.md", "CON/a.md", "é" * 120 + ".md", "x" * 250 + ".md", "d/" * 70 + "a.md"),
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_cannot_be_borne_everywhere_is_not_given(root: Path, writer: VaultWriter, name: str) -> None:
    (root / "a.md").write_bytes(b"a")
    refused(lambda: writer.create(path(name), b"x"), ErrorCode.PATH_INVALID)
    refused(lambda: writer.move(path("a.md"), path(name), digest(b"a"), lambda _: None), ErrorCode.PATH_INVALID)
    assert [entry.name for entry in root.iterdir()] == ["a.md"]


def test_a_directory_that_is_there_is_borne_whatever_its_name(root: Path, writer: VaultWriter) -> None:
    (root / "etc.").mkdir()
    writer.create(path("etc./a.md"), b"a")
    assert files(root) == {"etc./a.md": b"a"}


def test_the_trash_keeps_each_of_several_notes_of_one_name(root: Path, writer: VaultWriter) -> None:
    for number in range(4):
        writer.create(path("sub/a.md"), b"%d" % number)
        writer.trash(path("sub/a.md"), digest(b"%d" % number))
    assert files(root) == {
        ".trash/sub/a.md": b"0", ".trash/sub/a 2.md": b"1", ".trash/sub/a 3.md": b"2", ".trash/sub/a 4.md": b"3",
    }  # fmt: skip


def test_mode_owner_and_attributes_of_a_note_stay(root: Path, writer: VaultWriter) -> None:
    note = root / "a.md"
    note.write_bytes(b"one")
    note.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(note, 1234, 2345)
    os.setxattr(note, "user.marginalia.test", b"value")
    before = note.stat()
    replace(writer, "a.md", b"one", b"two")
    after = note.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert os.getxattr(note, "user.marginalia.test") == b"value"


def test_a_new_note_belongs_to_whom_its_directory_belongs(root: Path, writer: VaultWriter) -> None:
    root.chmod(0o750)
    if os.geteuid() == 0:
        os.chown(root, 1234, 2345)
    writer.create(path("sub/a.md"), b"a")
    for made, mode in ((root / "sub", 0o750), (root / "sub" / "a.md", 0o640)):
        found = made.stat()
        assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (mode, root.stat().st_uid, root.stat().st_gid)


def test_what_is_larger_than_a_note_may_be_is_refused(root: Path, writer: VaultWriter) -> None:
    refused(lambda: writer.create(path("a.md"), bytes(NOTE_BYTES_MAX + 1)), ErrorCode.TOO_LARGE)
    writer.create(path("a.md"), b"x" * NOTE_BYTES_MAX)
    refused(lambda: writer.replace(path("a.md"), lambda data: data + b"y"), ErrorCode.TOO_LARGE)
    assert (root / "a.md").stat().st_size == NOTE_BYTES_MAX


def test_what_is_no_note_is_not_changed(root: Path, writer: VaultWriter) -> None:
    os.mkfifo(root / "fifo.md")
    (root / "directory.md").mkdir()
    (root / "a.txt").write_bytes(b"text")
    with pytest.raises(NoteUnreadable):
        replace(writer, "fifo.md", b"", b"x")
    for name in ("directory.md", "a.txt", "none.md", "none/a.md", ".git/a.md"):
        with pytest.raises(NoSuchNote):
            replace(writer, name, b"text", b"x")


def test_a_vault_that_is_another_directory_takes_nothing(root: Path) -> None:
    """An unmounted share leaves an empty directory, in which a note would be lost to the vault."""
    writer = VaultWriter(Vault(root), "1:2")
    for action in (lambda: writer.create(path("a.md"), b"a"), lambda: replace(writer, "a.md", b"", b"x")):
        with pytest.raises(VaultUnavailable):
            action()
    assert files(root) == {}


# --- another program, between our read and our write --------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["in place", "by rename", "deleted", "moved away", "made a link", "made a directory"])
@pytest.mark.parametrize("what", ["replace", "move", "trash"])
def test_an_edit_between_our_read_and_our_write_is_kept(
    root: Path, how: str, what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Achuan-2/siyuan-plugin-copilot#96, mario-andreschak/FLUJO#254
    note = root / "a.md"
    note.write_bytes(b"one")
    (tmp_path / "elsewhere.md").write_bytes(b"elsewhere")

    def another_program() -> None:
        if how == "in place":
            note.write_bytes(b"theirs")
        elif how == "by rename":
            (root / "theirs.tmp").write_bytes(b"theirs")
            (root / "theirs.tmp").rename(note)
        elif how == "moved away":
            note.rename(root / "moved.md")
        else:
            note.unlink()
        if how == "made a link":
            note.symlink_to(tmp_path / "elsewhere.md")
        elif how == "made a directory":
            note.mkdir()

    before_rename(monkeypatch, another_program)
    no_leases(monkeypatch)  # under one a program that opens the note in place would wait
    writer = VaultWriter(Vault(root), None)
    with pytest.raises((NoteStale, NoSuchNote)):
        change(writer, what)
    trashed = root / ".trash"
    if trashed.exists():  # without a lease nobody can tell that our own version was not opened
        assert what == "replace"
        assert [file.read_bytes() for file in trashed.iterdir()] == [b"two"]
        shutil.rmtree(trashed)
    expected = {"in place": {"a.md": b"theirs"}, "by rename": {"a.md": b"theirs"}, "moved away": {"moved.md": b"one"}}
    assert {name: data for name, data in files(root).items() if name != "a.md" or how != "made a link"} == expected.get(how, {})
    assert note.is_symlink() == (how == "made a link")
    assert note.is_dir() == (how == "made a directory")
    assert (tmp_path / "elsewhere.md").read_bytes() == b"elsewhere"


@pytest.mark.parametrize("what_is_known", ["renameat2", "links", "renames alone"])
@pytest.mark.parametrize("leases", [True, False])
def test_an_edit_of_the_replaced_file_is_kept_even_where_it_has_no_name_any_more(
    root: Path, monkeypatch: pytest.MonkeyPatch, what_is_known: str, leases: bool
) -> None:
    """The other program found it by its name before we changed that, and opens it when everything seems over."""
    note = root / "a.md"
    note.write_bytes(b"one")
    theirs = os.open(note, os.O_PATH)
    knowing(monkeypatch, what_is_known)
    settled = replacement._settled_hash

    def late(descriptor: int) -> str | None:
        monkeypatch.setattr(replacement, "_settled_hash", settled)
        Path(f"/proc/self/fd/{theirs}").write_bytes(b"theirs")
        return settled(descriptor)

    monkeypatch.setattr(replacement, "_settled_hash", late)
    if not leases:
        no_leases(monkeypatch)
    with pytest.raises(NoteStale) as caught:
        replace(VaultWriter(Vault(root), None), "a.md", b"one", b"two")
    os.close(theirs)
    assert caught.value.current == digest(b"theirs")
    assert files(root) == {"a.md": b"theirs"}


@pytest.mark.parametrize("what_is_known", ["links", "renames alone"])
def test_an_edit_in_place_is_kept_where_names_cannot_change_in_one_step(
    root: Path, monkeypatch: pytest.MonkeyPatch, what_is_known: str
) -> None:
    note = root / "a.md"
    note.write_bytes(b"one")
    no_leases(monkeypatch)
    knowing(monkeypatch, what_is_known)
    before_rename(monkeypatch, lambda: note.write_bytes(b"theirs"))
    with pytest.raises(NoteStale):
        replace(VaultWriter(Vault(root), None), "a.md", b"one", b"two")
    assert files(root).pop("a.md") == b"theirs"


def no_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(durable_file.fcntl, "fcntl", refuse)


def before_rename(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Have something happen once, at the last moment before names change."""
    rename = durable_file._renameat2
    done: list[bool] = []

    def late(*arguments: object) -> bool:
        if not done:
            done.append(True)
            action()
        return rename(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(durable_file, "_renameat2", late)


def test_edits_that_go_on_while_we_give_the_name_back_win(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program saves before our rename, and again before each of our attempts to undo it."""
    note = root / "a.md"
    note.write_bytes(b"one")
    rename = durable_file._renameat2
    saves: list[bytes] = []

    def late(*arguments: object) -> bool:
        if len(saves) < 4:
            saves.append(b"theirs %d" % len(saves))
            (root / "theirs.tmp").write_bytes(saves[-1])
            (root / "theirs.tmp").rename(note)
        return rename(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(durable_file, "_renameat2", late)
    with pytest.raises(NoteStale):
        replace(VaultWriter(Vault(root), None), "a.md", b"one", b"ours")
    found = files(root)
    assert found.pop("a.md") == saves[-1]
    assert set(found.values()) <= set(saves)  # a version that its own program has replaced may be in the trash
    assert all(name.startswith(".trash/") for name in found)


@pytest.mark.parametrize("what", ["replace", "trash", "move"])
def test_a_note_that_another_program_is_writing_is_left_to_it(root: Path, what: str) -> None:
    """What it writes through its open descriptor would go into a file that has no name any more."""
    note = root / "a.md"
    note.write_bytes(b"one")
    writer = VaultWriter(Vault(root), None)
    with note.open("r+b", buffering=0) as theirs, note.open("rb") as reader:
        require_leases(reader.fileno())
        with pytest.raises(NoteBusy):
            change(writer, what)
        theirs.write(b"two")
    assert files(root) == {"a.md": b"two"}
    replace(writer, "a.md", b"two", b"three")
    assert files(root) == {"a.md": b"three"}


def require_leases(open_for_writing: int) -> None:
    with durable_file.writers_of(open_for_writing) as writers:
        if writers() == "unknown":
            pytest.skip("the file system grants no leases")


def test_readers_do_not_count_as_writers_and_no_lease_is_left(root: Path) -> None:
    (root / "a.md").write_bytes(b"one")
    with (root / "a.md").open("rb") as reader:
        replace(VaultWriter(Vault(root), None), "a.md", b"one", b"two")
        assert reader.read() == b"one"
    descriptor = os.open(root / "a.md", os.O_RDONLY)
    assert fcntl.fcntl(descriptor, fcntl.F_GETLEASE) == fcntl.F_UNLCK
    os.close(descriptor)


# --- another program, while our refused version stands under the note's name ---------------------------------------------------------


class Window:
    """Something that happens once our version has the note's name, and will be refused since another program has the old one open."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, action: Callable[[], None]) -> None:
        self.note = root / "a.md"
        self.exchange = durable_file.exchange
        self.action = action
        self.opened = threading.Event()
        self.exchanges = 0
        monkeypatch.setattr(durable_file, "exchange", self.exchanged)

    def exchanged(self, directory: int, name: str, other: str) -> bool:
        self.exchanges += 1
        if self.exchanges > 1:
            return self.exchange(directory, name, other)
        # A: it found the old file just before, and waits for our lease. Through the file itself, as `open` does once it has it.
        old = os.open(self.note, os.O_PATH)
        done = self.exchange(directory, name, other)
        writing = threading.Thread(target=self.write_to, args=(old,), daemon=True)
        writing.start()
        self.writing = writing
        wait_for(lambda: breaking(os.fstat(old).st_ino))
        self.action()
        return done

    def write_to(self, old: int) -> None:
        with Path(f"/proc/self/fd/{old}").open("ab", buffering=0):
            self.opened.set()
        os.close(old)


def breaking(inode: int) -> bool:
    return any("BREAKING" in line and line.split()[-3].endswith(f":{inode}") for line in Path("/proc/locks").read_text().splitlines())


def wait_for(condition: Callable[[], bool], seconds: float = 10) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.002)


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="needs to see who waits for a lease")
@pytest.mark.parametrize("how", ["appended", "opened and appended later", "opened for good", "by rename", "nothing"])
def test_what_is_written_by_the_note_s_name_while_our_refused_version_bears_it_is_kept(
    root: Path, monkeypatch: pytest.MonkeyPatch, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    note = root / "a.md"
    note.write_bytes(b"one\n")
    kept: list[BinaryIO] = []
    later: list[threading.Timer] = []

    def another_program() -> None:
        if how == "by rename":
            (root / "theirs.tmp").write_bytes(b"theirs\n")
            (root / "theirs.tmp").rename(note)
        elif how != "nothing":
            file = note.open("ab", buffering=0)
            if how == "appended":
                file.write(b"line\n")
                file.close()
            elif how == "opened for good":
                kept.append(file)
            else:
                later.append(threading.Timer(0.02, lambda: (file.write(b"line\n"), file.close())))
                later[0].start()

    window = Window(root, monkeypatch, another_program)
    with pytest.raises((NoteBusy, NoteStale)) as caught:
        replace(VaultWriter(Vault(root), None), "a.md", b"one\n", b"two\n")
    window.writing.join(10)
    assert window.opened.is_set()
    for timer in later:
        timer.join(10)
    for file in kept:
        file.write(b"line\n")
        file.close()
    found = files(root)
    assert not any(durable_file.is_temporary(Path(name).name) for name in found)
    standing, *trash = found.pop("a.md"), *found.values()
    assert all(name.startswith(".trash/rescued ") for name in found)
    if how in ("appended", "opened and appended later"):
        assert standing == b"two\nline\n"
        assert isinstance(caught.value, NoteStale)
        assert caught.value.current == digest(standing)
        assert "is in the trash" in caplog.text
    elif how == "by rename":
        assert standing == b"theirs\n"
    else:
        assert standing == b"one\n"
        assert trash == ([b"two\nline\n"] if how == "opened for good" else [])


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="needs to see who waits for a lease")
def test_who_opens_the_note_while_it_is_replaced_waits_and_writes_into_what_bears_its_name(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = root / "a.md"
    note.write_bytes(b"one\n")

    def append() -> None:
        with note.open("ab", buffering=0) as theirs:
            theirs.write(b"line\n")

    appending = threading.Thread(target=append, daemon=True)

    def begin() -> None:
        inode = note.stat().st_ino
        appending.start()
        wait_for(lambda: breaking(inode))

    before_rename(monkeypatch, begin)
    with pytest.raises(NoteBusy):
        replace(VaultWriter(Vault(root), None), "a.md", b"one\n", b"two\n")
    appending.join(10)
    assert files(root) == {"a.md": b"one\nline\n"}


def test_a_note_that_is_open_is_refused_without_any_exchange(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note = root / "a.md"
    note.write_bytes(b"one")
    monkeypatch.setattr(durable_file, "_renameat2", lambda *_: pytest.fail("a name was changed"))
    for what in ("replace", "move", "trash"):
        with note.open("r+b") as theirs:
            require_leases(theirs.fileno())
            with pytest.raises(NoteBusy):
                change(VaultWriter(Vault(root), None), what)


@pytest.mark.parametrize(("kind", "told"), [("ext4", "some"), ("nfs4", "unknown"), ("cifs", "unknown")])
def test_a_lease_that_a_server_refuses_says_nothing_of_writers(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, told: str
) -> None:
    """All notes on such a mount would be busy for ever."""
    (root / "a.md").write_bytes(b"one")
    device = (root / "a.md").stat().st_dev
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        f"20 1 0:99999 / /proc rw,nosuid shared:2 - proc proc rw\n"
        f"30 1 {os.major(device)}:{os.minor(device)} / /vaults rw,relatime shared:1 - {kind} server:/vaults rw\n"
    )
    monkeypatch.setattr(durable_file, "MOUNTS", mounts)

    def refuse(*_: object) -> int:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(durable_file.fcntl, "fcntl", refuse)
    with (root / "a.md").open("rb") as reader, durable_file.writers_of(reader.fileno()) as writers:
        assert writers() == told
    if told == "unknown":
        replace(VaultWriter(Vault(root), None), "a.md", b"one", b"two")
        assert files(root) == {"a.md": b"two"}


def test_two_edits_at_once_are_both_kept_and_the_later_has_the_name(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One in what came out, one in what we had put in place."""
    fsync = os.fsync
    no_leases(monkeypatch)
    for ours_later in (True, False):
        (root / "a.md").write_bytes(b"one")

        def edits(descriptor: int, ours_later: bool = ours_later) -> None:
            fsync(descriptor)
            temporary = [file for file in root.iterdir() if durable_file.is_temporary(file.name)]
            if stat.S_ISDIR(os.fstat(descriptor).st_mode) and temporary and (root / "a.md").read_bytes() == b"ours":
                temporary[0].write_bytes(b"in the old")
                (root / "a.md").write_bytes(b"in ours")
                os.utime(root / "a.md", (2_000_000_000,) * 2 if ours_later else (1_000_000_000,) * 2)

        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", edits)
            with pytest.raises(NoteStale):
                replace(VaultWriter(Vault(root), None), "a.md", b"one", b"ours")
        found = files(root)
        assert found.pop("a.md") == (b"in ours" if ours_later else b"in the old")
        assert list(found.values()) == [b"in the old" if ours_later else b"in ours"]
        shutil.rmtree(root / ".trash")


APPENDING = """
import os, random, sys, time
path, name, seed = sys.argv[1:]
chance, number = random.Random(seed), 0
while True:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    time.sleep(chance.choice((0, 0, 0.001)))
    os.write(descriptor, f"{name} {number}\\n".encode())
    os.close(descriptor)
    print(number, flush=True)
    number += 1
    time.sleep(chance.random() * 0.004)
"""


@pytest.mark.timeout(60)
def test_no_line_that_other_processes_append_by_name_is_lost_while_the_note_is_changed(root: Path, writer: VaultWriter) -> None:
    seed = random.randrange(2**32)
    logging.getLogger(__name__).warning("seed %d", seed)
    note, ours = root / "a.md", 0
    note.write_bytes(b"start\n" + b"filler text\n" * 10_000)
    programs = [
        subprocess.Popen([sys.executable, "-c", APPENDING, note, f"p{number}", str(seed + number)], stdout=subprocess.PIPE, text=True)
        for number in range(2)
    ]
    attempts = 0
    while ours < 40 and attempts < 4000:
        attempts += 1
        line = b"ours %d\n" % ours
        with contextlib.suppress(NoteBusy, NoteStale):
            writer.replace(path("a.md"), lambda data, line=line: data if line in data else data + line)  # type: ignore[misc]
            ours += 1
    wanted = [f"ours {number}" for number in range(ours)]
    for number, program in enumerate(programs):
        program.kill()
        assert program.stdout is not None
        wanted += [f"p{number} {line.strip()}" for line in program.stdout if line.endswith("\n")]
        program.stdout.close()
        program.wait(10)
    writer.sweep(Vault(root).survey().temporary)
    found = {line for data in files(root).values() for line in data.decode().splitlines()}
    assert [line for line in wanted if line not in found] == []
    assert len(wanted) > ours > 5


# --- what cannot be put into the trash as it is ---------------------------------------------------------------------------------------


def test_a_long_name_is_shortened_in_the_trash(root: Path, writer: VaultWriter) -> None:
    for name in ("z" * 252 + ".md", "é" * 126 + ".md", "笔" * 84 + ".md"):
        for number in range(12):
            (root / name).write_bytes(b"%d" % number)
            writer.trash(path(name), digest(b"%d" % number))
        assert sorted(int(data) for kept, data in files(root).items() if kept.startswith(f".trash/{name[0]}")) == list(range(12))


def test_what_bears_a_directory_s_name_in_the_trash_is_no_obstacle(root: Path, writer: VaultWriter) -> None:
    (root / "t.md").write_bytes(b"file")
    writer.trash(path("t.md"), digest(b"file"))
    for number in range(2):
        writer.create(path("t.md/x.md"), b"%d" % number)
        writer.trash(path("t.md/x.md"), digest(b"%d" % number))
        (root / "t.md").rmdir()
    assert files(root) == {".trash/t.md": b"file", ".trash/t 2.md/x.md": b"0", ".trash/t 2.md/x 2.md": b"1"}
    shutil.rmtree(root / ".trash")
    (root / ".trash").write_bytes(b"a file")
    writer.create(path("a.md"), b"a")
    writer.trash(path("a.md"), digest(b"a"))
    assert files(root) == {".trash": b"a file", ".trash 2/a.md": b"a"}


def test_a_note_on_another_file_system_goes_into_a_trash_beside_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "mounted").mkdir()
    (root / "mounted" / "a.md").write_bytes(b"a")
    rename = durable_file._renameat2
    mounted = (root / "mounted").stat().st_ino

    def between(source: int, name: str, target: int, new_name: str, flags: int) -> bool:
        if mounted not in (os.fstat(target).st_ino, os.stat("..", dir_fd=target).st_ino):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        return rename(source, name, target, new_name, flags)

    monkeypatch.setattr(durable_file, "_renameat2", between)
    writer = VaultWriter(Vault(root), None)
    writer.trash(path("mounted/a.md"), digest(b"a"))
    assert files(root) == {"mounted/.trash/a.md": b"a"}


# --- a disk that fails --------------------------------------------------------------------------------------------------------------

MODULES: list[ModuleType] = [durable_file, vault_module, place, replacement, trash, vault_writer]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT])
@pytest.mark.parametrize("what", ["replace", "create", "move", "trash"])
def test_a_disk_that_fails_at_any_call_leaves_the_old_note_or_the_new_one(
    tmp_path: Path, what: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the first, second, … call that changes something. A file is whole, nothing temporary stays, and a note is never in no place."""
    for number in range(1, 40):
        root = tmp_path / f"{number}"
        root.mkdir()
        (root / "a.md").write_bytes(b"one")
        writer = VaultWriter(Vault(root), None)
        with monkeypatch.context() as patched:
            system = Interrupted.install(patched, MODULES, number, lambda: OSError(code, os.strerror(code)))
            try:
                change(writer, what)
                failed = False
            except OSError as error:
                assert error.errno == code
                failed = True
        found = files(root)
        # Removing the temporary file is a call like any other; where that one fails, the sweep has it.
        VaultWriter(Vault(root), None).sweep([name for name in found if durable_file.is_temporary(Path(name).name)])
        found = files(root)
        after = {
            "replace": {"a.md": b"two"}, "create": {"a.md": b"one", "sub/b.md": b"two"},
            "move": {"sub/b.md": b"one"}, "trash": {".trash/a.md": b"one"},
        }[what]  # fmt: skip
        assert found in ([{"a.md": b"one"}, after] if failed else [after]), (number, system.called)
        if failed and found == {"a.md": b"one"} and system.called[-1] != "rmdir":
            assert [entry.name for entry in root.iterdir()] == ["a.md"], (number, system.called)
        if not system.reached:
            assert not failed
            assert number > 3
            return
    pytest.fail("the calls do not end")


def test_what_is_there_already_is_put_on_the_disk_before_it_is_answered_for(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash may have cut short the change that is asked for again."""
    (root / "a.md").write_bytes(b"one")
    synced: list[int] = []
    fsync = os.fsync
    monkeypatch.setattr(vault_writer.os, "fsync", lambda descriptor: (synced.append(os.fstat(descriptor).st_ino), fsync(descriptor)))
    VaultWriter(Vault(root), None).replace(path("a.md"), lambda data: data)
    assert synced == [(root / "a.md").stat().st_ino, root.stat().st_ino]


def test_a_file_that_is_not_on_the_disk_for_good_is_never_put_in_place(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fsync is not asked twice: the second would say that all is well."""
    (root / "a.md").write_bytes(b"one")
    calls: list[int] = []

    def failing(descriptor: int) -> None:
        calls.append(descriptor)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError, match="Input/output"):
        replace(VaultWriter(Vault(root), None), "a.md", b"one", b"two")
    assert len(calls) == 1
    assert files(root) == {"a.md": b"one"}


# --- what a crash leaves ------------------------------------------------------------------------------------------------------------


def test_what_a_crash_has_left_is_cleared_away_and_an_edit_of_another_program_is_kept(root: Path) -> None:
    (root / "sub").mkdir()
    one, two = digest(b"one")[:16], digest(b"two")[:16]
    names = {
        "unfinished": f".marginalia-{'a' * 12}.{one}-{two}", "never in place": f".marginalia-{'b' * 12}.{one}-{two}",
        "replaced": f".marginalia-{'c' * 12}.{one}-{two}", "theirs": f".marginalia-{'d' * 12}.{one}-{two}",
        "new": f".marginalia-{'e' * 12}.new-{two}",
    }  # fmt: skip
    contents = {"unfinished": b"tw", "never in place": b"two", "replaced": b"one", "theirs": b"three", "new": b"two"}
    for what, name in names.items():
        (root / "sub" / name).write_bytes(contents[what])
    (root / "sub" / names["unfinished"]).chmod(0)
    (root / "sub" / ".marginalia-not-ours").write_bytes(b"x")
    survey = Vault(root).survey()
    assert survey.notes == {}
    assert sorted(survey.temporary) == sorted(f"sub/{name}" for name in names.values())
    VaultWriter(Vault(root), None).sweep(survey.temporary)
    found = files(root)
    assert found.pop("sub/.marginalia-not-ours") == b"x"
    assert [(name.startswith(".trash/sub/rescued "), data) for name, data in found.items()] == [(True, b"three")]


@pytest.mark.parametrize("replaced", [b"one", b"theirs"])
def test_what_is_cleared_away_while_a_writer_has_lost_its_lock_is_no_edit(
    root: Path, monkeypatch: pytest.MonkeyPatch, replaced: bytes
) -> None:
    """The database went away, another process took the lock: its sweep and our exchange meet."""
    (root / "a.md").write_bytes(b"one")
    discard = durable_file.discard

    def exchanged_meanwhile(directory: int, name: str, *more: Any, **options: Any) -> bool:
        monkeypatch.setattr(durable_file, "discard", discard)
        (root / "a.md").write_bytes(replaced)
        with contextlib.suppress(FileNotFoundError):
            durable_file.exchange(directory, temporary, "a.md")
        return discard(directory, name, *more, **options)

    directory = os.open(root, os.O_RDONLY)
    temporary = f".marginalia-{'0' * 12}.{digest(b'one')[:16]}-{digest(b'two')[:16]}"
    (root / temporary).write_bytes(b"two")
    monkeypatch.setattr(durable_file, "discard", exchanged_meanwhile)
    VaultWriter(Vault(root), None).sweep([temporary])
    os.close(directory)
    assert files(root) == {"a.md": replaced}


def test_no_descriptor_is_left_open(root: Path, writer: VaultWriter) -> None:
    (root / "a.md").write_bytes(b"one")
    before = len(list(Path("/proc/self/fd").iterdir()))
    replace(writer, "a.md", b"one", b"two")
    writer.create(path("x/y/z.md"), b"z")
    writer.trash(path("x/y/z.md"), digest(b"z"))
    for action in (
        lambda: replace(writer, "a.md", b"past", b"new"),
        lambda: writer.create(path("a.md"), b"x"),
        lambda: writer.create(path("-/-.md"), b"x"),
        lambda: replace(writer, "none/none.md", b"past", b"new"),
    ):
        with pytest.raises((NoteStale, NoteExists, NoSuchNote, ServiceError)):
            action()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
