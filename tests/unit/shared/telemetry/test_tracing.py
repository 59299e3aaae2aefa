"""What a span says of a failure, and what it never says (OP-1)."""

import asyncio
import re
from pathlib import Path

import pytest
from opentelemetry.trace import INVALID_SPAN

from shared.contracts.errors import ErrorCode, ServiceError
from shared.telemetry import tracing
from shared.telemetry import vocabulary as words
from tests.support.traces import Spans

ROOT = Path(__file__).parents[4]
SECRET = "the heron stands by the pond"


@pytest.mark.parametrize(
    ("error", "type_", "failed"),
    [
        (ServiceError(ErrorCode.NOTE_NOT_FOUND, SECRET), "note_not_found", False),
        (ServiceError(ErrorCode.RETRIEVAL_UNAVAILABLE, SECRET), "retrieval_unavailable", True),
        (ValueError(SECRET), "ValueError", True),
        (asyncio.CancelledError(SECRET), "cancelled", False),
    ],
)
def test_a_failure_is_named_by_code_or_class_and_its_words_are_not_kept(
    spans: Spans, error: BaseException, type_: str, failed: bool
) -> None:
    with pytest.raises(type(error)), tracing.span(words.RETRIEVAL):
        raise error
    with pytest.raises(type(error)), tracing.using(tracing.begin(words.REQUEST, method="GET", route="/")) as other:
        raise error
    other.end()
    told, untold = spans.all
    assert (told.attributes, told.failed) == ({"error.type": type_}, failed)
    assert (untold.attributes, untold.failed) == ({}, False)
    assert not any(SECRET in text for span in (told, untold) for text in span.texts)


def test_what_the_body_has_noted_is_not_replaced_by_the_class_of_what_it_raises(spans: Spans) -> None:
    def refused() -> None:
        with tracing.span(words.EMBEDDINGS, model="m") as span:
            tracing.note_error(span, "503")
            raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        refused()
    (told,) = spans.all
    assert (told.name, told.attributes["error.type"], told.failed) == ("embeddings m", "503", True)


def test_below_an_unrecorded_span_nothing_is_traced_and_askers_say_so(spans: Spans) -> None:
    headers: dict[str, str] = {}
    with tracing.span(words.INDEXING) as span, tracing.unrecorded_below(span):
        tracing.inject(headers)
        with tracing.span(words.RETRIEVAL), tracing.span(words.RETRIEVAL, context=tracing.extract(headers)):
            pass
    (told,) = spans.all
    assert told.name == "index notes"
    assert headers["traceparent"] == f"00-{told.trace}-{told.id}-00"


def test_work_that_goes_on_later_finds_its_trace_by_text(spans: Spans) -> None:
    assert tracing.traceparent() is None
    assert tracing.link_to_current() == []
    with tracing.span(words.RETRIEVAL):
        kept = tracing.traceparent()
    assert kept is not None
    with (
        tracing.span(words.RETRIEVAL),
        tracing.span(words.TURN, context=tracing.extract({"traceparent": kept}), links=tracing.link_to_current()),
    ):
        pass
    first, turn, asked = spans.all
    assert (turn.trace, turn.parent) == (first.trace, first.id)
    assert turn.links == [asked.trace] != [first.trace]
    assert tracing.current() is INVALID_SPAN


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("https://api.example.com/v1", {"server.address": "api.example.com", "server.port": 443}),
        ("http://127.0.0.1:1234/v1/embeddings", {"server.address": "127.0.0.1", "server.port": 1234}),
        ("http://user:secret@host/v1", {"server.address": "host", "server.port": 80}),
    ],
)  # fmt: skip
def test_of_an_address_host_and_port_are_told(url: str, told: dict[str, str | int]) -> None:
    assert tracing.server(url) == told


def test_every_attribute_of_a_kind_of_span_is_explained() -> None:
    named = {attribute for type_ in words.SpanType.registry for attribute in type_.attributes}
    assert named == words.ATTRIBUTES.keys()


def test_every_name_in_the_vocabulary_is_used_by_some_service() -> None:
    names = {name for name in vars(words) if name.isupper() and name[0] != "_" and name != "ATTRIBUTES"}
    code = "\n".join(
        path.read_text("utf-8")
        for folder in ("shared", "services", "local")
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "vocabulary.py"
    )
    assert {name for name in names if not re.search(rf"\b{name}\b", code)} == set()
