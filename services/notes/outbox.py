"""Telling what was committed: each change once in the stream, in order, whatever dies in between.

`Nats-Msg-Id` is the change's id, so that a repeat after a crash is dropped by the stream. Many changes are sent without waiting for each to
be acknowledged, and each says which one is to be before it: where one fails, or another process tells something in between, JetStream
refuses those behind it, and they are sent one at a time.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import asyncpg
from nats.aio.client import Client as Nats
from nats.errors import Error as NatsError
from nats.js.api import PubAck
from nats.js.errors import NoStreamResponseError

from shared.contracts import notes
from shared.contracts.notes import NoteChanged
from shared.database.pool import Pool, connection
from shared.messaging import headers as names
from shared.messaging import streams

logger = logging.getLogger(__name__)

BATCH = 100
ACK_SECONDS = 2.0
# For a whole batch: JetStream writes each to the disk.
BATCH_ACK_SECONDS = 10.0
RETRY_SECONDS = 0.25
RETRY_SECONDS_MAX = 2.0
# Changes may also have been committed by another process.
POLL_SECONDS = 1.0
KEPT_DAYS = 1


class Outbox:
    """Sends one workspace's changes. One process at a time does (see `keeping`)."""

    def __init__(self, pool: Pool, nats: Nats, workspace: UUID, batches: "_Batches") -> None:
        self._pool = pool
        self._nats = nats
        self._workspace = workspace
        self._batches = batches
        self._committed = asyncio.Event()

    def wake(self) -> None:
        """Something was committed."""
        self._committed.set()

    async def run(self) -> None:
        """Send for ever."""
        while True:
            self._committed.clear()
            while await self._send_batch():
                pass
            try:
                async with asyncio.timeout(POLL_SECONDS):
                    await self._committed.wait()
            except TimeoutError:
                continue

    async def _send_batch(self) -> bool:
        """Send what is next; whether there may be more."""
        async with connection(self._pool) as connected:
            rows = await connected.fetch(
                "SELECT id, revision, kind, path, content_hash, from_path, changed_at, traceparent FROM changes "
                "WHERE workspace = $1 AND sent_at IS NULL ORDER BY revision LIMIT $2",
                self._workspace,
                BATCH,
            )
        sent: list[UUID] = []
        try:
            if len(rows) > 1:
                told = await self._batches.send([self._message(row) for row in rows])
                sent += [row["id"] for row in rows[:told]]
            for row in rows[len(sent) :]:
                await self._send(row)
                sent.append(row["id"])
        finally:
            await self._mark(sent)
        return len(rows) == BATCH

    def _message(self, row: asyncpg.Record) -> "_Message":
        message = NoteChanged(
            workspace=self._workspace,
            revision=row["revision"],
            kind=row["kind"],
            path=row["path"],
            content_hash=row["content_hash"],
            from_path=row["from_path"],
            changed_at=row["changed_at"],
        )
        headers = {names.MESSAGE_ID: str(row["id"])}
        if row["traceparent"] is not None:
            headers[names.TRACEPARENT] = row["traceparent"]
        return _Message(notes.CHANGED.subject(self._workspace), message.model_dump_json().encode(), headers)

    async def _send(self, row: asyncpg.Record) -> None:
        """Return once the stream has it."""
        message = self._message(row)
        pause = RETRY_SECONDS
        while True:
            try:
                js = self._nats.jetstream(timeout=ACK_SECONDS)
                await js.publish(message.subject, message.body, headers=message.headers, stream=notes.STREAM)
                return
            except NoStreamResponseError:
                # JetStream is starting, or its data were lost.
                await streams.ensure(self._nats, notes.STREAM, owned=True)
            except (NatsError, OSError) as error:
                logger.warning("A change could not be told yet (revision %d): %r", row["revision"], error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, RETRY_SECONDS_MAX)

    async def _mark(self, sent: list[UUID]) -> None:
        if sent:
            async with connection(self._pool) as connected:
                await connected.execute("UPDATE changes SET sent_at = now() WHERE id = ANY($1)", sent)


@dataclass(frozen=True, slots=True)
class _Message:
    subject: str
    body: bytes
    headers: dict[str, str]


class _Batches:
    """Sends messages together, those of one workspace after those of another."""

    def __init__(self, nats: Nats) -> None:
        self._js = nats.jetstream()
        self._taking_turns = asyncio.Lock()

    async def send(self, messages: Sequence[_Message]) -> int:
        """How many of the first of them the stream has for certain."""
        async with self._taking_turns:
            acknowledgements: list[asyncio.Future[PubAck]] = []
            try:
                async with asyncio.timeout(BATCH_ACK_SECONDS):
                    before: dict[str, str] = {}
                    for one in messages:
                        headers = one.headers | before
                        acknowledgements.append(await self._js.publish_async(one.subject, one.body, headers=headers, stream=notes.STREAM))
                        before = {names.EXPECTED_LAST_MESSAGE_ID: one.headers[names.MESSAGE_ID]}
                    await asyncio.wait(acknowledgements)
            except (TimeoutError, NatsError, OSError) as error:
                logger.warning("Not all of %d changes could be told at once: %r", len(messages), error)
            finally:
                for each in acknowledgements:
                    each.cancel()
            failed = (at for at, one in enumerate(acknowledgements) if one.cancelled() or one.exception() is not None)
            return next(failed, len(acknowledgements))


class Outboxes:
    """One per workspace in this process; only that of a workspace it keeps is run."""

    def __init__(self, pool: Pool, nats: Nats) -> None:
        self._pool = pool
        self._nats = nats
        self._batches = _Batches(nats)
        self._boxes: dict[UUID, Outbox] = {}

    def of(self, workspace: UUID) -> Outbox:
        """One workspace's."""
        if workspace not in self._boxes:
            self._boxes[workspace] = Outbox(self._pool, self._nats, workspace, self._batches)
        return self._boxes[workspace]


async def prune(pool: Pool) -> None:
    """Forget changes that were told a day ago or earlier: the stream has them."""
    async with connection(pool) as connected:
        await connected.execute("DELETE FROM changes WHERE sent_at < now() - make_interval(days => $1)", KEPT_DAYS)
