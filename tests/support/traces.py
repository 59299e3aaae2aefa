"""Spans as a test reads them: of this process from memory, of a whole system from its files."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from shared.telemetry.vocabulary import SpanType

KINDS = {1: "INTERNAL", 2: "SERVER", 3: "CLIENT", 4: "PRODUCER", 5: "CONSUMER"}


@dataclass
class Event:
    """An event on a span."""

    name: str
    attributes: dict[str, Any]


@dataclass
class ExportedSpan:
    """A span as it left its process; times in nanoseconds."""

    service: str
    name: str
    kind: str
    trace: str
    id: str
    parent: str | None
    start: int
    end: int
    attributes: dict[str, Any]
    events: list[Event]
    failed: bool
    said: str
    links: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / 1e9

    @property
    def texts(self) -> Iterator[str]:
        """Everything on it that is text, names included."""
        yield from (self.name, self.said)
        for attributes in (self.attributes, *(event.attributes for event in self.events)):
            for key, value in attributes.items():
                yield from (key, str(value))
        yield from (event.name for event in self.events)

    @property
    def type(self) -> SpanType:
        """The kind in the vocabulary that it is of. Its name alone may fit several."""
        fitting = [one for one in SpanType.registry if _pattern(one).fullmatch(self.name) and one.kind.name == self.kind]
        fitting = [one for one in fitting if self.attributes.keys() <= set(one.attributes)]
        assert len(fitting) >= 1, f"{self.kind} {self.name} with {sorted(self.attributes)} is in no vocabulary"
        return fitting[0]


def _pattern(type_: SpanType) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{\w+\\\}", ".+", re.escape(type_.template)))


class Trace:
    """The spans of one trace as a tree."""

    def __init__(self, spans: Iterable[ExportedSpan]) -> None:
        self.spans = sorted(spans, key=lambda span: span.start)
        self._by_id = {span.id: span for span in self.spans}
        self._children: dict[str | None, list[ExportedSpan]] = defaultdict(list)
        for span in self.spans:
            self._children[span.parent if span.parent in self._by_id else None].append(span)

    @property
    def roots(self) -> list[ExportedSpan]:
        """The spans that have none above them here."""
        return self._children[None]

    @property
    def root(self) -> ExportedSpan:
        """The one span that all others are below of."""
        (root,) = self.roots
        return root

    def named(self, name: str) -> list[ExportedSpan]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ExportedSpan:
        (span,) = self.named(name)
        return span

    def path(self, span: ExportedSpan) -> list[str]:
        """The names from the root to this span."""
        above = self._by_id.get(span.parent or "")
        return [*(self.path(above) if above is not None else []), span.name]

    def below(self, span: ExportedSpan) -> list[ExportedSpan]:
        """All spans under this one."""
        return [one for child in self._children[span.id] for one in (child, *self.below(child))]


def by_trace(spans: Iterable[ExportedSpan]) -> list[Trace]:
    """The traces of these spans, in the order in which they began."""
    found: dict[str, list[ExportedSpan]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: span.start):
        found[span.trace].append(span)
    return [Trace(spans) for spans in found.values()]


def read_files(home: Path) -> list[ExportedSpan]:
    """The spans that a local system has kept."""
    return [
        span
        for path in sorted((home / "traces").glob("*.jsonl*"))
        for line in path.read_text("utf-8").splitlines()
        for span in of_otlp(json.loads(line))
    ]


def of_otlp(request: dict[str, Any]) -> Iterator[ExportedSpan]:
    """The spans of an OTLP request as JSON has it."""
    for resource in request["resourceSpans"]:
        service = _attributes(resource["resource"]["attributes"])["service.name"]
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                status = span.get("status", {})
                yield ExportedSpan(
                    service,
                    span["name"],
                    KINDS[int(span["kind"])],
                    span["traceId"],
                    span["spanId"],
                    span.get("parentSpanId") or None,
                    int(span["startTimeUnixNano"]),
                    int(span["endTimeUnixNano"]),
                    _attributes(span.get("attributes", [])),
                    [Event(event["name"], _attributes(event.get("attributes", []))) for event in span.get("events", [])],
                    int(status.get("code", 0)) == 2,
                    status.get("message", ""),
                    [link["traceId"] for link in span.get("links", [])],
                )


def _attributes(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    return {pair["key"]: _value(pair["value"]) for pair in pairs}


def _value(value: dict[str, Any]) -> Any:
    ((kind, content),) = value.items()
    if kind == "arrayValue":
        return [_value(one) for one in content.get("values", [])]
    return {"intValue": int, "doubleValue": float}.get(kind, lambda same: same)(content)


class Spans:
    """The spans that this process has ended since the test began."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    @property
    def all(self) -> list[ExportedSpan]:
        return [_exported(span) for span in self._exporter.get_finished_spans()]

    @property
    def traces(self) -> list[Trace]:
        return by_trace(self.all)

    def named(self, name: str) -> list[ExportedSpan]:
        return [span for span in self.all if span.name == name]


def _exported(span: ReadableSpan) -> ExportedSpan:
    assert span.context is not None
    assert span.start_time is not None
    assert span.end_time is not None
    return ExportedSpan(
        "",
        span.name,
        span.kind.name,
        format(span.context.trace_id, "032x"),
        format(span.context.span_id, "016x"),
        format(span.parent.span_id, "016x") if span.parent is not None else None,
        span.start_time,
        span.end_time,
        {key: list(value) if isinstance(value, tuple) else value for key, value in (span.attributes or {}).items()},
        [Event(event.name, dict(event.attributes or {})) for event in span.events],
        not span.status.is_ok,
        span.status.description or "",
        [format(link.context.trace_id, "032x") for link in span.links],
    )


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    """Have this process's spans at hand. To be asked for before the services."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("shared.telemetry.tracing._tracer", provider.get_tracer("test"))
    return Spans(exporter)
