"""Where traces go.

`OTEL_EXPORTER_OTLP_ENDPOINT` (and the other standard variables, read by the SDK itself) names a collector. Without one, spans are kept
as OTLP JSON lines under the data directory, bounded. A collector that is away costs requests nothing: spans queue and are dropped.
"""

import io
import os
import socket
import threading
from pathlib import Path
from typing import TextIO, cast

from opentelemetry import trace
from opentelemetry.exporter.otlp.json.file.trace_exporter import FileSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.util.re import parse_env_headers
from pydantic import SecretStr

TRACE_FILE_BYTES_MAX = 20 * 1024 * 1024
FINISH_SECONDS = 1.5


class _BoundedFile(io.TextIOBase):
    """A text file that starts anew when full, keeping the one before as `.1`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = self._opened()

    def write(self, text: str, /) -> int:
        if self._file.tell() > TRACE_FILE_BYTES_MAX:
            self._file.close()
            self._path.replace(self._path.with_suffix(".1"))
            self._file = self._opened()
        return self._file.write(text)

    def _opened(self) -> TextIO:
        return open(self._path, "a", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600))

    def flush(self) -> None:
        if not self._file.closed:
            self._file.flush()

    def close(self) -> None:
        self._file.close()
        super().close()


def set_up(service: str, *, otlp_endpoint: str | None, home: Path | None, otlp_headers: SecretStr | None = None) -> TracerProvider:
    """A tracer provider for this process; `finish` it at the end.

    Spans go to `otlp_endpoint` (with `otlp_headers`, `name=value,…`), else to `<home>/traces/<service>.jsonl`, else nowhere.
    """
    instance = {"service.name": service, "service.instance.id": f"{socket.gethostname()}-{os.getpid()}"}
    provider = TracerProvider(resource=Resource.create(instance), shutdown_on_exit=False)
    if (exporter := _exporter(service, otlp_endpoint, otlp_headers, home)) is not None:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return provider


def finish(provider: TracerProvider) -> None:
    """Send what is left, for `FINISH_SECONDS` at most: a collector that hangs holds up no service that ends.

    The SDK itself would wait for half a minute, and take no deadline; so a thread waits, which dies with the process.
    """
    waiting = threading.Thread(target=provider.shutdown, name="last spans", daemon=True)
    waiting.start()
    waiting.join(FINISH_SECONDS)


def _exporter(service: str, otlp_endpoint: str | None, otlp_headers: SecretStr | None, home: Path | None) -> SpanExporter | None:
    if otlp_endpoint:
        # Costs 80 ms and some megabytes, for nothing where no collector is named.
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        # The SDK reads no secret from a file.
        return OTLPSpanExporter(headers=parse_env_headers(otlp_headers.get_secret_value(), liberal=True) if otlp_headers else None)
    if home is None:
        return None
    folder = home / "traces"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return FileSpanExporter(stream=cast("TextIO", _BoundedFile(folder / f"{service}.jsonl")))
