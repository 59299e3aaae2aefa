"""The contexts service, put together."""

import asyncio

from services.contexts.injection import Injector
from shared.contracts import contexts
from shared.messaging.bus import Route
from shared.service import health_routes, joined, settled
from shared.settings import ServiceSettings

NAME = "contexts"


async def serve(settings: ServiceSettings, stop: asyncio.Event) -> None:
    """Run the service until `stop` is set."""
    async with joined(NAME, settings) as bus:
        injector = Injector(bus.client)
        await bus.serve([Route(contexts.INJECT, injector.inject), *health_routes(NAME, {})])
        settled(NAME)
        await stop.wait()
