"""Making spans, and the trace context in message headers.

One trace runs from the HTTP request over every hop: a request's handler continues the asker's trace as a child, as RPC does it.
Only W3C trace context travels; baggage does not, so that nothing of it can reach a model provider. The text of an exception may name a
note or quote a chat: of failures a span has the class or code alone (OP-1).
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from urllib.parse import urlsplit

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from shared.contracts.errors import ServiceError
from shared.messaging.headers import TRACEPARENT
from shared.telemetry import vocabulary as words
from shared.telemetry.vocabulary import SpanEvent, SpanType

type Attributes = Mapping[str, str | int | float | bool | Sequence[str]]

CANCELLED = "cancelled"

_propagator = TraceContextTextMapPropagator()
_tracer = trace.get_tracer("marginalia")


def inject(headers: MutableMapping[str, str]) -> None:
    """Write the current trace context into a message's headers."""
    _propagator.inject(headers)


def extract(headers: Mapping[str, str]) -> Context:
    """The trace context that headers carry, to begin a span under."""
    return _propagator.extract(headers)


def traceparent() -> str | None:
    """The current trace context as text, for work that goes on later; None outside of any trace."""
    headers: dict[str, str] = {}
    _propagator.inject(headers)
    return headers.get(TRACEPARENT)


def begin(type_: SpanType, attributes: Attributes | None = None, *, context: Context | None = None, **parts: str) -> Span:
    """A span that does not become the current one, and that the caller ends."""
    return _tracer.start_span(type_.named(**parts), context=context, kind=type_.kind, attributes=attributes)


@contextmanager
def span(
    type_: SpanType,
    attributes: Attributes | None = None,
    *,
    context: Context | None = None,
    links: Sequence[Link] = (),
    **parts: str,
) -> Iterator[Span]:
    """A span around the body, the current one inside. What the body raises is noted, unless the body has noted something more exact."""
    with _tracer.start_as_current_span(
        type_.named(**parts),
        context=context,
        kind=type_.kind,
        attributes=attributes,
        links=links,
        record_exception=False,
        set_status_on_exception=False,
    ) as made:
        try:
            yield made
        except BaseException as error:
            if not (isinstance(made, ReadableSpan) and words.ERROR_TYPE in (made.attributes or {})):
                note_failure(made, error)
            raise


@contextmanager
def using(given: Span) -> Iterator[Span]:
    """Make a span the current one inside, without ending it."""
    with trace.use_span(given, end_on_exit=False, record_exception=False, set_status_on_exception=False):
        yield given


def note_failure(failed: Span, error: BaseException) -> None:
    """Say why what the span is about failed. A refusal or a cancel that is the asker's own doing is no error of the span's."""
    if isinstance(error, ServiceError):
        note_error(failed, error.code.value, ours=error.status >= 500)
    elif isinstance(error, asyncio.CancelledError):
        note_error(failed, CANCELLED, ours=False)
    else:
        note_error(failed, type(error).__name__)


def note_error(failed: Span, type_: str, *, ours: bool = True) -> None:
    """Say that it failed, by a code or the name of a class; `ours` where nobody who asked could have helped it."""
    failed.set_attribute(words.ERROR_TYPE, type_)
    if ours:
        failed.set_status(StatusCode.ERROR)


def tell(event: SpanEvent, facts: Mapping[str, str | int | float]) -> None:
    """Add an event to the current span."""
    trace.get_current_span().add_event(event.name, facts)


def current() -> Span:
    """The span that is current here; a span that records nothing where there is none."""
    return trace.get_current_span()


def link_to_current() -> list[Link]:
    """A link to the present span, for work that it sets going in another trace; none where there is no span."""
    context = trace.get_current_span().get_span_context()
    return [Link(context)] if context.is_valid else []


def links_to(messages: Iterable[Mapping[str, str]]) -> list[Link]:
    """Links to the spans that messages with these headers came from, each once; of those alone that are recorded."""
    contexts = (trace.get_current_span(extract(headers)).get_span_context() for headers in messages)
    return [Link(context) for context in {(one.trace_id, one.span_id): one for one in contexts if one.trace_flags.sampled}.values()]


@contextmanager
def unrecorded_below(parent: Span) -> Iterator[None]:
    """Inside, nothing is traced, here or in the services that are asked; log lines still have the trace's id."""
    known = parent.get_span_context()
    hidden = NonRecordingSpan(SpanContext(known.trace_id, known.span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.DEFAULT)))
    with using(hidden):
        yield


def server(url: str) -> dict[str, str | int]:
    """Host and port of an address, as attributes."""
    parts = urlsplit(url)
    told: dict[str, str | int] = {words.SERVER_ADDRESS: parts.hostname or ""}
    if (port := parts.port or {"http": 80, "https": 443}.get(parts.scheme)) is not None:
        told[words.SERVER_PORT] = port
    return told
