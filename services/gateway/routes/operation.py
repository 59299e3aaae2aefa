"""Whether it runs, what it counts, and its description as a page."""

import asyncio
from html import escape
from typing import Any

from fastapi import APIRouter, Request, Response
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.responses import HTMLResponse

from services.gateway.responses import as_status
from shared.contracts.control import HEALTH
from shared.contracts.errors import ServiceError
from shared.contracts.subject import Empty
from shared.database.pool import Pool, ping
from shared.messaging.bus import Bus
from shared.messaging.scope import Scope

router = APIRouter()

READY_SECONDS = 1.8
PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title></head><body>{body}</body></html>"""


@router.get("/healthz", summary="Whether this process lives")
async def healthz() -> dict[str, str]:
    """Asks nobody."""
    return {"status": "ok"}


@router.get("/readyz", summary="Whether everything is ready")
async def readyz(request: Request) -> Response:
    """200 once every service and store answers; else 503 with `problems`, naming what does not."""
    bus: Bus = request.app.state.bus
    services = (_problems_of(bus, name) for name in HEALTH if name != "gateway")
    found = await asyncio.gather(_problems_of_nats(bus), _problems_of_database(request.app.state.pool), *services)
    problems = {what: wrong for one in found for what, wrong in one.items()}
    return as_status(problems)


async def _problems_of_nats(bus: Bus) -> dict[str, str]:
    return {} if await bus.answers() else {"nats": "does not answer"}


async def _problems_of_database(pool: Pool) -> dict[str, str]:
    wrong = await ping(pool)
    return {} if wrong is None else {"database": wrong}


async def _problems_of(bus: Bus, name: str) -> dict[str, str]:
    try:
        health = await bus.client.ask(HEALTH[name], Empty(), Scope.root(READY_SECONDS), timeout=READY_SECONDS)
    except ServiceError as error:
        return {name: error.detail}
    return {f"{name}.{what}": wrong for what, wrong in health.problems.items()}


@router.get("/metrics", summary="Counts and times, for Prometheus")
async def metrics(request: Request) -> Response:
    """In Prometheus' text format."""
    return Response(generate_latest(request.app.state.metrics.registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/api/docs", include_in_schema=False)
async def docs(request: Request) -> HTMLResponse:
    """The OpenAPI description as a page, made here: nothing is fetched from elsewhere."""
    return HTMLResponse(PAGE.format(title="Marginalia API", body=_described(request.app.openapi())))


def _described(openapi: dict[str, Any]) -> str:
    parts = ['<h1>Marginalia API</h1><p>Machine-readable: <a href="/api/openapi.json">openapi.json</a></p>']
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            statuses = ", ".join(operation.get("responses", {}))
            parts.append(
                f"<section><h2><code>{method.upper()} {escape(path)}</code></h2><p><b>{escape(operation.get('summary', ''))}</b> "
                f"{escape(operation.get('description', ''))}</p><p>Answers: {escape(statuses)}</p></section>"
            )
    return "".join(parts)
