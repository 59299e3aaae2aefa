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
