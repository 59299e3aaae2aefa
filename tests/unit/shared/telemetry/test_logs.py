"""Log lines have their trace's id and no text of notes or chats (OP-1)."""

import io
import logging
from collections.abc import Iterator

import asyncpg
import pytest
from opentelemetry.sdk.trace import TracerProvider
from pydantic import BaseModel

from shared.contracts.errors import ErrorCode, ServiceError
from shared.telemetry import logs

SECRET = "the heron stands by the pond"


class Strict(BaseModel):
    """Repeats what it refuses."""

    number: int


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    stream, root = io.StringIO(), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    monkeypatch.setattr("sys.stderr", stream)
    root.handlers = []  # basicConfig would close those of the test runner
    logs.write_to_stderr()
    yield stream
    root.handlers, _ = handlers, root.setLevel(level)


def refuse() -> None:
    Strict.model_validate({"number": SECRET})


def test_a_line_has_the_id_of_the_trace_that_it_was_written_in(written: io.StringIO) -> None:
    with TracerProvider(shutdown_on_exit=False).get_tracer("test").start_as_current_span("outer") as span:
        logging.getLogger("x").info("inside")
        trace_id = format(span.get_span_context().trace_id, "032x")
    logging.getLogger("x").info("outside")
    inside, outside = written.getvalue().splitlines()
    assert f"trace={trace_id} inside" in inside
    assert "trace=- outside" in outside


def test_a_traceback_says_where_and_what_class_but_not_what_was_refused(written: io.StringIO) -> None:
    try:
        try:
            refuse()
        except ValueError:
            raise KeyError(SECRET)  # noqa: B904
    except KeyError:
        logging.getLogger("x").exception("It failed")
    text = written.getvalue()
    assert SECRET not in text.replace(f'SECRET = "{SECRET}"', "")
    for told in ("It failed", "ValidationError", "KeyError", "in refuse", "test_logs.py"):
        assert told in text


def test_each_error_of_a_group_is_told(written: io.StringIO) -> None:
    try:
        raise ExceptionGroup(SECRET, [ValueError(SECRET), OSError("no space left")])
    except ExceptionGroup:
        logging.getLogger("x").exception("Both failed")
    text = written.getvalue()
    assert SECRET not in text
    assert "  ValueError\n" in text
    assert "OSError: no space left" in text


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (asyncpg.UniqueViolationError(f"Key (path)=({SECRET}) already exists."), "UniqueViolationError"),
        (asyncpg.DataError(f"invalid input for query argument $1: '{SECRET}'"), "DataError"),
        (ValueError(SECRET), "ValueError"),
        (ConnectionRefusedError(111, "refused"), "ConnectionRefusedError: [Errno 111] refused"),
        (ServiceError(ErrorCode.NOTE_BUSY, "Another program is writing."), "ServiceError: Another program is writing."),
    ],
)
def test_an_error_in_a_line_says_its_message_only_where_it_quotes_nothing(error: Exception, line: str) -> None:
    assert logs.said(error) == line
