"""Takes notes that changed into the tables and the index.

Whatever says that a note changed, its state is asked of the notes service, cut in a thread, and stored in one transaction with its
neighbours'; then the index is written. A reader that comes late is refused by the note's revision.
"""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import batched
from typing import cast
from uuid import UUID

from services.retrieval import documents
from services.retrieval.backlog import Backlog
from services.retrieval.documents import Change, Gone, Known, Moved
from services.retrieval.index_writer import IndexWriter
from services.retrieval.passages import CutNote, cut_note
from shared.contracts import notes
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.notes import ReadNote
from shared.database.pool import Pool
from shared.messaging.client import Client
from shared.messaging.scope import Scope

logger = logging.getLogger(__name__)

READS_AT_ONCE = 8
READ_SECONDS = 30.0
# A transaction holds about this many chunks; one note is never divided.
CHUNKS_PER_COMMIT = 512


@dataclass(frozen=True, slots=True)
class Dirty:
    """A note to look at.

    Attributes:
        content_hash: what it is said to be now; None: unknown, or gone.
        revision: of the fact that says so; None where a comparison found it.
        missed: the hash of a document whose note a complete list did not have.
        moved_from: its old path, where the fact is of a move.
    """

    workspace: UUID
    path: str
    content_hash: str | None = None
    revision: int | None = None
    missed: str | None = None
    moved_from: str | None = None


# A change to store with its document's id; why the note cannot be read just now; None where there is nothing to do.
type _Prepared = tuple[Change, UUID | None] | ServiceError | None


class Indexer:
    """One batch at a time. `last_error` is a sentence, None after a success."""

    def __init__(self, pool: Pool, client: Client, writer: IndexWriter, backlog: Backlog) -> None:
        self._pool = pool
        self._client = client
        self._writer = writer
        self._backlog = backlog
        self._lock = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, "cutting")
        self._reading = asyncio.Semaphore(READS_AT_ONCE)
        self._writing: asyncio.Task[None] | None = None
        self.last_error: str | None = None

    @property
    def busy(self) -> bool:
        """Whether notes are being taken in just now."""
        return self._lock.locked()

    async def apply(self, batch: Sequence[Dirty]) -> list[Dirty]:
        """Take a batch in; what could not be read just now is returned, to be tried again.

        Raises:
            ServiceError: the database is away; nothing of the last transaction is stored.
        """
        for one in batch:
            self._backlog.add(one.workspace, one.path, one.revision or 0)
        async with self._lock:
            try:
                failed = await self._apply(batch)
            finally:
                await self._written()
        if not failed:
            self.last_error = None
        return failed

    async def _apply(self, batch: Sequence[Dirty]) -> list[Dirty]:
        failed: list[Dirty] = []
        held: list[tuple[Change, UUID | None]] = []
        for part in batched(batch, READS_AT_ONCE):
            # In order, and moves before what reads their paths: a document's id goes with the move.
            moves = [Moved(one.workspace, one.moved_from, one.path, one.revision) for one in part if one.moved_from and one.revision]
            if moves:
                await self._commit(held)
                held = []
                await self._commit([(move, None) for move in moves])
            for one, prepared in zip(part, await self._prepare_all(part), strict=True):
                if isinstance(prepared, ServiceError):
                    self.last_error = f"A note could not be read: {prepared.detail}"
                    failed.append(one)
                elif prepared is None:
                    self._backlog.done(one.workspace, one.path, one.revision)
                else:
                    held.append(prepared)
            if sum(len(change.passages) for change, _ in held if isinstance(change, CutNote)) >= CHUNKS_PER_COMMIT:
                await self._commit(held)
                held = []
        await self._commit(held)
        return failed

    async def _commit(self, changes: list[tuple[Change, UUID | None]]) -> None:
        if not changes:
            return
        await documents.commit(self._pool, changes)
        await self._written()
        # The index is written while the next notes are cut.
        self._writing = asyncio.create_task(self._write_index([change for change, _ in changes]))  # noqa: RUF006 - awaited by _written

    async def _written(self) -> None:
        """Until the index has what was committed, or has failed to take it."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            await writing

    async def _write_index(self, changes: Sequence[Change]) -> None:
        try:
            await self._writer.drain()
        except ServiceError as error:
            # Stored all the same: found by words in the tables until the index writer has tried again.
            logger.warning("The index could not be written: %s", error.detail)
            self._writer.suspect()
        for change in changes:
            if not isinstance(change, Moved):
                self._backlog.done(change.workspace, change.path, change.revision)

    async def _prepare_all(self, batch: Sequence[Dirty]) -> list[_Prepared]:
        by_workspace: dict[UUID, list[str]] = {}
        for one in batch:
            by_workspace.setdefault(one.workspace, []).append(one.path)
        known = {workspace: await documents.known(self._pool, workspace, paths) for workspace, paths in by_workspace.items()}
        work = (self._prepare(one, known[one.workspace].get(one.path)) for one in batch)
        prepared = await asyncio.gather(*work, return_exceptions=True)
        for outcome in prepared:
            if isinstance(outcome, BaseException) and not isinstance(outcome, ServiceError):
                raise outcome
        return cast("list[_Prepared]", prepared)

    async def _prepare(self, one: Dirty, stored: Known | None) -> _Prepared:
        """The change to store; None where there is nothing to do."""
        if stored is not None and one.content_hash is not None and stored.is_of(one.content_hash) and not one.moved_from:
            return None
        try:
            async with self._reading:
                note = await self._client.ask(notes.NOTE_READ, ReadNote(workspace=one.workspace, path=one.path), Scope.root(READ_SECONDS))
        except ServiceError as error:
            return self._unread(one, stored, error)
        document = stored.id if stored else await documents.document_id(self._pool, one.workspace, note.path, one.moved_from)
        try:
            cut = await asyncio.get_running_loop().run_in_executor(self._thread, cut_note, one.workspace, document, note)
        except Exception:  # one note that breaks the cutting must not keep the others from being found
            logger.exception("A note could not be cut")
            return ServiceError(ErrorCode.INTERNAL, "it could not be cut into passages")
        return cut, document

    def _unread(self, one: Dirty, stored: Known | None, error: ServiceError) -> _Prepared:
        if error.code is ErrorCode.WORKSPACE_NOT_FOUND:
            return None  # no longer served: what is known of it stays
        if error.code not in (ErrorCode.NOTE_NOT_FOUND, ErrorCode.NOTE_UNREADABLE, ErrorCode.PATH_INVALID):
            return error
        if stored is None:
            return None
        revision = one.revision if one.missed is None else None
        return Gone(one.workspace, one.path, revision if revision is not None else stored.revision, one.missed), None

    def close(self) -> None:
        """Let the thread go."""
        self._thread.shutdown(wait=False, cancel_futures=True)
