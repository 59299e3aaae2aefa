"""Traces of the system on this machine, as text: `python -m local.waterfall` lists the last turns, with an id it draws one of them.

Reads what the services have kept under `MARGINALIA_HOME`/traces, where no collector is named. The id is a turn's or a trace's, as answers,
`/api/chat` events and log lines have it; its beginning will do.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local.settings import LocalSettings
from shared.telemetry.vocabulary import ERROR_TYPE, TURN, TURN_ID, TURN_STATUS

LISTED = 20
WIDTH = 40
ERROR = 2


@dataclass(slots=True)
class KeptSpan:
    """A span as a service has kept it; times in nanoseconds."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    start: int
    end: int
    failed: bool
    attributes: dict[str, Any] = field(default_factory=dict)


def read(folder: Path) -> Iterator[KeptSpan]:
    """All spans that are kept; a line that a service is just writing is passed over."""
    for path in sorted(folder.glob("*.jsonl")) + sorted(folder.glob("*.1")):
        for line in path.read_text("utf-8").splitlines():
            try:
                request = json.loads(line)
            except json.JSONDecodeError:
                continue
            yield from _spans(request)


def _spans(request: dict[str, Any]) -> Iterator[KeptSpan]:
    for resource in request["resourceSpans"]:
        service = _attributes(resource["resource"]["attributes"])["service.name"]
        for span in (span for scope in resource["scopeSpans"] for span in scope["spans"]):
            yield KeptSpan(
                service,
                span["name"],
                span["traceId"],
                span["spanId"],
                span.get("parentSpanId", ""),
                int(span["startTimeUnixNano"]),
                int(span["endTimeUnixNano"]),
                span.get("status", {}).get("code") == ERROR,
                _attributes(span.get("attributes", [])),
            )


def _attributes(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    return {pair["key"]: next(iter(pair["value"].values()), None) for pair in pairs}


def turns(spans: Iterable[KeptSpan]) -> list[str]:
    """A line for each of the last turns, the latest last."""
    found = sorted((span for span in spans if span.name == TURN.template), key=lambda span: span.start)[-LISTED:]
    return [f"{span.attributes[TURN_ID]}  {_milliseconds(span):>7} ms  {span.attributes.get(TURN_STATUS, '')}" for span in found]


def waterfall(spans: Iterable[KeptSpan], wanted: str) -> list[str]:
    """A line for each span of one trace: a bar for its time, its length, its service and name. Empty where no trace has that id."""
    kept = list(spans)
    trace = next(
        (span.trace for span in kept if span.trace.startswith(wanted) or str(span.attributes.get(TURN_ID, "")).startswith(wanted)), None
    )
    chosen = sorted((span for span in kept if span.trace == trace), key=lambda span: (span.start, -span.end))
    known = {span.id for span in chosen}
    below: dict[str, list[KeptSpan]] = defaultdict(list)
    for span in chosen:
        below[span.parent if span.parent in known else ""].append(span)
    if not chosen:
        return []
    first, last = chosen[0].start, max(span.end for span in chosen)
    return [_line(span, depth, first, max(1, last - first)) for span, depth in _in_order(below, "", 0)]


def _in_order(below: dict[str, list[KeptSpan]], parent: str, depth: int) -> Iterator[tuple[KeptSpan, int]]:
    for span in below[parent]:
        yield span, depth
        yield from _in_order(below, span.id, depth + 1)


def _line(span: KeptSpan, depth: int, first: int, whole: int) -> str:
    before = (span.start - first) * WIDTH // whole
    length = max(1, (span.end - span.start) * WIDTH // whole)
    bar = (" " * before + "━" * length)[:WIDTH].ljust(WIDTH)
    why = f"  [{span.attributes[ERROR_TYPE]}]" if ERROR_TYPE in span.attributes else ""
    return f"{bar} {_milliseconds(span):>8} ms  {'  ' * depth}{span.service}: {span.name}{why}"


def _milliseconds(span: KeptSpan) -> str:
    return f"{(span.end - span.start) / 1e6:.1f}"


def main() -> None:
    """The entry point."""
    folder = LocalSettings().home / "traces"
    spans = list(read(folder))
    lines = waterfall(spans, sys.argv[1]) if len(sys.argv) > 1 else turns(spans)
    if not lines:
        raise SystemExit(f"there is no such trace in {folder}" if len(sys.argv) > 1 else f"no turns are kept in {folder}")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
