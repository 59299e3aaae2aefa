"""A collector that hangs, or is away, costs nothing (OP-1): the fault "OpenTelemetry collector x hang"."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.settings import ServiceSettings

# Makes more spans than the queue holds while the collector does not answer, then ends as a service does. Prints in which threads spans were
# made and sent, and how many there were.
PROGRAM = """
import json, sys, threading
from pathlib import Path
from shared.telemetry import logs, setup, tracing, vocabulary as words
from opentelemetry.sdk.trace.export import BatchSpanProcessor

logs.write_to_stderr()
provider = setup.set_up("test", otlp_endpoint=sys.argv[1] or None, home=Path(sys.argv[2]))
senders = set()
exporter = provider._active_span_processor._span_processors[0].span_exporter
export = exporter.export

def noted(spans):
    senders.add(threading.current_thread().name)
    return export(spans)

exporter.export = noted
for _ in range(5000):
    with tracing.span(words.RETRIEVAL):
        pass
setup.finish(provider)
print(json.dumps(sorted(senders)))
"""


@pytest.fixture
def frozen_collector() -> Iterator[str]:
    """Takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def run(endpoint: str, home: Path) -> list[str]:
    """The threads that sent spans. Fails where it does not end before the SDK would give the collector up, after half a minute."""
    environment = {**os.environ, "OTEL_EXPORTER_OTLP_TIMEOUT": "600"}
    if endpoint:
        environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = endpoint
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, endpoint, str(home)], env=environment, capture_output=True, text=True, timeout=25, check=True
    )
    senders: list[str] = json.loads(ended.stdout)
    return senders


def test_a_frozen_collector_holds_up_neither_the_work_nor_the_end(frozen_collector: str, tmp_path: Path) -> None:
    # OP-1
    assert run(frozen_collector, tmp_path) == ["OtelBatchSpanRecordProcessor"]


def test_a_collector_that_is_away_holds_up_neither_the_work_nor_the_end(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        gone = f"http://127.0.0.1:{server.getsockname()[1]}"
    assert run(gone, tmp_path) == ["OtelBatchSpanRecordProcessor"]


def test_what_a_collector_asks_for_is_sent_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "headers").write_text("authorization=Bearer%20key,tenant=one\n")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS_FILE", str(tmp_path / "headers"))
    settings = ServiceSettings()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        program = (
            "from shared.settings import ServiceSettings\nfrom shared.telemetry import setup, tracing, vocabulary\ns = ServiceSettings()\n"
            "p = setup.set_up('t', otlp_endpoint=s.otlp_endpoint, otlp_headers=s.otlp_headers, home=None)\n"
            "with tracing.span(vocabulary.RETRIEVAL):\n    pass\nsetup.finish(p)"
        )
        with subprocess.Popen([sys.executable, "-c", program], env=os.environ):
            connection, _ = server.accept()
            with connection, connection.makefile("rb") as heard:
                head = b"".join(iter(heard.readline, b"\r\n")).decode().lower()
    assert "authorization: bearer key" in head
    assert "tenant: one" in head
    assert "key" not in repr(settings)


def test_without_a_collector_spans_are_kept_in_a_file_for_the_owner_alone(tmp_path: Path) -> None:
    run("", tmp_path)
    path = tmp_path / "traces" / "test.jsonl"
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    kept = [span for line in lines for scope in line["resourceSpans"] for one in scope["scopeSpans"] for span in one["spans"]]
    assert {span["name"] for span in kept} == {"retrieval"}
    assert path.stat().st_mode & 0o777 == 0o600
