"""Spans of the road between services, and the trace context in message headers.

One trace runs from the HTTP request over every hop: a request's handler continues the asker's trace as a child, as RPC does it.
Only W3C trace context travels; baggage does not, so that nothing of it can reach a model provider.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager, contextmanager

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_propagator = TraceContextTextMapPropagator()
_tracer = trace.get_tracer("marginalia")


def tracer() -> trace.Tracer:
    """The tracer of this process."""
    return _tracer


def inject(headers: MutableMapping[str, str]) -> None:
    """Write the current trace context into a message's headers."""
    _propagator.inject(headers)


def extract(headers: Mapping[str, str]) -> Context:
    """The trace context that headers carry, to begin a span under."""
    return _propagator.extract(headers)


@contextmanager
def ask_span(subject: str) -> Iterator[Span]:
    """Around a question to another service."""
    with _tracer.start_as_current_span(
        f"send {subject}",
        kind=SpanKind.CLIENT,
        record_exception=False,  # its message may name a note; the error's type is set where it is known
        attributes={"messaging.system": "nats", "messaging.destination.name": subject},
    ) as span:
        yield span


@contextmanager
def answer_span(subject: str, headers: Mapping[str, str]) -> Iterator[Span]:
    """Around the answering of one, in the asker's trace."""
    with _tracer.start_as_current_span(
        f"process {subject}",
        context=extract(headers),
        kind=SpanKind.CONSUMER,
        record_exception=False,
        attributes={
            "messaging.system": "nats",
            "messaging.destination.name": subject,
            "messaging.operation.type": "process",
        },
    ) as span:
        yield span


def current() -> Span:
    """The span that is current here; a span that records nothing where there is none."""
    return trace.get_current_span()


def using(span: Span) -> AbstractContextManager[Span]:
    """Make `span` the current one inside, without ending it."""
    return trace.use_span(span, end_on_exit=False)
