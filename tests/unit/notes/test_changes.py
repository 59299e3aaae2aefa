"""What happened, from the rows before and the files now."""

from services.notes.changes import Before, Change, Seen, plan
from services.notes.vault import FileStat


def seen(path: str, text: str, inode: int = 1) -> Seen:
    return Seen(path, FileStat(len(text), 0, 0, inode), text, path, [])


def test_created_updated_touched_and_deleted() -> None:
    before = {"b": Before("old", 2), "c": Before("same", 3), "d": Before("gone", 4)}
    changes = plan(before, [seen("a", "new"), seen("b", "newer", 2), seen("c", "same", 9)], {"d", "never known"})
    assert changes == [Change("deleted", "d", None), Change("created", "a", "new"), Change("updated", "b", "newer")]


def test_the_same_file_under_another_name_has_moved_even_where_others_have_its_text() -> None:
    before = {"a": Before("t", 1), "b": Before("t", 2)}
    changes = plan(before, [seen("x", "t", 2), seen("y", "t", 1)], {"a", "b"})
    assert sorted((change.from_path or "", change.path) for change in changes) == [("a", "y"), ("b", "x")]


def test_the_same_text_in_another_file_has_moved_where_it_is_the_only_one() -> None:
    assert plan({"a": Before("t", 1)}, [seen("x", "t", 7)], {"a"}) == [Change("moved", "x", "t", "a")]


def test_an_ambiguous_move_is_none() -> None:
    changes = plan({"a": Before("t", 1)}, [seen("x", "t", 7), seen("y", "t", 8)], {"a"})
    assert [change.kind for change in changes] == ["deleted", "created", "created"]


def test_a_note_replaced_by_another_is_an_update_and_a_deletion() -> None:
    before = {"a": Before("t", 1), "b": Before("u", 2)}
    assert plan(before, [seen("b", "t", 1)], {"a"}) == [Change("deleted", "a", None), Change("updated", "b", "t")]


def test_what_another_process_committed_meanwhile_is_no_change() -> None:
    assert plan({"a": Before("t", 1)}, [seen("a", "t", 1)], {"b"}) == []
