"""The only way to files."""

import os
import shutil
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from services.notes import vault as vault_module
from services.notes.note_path import NotePath
from services.notes.vault import NOTE_BYTES_MAX, NoSuchNote, NoteUnreadable, Vault, VaultUnavailable


@pytest.fixture
def root(tmp_path: Path) -> Path:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text("secret")
    directory = tmp_path / "vault"
    directory.mkdir()
    return directory


def read(root: Path, path: str) -> bytes:
    return Vault(root).read(NotePath.parse(path)).data


def paths(root: Path, below: list[str] | None = None) -> set[str]:
    return set(Vault(root).survey(below).notes)


def test_links_are_followed_nowhere(root: Path) -> None:
    (root / "inside.md").write_text("inside")
    (root / "file.md").symlink_to(root.parent / "outside" / "secret.md")
    (root / "relative.md").symlink_to("../outside/secret.md")
    (root / "directory").symlink_to(root.parent / "outside")
    (root / "loop").symlink_to("loop")
    (root / "dangling.md").symlink_to("nowhere.md")
    for path in ("file.md", "relative.md", "directory/secret.md", "loop/a.md", "dangling.md"):
        with pytest.raises(NoSuchNote):
            read(root, path)
        assert paths(root, [path]) == set()
    assert paths(root) == {"inside.md"}


def test_a_directory_that_becomes_a_link_leads_nowhere(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two steps of the walk, as an attacker would have it."""
    (root / "sub").mkdir()
    (root / "sub" / "secret.md").write_text("ours")
    opened = os.open

    def open_and_swap(path: str, *arguments: int, **more: int) -> int:
        if path == "sub":
            shutil.rmtree(root / "sub")
            (root / "sub").symlink_to(root.parent / "outside")
        return opened(path, *arguments, **more)

    monkeypatch.setattr(vault_module.os, "open", open_and_swap)
    with pytest.raises(NoSuchNote):
        read(root, "sub/secret.md")


def test_the_root_itself_may_be_a_link(root: Path) -> None:
    (root / "a.md").write_text("a")
    link = root.parent / "link"
    link.symlink_to(root)
    assert read(link, "a.md") == b"a"
    assert paths(link) == {"a.md"}


def test_a_fifo_a_socket_and_a_directory_are_no_notes_and_hold_nobody_up(root: Path) -> None:
    os.mkfifo(root / "fifo.md")
    (root / "directory.md").mkdir()
    (root / "directory.md" / "a.md").write_text("a")
    with pytest.raises(NoteUnreadable):
        read(root, "fifo.md")
    with pytest.raises(NoSuchNote):
        read(root, "directory.md")
    assert paths(root) == {"directory.md/a.md"}
    assert paths(root, ["fifo.md", "directory.md"]) == {"directory.md/a.md"}


def test_a_file_over_the_limit_is_not_read(root: Path) -> None:
    for name, size in (("full.md", NOTE_BYTES_MAX), ("over.md", NOTE_BYTES_MAX + 1), ("huge.md", 1 << 40)):
        with (root / name).open("wb") as file:
            file.truncate(size)
    assert len(read(root, "full.md")) == NOTE_BYTES_MAX
    for name in ("over.md", "huge.md"):
        with pytest.raises(NoteUnreadable):
            read(root, name)
    # It is there all the same: the index must not take it for deleted.
    assert paths(root) == paths(root, ["full.md", "over.md", "huge.md"]) == {"full.md", "over.md", "huge.md"}


@pytest.mark.parametrize("on_disk", ["NFC", "NFD"])
@pytest.mark.parametrize("asked", ["NFC", "NFD"])
def test_either_spelling_finds_the_file_which_keeps_its_own(root: Path, on_disk: str, asked: str) -> None:
    name = unicodedata.normalize(on_disk, "é")  # type: ignore[arg-type]
    (root / name).mkdir()
    (root / name / f"{name}.md").write_text("found")
    request = unicodedata.normalize(asked, "é/é.md")  # type: ignore[arg-type]
    assert read(root, request) == b"found"
    assert paths(root) == paths(root, ["é/é.md"]) == {unicodedata.normalize("NFC", "é/é.md")}
    assert [entry.name for entry in root.iterdir()] == [name]


def test_of_two_spellings_each_is_a_note_and_the_composed_one_has_the_composed_path(root: Path) -> None:
    composed, decomposed = (unicodedata.normalize(form, "é/é.md") for form in ("NFC", "NFD"))
    mixed = f"{composed[0]}/{decomposed[3:]}"
    for path in (composed, decomposed, mixed):
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(path)
    found = {composed, mixed, f"{decomposed[:2]}/{composed[2:]}"}
    assert paths(root) == paths(root, [composed]) == paths(root, [decomposed]) == found
    for path in found:
        asked = Vault(root).named(NotePath.parse(path))
        assert asked.text == path
        assert Vault(root).read(asked).stat.inode == Vault(root).survey().notes[path].inode
    assert Vault(root).named(NotePath.parse(decomposed)).text == f"{decomposed[:2]}/{composed[2:]}"
    (root / composed).unlink()
    assert Vault(root).named(NotePath.parse(mixed)).text == composed
    assert paths(root, [composed]) == paths(root) == {composed, f"{decomposed[:2]}/{composed[2:]}"}


def test_a_name_in_another_case_is_the_file_where_the_file_system_says_so(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "Dir").mkdir()
    (root / "Dir" / "Note.md").write_text("x")
    assert Vault(root).named(NotePath.parse("dir/note.md")).text == "dir/note.md"
    folding(monkeypatch)
    assert Vault(root).named(NotePath.parse("dir/note.md")).text == "Dir/Note.md"
    assert Vault(root).named(NotePath.parse("dir/none.md")).text == "Dir/none.md"
    assert paths(root, ["dir/note.md", "Dir/note.md"]) == set()
    assert paths(root, ["Dir/Note.md"]) == paths(root) == {"Dir/Note.md"}


def folding(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a file system does that takes names for equal that differ in case."""

    def folded(name: str, directory: int | None) -> str:
        entries = os.listdir(directory) if directory is not None else []
        return name if name in entries else next((entry for entry in entries if entry.casefold() == name.casefold()), name)

    def fold(call: Callable[..., Any]) -> Callable[..., Any]:
        return lambda name, *more, dir_fd=None, **options: call(folded(name, dir_fd), *more, dir_fd=dir_fd, **options)

    monkeypatch.setattr(vault_module.os, "stat", fold(os.stat))
    monkeypatch.setattr(vault_module.os, "open", fold(os.open))


def test_names_that_cannot_be_told_are_passed_over(root: Path) -> None:
    for name in (b"\xff.md", b"back\\slash.md", b"new\nline.md", b"-dash.md", b"space .md"):
        (Path(os.fsdecode(os.fsencode(root) + b"/" + name))).write_text("x")
    assert paths(root) == {"new\nline.md", "-dash.md", "space .md"}


def test_dot_directories_are_passed_over_but_the_notes_directory(root: Path) -> None:
    for path in (".notes/a.md", ".notes/sub/b.md", ".notes/.trash/c.md", ".git/d.md", "e.md"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)
    assert paths(root) == {"e.md"}
    assert paths(root, [".git", ".git/d.md", ".notes/a.md"]) == set()
    inner = Vault(root, ".notes")
    assert set(inner.survey().notes) == {"a.md", "sub/b.md"}
    assert inner.read(NotePath("a.md")).data == b".notes/a.md"


def test_a_notes_directory_that_is_a_link_is_no_way_out(root: Path) -> None:
    (root / ".notes").symlink_to(root.parent / "outside")
    with pytest.raises(VaultUnavailable):
        Vault(root, ".notes").survey()


def test_a_root_that_is_away_or_no_directory_is_an_outage(root: Path) -> None:
    (root / "file").write_text("")
    for away in (root / "nowhere", root / "file"):
        for action in (Vault(away).survey, Vault(away).identity, lambda away=away: Vault(away).read(NotePath("a.md"))):
            with pytest.raises(VaultUnavailable):
                action()


def test_below_paths_only_those_are_looked_at(root: Path) -> None:
    for path in ("a/1.md", "a/b/2.md", "ab/3.md", "4.md"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)
    assert paths(root, ["a"]) == {"a/1.md", "a/b/2.md"}
    assert paths(root, ["4.md", "nowhere", "nowhere/x.md", "4.md/x"]) == {"4.md"}


def test_a_long_or_deep_path_is_just_not_there(root: Path) -> None:
    with pytest.raises(NoSuchNote):
        read(root, "x" * 300 + ".md")
    with pytest.raises(NoSuchNote):
        read(root, "x/" * 3000 + "a.md")


def test_a_note_that_was_just_written_is_not_settled(root: Path) -> None:
    (root / "new.md").write_text("new")
    (root / "old.md").write_text("old")
    os.utime(root / "old.md", (1, 1))
    assert not Vault(root).read(NotePath("new.md")).settled


def test_no_descriptor_is_left_open(root: Path) -> None:
    for number in range(20):
        (root / f"d{number}").mkdir()
        (root / f"d{number}" / "a.md").write_text("a")
    before = len(list(Path("/proc/self/fd").iterdir()))
    paths(root)
    read(root, "d1/a.md")
    for path in ("d1/none.md", "none/none.md", "d1", "d1/a.md/x.md"):
        with pytest.raises(NoSuchNote):
            read(root, path if path.endswith(".md") else f"{path}.md")
    with pytest.raises(VaultUnavailable):
        Vault(root, "none/none").survey()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
