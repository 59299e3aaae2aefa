"""Takes spans over OTLP as a collector does, and shows what it has counted to Prometheus."""

import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse

from local.ports import free_port
from tests.support.collector import Collector, exposition
from tests.support.traces import KINDS, Event, ExportedSpan


class OtlpReceiver:
    """`spans` are all that have come."""

    def __init__(self, configuration: dict[str, Any]) -> None:
        self.spans: list[ExportedSpan] = []
        self.collector = Collector(configuration)
        self.port = free_port()

    async def take(self, request: web.Request) -> web.Response:
        """`POST /v1/traces`."""
        body = await request.read()
        if request.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        spans = of_protobuf(ExportTraceServiceRequest.FromString(body))
        self.spans += spans
        self.collector.take(spans)
        return web.Response(body=ExportTraceServiceResponse().SerializeToString(), content_type="application/x-protobuf")

    async def show(self, _: web.Request) -> web.Response:
        """`GET /metrics`."""
        return web.Response(text=exposition(self.collector.metrics))

    @property
    def endpoint(self) -> str:
        """Where spans are sent to."""
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def receiving(configuration: dict[str, Any]) -> AsyncIterator[OtlpReceiver]:
    """A receiver that counts as this configuration of a collector says."""
    receiver = OtlpReceiver(configuration)
    application = web.Application(client_max_size=64 * 1024 * 1024)
    application.add_routes([web.post("/v1/traces", receiver.take), web.get("/metrics", receiver.show)])
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", receiver.port).start()
    try:
        yield receiver
    finally:
        await runner.cleanup()


def of_protobuf(request: ExportTraceServiceRequest) -> list[ExportedSpan]:
    """The spans of an OTLP request."""
    return [
        ExportedSpan(
            service=_attributes(resource.resource.attributes)["service.name"],
            name=span.name,
            kind=KINDS[span.kind],
            trace=span.trace_id.hex(),
            id=span.span_id.hex(),
            parent=span.parent_span_id.hex() or None,
            start=span.start_time_unix_nano,
            end=span.end_time_unix_nano,
            attributes=_attributes(span.attributes),
            events=[Event(event.name, _attributes(event.attributes)) for event in span.events],
            failed=span.status.code == 2,
            said=span.status.message,
            links=[link.trace_id.hex() for link in span.links],
        )
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(one) for one in value.array_value.values] if kind == "array_value" else getattr(value, kind)
