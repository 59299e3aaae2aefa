"""Stands in for the OpenTelemetry Collector, which cannot be had from a package registry.

It does with spans what a collector's configuration says: the two connectors from spans to metrics with their dimensions, conditions and
buckets, the pipelines between them, and the Prometheus exporter's names. So a wrong name, dimension or pipeline in the file is seen. What
it cannot show is that the collector itself takes the file. What it does not know in a configuration it refuses.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.support.traces import ExportedSpan

type Labels = frozenset[tuple[str, str]]

UNITS = {"": "", "s": "_seconds", "ms": "_milliseconds"}
DURATION = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}
COUNTER, HISTOGRAM, GAUGE = "counter", "histogram", "gauge"


class UnknownConfigurationError(Exception):
    """This stand-in does not know what the collector would do."""


@dataclass
class Metric:
    """One metric with its series: a value, or for a histogram counts per bucket and the sum."""

    name: str
    kind: str
    unit: str
    bounds: list[float]
    values: dict[Labels, float] = field(default_factory=lambda: defaultdict(float))
    counts: dict[Labels, list[int]] = field(default_factory=dict)

    def observe(self, labels: Labels, value: float) -> None:
        """Take in one value."""
        if self.kind == GAUGE:
            self.values[labels] = value
            return
        self.values[labels] += value
        if self.kind == HISTOGRAM:
            counts = self.counts.setdefault(labels, [0] * (len(self.bounds) + 1))
            counts[next((place for place, bound in enumerate(self.bounds) if value <= bound), len(self.bounds))] += 1

    @property
    def family(self) -> str:
        """Its name at the exporter: letters, digits and underscores, with the unit."""
        unit = re.sub(r"\{.*\}", "", self.unit)
        if unit not in UNITS:
            raise UnknownConfigurationError(f"unit {unit}")
        return re.sub(r"[^a-zA-Z0-9_]", "_", self.name) + UNITS[unit]

    @property
    def samples(self) -> Iterator[tuple[str, Labels, float]]:
        """What the exporter shows."""
        for labels, value in self.values.items():
            if self.kind == HISTOGRAM:
                below = 0
                for bound, count in zip([*map(str, self.bounds), "+Inf"], self.counts[labels], strict=True):
                    below += count
                    yield f"{self.family}_bucket", labels | {("le", bound)}, below
                yield f"{self.family}_count", labels, below
                yield f"{self.family}_sum", labels, value
            else:
                yield self.family + ("_total" if self.kind == COUNTER else ""), labels, value


class Collector:
    """Takes spans in and shows metrics, as a configuration says."""

    def __init__(self, configuration: dict[str, Any]) -> None:
        self._configuration = configuration
        self.metrics: list[Metric] = []
        self._takers: list[Callable[[ExportedSpan], None]] = []
        for name in self._reaching("traces", "exporters"):
            if name in configuration["connectors"]:
                self._connect(name)

    def _reaching(self, signal: str, side: str) -> list[str]:
        """The components on a side of the pipelines of a signal that take what comes over OTLP."""
        pipelines = self._configuration["service"]["pipelines"]
        return [name for key, one in pipelines.items() if key.split("/")[0] == signal and "otlp" in one["receivers"] for name in one[side]]

    def _connect(self, name: str) -> None:
        after = [
            one
            for key, one in self._configuration["service"]["pipelines"].items()
            if key.split("/")[0] == "metrics" and name in one["receivers"] and "prometheus" in one["exporters"]
        ]
        if not after:
            return
        settings = self._configuration["connectors"][name]
        if name == "span_metrics":
            self._takers.append(self._counting(settings))
        elif name == "signal_to_metrics":
            # The exporter adds nothing up: without the processor it would show what the last batch has brought.
            summed = all("delta_to_cumulative" in one.get("processors", []) for one in after)
            self._takers += [taker for one in settings["spans"] if (taker := self._valued(one, summed=summed))]
        else:
            raise UnknownConfigurationError(name)

    def take(self, spans: Iterable[ExportedSpan]) -> None:
        """Take spans in."""
        for span in sorted(spans, key=lambda span: span.end):
            for taker in self._takers:
                taker(span)

    def _made(self, name: str, kind: str, unit: str = "", bounds: Iterable[float] = ()) -> Metric:
        metric = Metric(name, kind, unit, [float(bound) for bound in bounds])
        self.metrics.append(metric)
        return metric

    def _counting(self, settings: dict[str, Any]) -> Callable[[ExportedSpan], None]:
        known = {
            "namespace",
            "histogram",
            "dimensions",
            "dimensions_cache_size",
            "resource_metrics_key_attributes",
            "metrics_flush_interval",
        }
        if unknown := settings.keys() - known:
            raise UnknownConfigurationError(f"span_metrics: {sorted(unknown)}")
        if settings["histogram"].keys() != {"unit", "explicit"} or settings["resource_metrics_key_attributes"] != ["service.name"]:
            raise UnknownConfigurationError("span_metrics")
        calls = self._made(f"{settings['namespace']}.calls", COUNTER)
        bounds = [_seconds(bound) for bound in settings["histogram"]["explicit"]["buckets"]]
        duration = self._made(f"{settings['namespace']}.duration", HISTOGRAM, settings["histogram"]["unit"], bounds)

        def take(span: ExportedSpan) -> None:
            own = {"span.name": span.name, "span.kind": f"SPAN_KIND_{span.kind}", "service.name": span.service}
            own["status.code"] = "STATUS_CODE_ERROR" if span.failed else "STATUS_CODE_UNSET"
            for dimension in settings["dimensions"]:
                value = span.attributes.get(dimension["name"], dimension.get("default"))
                if value is not None:
                    own[dimension["name"]] = value
            labels = _labels(own, job=span.service)
            calls.observe(labels, 1)
            duration.observe(labels, span.seconds)

        return take

    def _valued(self, settings: dict[str, Any], *, summed: bool) -> Callable[[ExportedSpan], None] | None:
        known = {"name", "description", "unit", "conditions", "include_resource_attributes", "attributes", "histogram", "gauge"}
        if unknown := settings.keys() - known:
            raise UnknownConfigurationError(f"signal_to_metrics: {sorted(unknown)}")
        kind = HISTOGRAM if "histogram" in settings else GAUGE
        if kind == HISTOGRAM and not summed:
            return None
        metric = self._made(settings["name"], kind, settings.get("unit", ""), settings[kind].get("buckets", ()))
        keys = [one["key"] for one in settings.get("attributes", [])]
        resource = [one["key"] for one in settings["include_resource_attributes"]]
        if resource != ["service.name"] or any(one.keys() != {"key"} for one in settings.get("attributes", [])):
            raise UnknownConfigurationError(settings["name"])

        def take(span: ExportedSpan) -> None:
            wanted = any(_holds(condition, span) for condition in settings["conditions"])
            if wanted and all(key in span.attributes for key in keys):
                labels = _labels({key: span.attributes[key] for key in keys}, job=span.service)
                metric.observe(labels, float(_value(settings[kind]["value"], span)))

        return take


def _labels(attributes: dict[str, Any], *, job: str) -> Labels:
    told = {
        re.sub(r"[^a-zA-Z0-9_]", "_", key): str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in attributes.items()
    }
    return frozenset({**told, "job": job}.items())


def _seconds(text: str) -> float:
    match = re.fullmatch(r"([0-9.]+)([a-z]+)", text)
    assert match is not None, text
    return round(float(match[1]) * DURATION[match[2]], 9)


def _value(path: str, span: ExportedSpan) -> Any:
    """What a path of OTTL says of a span."""
    if path == "name":
        return span.name
    if (match := re.fullmatch(r'attributes\["([^"]+)"\]', path)) is None:
        raise UnknownConfigurationError(path)
    return span.attributes.get(match[1])


def _holds(condition: str, span: ExportedSpan) -> bool:
    """Whether a condition of OTTL is true; of its language what is used here."""
    for part in condition.split(" and "):
        if (match := re.fullmatch(r'(\S+) (==|!=) (nil|"[^"]*")', part)) is None:
            raise UnknownConfigurationError(part)
        expected = None if match[3] == "nil" else match[3].strip('"')
        if (_value(match[1], span) == expected) is (match[2] == "!="):
            return False
    return True


def backfill(metrics: Iterable[Metric], times: list[float]) -> str:
    """The metrics as OpenMetrics text: each counter at 0 for the first half of these times, and at its value for the other."""
    lines = []
    for metric in metrics:
        lines.append(f"# TYPE {metric.family} {metric.kind}")
        for name, labels, value in metric.samples:
            told = ",".join(f'{key}="{_escaped(text)}"' for key, text in sorted(labels))
            at = [(time, value if 2 * place > len(times) or metric.kind == GAUGE else 0) for place, time in enumerate(times)]
            lines += [f"{name}{{{told}}} {number} {time:.3f}" for time, number in at]
    return "\n".join([*lines, "# EOF\n"])


def exposition(metrics: Iterable[Metric]) -> str:
    """The metrics as the exporter shows them to whoever scrapes."""
    lines = []
    for metric in metrics:
        lines.append(f"# TYPE {metric.family}{'_total' if metric.kind == COUNTER else ''} {metric.kind}")
        for name, labels, value in metric.samples:
            told = ",".join(f'{key}="{_escaped(text)}"' for key, text in sorted(labels))
            lines.append(f"{name}{{{told}}} {value}")
    return "\n".join([*lines, ""])


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
