"""The composition root: what the notes service is made of, and the order in which it starts and ends."""

import asyncio
import time
from contextlib import closing

from services.notes import keeping, workspaces
from services.notes.file_threads import FileThreads
from services.notes.keeping import Claims
from services.notes.mention_feed import MentionFeed
from services.notes.mention_routes import mention_routes
from services.notes.outbox import Outboxes
from services.notes.routes import routes
from services.notes.settings import NotesSettings
from services.notes.write_lock import WriteLocks
from services.notes.writing import NoteWriter
from shared.contracts import notes
from shared.contracts.errors import ServiceError
from shared.database.migrate import migrate
from shared.database.pool import Pool, open_pool
from shared.messaging import streams
from shared.service import Check, background, database_check, health_routes, joined, settled

NAME = "notes"
# A new vault is part of readiness until it is read, but a big one does not hold it up for longer than this.
FIRST_SCAN_SECONDS = 8.0
# Who asks for the health waits a little longer than this.
CHECK_SECONDS = 1.0


async def serve(settings: NotesSettings, stop: asyncio.Event) -> None:
    """Serve until `stop`.

    Raises:
        VaultsError: two vaults have one name.
    """
    workspaces.require_distinct(settings.vault_paths, settings.created_vaults)
    pool = await open_pool(settings.database, NAME)
    try:
        await migrate(pool, NAME, __package__ or "services.notes")
        await workspaces.serve(pool, settings.vault_paths, settings.created_vaults)
        with closing(FileThreads()) as threads:
            await _serve(settings, pool, threads, stop)
    finally:
        pool.terminate()


async def _serve(settings: NotesSettings, pool: Pool, threads: FileThreads, stop: asyncio.Event) -> None:
    async with joined(NAME, settings) as bus:
        await streams.ensure(bus.nats, notes.STREAM, owned=True)
        locks, outboxes = WriteLocks(pool), Outboxes(pool, bus.nats)
        claims = Claims(pool, settings.database, lambda workspace: keeping.keep(pool, locks, outboxes, threads, workspace))
        writer = NoteWriter(pool, locks, outboxes, threads)
        feed = MentionFeed(pool)
        health = health_routes(NAME, {"database": database_check(pool), "vaults": _vaults_check(pool)})
        async with (
            background(claims.run(), "claims"),
            background(keeping.discover(pool, settings.vault_paths, settings.created_vaults), "discovery"),
            background(feed.run(), "mentions"),
        ):
            await bus.serve([*routes(settings, pool, threads, writer), *mention_routes(pool, threads, feed), *health])
            settled(NAME)
            await stop.wait()


def _vaults_check(pool: Pool) -> Check:
    started = time.monotonic()

    async def check() -> str | None:
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                return await workspaces.unavailable(pool, count_unscanned=time.monotonic() - started < FIRST_SCAN_SECONDS)
        except (ServiceError, TimeoutError):
            return "not known while the database does not answer"

    return check
