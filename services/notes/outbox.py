"""Telling what was committed: each change once in the stream, in order, whatever dies in between.

One message at a time, each acknowledged by JetStream before the next: sending several at once would be faster, but one that fails in the
middle would be told after later ones. `Nats-Msg-Id` is the change's id, so that a repeat after a crash is dropped by the stream.
"""

import asyncio
import logging
from uuid import UUID

import asyncpg
from nats.aio.client import Client as Nats
from nats.errors import Error as NatsError
from nats.js.errors import NoStreamResponseError

from shared.contracts import notes
from shared.contracts.notes import NoteChanged
from shared.database.pool import Pool, connection
from shared.messaging import headers as names
from shared.messaging import streams

logger = logging.getLogger(__name__)

BATCH = 100
ACK_SECONDS = 2.0
RETRY_SECONDS = 0.25
RETRY_SECONDS_MAX = 2.0
# Changes may also have been committed by another process.
POLL_SECONDS = 1.0
KEPT_DAYS = 1


class Outbox:
    """Sends one workspace's changes. One process at a time does (see `keeping`)."""

    def __init__(self, pool: Pool, nats: Nats, workspace: UUID) -> None:
        self._pool = pool
        self._nats = nats
        self._workspace = workspace
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
            for row in rows:
                await self._send(row)
                sent.append(row["id"])
        finally:
            await self._mark(sent)
        return len(rows) == BATCH

    async def _send(self, row: asyncpg.Record) -> None:
        """Return once the stream has it."""
        message = NoteChanged(
            workspace=self._workspace,
            revision=row["revision"],
            kind=row["kind"],
            path=row["path"],
            content_hash=row["content_hash"],
            from_path=row["from_path"],
            changed_at=row["changed_at"],
        )
        body = message.model_dump_json().encode()
        headers = {names.MESSAGE_ID: str(row["id"])}
        if row["traceparent"] is not None:
            headers[names.TRACEPARENT] = row["traceparent"]
        pause = RETRY_SECONDS
        while True:
            try:
                js = self._nats.jetstream(timeout=ACK_SECONDS)
                await js.publish(notes.CHANGED.subject(self._workspace), body, headers=headers, stream=notes.STREAM)
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


class Outboxes:
    """One per workspace in this process; only that of a workspace it keeps is run."""

    def __init__(self, pool: Pool, nats: Nats) -> None:
        self._pool = pool
        self._nats = nats
        self._boxes: dict[UUID, Outbox] = {}

    def of(self, workspace: UUID) -> Outbox:
        """One workspace's."""
        if workspace not in self._boxes:
            self._boxes[workspace] = Outbox(self._pool, self._nats, workspace)
        return self._boxes[workspace]


async def prune(pool: Pool) -> None:
    """Forget changes that were told a day ago or earlier: the stream has them."""
    async with connection(pool) as connected:
        await connected.execute("DELETE FROM changes WHERE sent_at < now() - make_interval(days => $1)", KEPT_DAYS)
