import unicodedata

import pytest

from services.notes.note_path import NotePath, is_note_name, safe_directory_path, safe_name
from shared.contracts.errors import ErrorCode, ServiceError


@pytest.mark.parametrize(
    "path", ["", "/", "/a.md", "a//b.md", "a/", "../a.md", "a/../b.md", "./a.md", "a/.", "..", "a\\b.md", "a\0.md", "\ud800.md"]
)
def test_a_path_that_names_nothing_below_is_invalid(path: str) -> None:
    with pytest.raises(ServiceError) as caught:
        NotePath.parse(path)
    assert caught.value.code == ErrorCode.PATH_INVALID


def test_paths_compare_after_nfc() -> None:
    assert NotePath.parse(unicodedata.normalize("NFD", "é/ü.md")) == NotePath.parse("é/ü.md")


@pytest.mark.parametrize(
    ("path", "is_note"),
    [("a.md", True), ("a.MD", True), ("x/a.Markdown", True), ("a.mdx", False), ("a", False), (".md", False), (".git/a.md", False),
     ("x/.trash/a.md", False), ("..a.md", True), ("-a.md", True), ("a.md/b", False)],
)  # fmt: skip
def test_notes_are_markdown_files_outside_dot_directories(path: str, is_note: bool) -> None:
    assert NotePath.parse(path).names_a_note is is_note


def test_a_name_without_a_stem_is_none() -> None:
    assert not is_note_name(".markdown")


@pytest.mark.parametrize(
    "name",
    ["", " ", ".", "..", ".git", "-rf", "a/b", "a\\b", "a.", "a ", " a", "a\nb", "a\x7f", "a\u202eb", "a\ud800", "a\0", "CON", "nul.txt",
     "é" * 101, "a:b", 'a"b', "a?", "a*", "a|b", "<a>", "a\u200bb", "a\u00adb", "\ufeffa", "a\u2028b", "a\u2060b", "a\U000e0041b", "\u3164",
     "\u200da", "a\u200db", "笔\u200d", "笔\u200d\u200d记"],
)  # fmt: skip
def test_a_new_directory_has_a_name_that_every_system_can_bear(name: str) -> None:
    with pytest.raises(ServiceError) as caught:
        safe_name(name)
    assert caught.value.code == ErrorCode.INVALID


@pytest.mark.parametrize(
    "name", ["notes", "笔记", "My vault", "a.b", "é" * 100, "C# & (D) 50% 'x'!", "笔\u3000记", "👩\u200d💻", "می\u200cخواهم"]
)
def test_ordinary_names_are_allowed(name: str) -> None:
    assert safe_name(unicodedata.normalize("NFD", name)) == name


@pytest.mark.parametrize("path", ["..", "../x", "/x", "x/", "x//y", ".", "..x", "x/../y", "x\\y"])
def test_a_notes_directory_lies_below_its_workspace(path: str) -> None:
    with pytest.raises(ServiceError):
        safe_directory_path(path)


@pytest.mark.parametrize("path", ["", ".notes", "a/.b/c"])
def test_a_notes_directory_may_begin_with_a_dot(path: str) -> None:
    assert safe_directory_path(path) == path
