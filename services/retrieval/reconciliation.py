"""Compares what the notes service has with what is indexed, and takes in the differences: at the start, and now and then."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import aclosing
from itertools import batched
from uuid import UUID

import asyncpg

from services.retrieval import documents, held
from services.retrieval.backlog import Backlog
from services.retrieval.documents import Known
from services.retrieval.indexer import BATCHES_AT_ONCE, Dirty, Indexer
from services.retrieval.pipeline import in_order
from shared.contracts import notes
from shared.contracts.errors import ServiceError
from shared.contracts.notes import ListNotes, NoteSummary
from shared.contracts.subject import Empty
from shared.database.pool import UNAVAILABLE, Pool, connection
from shared.messaging.client import Client
from shared.messaging.scope import Scope
from shared.telemetry.logs import said

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 600.0
RETRY_SECONDS = 2.0
# A note that stays unreadable is no reason to compare everything every other second.
RETRY_SECONDS_MAX = 60.0
NOTES_PER_PAGE = 1000
NOTES_PER_BATCH = 32


class Reconciliation:
    """Finds what no fact has told. A workspace that cannot be read just now, or is not served, is left as it is."""

    def __init__(self, pool: Pool, client: Client, indexer: Indexer, backlog: Backlog) -> None:
        self._pool = pool
        self._client = client
        self._indexer = indexer
        self._backlog = backlog

    async def run(self) -> None:
        """For ever."""
        retry = RETRY_SECONDS
        while True:
            try:
                failed = bool(await self.once())
            except (ServiceError, *UNAVAILABLE, asyncpg.PostgresError) as error:
                logger.warning("Notes and index cannot be compared yet: %s", said(error))
                failed, retry = True, RETRY_SECONDS
            await asyncio.sleep(retry if failed else PAUSE_SECONDS)
            retry = min(2 * retry, RETRY_SECONDS_MAX) if failed else RETRY_SECONDS

    async def once(self) -> list[Dirty]:
        """Compare all workspaces; what could not be taken in is returned."""
        workspaces = (await self._client.ask(notes.WORKSPACE_LIST, Empty(), Scope.root(10))).items
        different: list[Dirty] = []
        for workspace in workspaces:
            if workspace.available:
                found = await self._differences(workspace.id)
                for one in found:
                    self._backlog.add(one.workspace, one.path)
                self._backlog.compared(workspace.id)
                different += found
        failed = await self._take_in(different)
        if different:
            logger.info("%d notes were not as they had been indexed; %d of them cannot be read yet", len(different), len(failed))
        return failed

    async def _take_in(self, different: Sequence[Dirty]) -> list[Dirty]:
        """Returns what could not be; where one batch fails the later ones are left."""
        taken_in = in_order((self._indexer.apply(batch) for batch in batched(different, NOTES_PER_BATCH)), BATCHES_AT_ONCE)
        async with aclosing(taken_in):
            return [one async for failed in taken_in for one in failed]

    async def _differences(self, workspace: UUID) -> list[Dirty]:
        stored = await documents.known(self._pool, workspace)
        waiting = await self._waiting(workspace)
        present = await self._listed(workspace)
        present.sort(key=lambda note: note.modified_at, reverse=True)
        changed = [
            Dirty(workspace, note.path, note.content_hash)
            for note in present
            if not _is_known(note.content_hash, stored.get(note.path), waiting, note.path)
        ]
        paths = {note.path for note in present}
        missed = [
            Dirty(workspace, path, missed=known.content_hash)
            for path, known in stored.items()
            if path not in paths and (waiting is None or path not in waiting or waiting[path] is not None)
        ]
        missed += [Dirty(workspace, path) for path, kept in (waiting or {}).items() if kept and path not in paths and path not in stored]
        return changed + missed

    async def _waiting(self, workspace: UUID) -> dict[str, str | None] | None:
        """What is held, by path, with its content's hash; None where every change publishes."""
        async with connection(self._pool) as db:
            if not await held.manual(db, [workspace]):
                return None
            return {one.path: one.content_hash for one in await held.of(db, workspace)}

    async def _listed(self, workspace: UUID) -> list[NoteSummary]:
        found: list[NoteSummary] = []
        cursor: str | None = None
        while True:
            request = ListNotes(workspace=workspace, cursor=cursor, limit=NOTES_PER_PAGE)
            page = await self._client.ask(notes.NOTE_LIST, request, Scope.root(10))
            found += page.items
            if (cursor := page.next_cursor) is None:
                return found


def _is_known(content_hash: str, stored: Known | None, waiting: dict[str, str | None] | None, path: str) -> bool:
    """Whether the note is as it was published, or as it is held."""
    if waiting is None:
        return stored is not None and stored.is_of(content_hash)
    # A publication by hand stays as it was cut.
    return waiting[path] == content_hash if path in waiting else stored is not None and stored.content_hash == content_hash
