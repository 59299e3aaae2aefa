"""The life of a service process: set up, serve until a signal, end in order. Each service's `app.py` fills it in."""

import asyncio
import contextlib
import gc
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import uvloop

from shared import pulse
from shared.contracts.control import HEALTH, Health
from shared.contracts.subject import Empty
from shared.database import pool as database
from shared.database.pool import Pool
from shared.messaging.bus import Bus, Route
from shared.messaging.scope import Scope
from shared.settings import ServiceSettings
from shared.telemetry import logs, setup

logger = logging.getLogger(__name__)

type Check = Callable[[], Awaitable[str | None]]


def run(name: str, settings: ServiceSettings, serve: Callable[[asyncio.Event], Coroutine[None, None, None]]) -> None:
    """Run `serve(stop)` in this process; `stop` is set by SIGINT and SIGTERM."""
    logs.write_to_stderr()
    provider = setup.set_up(name, otlp_endpoint=settings.otlp_endpoint, otlp_headers=settings.otlp_headers, home=settings.home)

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        await serve(stop)

    try:
        uvloop.run(main())
    finally:
        setup.finish(provider)


def settled(name: str) -> None:
    """Called once a service is set up: says so, and takes what lives as long as the process out of the garbage collector's rounds,
    which else are a quarter of the work of relaying a token.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    logger.info("%s is ready", name)


@asynccontextmanager
async def joined(name: str, settings: ServiceSettings) -> AsyncIterator[Bus]:
    """This process on NATS; left in order."""
    bus = Bus(name, settings.nats_url, settings.nats_password, settings.tls)
    await bus.connect()
    beating = nullcontext() if settings.pulse is None else background(pulse.beat(settings.pulse, bus.answers), "pulse")
    try:
        async with beating:
            yield bus
    finally:
        await bus.stop()


@asynccontextmanager
async def background(work: Coroutine[None, None, None], what: str) -> AsyncIterator[None]:
    """Run a service's own loop while the body runs. If the loop fails, the process ends: something starts it again."""
    owner = asyncio.current_task()
    task = asyncio.create_task(work, name=what)

    def ended(done: asyncio.Task[None]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            logger.critical("The %s loop failed", what, exc_info=error)
            if owner is not None:
                owner.cancel(f"{what} failed")

    task.add_done_callback(ended)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({task}, timeout=5)


def health_routes(name: str, checks: dict[str, Check]) -> list[Route[Any, Any]]:
    """Answers `<name>.health`, where each check says what is wrong, or None."""

    async def health(_: Empty, __: Scope) -> Health:
        found = await asyncio.gather(*(check() for check in checks.values()))
        problems = {what: wrong for what, wrong in zip(checks, found, strict=True) if wrong is not None}
        return Health(ready=not problems, problems=problems)

    return [Route(HEALTH[name], health)]


def database_check(pool: Pool) -> Check:
    """Whether the database answers."""
    return lambda: database.ping(pool)
