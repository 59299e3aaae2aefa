"""The gateway, put together."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack

import uvicorn
from fastapi import FastAPI
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import ASGIApp

from services.gateway import mcp_server, problems, web_client
from services.gateway.accounts import Accounts
from services.gateway.edge import Edge, Metrics
from services.gateway.event_stream import OpenStreams
from services.gateway.http_protocol import HeadLimits
from services.gateway.openapi import describing
from services.gateway.routes import (
    authentication,
    chat,
    chat_completions,
    contexts,
    markdown,
    mcp,
    mentions,
    operation,
    preferences,
    retrieval,
    workspaces,
)
from services.gateway.settings import GatewaySettings
from shared.database.migrate import migrate
from shared.database.pool import Pool, open_pool
from shared.messaging.bus import Bus
from shared.service import database_check, health_routes, joined, settled

NAME = "gateway"
VERSION = "0.1.0"
# Streams end by themselves before; this is for a request that does not.
GRACE_SECONDS = 8
logger = logging.getLogger(__name__)


def create_app(
    settings: GatewaySettings,
    bus: Bus,
    pool: Pool,
    accounts: Accounts,
    metrics: Metrics,
    streams: OpenStreams,
    door: StreamableHTTPSessionManager,
) -> ASGIApp:
    """The ASGI application over what it is given."""
    app = FastAPI(
        title="Marginalia",
        version=VERSION,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False, "operation_spans": False},  # Edge makes the one span
    )
    app.state.bus = bus
    app.state.pool = pool
    app.state.accounts = accounts
    app.state.metrics = metrics
    app.state.streams = streams
    app.state.origins = settings.origins
    app.state.mcp = door
    for module in (
        authentication,
        preferences,
        chat,
        chat_completions,
        contexts,
        workspaces,
        markdown,
        mcp,
        mentions,
        retrieval,
        operation,
        web_client,
    ):
        app.include_router(module.router)
    problems.install(app)
    app.openapi = describing(app)  # type: ignore[method-assign]  # FastAPI's documented way to extend it
    return Edge(app, metrics)


class Server(uvicorn.Server):
    """uvicorn, without its own signal handlers: the service decides when it ends."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


async def serve(settings: GatewaySettings, stop: asyncio.Event) -> None:
    """Run the gateway until `stop` is set; streams end first, what they need is closed last."""
    async with AsyncExitStack() as stack:
        pool = await open_pool(settings.database, NAME)
        stack.push_async_callback(pool.close)
        await migrate(pool, NAME, "services.gateway")
        accounts = Accounts(pool)
        password = settings.admin_password.get_secret_value() if settings.admin_password else None
        await accounts.bootstrap(password, settings.home)
        bus = await stack.enter_async_context(joined(NAME, settings))
        await bus.serve([*health_routes(NAME, {"database": database_check(pool)})])
        streams = OpenStreams()
        bus.on_reconnected(_awaited(streams.wake_all))
        door = mcp_server.manager("marginalia", VERSION)
        await stack.enter_async_context(door.run())
        app = create_app(settings, bus, pool, accounts, Metrics(), streams, door)
        server = Server(_configuration(app, settings))
        serving = asyncio.create_task(server.serve())
        logger.info("Listening on %s://%s:%d", settings.scheme, settings.host, settings.port)
        settled(NAME)
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        streams.stop()
        server.should_exit = True
        await serving


def _configuration(app: ASGIApp, settings: GatewaySettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.key,
        loop="none",
        http=HeadLimits,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )


def _awaited(callback: Callable[[], None]) -> Callable[[], Awaitable[None]]:
    async def call() -> None:
        callback()

    return call
