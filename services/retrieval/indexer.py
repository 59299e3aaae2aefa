"""Takes notes that changed into the tables and the index.

Whatever says that a note changed, its state is asked of the notes service, cut in a thread, and stored in one transaction with its
neighbours', after the index has what it will need. While these are stored the next ones are read and cut, unless they are the same notes.
A reader that comes late is refused by the note's revision.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import batched
from uuid import UUID

import asyncpg
from opentelemetry.trace import Link

from services.retrieval import documents, held
from services.retrieval.backlog import Backlog
from services.retrieval.documents import Change, Gone, Known, Moved
from services.retrieval.index_writer import IndexWriter
from services.retrieval.passages import CUT_VERSION, CutNote, cut_note
from services.retrieval.pipeline import in_order
from shared.contracts import notes
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.notes import NOTES_PER_READ, Note, ReadNotes
from shared.database.pool import Pool, connection
from shared.messaging.client import Client
from shared.messaging.scope import Scope
from shared.telemetry import tracing
from shared.telemetry import vocabulary as words

logger = logging.getLogger(__name__)

# Answers of up to 16 notes: one is cut while the next is read.
READS_AT_ONCE = 2
# Notes that are cut ahead of what is stored.
CUT_AT_ONCE = 8
# A transaction holds about this many chunks; one note is never divided.
CHUNKS_PER_COMMIT = 512
# While one transaction is under way and the next one waits, no more is read.
PUBLISHED_AT_ONCE = 2
# For those that have many batches: one is read and cut while the other is stored.
BATCHES_AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class Dirty:
    """A note to look at.

    Attributes:
        content_hash: what it is said to be now; None: unknown, or gone.
        revision: of the fact that says so; None where a comparison found it.
        missed: the hash of a document whose note a complete list did not have.
        moved_from: its old path, where the fact is of a move.
        left: this is the old path of such a one, where another note may be by now.
    """

    workspace: UUID
    path: str
    content_hash: str | None = None
    revision: int | None = None
    missed: str | None = None
    moved_from: str | None = None
    left: bool = False


@dataclass(frozen=True, slots=True)
class _Tables:
    """What the tables say of notes, by workspace and path.

    Attributes:
        stored: their documents.
        waiting: those of which a change waits to be published.
        new_ids: of documents that are to be made.
        vacated: paths that moves are about to leave.
    """

    stored: Mapping[tuple[UUID, str], Known]
    waiting: Collection[tuple[UUID, str]] = ()
    new_ids: Mapping[tuple[UUID, str], UUID] = field(default_factory=dict)
    vacated: Collection[str] = ()

    def are_of(self, one: Dirty) -> bool:
        """Whether they have the note as it is said to be."""
        key = one.workspace, one.path
        if one.content_hash is None or one.moved_from or key in self.waiting:
            return False
        return key in self.stored and self.stored[key].is_of(one.content_hash)


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
        # What is being published, in this order, with the notes that it is of.
        self._publishing: dict[asyncio.Task[None], set[tuple[UUID, str]]] = {}
        self.last_error: str | None = None

    @property
    def busy(self) -> bool:
        """Whether notes are being taken in just now."""
        return self._lock.locked() or bool(self._publishing)

    async def apply(self, batch: Sequence[Dirty], moves: Sequence[Moved] = (), causes: Sequence[Link] = ()) -> list[Dirty]:
        """Take a batch in; what could not be read just now is returned, to be tried again. `moves`: all that led to where its notes are,
        in order, so that their documents go with them. `causes`: what its notes were written for.

        Raises:
            ServiceError: the database is away; nothing of the last transaction is stored.
        """
        if not batch:
            return []
        for one in batch:
            if not one.left and not self._backlog.moves_on(one.workspace, one.path, one.revision or 0):
                self._backlog.add(one.workspace, one.path, one.revision or 0, moved_from=one.moved_from)
        publishing: list[asyncio.Task[None]] = []
        told: tracing.Attributes = {words.INDEX_NOTES: len(batch)}
        with tracing.span(words.INDEXING, told, links=causes) as span, tracing.unrecorded_below(span):
            try:
                async with self._lock:
                    failed = await self._apply(batch, moves, publishing)
            finally:
                # Whoever comes next has the lock meanwhile.
                await asyncio.gather(*publishing, return_exceptions=True)
                span.set_attribute(words.INDEX_PENDING, len(self._backlog))
            for done in publishing:
                done.result()
            span.set_attribute(words.INDEX_FAILED, len(failed))
        if not failed:
            self.last_error = None
        return failed

    async def _apply(self, batch: Sequence[Dirty], moves: Sequence[Moved], publishing: list[asyncio.Task[None]]) -> list[Dirty]:
        """`publishing` gets what is under way when this returns or raises."""
        failed: list[Dirty] = []
        ready: list[tuple[Change, UUID | None]] = []
        if moves or any((one.workspace, one.path) in notes for one in batch for notes in self._publishing.values()):
            await self._nothing_published()
        if moves:
            # Before anything is said of their paths: a document's id goes with the move.
            await self._publish([(move, None) for move in moves])
        async with aclosing(self._prepare(batch, await self._look_up(batch))) as prepared:
            async for one, outcome in prepared:
                if isinstance(outcome, ServiceError):
                    self.last_error = f"A note could not be read: {outcome.detail}"
                    failed.append(one)
                    continue
                if outcome is None:
                    self._backlog.done(one.workspace, one.path, one.revision)
                    continue
                ready.append(outcome)
                if sum(len(change.passages) for change, _ in ready if isinstance(change, CutNote)) >= CHUNKS_PER_COMMIT:
                    await self._begin_to_publish(ready, publishing)
                    ready = []
        await self._begin_to_publish(ready, publishing)
        return failed

    async def _begin_to_publish(self, changes: Sequence[tuple[Change, UUID | None]], publishing: list[asyncio.Task[None]]) -> None:
        """Publish these when those before are, while others are read and cut.

        Raises:
            ServiceError: one of `publishing` failed.
        """
        while len(self._publishing) >= PUBLISHED_AT_ONCE:
            await asyncio.wait(self._publishing, return_when=asyncio.FIRST_COMPLETED)
        for task in publishing:
            if task.done():
                task.result()
        if changes:
            task = asyncio.create_task(self._publish(changes), name="publish")
            self._publishing[task] = {(change.workspace, change.path) for change, _ in changes}
            task.add_done_callback(self._publishing.pop)
            publishing.append(task)

    async def _nothing_published(self) -> None:
        """Until nothing is being published; whether that went well is for those to hear who began it."""
        if self._publishing:
            await asyncio.wait(self._publishing)

    async def _publish(self, changes: Sequence[tuple[Change, UUID | None]], *, by_hand: UUID | None = None) -> None:
        try:
            await self._writer.publish(changes, by_hand=by_hand)
        except (asyncpg.IntegrityConstraintViolationError, asyncpg.DataError):
            if len(changes) == 1 or by_hand is not None:
                raise
            await self._publish_each(changes)
            return
        for change, _ in changes:
            if not isinstance(change, Moved):
                self._backlog.done(change.workspace, change.path, change.revision)

    async def _publish_each(self, changes: Sequence[tuple[Change, UUID | None]]) -> None:
        """What the tables refuse must not keep what was to be stored with it from being found."""
        refused: asyncpg.PostgresError | None = None
        for change in changes:
            try:
                await self._publish([change])
            except (asyncpg.IntegrityConstraintViolationError, asyncpg.DataError) as error:
                refused = error
        if refused is not None:
            self.last_error = "A note could not be stored."
            raise refused

    async def _look_up(self, batch: Sequence[Dirty]) -> _Tables:
        by_workspace: dict[UUID, list[str]] = {}
        for one in batch:
            by_workspace.setdefault(one.workspace, []).append(one.path)
        stored: dict[tuple[UUID, str], Known] = {}
        waiting: set[tuple[UUID, str]] = set()
        for workspace, paths in by_workspace.items():
            known = await documents.known(self._pool, workspace, paths)
            stored.update({(workspace, path): document for path, document in known.items()})
            async with connection(self._pool) as db:
                waiting.update((workspace, path) for path in await held.among(db, workspace, paths))
        new = [(one.workspace, one.path) for one in batch if (one.workspace, one.path) not in stored and not one.moved_from]
        return _Tables(stored, waiting, await documents.new_ids(self._pool, new) if new else {})

    async def _prepare(self, batch: Sequence[Dirty], tables: _Tables) -> AsyncGenerator[tuple[Dirty, _Prepared]]:
        """What there is to store of each, in order. To be closed."""
        async with aclosing(in_order((self._read(some, tables) for some in batched(batch, NOTES_PER_READ)), READS_AT_ONCE)) as answers:
            async for answer in answers:
                async with aclosing(in_order((self._prepare_one(*one, tables) for one in answer), CUT_AT_ONCE)) as prepared:
                    async for outcome in prepared:
                        yield outcome

    async def _read(self, some: Sequence[Dirty], tables: _Tables) -> list[tuple[Dirty, Note | ServiceError | None]]:
        """The notes, in order; None where the tables have them."""
        wanted: dict[UUID, list[str]] = {}
        for one in some:
            if not tables.are_of(one):
                wanted.setdefault(one.workspace, []).append(one.path)
        found: dict[tuple[UUID, str], Note | ServiceError] = {}
        for workspace, paths in wanted.items():
            left = list(dict.fromkeys(paths))
            while left:
                answer = await self._ask(workspace, left)
                found |= {(workspace, path): one for path, one in answer.items()}
                left = [path for path in left if path not in answer]
        return [(one, found.get((one.workspace, one.path))) for one in some]

    async def _ask(self, workspace: UUID, paths: Sequence[str]) -> dict[str, Note | ServiceError]:
        """Some of these notes, of the first at least what is wrong with it."""
        try:
            request = ReadNotes(workspace=workspace, paths=list(paths))
            answer = await self._client.ask(notes.NOTE_READ_SOME, request, Scope.root(notes.NOTE_READ_SOME.timeout_seconds))
        except ServiceError as error:
            return dict.fromkeys(paths, error)
        found: dict[str, Note | ServiceError] = {}
        for path, item in zip(paths, answer.items, strict=True):
            if one := item.note or (item.problem and item.problem.error()):
                found[path] = one
        return found or {paths[0]: ServiceError(ErrorCode.INTERNAL, "the notes service did not answer for it")}

    async def _prepare_one(self, one: Dirty, note: Note | ServiceError | None, tables: _Tables) -> tuple[Dirty, _Prepared]:
        key = one.workspace, one.path
        stored = tables.stored.get(key)
        # Facts that were heard and are not in this batch: what they tell of documents' moves would come too late.
        if note is None or self._backlog.moves_in(*key, one.revision or 0):
            return one, None
        if isinstance(note, ServiceError):
            return one, self._unread(one, stored, note, held=key in tables.waiting)
        try:
            document = stored.id if stored else tables.new_ids.get((one.workspace, note.path))
            if document is None:
                document = await documents.document_id(self._pool, one.workspace, note.path, tables.vacated)
            return one, await self._cut(one, document, note)
        except ServiceError as error:
            return one, error

    async def _cut(self, one: Dirty, document: UUID, note: Note) -> _Prepared:
        try:
            cut = await asyncio.get_running_loop().run_in_executor(self._thread, cut_note, one.workspace, document, note)
        except Exception:  # one note that breaks the cutting must not keep the others from being found
            logger.exception("A note could not be cut")
            return ServiceError(ErrorCode.INTERNAL, "it could not be cut into passages")
        return cut, document

    def _unread(self, one: Dirty, stored: Known | None, error: ServiceError, *, held: bool) -> _Prepared:
        if error.code is ErrorCode.WORKSPACE_NOT_FOUND:
            return None  # no longer served: what is known of it stays
        if error.code not in (ErrorCode.NOTE_NOT_FOUND, ErrorCode.NOTE_UNREADABLE, ErrorCode.PATH_INVALID):
            return error
        if self._backlog.moves_on(one.workspace, one.path, one.revision or 0):
            return None
        if stored is None:
            return (Gone(one.workspace, one.path, one.revision), None) if held else None
        revision = one.revision if one.missed is None else None
        return Gone(one.workspace, one.path, revision if revision is not None else stored.revision, one.missed), None

    async def publish(self, workspace: UUID) -> None:
        """Publish all that is held of a workspace, in one transaction.

        Raises:
            ServiceError: a note cannot be read just now, or the database is away; nothing is published.
        """
        async with self._lock:
            await self._nothing_published()
            async with connection(self._pool) as db:
                waiting = await held.of(db, workspace)
            stored = await documents.known(self._pool, workspace)
            changes: list[tuple[Change, UUID | None]] = []
            vacated: set[str] = set()
            for one in waiting:
                if one.moved_from in stored and one.path not in stored:
                    stored[one.path] = stored.pop(one.moved_from)
                    vacated.add(one.moved_from)
                    changes.append((Moved(workspace, one.moved_from, one.path, one.revision), None))
            # Also what an earlier version of the service cut, and was left as it was published.
            present = [Dirty(workspace, one.path, revision=one.revision) for one in waiting if one.content_hash is not None]
            present += [Dirty(workspace, path) for path, known in stored.items() if known.cut_version != CUT_VERSION]
            present = list({one.path: one for one in reversed(present)}.values())
            tables = _Tables({(workspace, path): known for path, known in stored.items()}, vacated=vacated)
            async with aclosing(self._prepare(present, tables)) as outcomes:
                async for _, prepared in outcomes:
                    if isinstance(prepared, ServiceError):
                        raise prepared
                    if prepared is not None:
                        changes.append(prepared)
            gone = [one for one in waiting if one.content_hash is None]
            changes += [(Gone(workspace, one.path, one.revision), None) for one in gone]
            if changes:
                await self._publish(changes, by_hand=workspace)

    def close(self) -> None:
        """Let the thread go."""
        self._thread.shutdown(wait=False, cancel_futures=True)
