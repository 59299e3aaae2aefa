"""What is pending, counted once."""

from uuid import uuid4

from services.retrieval.backlog import Backlog

ONE, TWO = uuid4(), uuid4()


def test_a_note_is_counted_once_however_often_it_changes() -> None:
    backlog = Backlog()
    for revision in (1, 2, 3):
        backlog.add(ONE, "a.md", revision)
    backlog.add(TWO, "a.md", 1)
    assert backlog.paths([ONE]) == [(ONE, "a.md")]
    assert len(backlog.paths([ONE, TWO])) == 2
    assert backlog.oldest_seconds([ONE]) >= 0
    assert backlog.oldest_seconds([uuid4()]) == 0


def test_a_change_that_came_meanwhile_stays_due() -> None:
    backlog = Backlog()
    backlog.add(ONE, "a.md", 2)
    backlog.done(ONE, "a.md", 1)
    assert backlog.paths([ONE])
    backlog.done(ONE, "a.md", 2)
    assert not backlog.paths([ONE])


def test_what_was_only_heard_of_may_be_taken_in_elsewhere() -> None:
    backlog = Backlog()
    backlog.add(ONE, "heard.md", 1, heard=True)
    backlog.add(ONE, "mine.md", 1, heard=True)
    backlog.add(ONE, "mine.md", 1)
    assert backlog.has_heard
    backlog.taken_in_elsewhere(0)
    assert backlog.paths([ONE]) == [(ONE, "mine.md")]
    assert not backlog.has_heard


def test_a_note_that_moves_is_due_once_and_known_by_where_it_stood() -> None:
    backlog = Backlog()
    backlog.add(ONE, "b.md", 1, moved_from="a.md")
    backlog.add(ONE, "c.md", 2, moved_from="b.md")
    assert backlog.paths([ONE]) == [(ONE, "c.md")]
    assert set(backlog.former_paths([ONE, TWO])) == {(ONE, "a.md"), (ONE, "b.md")}
    assert backlog.moves_on(ONE, "b.md", 1)
    assert not backlog.moves_on(ONE, "b.md", 2)
    assert not backlog.moves_on(TWO, "b.md", 1)
    assert backlog.moves_in(ONE, "c.md", 1)
    assert not backlog.moves_in(ONE, "c.md", 2)
    backlog.done(ONE, "c.md", None)
    assert backlog.paths([ONE]) == [(ONE, "c.md")]
    backlog.add(ONE, "d.md", 3, moved_from="a.md")  # another note that stood there
    backlog.done(ONE, "c.md", 2)
    assert backlog.moves_on(ONE, "a.md", 1)
    assert not backlog.moves_on(ONE, "b.md", 1)
    backlog.done(ONE, "d.md", 3)
    assert not backlog.moves_on(ONE, "a.md", 1)


def test_a_move_that_is_taken_in_leaves_due_what_came_to_its_old_path_later() -> None:
    backlog = Backlog()
    backlog.add(ONE, "x.md", 1, heard=True, moved_from="a.md")
    backlog.add(ONE, "a.md", 2, heard=True, moved_from="b.md")
    backlog.add(ONE, "x.md", 1, moved_from="a.md")  # the first fact is taken in
    assert set(backlog.paths([ONE])) == {(ONE, "x.md"), (ONE, "a.md")}
    assert backlog.moves_in(ONE, "a.md", 1)
