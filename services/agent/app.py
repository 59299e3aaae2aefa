"""The agent, put together."""

import asyncio
from contextlib import AsyncExitStack
from uuid import uuid4

from services.agent.chat_model import ChatModel
from services.agent.conversations import Conversations
from services.agent.expiry import Expiry
from services.agent.lease import Lease
from services.agent.log_stream import LogStream
from services.agent.prepared_request import PreparedRequests
from services.agent.providers import load
from services.agent.routes import Handlers
from services.agent.settings import AgentSettings
from services.agent.succession import Succession
from services.agent.tenure import Tenure
from services.agent.turn_control import TurnControl
from services.agent.turn_reader import TurnReader
from services.agent.turn_store import TurnStore
from services.agent.turns import Turns
from shared.contracts import chat
from shared.database.migrate import migrate
from shared.database.pool import open_pool
from shared.messaging import streams
from shared.service import background, database_check, health_routes, joined, settled

NAME = "agent"


async def serve(settings: AgentSettings, stop: asyncio.Event) -> None:
    """Run the agent until `stop` is set."""
    providers = load(settings)
    async with AsyncExitStack() as stack:
        pool = await open_pool(settings.database, NAME)
        stack.push_async_callback(pool.close)
        await migrate(pool, NAME, "services.agent")
        model = ChatModel()
        stack.push_async_callback(model.close)
        bus = await stack.enter_async_context(joined(NAME, settings))
        await streams.ensure(bus.nats, chat.STREAM, owned=True)
        store, conversations = TurnStore(pool, owner=uuid4()), Conversations(pool)
        tenure = Tenure()
        turns = Turns(bus, store, tenure, model, providers)
        reader = TurnReader(bus.nats, store, conversations, turns)
        log_stream = LogStream(bus, turns.republish)
        succession = Succession(bus, store, tenure, turns)
        control = TurnControl(bus, store, reader, succession)
        handlers = Handlers(bus, conversations, turns, reader, control, PreparedRequests(bus.client, model, providers), providers)
        lease = Lease(pool, bus, store, tenure, turns, succession)
        await lease.answer()
        stack.push_async_callback(lease.leave)
        await stack.enter_async_context(background(lease.keep(), "lease"))
        await stack.enter_async_context(background(log_stream.keep(), "log stream"))
        stack.push_async_callback(bus.stop)  # until the last turn is over or in other hands the lease is kept
        stack.push_async_callback(succession.close)
        await stack.enter_async_context(background(Expiry(pool).keep(), "expiry"))
        await bus.serve([*handlers.routes(), *health_routes(NAME, {"database": database_check(pool)})])
        settled(NAME)
        await stop.wait()
