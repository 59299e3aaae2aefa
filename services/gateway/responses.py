"""Small pieces that several route modules answer with."""

from fastapi import Request, Response
from pydantic import BaseModel

from services.gateway.event_stream import OpenStreams
from services.gateway.problems import problem
from shared.contracts.errors import ErrorCode, ServiceError


def as_json(model: BaseModel, status: int = 200) -> Response:
    """A service's reply as it came, without validating it a second time."""
    return Response(model.model_dump_json(), status, media_type="application/json")


def open_streams(request: Request) -> OpenStreams:
    """Where a new stream registers.

    Raises:
        ServiceError: `service_unavailable` while the gateway stops.
    """
    streams: OpenStreams = request.app.state.streams
    if streams.stopping:
        raise ServiceError(ErrorCode.UNAVAILABLE, "The gateway is stopping; try again shortly.")
    return streams


def as_status(problems: dict[str, str]) -> Response:
    """200 without problems, else a 503 that names them."""
    if not problems:
        return Response(b'{"status":"ready"}', media_type="application/json")
    names = ", ".join(sorted(problems))
    return problem(ServiceError(ErrorCode.UNAVAILABLE, f"Not ready: {names}.", problems=problems))
