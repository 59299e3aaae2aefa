"""The contexts service, put together."""

import asyncio
from contextlib import AsyncExitStack

from services.contexts.answers import Answers
from services.contexts.injection import Injector
from services.contexts.preparation import Preparation
from services.contexts.routes import Handlers
from services.contexts.snapshot_store import SnapshotStore
from shared.database.migrate import migrate
from shared.database.pool import open_pool
from shared.service import database_check, health_routes, joined, settled
from shared.settings import DatabaseSettings

NAME = "contexts"
PACKAGE = "services.contexts"


async def serve(settings: DatabaseSettings, stop: asyncio.Event) -> None:
    """Run the service until `stop` is set."""
    async with AsyncExitStack() as stack:
        pool = await open_pool(settings.database, NAME)
        stack.push_async_callback(pool.close)
        await migrate(pool, NAME, PACKAGE)
        bus = await stack.enter_async_context(joined(NAME, settings))
        store = SnapshotStore(pool)
        answers = Answers(pool, bus.client, store)
        handlers = Handlers(Injector(bus.client), Preparation(pool, bus.client), store, answers)
        await bus.serve([*handlers.routes(), *health_routes(NAME, {"database": database_check(pool)})])
        settled(NAME)
        await stop.wait()
