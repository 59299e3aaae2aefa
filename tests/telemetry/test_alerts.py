"""Every alert can fire, keeps silent where nothing is wrong, and has its section in the runbook (OP-3)."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from local.stack import ROOT
from tests.support.prometheus import TELEMETRY, promtool

RULES = TELEMETRY / "alerts.yaml"
ALERTS: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
}
CALLS, SECONDS = "marginalia_span_calls_total", "marginalia_span_duration_seconds_bucket"
TURN, SEARCH, MODEL = 'span_name="invoke_agent marginalia"', 'span_name="retrieval"', 'span_name="chat m"'
ERROR, FINE = 'status_code="STATUS_CODE_ERROR"', 'status_code="STATUS_CODE_UNSET"'


def histogram(name: str, labels: str, bounds: list[str], of: int) -> list[tuple[str, int]]:
    """Series of one histogram, where one value a minute is in the bucket at this place."""
    joint = f"{labels}, " if labels else ""
    series = [(f'{name}_bucket{{{joint}le="{bound}"}}', int(place >= of)) for place, bound in enumerate([*bounds, "+Inf"])]
    return [*series, (f"{name}_count{{{labels}}}", 1)]


def counted(name: str, *labels: str, each: int = 1) -> tuple[str, int]:
    return f"{name}{{{', '.join(labels)}}}", each


STATEMENTS = 'db_system_name="postgresql", service_name="agent"'
QUEUE = 'messaging_destination_name="notes.read"'
FIRST, SPAN = "marginalia_turn_time_to_first_token_seconds", "marginalia_span_duration_seconds"
# Of each alert series that make it fire, and some that are nearly the same and do not: what each gains in a minute.
BAD: dict[str, list[tuple[str, int]]] = {
    "AnswersFail": [
        counted(CALLS, TURN, 'marginalia_turn_status="failed"'),
        counted(CALLS, TURN, 'marginalia_turn_status="completed"', each=3),
        counted(CALLS, TURN, 'marginalia_turn_status="superseded"', each=50),
    ],
    "AnswersStartLate": histogram(FIRST, "", ["8", "15", "30"], 2),
    "ModelFails": [counted(CALLS, MODEL, ERROR), counted(CALLS, MODEL, FINE)],
    "SearchesFail": [counted(CALLS, SEARCH, ERROR), counted(CALLS, SEARCH, FINE, each=8)],
    "SearchesByWordsAlone": [
        counted(CALLS, SEARCH, 'marginalia_degraded="true"', each=2),
        counted(CALLS, SEARCH, 'marginalia_degraded="false"'),
    ],
    "SearchesSlow": [*histogram(SPAN, SEARCH, ["1", "2.5", "5"], 2), counted(CALLS, SEARCH)],
    "IndexBehind": [("marginalia_index_pending", 2)],
    "QueueLong": histogram("marginalia_queue_depth", QUEUE, ["8", "16", "32"], 2),
    "DatabaseSlow": histogram(SPAN, STATEMENTS, ["0.5", "1", "2.5"], 2),
    "RequestsFail": [
        counted(CALLS, 'span_name="POST /api/chat"', 'http_response_status_code="503"'),
        counted(CALLS, 'span_name="POST /api/chat"', 'http_response_status_code="200"', each=15),
    ],
    "CollectorGone": [('up{job="collector"}', 0)],
    "GatewayGone": [('up{job="gateway", instance="one"}', 0), ('up{job="gateway", instance="two"}', 0)],
}
GOOD: dict[str, list[tuple[str, int]]] = {
    "AnswersFail": [
        counted(CALLS, TURN, 'marginalia_turn_status="failed"'),
        counted(CALLS, TURN, 'marginalia_turn_status="completed"', each=5),
    ],
    "AnswersStartLate": histogram(FIRST, "", ["8", "15", "30"], 1),
    "ModelFails": [counted(CALLS, MODEL, ERROR), counted(CALLS, MODEL, FINE, each=3)],
    "SearchesFail": [counted(CALLS, SEARCH, ERROR), counted(CALLS, SEARCH, FINE, each=10)],
    "SearchesByWordsAlone": [counted(CALLS, SEARCH, 'marginalia_degraded="true"'), counted(CALLS, SEARCH, 'marginalia_degraded="false"')],
    "SearchesSlow": [*histogram(SPAN, SEARCH, ["1", "2", "5"], 1), counted(CALLS, SEARCH)],
    "IndexBehind": [("marginalia_index_pending", 0)],
    "QueueLong": histogram("marginalia_queue_depth", QUEUE, ["8", "16", "32"], 1),
    "DatabaseSlow": histogram(SPAN, STATEMENTS, ["0.5", "1", "2.5"], 1),
    "RequestsFail": [
        counted(CALLS, 'span_name="POST /api/chat"', 'http_response_status_code="503"'),
        counted(CALLS, 'span_name="POST /api/chat"', 'http_response_status_code="200"', each=25),
        counted(CALLS, 'span_name="POST /api/chat"', 'http_response_status_code="404"', each=5),
    ],
    "CollectorGone": [('up{job="collector"}', 1)],
    "GatewayGone": [('up{job="gateway", instance="one"}', 0), ('up{job="gateway", instance="two"}', 1)],
}
MINUTES = 120


def expectation(alert: str, series: list[tuple[str, int]], *, fires: bool) -> dict[str, Any]:
    """A test in promtool's form: after two hours of it the alert fires, or does not."""
    constant = alert in ("CollectorGone", "GatewayGone")
    return {
        "name": f"{alert} {'fires' if fires else 'keeps silent'}",
        "interval": "1m",
        "input_series": [
            {"series": name, "values": f"{each if constant else 0}+{0 if constant else each}x{MINUTES}"} for name, each in series
        ],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{alert}", alertstate="firing"}})',
                "eval_time": f"{MINUTES}m",
                "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
            }
        ],
    }


def test_the_rules_are_well_formed() -> None:
    promtool("check", "rules", str(RULES))
    promtool("check", "config", str(TELEMETRY / "prometheus.yaml"))


def test_every_alert_is_tried() -> None:
    assert ALERTS.keys() == BAD.keys() == GOOD.keys()


def test_every_alert_fires_where_it_should_and_only_there(tmp_path: Path) -> None:
    tests = [expectation(alert, series, fires=True) for alert, series in BAD.items()]
    tests += [expectation(alert, series, fires=False) for alert, series in GOOD.items()]
    path = tmp_path / "alerts.test.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    promtool("test", "rules", str(path))


@pytest.mark.parametrize("alert", ["CollectorGone", "GatewayGone"])
def test_what_is_not_even_looked_for_is_gone_too(alert: str, tmp_path: Path) -> None:
    path = tmp_path / "alerts.test.yaml"
    tests = [expectation(alert, [("something_else", 1)], fires=True)]
    path.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    promtool("test", "rules", str(path))


def test_every_alert_has_its_section_in_the_runbook_and_each_section_its_alert() -> None:
    page = (ROOT / "docs" / "operating.md").read_text("utf-8")
    _, part = page.split("\n## What to do when an alarm fires\n")
    part = part.split("\n## ")[0]
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^### |\Z)", part, re.MULTILINE | re.DOTALL))
    assert sections.keys() == ALERTS.keys()
    assert all(len(body.split()) > 25 for body in sections.values())
    for name, rule in ALERTS.items():
        assert rule["annotations"]["runbook"] == f"docs/operating.md#{name.lower()}"
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in ("page", "ticket")
