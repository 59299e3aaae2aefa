"""Every panel of the dashboards shows what has happened (OP-2): the shipped queries, asked of a real Prometheus, after a known run of the
whole system. The collector between them is a stand-in that does what the shipped configuration says.
"""

import asyncio
import json
import math
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.collector import Collector, Metric, backfill
from tests.support.local_stack import LocalStack, local_stack
from tests.support.otlp_receiver import OtlpReceiver, receiving
from tests.support.polling import eventually
from tests.support.prometheus import TELEMETRY, Prometheus, promtool, require, serving
from tests.support.scripted_provider import USAGE, Gate, Script, ScriptedProvider, answer, calls, chunk, tool_calls, usage_chunk
from tests.support.traces import ExportedSpan

COLLECTOR = yaml.safe_load((TELEMETRY / "collector.yaml").read_text())
DASHBOARDS = [json.loads(path.read_text()) for path in sorted((TELEMETRY / "grafana" / "dashboards").glob("*.json"))]
PANELS: dict[str, dict[str, Any]] = {panel["title"]: panel for one in DASHBOARDS for panel in one["panels"] if panel["type"] != "row"}
RULES = [rule["expr"] for group in yaml.safe_load((TELEMETRY / "alerts.yaml").read_text())["groups"] for rule in group["rules"]]
QUERIES = [target["expr"] for panel in PANELS.values() for target in panel["targets"]]
RANGE_SECONDS = 3600
STEP_SECONDS = 15
TURN = "invoke_agent marginalia"

type Values = dict[str, float]


@dataclass
class Run:
    """What was done, and what is to be seen of it. `runs` are the stored runs: status and number of results."""

    spans: list[ExportedSpan]
    metrics: list[Metric]
    runs: list[tuple[str, int]]
    prometheus: Prometheus
    at: float

    def named(self, pattern: str) -> list[ExportedSpan]:
        return [span for span in self.spans if re.fullmatch(pattern, span.name)]

    def bounds(self, family: str) -> list[float]:
        return next(metric.bounds for metric in self.metrics if metric.family == family)


async def converse(stack: LocalStack, provider: ScriptedProvider) -> None:
    """Nine turns: 6 completed in 10 rounds, 1 failed, 1 stopped by its user, 1 left by its client, each of these in 1 round. 4 searches,
    with 2, 2, 2 and 0 hits, and one that is none. 14 requests to the model: 10 with tokens counted, 2 that failed, 2 that were given up.
    """
    thinking = {**USAGE, "completion_tokens_details": {"reasoning_tokens": 5}}
    provider.next(calls("tea"), answer("[1]"), calls("tea leaves", "water"), answer("[1]"))
    provider.next(calls("tea"), answer("Nothing."), Script([chunk(content="Hello."), chunk(finish_reason="stop"), usage_chunk(thinking)]))
    provider.next(tool_calls(("rag_search", {"words": "tea"})), answer("Sorry."))
    provider.next(Script(status=503, body={"error": {"message": "busy"}}), answer("There."))
    for filters in ({}, {}, {"path_prefix": "nowhere/"}, {}, {}, {}):
        done = (await stack.client.ask("Hi", retrieval={"filters": filters})).done
        assert done["status"] == "completed"
    provider.next(Script(status=400, body={"error": {"message": "no", "type": "invalid_request_error"}}))
    assert (await stack.client.ask("Hi")).done["status"] == "failed"
    half = Script([chunk(content="Half "), Gate()])
    provider.next(half, half)
    async with asyncio.timeout(20), stack.client.chat("Hi") as streamed:
        await streamed.read(until="TextDelta")
        await stack.client.http.post(f"/api/chat/turns/{streamed.started['turn_id']}/cancel")
        await streamed.read()
    async with asyncio.timeout(20), stack.client.chat("Hi") as streamed:
        await streamed.read(until="TextDelta")


async def search_without_vectors(stack: LocalStack) -> list[tuple[str, int]]:
    """Stored runs, until one had to do without the embedding model."""
    runs: list[tuple[str, int]] = []

    async def degraded() -> bool:
        body = {"mode": "hybrid", "query": f"tea {len(runs)}"}
        run = (await stack.client.http.post("/api/retrieval/runs", json=body)).json()
        runs.append((run["status"], len(run["results"])))
        return run["status"] == "degraded"

    await stack.kill("embedder")
    await eventually(degraded, 20)
    return runs


async def has_vectors(stack: LocalStack) -> bool:
    status = (await stack.client.http.get("/api/retrieval/status")).json()
    return bool(status["pending"] == 0 and status["unembedded"] == 0 and status["indexed"] > 0)


def prometheus_configuration(folder: Path, receiver: OtlpReceiver, stack: LocalStack) -> Path:
    """The shipped one, with the addresses of this run, asking each second."""
    text = (TELEMETRY / "prometheus.yaml").read_text()
    # The name server of this machine knows no `gateway`.
    gateway = "dns_sd_configs:\n      - {names: [gateway], type: A, port: 8080, refresh_interval: 15s}"
    here_too = f"static_configs:\n      - targets: [{stack.base_url.removeprefix('http://')}]"
    for shipped, here in (("collector:8889", f"127.0.0.1:{receiver.port}"), (gateway, here_too)):
        assert text.count(shipped) == 1
        text = text.replace(shipped, here)
    (folder / "prometheus.yaml").write_text(text.replace("scrape_interval: 15s", "scrape_interval: 1s"))
    (folder / "alerts.yaml").write_text((TELEMETRY / "alerts.yaml").read_text())
    return folder / "prometheus.yaml"


@pytest.fixture(scope="module")
async def run(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Run]:
    """The known run, and a Prometheus that has the counts of it as of an hour that ended two hours ago."""
    require("prometheus")
    folder = tmp_path_factory.mktemp("dashboards")
    vault, provider = folder / "vault", ScriptedProvider()
    vault.mkdir()
    (vault / "tea.md").write_text("# Tea\n\nGreen tea is brewed at 80 °C.\n")
    (vault / "water.md").write_text("# Water\n\nWater boils at 100 °C.\n")
    await provider.start()
    try:
        async with receiving(COLLECTOR) as receiver:
            variables = {
                "MARGINALIA_VAULTS": str(vault),
                "MODEL_BASE_URL": provider.base_url,
                "MODEL_NAME": "scripted",
                "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
                "OTEL_BSP_SCHEDULE_DELAY": "200",
            }
            async with local_stack(folder / "home", variables) as stack:
                await eventually(lambda: has_vectors(stack), 60)
                await converse(stack, provider)
                runs = await search_without_vectors(stack)
                await eventually(lambda: all_have_come(receiver, len(runs)), 20)
                spans = list(receiver.spans)
                collector = Collector(COLLECTOR)
                collector.take(spans)
                at = float(int(time.time()) // STEP_SECONDS * STEP_SECONDS - 2 * RANGE_SECONDS)
                (folder / "counts.txt").write_text(backfill(collector.metrics, list(times(at))))
                promtool("tsdb", "create-blocks-from", "openmetrics", str(folder / "counts.txt"), str(folder / "data"))
                async with serving(prometheus_configuration(folder, receiver, stack), folder / "data") as prometheus:
                    yield Run(spans, collector.metrics, runs, prometheus, at)
    finally:
        await provider.stop()


def times(at: float) -> Iterable[float]:
    return (at - RANGE_SECONDS + STEP_SECONDS * place for place in range(RANGE_SECONDS // STEP_SECONDS + 1))


async def all_have_come(receiver: OtlpReceiver, runs: int) -> bool:
    names = Counter(span.name for span in receiver.spans)
    return (names[TURN], names["retrieval"], names["POST /api/retrieval/runs"], names["POST /api/chat"]) == (9, 4 + runs, runs, 9)


# What each query of each panel is to show: by the values of its labels, joined. Counts are known from the run; of durations, which nobody
# knows beforehand, what the spans themselves say.


def counts(values: Iterable[Any]) -> Values:
    return dict(Counter(str(value) for value in values))


@dataclass(frozen=True)
class Within:
    """A quantile of a histogram lies somewhere in the bucket of the value that it is of."""

    low: float
    high: float

    @classmethod
    def bucket(cls, quantile: float, values: list[float], bounds: list[float]) -> "Within":
        value = sorted(values)[math.ceil(quantile * len(values)) - 1]
        place = next((place for place, bound in enumerate(bounds) if value <= bound), len(bounds))
        # Beyond the last bound Prometheus says the bound.
        return cls(bounds[place - 1] if place else 0.0, bounds[min(place, len(bounds) - 1)])


def quantiles(quantile: float, values: Iterable[tuple[str, float]], bounds: list[float]) -> dict[str, Within]:
    by: dict[str, list[float]] = {}
    for key, value in values:
        by.setdefault(key, []).append(value)
    return {key: Within.bucket(quantile, found, bounds) for key, found in by.items()}


def durations(run: Run, quantile: float, values: Iterable[tuple[str, ExportedSpan]]) -> dict[str, Within]:
    return quantiles(quantile, ((key, span.seconds) for key, span in values), run.bounds("marginalia_span_duration_seconds"))


def first_tokens(run: Run, quantile: float) -> dict[str, Within]:
    told = [
        span.attributes["marginalia.turn.time_to_first_token"]
        for span in run.named(TURN)
        if span.attributes.get("marginalia.turn.status") != "failed"
    ]
    return quantiles(quantile, (("", value) for value in told), run.bounds("marginalia_turn_time_to_first_token_seconds"))


def way_and_queue(run: Run) -> Values:
    def mean(kind: str) -> dict[str, float]:
        by: dict[str, list[float]] = {}
        for span in run.named(f"{kind} .+"):
            by.setdefault(span.attributes["messaging.destination.name"], []).append(span.seconds)
        return {subject: sum(found) / len(found) for subject, found in by.items()}

    sent, processed = mean("send"), mean("process")
    return {subject: sent[subject] - processed[subject] for subject in sent.keys() & processed.keys()}


def hits(run: Run) -> Values:
    found = [2, 2, 2, 0, *(count for _, count in run.runs)]
    return {"hybrid": sum(found) / len(found)}


def served(run: Run) -> list[ExportedSpan]:
    return [span for span in run.spans if span.kind == "SERVER"]


def databases(run: Run) -> Iterable[tuple[str, ExportedSpan]]:
    return ((f"{system} {span.service}", span) for span in run.spans if (system := span.attributes.get("db.system.name")))


EXPECTED: dict[str, Callable[[Run], list[dict[str, Any]]]] = {
    "Turns by how they ended": lambda _: [{"completed": 6, "failed": 1, "cancelled": 2}],
    "Cancellations by cause": lambda _: [{"requested": 1, "disconnect": 1}],
    "Failures by class": lambda _: [{"provider_refused": 1}],
    "Rounds per answer": lambda _: [{"": 13 / 9}],
    "Time to the first token": lambda run: [first_tokens(run, 0.5), first_tokens(run, 0.95)],
    "Duration of turns": lambda run: [durations(run, quantile, (("", span) for span in run.named(TURN))) for quantile in (0.5, 0.95)],
    "Tokens": lambda _: [{"scripted": 400}, {"scripted": 80}, {"scripted": 120}, {"scripted": 5}],
    "Time to a model's first chunk": lambda run: [
        quantiles(
            0.95,
            (
                ("scripted", value)
                for span in run.spans
                if (value := span.attributes.get("gen_ai.response.time_to_first_chunk")) is not None
            ),
            run.bounds("gen_ai_client_inference_time_to_first_chunk_seconds"),
        )
    ],
    "Failed requests to models": lambda _: [{"provider_refused chat scripted": 1, "provider_unreachable chat scripted": 1}],
    "Latency of searches": lambda run: [durations(run, 0.95, (("hybrid", span) for span in run.named("retrieval")))],
    "Hits per search": lambda run: [hits(run)],
    "Searches without a hit": lambda _: [{"": 1}],
    "Searches by models that failed": lambda _: [{"invalid_call": 1}],
    "Searches by words alone": lambda run: [{"": 1 / (4 + len(run.runs))}],
    "Latency of embeddings": lambda run: [durations(run, 0.95, (("", span) for span in run.named("embeddings .+")))],
    "Notes that wait for the index": lambda _: [{"": 0}],
    "HTTP requests": lambda run: [
        {
            status: count / RANGE_SECONDS
            for status, count in counts(span.attributes["http.response.status_code"] for span in served(run)).items()
        }
    ],
    "Way and queue between services": lambda run: [way_and_queue(run)],
    "Queue depth": lambda run: [
        quantiles(
            0.95,
            (
                (span.attributes["messaging.destination.name"], span.attributes["marginalia.queue.depth"])
                for span in run.named("process .+")
            ),
            run.bounds("marginalia_queue_depth"),
        )
    ],
    "Databases": lambda run: [durations(run, 0.95, databases(run))],
    "Errors by service": lambda run: [counts(span.service for span in run.spans if span.failed)],
}


def test_every_panel_is_tried() -> None:
    assert PANELS.keys() == EXPECTED.keys()
    assert sum(len(one["panels"]) for one in DASHBOARDS) > len(PANELS)  # no two panels have one title


@pytest.mark.parametrize("title", EXPECTED)
async def test_the_panel_shows_what_has_happened(run: Run, title: str) -> None:
    # OP-2
    targets = PANELS[title]["targets"]
    expected = EXPECTED[title](run)
    assert len(targets) == len(expected)
    for target, known in zip(targets, expected, strict=True):
        query = re.sub(r"\$__(range|rate_interval)", f"{RANGE_SECONDS}s", target["expr"])
        answers = await run.prometheus.ask(query, run.at)
        shown = {" ".join(value for _, value in sorted(labels)): number for labels, number in answers.items()}
        shown = {key: number for key, number in shown.items() if number or known.get(key) is not None}
        assert shown.keys() == known.keys(), query
        for key, number in shown.items():
            if isinstance(at := known[key], Within):
                assert at.low <= number <= at.high * 1.001, (query, key)
            else:
                # What lies before the first sample of the range is estimated.
                assert number == pytest.approx(at, rel=0.01, abs=1e-6), (query, key)


async def test_the_shipped_configuration_has_prometheus_ask_both_and_know_the_rules(run: Run) -> None:
    async def up() -> bool:
        found = await run.prometheus.ask("sum by (job) (up)", time.time())
        return found == {frozenset({("job", job)}): 1.0 for job in ("collector", "gateway")}

    await eventually(up, 20)
    targets = (await run.prometheus.get("targets"))["activeTargets"]
    assert {target["labels"]["job"]: target["health"] for target in targets} == {"collector": "up", "gateway": "up"}
    groups = (await run.prometheus.get("rules"))["groups"]
    assert len([rule for group in groups for rule in group["rules"]]) == len(RULES)
    assert await run.prometheus.ask("sum(marginalia_span_calls_total)", time.time())


# The files among themselves


def asked(query: str) -> dict[str, set[str]]:
    """The labels that a query asks of each metric: by which it selects, and by which all of it is grouped."""
    grouped = {label for group in re.findall(r"by \(([^)]*)\)", query) for label in group.split(", ")}
    found: dict[str, set[str]] = {}
    for name, selector in re.findall(r"\b((?:marginalia|gen_ai)_\w+)(?:\{([^}]*)\})?(?=[\[)]|$)", re.sub(r"by \([^)]*\)", "", query)):
        found.setdefault(name, set(grouped)).update(re.findall(r"(\w+)(?:=~|!~|!=|=)", selector))
    return found


def offered() -> dict[str, set[str]]:
    """The labels of each series that the collector makes, of a span that has everything."""
    made = Collector(COLLECTOR)
    everything = {one["name"]: "x" for one in COLLECTOR["connectors"]["span_metrics"]["dimensions"]}
    for one in COLLECTOR["connectors"]["signal_to_metrics"]["spans"]:
        everything |= {attribute: 1 for condition in one["conditions"] for attribute in re.findall(r'attributes\["([^"]+)"\]', condition)}
        everything |= {attribute["key"]: "x" for attribute in one.get("attributes", [])}
    made.take([ExportedSpan("s", "retrieval", "INTERNAL", "t", "i", None, 0, 1, everything, [], failed=False, said="")])
    found: dict[str, set[str]] = {}
    for metric in made.metrics:
        for name, labels, _ in metric.samples:
            found.setdefault(name, set()).update(label for label, _ in labels)
    return found


def test_every_query_asks_for_what_the_collector_makes() -> None:
    made = offered()
    for query in [*QUERIES, *RULES]:
        for name, labels in asked(query).items():
            assert name in made, query
            assert labels - {"le"} <= made[name], query


def test_the_collector_makes_nothing_that_no_query_asks_for() -> None:
    used = [found for query in [*QUERIES, *RULES] for found in asked(query).items()]
    assert {metric.family for metric in Collector(COLLECTOR).metrics} == {
        re.sub("_(bucket|count|sum|total)$", "", name) for name, _ in used
    }
    labels = {label for _, found in used for label in found}
    connectors = COLLECTOR["connectors"]
    dimensions = {one["name"] for one in connectors["span_metrics"]["dimensions"]}
    keys = {one["key"] for metric in connectors["signal_to_metrics"]["spans"] for one in metric.get("attributes", [])}
    assert {name.replace(".", "_") for name in dimensions | keys} <= labels


def test_everything_that_a_pipeline_names_is_configured_and_nothing_else() -> None:
    named = [one for pipeline in COLLECTOR["service"]["pipelines"].values() for side in pipeline.values() for one in side]
    assert set(named) == {one for part in ("receivers", "processors", "connectors", "exporters") for one in COLLECTOR[part]}


def test_grafana_finds_its_data_and_its_dashboards() -> None:
    provisioning = TELEMETRY / "grafana" / "provisioning"
    sources = yaml.safe_load((provisioning / "datasources" / "datasources.yaml").read_text())["datasources"]
    uids = {source["uid"] for source in sources}
    for panel in PANELS.values():
        assert panel["datasource"]["uid"] in uids
        assert {target["datasource"]["uid"] for target in panel["targets"]} <= uids
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "dashboards.yaml").read_text())["providers"]
    assert provider["options"]["path"] == "/var/lib/grafana/dashboards"
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for one in DASHBOARDS for panel in one["panels"]]
    assert len(set(places)) == len(places)
