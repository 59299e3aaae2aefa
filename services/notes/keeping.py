"""Keeping the index of each workspace: by one process at a time, which follows its files and tells the changes.

The right to do so is a PostgreSQL advisory lock on a connection of its own: whatever ends that connection, kill -9 included, ends the
right, and another process takes over within `CLAIM_SECONDS`. All processes answer questions all the time.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from uuid import UUID

import asyncpg

from services.notes import outbox, workspaces
from services.notes.file_threads import FileThreads
from services.notes.indexing import Held, Indexer
from services.notes.outbox import Outboxes
from services.notes.vault import VaultUnavailable
from services.notes.watching import Hints, watched
from services.notes.workspaces import Kept, VaultsError
from services.notes.write_lock import WriteLocks
from shared.contracts.errors import ServiceError
from shared.database.pool import UNAVAILABLE, Pool
from shared.telemetry.logs import said

logger = logging.getLogger(__name__)

CLAIM_SECONDS = 1.0
# How often the root is looked at: readiness is red within 5 s of its vanishing.
PROBE_SECONDS = 1.0
# A stat that takes longer is an outage.
PROBE_SECONDS_MAX = 3.0
# The safety net under the watch, which hears nothing on network mounts; and how often where there is no watch at all.
RESCAN_SECONDS = 30.0
UNWATCHED_RESCAN_SECONDS = 2.0
# How often a loss that is held to be an outage is looked at again.
HELD_RESCAN_SECONDS = 5.0
# What was being written is looked at once more after so long.
UNSETTLED_SECONDS = 0.2
DISCOVER_SECONDS = 10.0
PRUNE_SECONDS = 3600.0
RESTART_SECONDS = 1.0

# A connection whose other end has vanished is given up by the server, and its locks with it.
CLAIM_SETTINGS = {
    "application_name": "notes claims",
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}

type Keep = Callable[[Kept], Coroutine[None, None, None]]


class Claims:
    """The workspaces that this process keeps."""

    def __init__(self, pool: Pool, database_url: str, keep: Keep) -> None:
        self._pool = pool
        self._database_url = database_url
        self._keep = keep
        self._tasks: dict[UUID, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Claim what nobody keeps, for ever."""
        while True:
            try:
                await self._claim_while_connected()
            except (*UNAVAILABLE, ServiceError) as error:
                logger.warning("The right to keep workspaces is lost for now: %s", said(error))
            await asyncio.sleep(CLAIM_SECONDS)

    async def _claim_while_connected(self) -> None:
        connected = await asyncpg.connect(
            self._database_url,
            timeout=5,
            command_timeout=5,
            server_settings=CLAIM_SETTINGS,
        )
        try:
            while True:
                for workspace in await workspaces.served(self._pool):
                    await self._claim(connected, workspace)
                await connected.execute("SELECT 1")
                await asyncio.sleep(CLAIM_SECONDS)
        finally:
            await self._give_up_all()
            connected.terminate()

    async def _claim(self, connected: "asyncpg.Connection[asyncpg.Record]", workspace: Kept) -> None:
        task = self._tasks.get(workspace.id)
        if task is not None and not task.done():
            return
        if task is None and not await connected.fetchval(
            "SELECT pg_try_advisory_lock(hashtextextended('notes keep ' || $1, 0))", str(workspace.id)
        ):
            return
        self._tasks[workspace.id] = asyncio.create_task(self._guarded(workspace), name=f"keep {workspace.directory}")

    async def _guarded(self, workspace: Kept) -> None:
        try:
            await self._keep(workspace)
        except (*UNAVAILABLE, ServiceError) as error:
            logger.warning("Keeping %s is interrupted: %s", workspace.directory, said(error))
        except Exception:
            # One vault's fault must not end the keeping of the others.
            logger.exception("Keeping %s failed; trying again", workspace.directory)
        await asyncio.sleep(RESTART_SECONDS)

    async def _give_up_all(self) -> None:
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def keep(pool: Pool, locks: WriteLocks, outboxes: Outboxes, threads: FileThreads, workspace: Kept) -> None:
    """Follow one workspace's files and tell its changes, until something fails."""
    box = outboxes.of(workspace.id)
    telling = asyncio.create_task(box.run())
    following = asyncio.create_task(Follower(pool, locks, threads, workspace, box.wake).run())
    try:
        await asyncio.wait({telling, following}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (telling, following):
            task.cancel()
        results = await asyncio.gather(telling, following, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result


class Follower:
    """Has the index follow a workspace's files, and says when they cannot be relied on."""

    def __init__(self, pool: Pool, locks: WriteLocks, threads: FileThreads, workspace: Kept, committed: Callable[[], None]) -> None:
        self._pool = pool
        self._threads = threads
        self._workspace = workspace
        self._committed = committed
        self._indexer = Indexer(pool, locks, workspace.id, workspace.vault, threads.of(workspace.id))
        self._probe: asyncio.Future[str] | None = None
        # The directory of the last scan that was believed; nothing is known before the first.
        self._believed = workspace.identity
        # What the table says now.
        self._problem = workspace.problem
        self._reported: str | None = None

    async def run(self) -> None:
        """Follow for ever."""
        while True:
            try:
                identity = await self._identity()
                with watched(self._workspace.vault.top) as hints:
                    await self._follow(identity, hints)
            except VaultUnavailable as error:
                await self._report_problem(str(error))
                await asyncio.sleep(PROBE_SECONDS)

    async def _follow(self, identity: str, hints: Hints) -> None:
        """Returns when another directory has taken the place of this one."""
        touched: set[str] | None = None
        loop = asyncio.get_running_loop()
        last_whole = loop.time()
        while await self._identity() == identity:
            if (touched and self._problem is not None) or loop.time() - last_whole > self._rescan_seconds(hints):
                touched = None
            if touched is None:
                last_whole = loop.time()
            if touched is None or touched:
                await self._while_answering(self._scan(touched, identity, hints))
            touched = await hints.take(PROBE_SECONDS)

    def _rescan_seconds(self, hints: Hints) -> float:
        if not hints.watching:
            return UNWATCHED_RESCAN_SECONDS
        return RESCAN_SECONDS if self._problem is None else HELD_RESCAN_SECONDS

    async def _while_answering(self, scan: Coroutine[None, None, None]) -> None:
        """Let a scan end, or give it up when the vault goes away or stops answering in the middle.

        Raises:
            VaultUnavailable: see `_identity`.
        """
        task = asyncio.create_task(scan)
        try:
            while not (await asyncio.wait({task}, timeout=PROBE_SECONDS))[0]:
                await self._identity()
            task.result()
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def _scan(self, below: set[str] | None, identity: str, hints: Hints) -> None:
        same = self._believed in (None, identity)
        try:
            outcome = await self._indexer.scan(below, same_directory=same, touched=hints.touched)
        except Held as held:
            if not await workspaces.take_belief(self._pool, self._workspace.id):
                await self._report_problem(str(held))
                return
            logger.warning("The loss in %s is believed, as an operator asked", self._workspace.directory)
            below = None
            outcome = await self._indexer.scan(None, same_directory=same, believe=True)
        hints.add_later(outcome.unsettled, UNSETTLED_SECONDS)
        if outcome.changed:
            self._committed()
        if below is None:
            await self._report_believed(identity)

    async def _identity(self) -> str:
        """Which directory the root is now.

        Raises:
            VaultUnavailable: it is away or does not answer.
        """
        # A question to a dead mount may never return: there is at most one, and it is waited for again.
        if self._probe is None or self._probe.done():
            threads = self._threads.of(self._workspace.id)
            self._probe = asyncio.get_running_loop().run_in_executor(threads, self._workspace.vault.identity)
        done, _ = await asyncio.wait({self._probe}, timeout=PROBE_SECONDS_MAX)
        if not done:
            raise VaultUnavailable(f"{self._workspace.vault.top} does not answer")
        return self._probe.result()

    async def _report_problem(self, problem: str) -> None:
        if problem != self._problem:
            logger.warning("The vault %s is not available: %s", self._workspace.directory, problem)
            await workspaces.report(self._pool, self._workspace.id, problem)
            self._problem = problem

    async def _report_believed(self, identity: str) -> None:
        if self._problem is None and self._reported == identity:
            return
        if self._problem is not None:
            logger.warning("The vault %s is available again", self._workspace.directory)
        await workspaces.report(self._pool, self._workspace.id, None, identity)
        self._problem, self._believed, self._reported = None, identity, identity


async def discover(pool: Pool, vaults: tuple[Path, ...], created: Path | None) -> None:
    """Serve directories that come into the data directory while the process runs, and forget old changes; for ever."""
    loop = asyncio.get_running_loop()
    pruned = -PRUNE_SECONDS
    while True:
        try:
            await workspaces.discover(pool, vaults, created)
            if loop.time() - pruned > PRUNE_SECONDS:
                await outbox.prune(pool)
                pruned = loop.time()
        except ServiceError as error:
            logger.info("Not now: %s", error.detail)
        except VaultsError as error:
            logger.warning("A new directory is not served: %s", error)
        await asyncio.sleep(DISCOVER_SECONDS)
