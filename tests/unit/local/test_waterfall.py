"""A trace as text, for whoever runs the system on one machine."""

import json
from pathlib import Path
from typing import Any

import pytest

from local import waterfall
from local.waterfall import read, turns

TURN = "11111111-1111-4111-8111-111111111111"


def span(id_: str, name: str, start: int, end: int, parent: str = "", trace: str = "t1", **more: Any) -> dict[str, Any]:
    times = {"startTimeUnixNano": str(start * 1_000_000), "endTimeUnixNano": str(end * 1_000_000)}
    return {"traceId": trace, "spanId": id_, "parentSpanId": parent, "name": name, "kind": 1, **times, **more}


def line(service: str, *spans: dict[str, Any]) -> str:
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]}
    return json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": list(spans)}]}]})


def attribute(key: str, text: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": text}}


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    turn = span(
        "b",
        "invoke_agent marginalia",
        10,
        90,
        "a",
        attributes=[attribute("marginalia.turn.id", TURN), attribute("marginalia.turn.status", "failed")],
    )
    asked = span("c", "chat m", 20, 80, "b", attributes=[attribute("error.type", "provider_timeout")], status={"code": 2})
    (tmp_path / "agent.jsonl").write_text(line("agent", asked, turn) + "\n" + line("agent")[:40])
    (tmp_path / "gateway.1").write_text(line("gateway", span("a", "POST /api/chat", 0, 100)) + "\n")
    (tmp_path / "gateway.jsonl").write_text(line("gateway", span("x", "GET /healthz", 0, 1, trace="t2")) + "\n")
    return tmp_path


@pytest.mark.parametrize("wanted", ["t1", TURN, TURN[:8]])
def test_a_trace_is_drawn_as_a_tree_over_its_services(kept: Path, wanted: str) -> None:
    drawn = waterfall.waterfall(read(kept), wanted)
    assert [one[waterfall.WIDTH :] for one in drawn] == [
        "    100.0 ms  gateway: POST /api/chat",
        "     80.0 ms    agent: invoke_agent marginalia",
        "     60.0 ms      agent: chat m  [provider_timeout]",
    ]
    assert [one[: waterfall.WIDTH] for one in drawn] == ["━" * 40, (" " * 4 + "━" * 32).ljust(40), (" " * 8 + "━" * 24).ljust(40)]


def test_the_last_turns_are_listed_and_what_is_half_written_is_passed_over(kept: Path) -> None:
    assert turns(read(kept)) == [f"{TURN}     80.0 ms  failed"]


def test_a_trace_that_is_not_kept_is_nothing(kept: Path) -> None:
    assert waterfall.waterfall(read(kept), "t3") == []
