"""Hears of changed notes: the durable consumer of the stream NOTES. A fact is acknowledged once its note's state is committed."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

import asyncpg
import nats.errors
import nats.js.errors
from nats.aio.client import Client as Nats
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from pydantic import ValidationError

from services.retrieval.backlog import Backlog
from services.retrieval.documents import Moved
from services.retrieval.indexer import BATCHES_AT_ONCE, Dirty, Indexer
from shared.contracts import notes
from shared.contracts.errors import ServiceError
from shared.contracts.notes import NoteChanged
from shared.database.pool import UNAVAILABLE
from shared.messaging import streams
from shared.telemetry import tracing
from shared.telemetry.logs import said

logger = logging.getLogger(__name__)

DURABLE = "retrieval"
BATCH = 64
# Also how long a fetch outlives the connection that it was made on.
FETCH_SECONDS = 2.0
# Also those of a vault that is away count, which come again and again meanwhile, and must not keep others' from being delivered.
UNACKNOWLEDGED_MAX = 1_000_000
# A fact that was lost on its way to us, or with us, comes again after this; what is being worked on says so more often.
ACK_WAIT_SECONDS = 6.0
IN_PROGRESS_SECONDS = 2.0
RETRY_SECONDS = 0.5
RETRY_SECONDS_MAX = 10.0

NATS_FAILURES = (nats.errors.Error, nats.js.errors.Error, TimeoutError)


class Feed:
    """The consumer. Several instances of the service share it."""

    def __init__(self, nats: Nats, indexer: Indexer, backlog: Backlog) -> None:
        self._nats = nats
        self._indexer = indexer
        self._backlog = backlog

    async def open(self) -> None:
        """Have stream and consumer: what changes from now on is kept for us. What changed before is found by comparison."""
        await streams.ensure(self._nats, notes.STREAM, owned=False)
        self._subscription = await self._subscribe()
        await self._nats.subscribe(notes.CHANGED.wildcard, cb=self._heard)

    async def close(self) -> None:
        """Stop listening. A pull subscription holds what nobody fetched, and a connection would wait for that when it drains."""
        with contextlib.suppress(*NATS_FAILURES):
            await self._subscription.unsubscribe()

    async def run(self) -> None:
        """Take in what is heard; for ever."""
        taking: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as group:
            while True:
                if len(taking) == BATCHES_AT_ONCE:
                    await asyncio.wait(taking, return_when=asyncio.FIRST_COMPLETED)
                try:
                    messages = await self._subscription.fetch(BATCH, timeout=FETCH_SECONDS)
                except TimeoutError:  # nats-py raises its own and the standard one; its own is one too
                    await self._settle()
                    continue
                except NATS_FAILURES as error:
                    logger.warning("The stream of changed notes cannot be read yet: %r", error)
                    await asyncio.sleep(RETRY_SECONDS)
                    await self._open_again()
                    continue
                task = group.create_task(self._take(messages))
                taking.add(task)
                task.add_done_callback(taking.discard)

    async def _settle(self) -> None:
        """Facts that another instance of the service has taken in are not pending here."""
        if not self._backlog.has_heard:
            return
        with contextlib.suppress(*NATS_FAILURES):
            consumer = await self._subscription.consumer_info()
            if not consumer.num_pending and not consumer.num_ack_pending:
                self._backlog.taken_in_elsewhere(FETCH_SECONDS)

    async def _open_again(self) -> None:
        try:
            await self._subscription.unsubscribe()
            await streams.ensure(self._nats, notes.STREAM, owned=False)
            self._subscription = await self._subscribe()
        except NATS_FAILURES as error:
            logger.warning("The consumer of changed notes cannot be made yet: %r", error)

    async def _subscribe(self) -> JetStreamContext.PullSubscription:
        config = ConsumerConfig(
            durable_name=DURABLE,
            filter_subject=notes.CHANGED.wildcard,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=ACK_WAIT_SECONDS,
            max_ack_pending=UNACKNOWLEDGED_MAX,
            deliver_policy=DeliverPolicy.NEW,
        )
        js = self._nats.jetstream(timeout=5)
        await js.add_consumer(notes.STREAM, config)  # made, or brought to this configuration
        return await js.pull_subscribe_bind(DURABLE, notes.STREAM)

    async def _heard(self, message: Msg) -> None:
        """Count it as pending at once; the work itself comes through the consumer."""
        if (fact := _parsed(message)) is not None:
            self._backlog.add(fact.workspace, fact.path, fact.revision, heard=True, moved_from=_moved_from(fact))

    async def _take(self, messages: Sequence[Msg]) -> None:
        dirty: dict[tuple[UUID, str], Dirty] = {}
        moves: list[Moved] = []
        waiting: list[tuple[Msg, tuple[UUID, str]]] = []
        for message in messages:
            if (fact := _parsed(message)) is None:
                await message.term()
                continue
            if from_path := _moved_from(fact):
                moves.append(Moved(fact.workspace, from_path, fact.path, fact.revision))
            for one in _dirty(fact):
                # The latest fact decides, at the latest one's place in the order.
                dirty.pop((one.workspace, one.path), None)
                dirty[one.workspace, one.path] = one
            waiting.append((message, (fact.workspace, fact.path)))
        async with _in_progress([message for message, _ in waiting]):
            try:
                links = tracing.links_to(message.headers or {} for message, _ in waiting)
                failed = {(one.workspace, one.path) for one in await self._indexer.apply(list(dirty.values()), moves, links)}
            except (ServiceError, *UNAVAILABLE, asyncpg.PostgresError) as error:
                logger.warning("Changed notes cannot be stored yet: %s", said(error))
                failed = {key for _, key in waiting}
        try:
            for message, key in waiting:
                if key in failed:
                    await message.nak(delay=min(RETRY_SECONDS * 2 ** min(message.metadata.num_delivered - 1, 6), RETRY_SECONDS_MAX))
                else:
                    await message.ack()
        except NATS_FAILURES as error:
            # They come again, and are known then by their notes' state.
            logger.warning("Facts that were taken in could not be acknowledged: %r", error)


def _parsed(message: Msg) -> NoteChanged | None:
    try:
        return NoteChanged.model_validate_json(message.data)
    except ValidationError:
        logger.error("A fact on %s is not of its model", message.subject)  # noqa: TRY400 - its content is nobody's business
        return None


def _moved_from(fact: NoteChanged) -> str | None:
    return fact.from_path if fact.kind == "moved" else None


def _dirty(fact: NoteChanged) -> list[Dirty]:
    now = Dirty(fact.workspace, fact.path, fact.content_hash, fact.revision, moved_from=_moved_from(fact))
    return [now, Dirty(fact.workspace, now.moved_from, None, fact.revision, left=True)] if now.moved_from else [now]


@asynccontextmanager
async def _in_progress(messages: Sequence[Msg]) -> AsyncIterator[None]:
    """Keeps the server from delivering again what is being worked on."""

    async def tell() -> None:
        while True:
            await asyncio.sleep(IN_PROGRESS_SECONDS)
            with contextlib.suppress(*NATS_FAILURES):
                for message in messages:
                    await message.in_progress()

    telling = asyncio.create_task(tell(), name="in progress")
    try:
        yield
    finally:
        telling.cancel()
