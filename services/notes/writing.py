"""Changing notes: who may, one change at a time, in the file first and then in the index, and told once.

The file is the truth: once it is written the change is answered as done, whatever becomes of the index, which then follows by itself.
"""

import asyncio
import errno
import logging
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import asyncpg

from services.notes import catalog, changes, workspaces
from services.notes.changes import Seen, modified_at
from services.notes.durable_file import digest
from services.notes.entry import Entry
from services.notes.file_threads import FileThreads
from services.notes.indexing import as_text, seen_of
from services.notes.metadata import properties
from services.notes.note_path import NotePath
from services.notes.outbox import Outboxes
from services.notes.patch import patch
from services.notes.place import NoteBusy, NoteExists, NoteStale
from services.notes.reading import NO_TEXT, not_found, unreadable, vault_unavailable
from services.notes.text_change import changed
from services.notes.vault import NoSuchNote, NoteInaccessible, NoteUnreadable, RawNote, VaultUnavailable
from services.notes.vault_writer import VaultWriter
from services.notes.workspaces import Kept
from services.notes.write_lock import WriteLocks
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.notes import Appended, AppendExchange, ApplyDraft, CreateNote, DeleteNote, MoveNote, Note, PatchNote, ReplaceNote
from shared.contracts.subject import Empty
from shared.database.pool import Connection, Pool
from shared.messaging.scope import Account
from shared.telemetry.logs import said

logger = logging.getLogger(__name__)

# A program that saves has its file open for a moment, and may do so again and again: each pause is twice the one before.
BUSY_ATTEMPTS = 5
BUSY_SECONDS = 0.05

type Work = Callable[[VaultWriter, NotePath], RawNote | None]


class NoteWriter:
    """Makes the changes. All methods raise ServiceErrors: those named in `shared.contracts.notes`, `workspace_not_found`, `forbidden`,
    `path_invalid`, `note_not_found`, `note_unreadable`, `too_large`, `note_busy` while another program saves the note, and
    `vault_unavailable`, `vault_read_only`, `storage_full` where the disk does not take it (the note is then as it was).
    """

    def __init__(self, pool: Pool, locks: WriteLocks, outboxes: Outboxes, threads: FileThreads) -> None:
        self._pool = pool
        self._locks = locks
        self._outboxes = outboxes
        self._threads = threads
        self._running: set[asyncio.Task[Note | None]] = set()

    async def create(self, request: CreateNote, account: Account | None) -> Note:
        """A new note."""
        data = _data(request.content)
        path = NotePath.parse(request.path)
        return _there(await self._write(request.workspace, account, path, lambda vault, named: vault.create(named, data)))

    async def replace(self, request: ReplaceNote, account: Account | None) -> Note:
        """Other text. A note that has gone is another version, too: without the hash it would be created (RFC 9110, 13.2.1)."""
        data = _data(request.content)
        path = NotePath.parse(request.path)

        def work(vault: VaultWriter, named: NotePath) -> RawNote:
            try:
                return vault.replace(named, lambda _: data, request.content_hash)
            except NoSuchNote:
                raise NoteStale(None) from None

        return _there(await self._write(request.workspace, account, path, work))

    async def patch(self, request: PatchNote, account: Account | None) -> Note:
        """Other text in one place."""
        path = NotePath.parse(request.path)

        def edit(data: bytes) -> bytes:
            _text(path, data)
            return _valid(patch(data, request.old_text, request.new_text))

        work: Work = lambda vault, named: vault.replace(named, edit, request.content_hash)  # noqa: E731
        return _there(await self._write(request.workspace, account, path, work))

    async def move(self, request: MoveNote, account: Account | None) -> Note:
        """Another path. Links in other notes stay as they are (a missing target is reported where it is used)."""
        path, to = NotePath.parse(request.path), NotePath.parse(request.to)
        work: Work = lambda vault, named: vault.move(named, to, request.content_hash, lambda data: _text(path, data))  # noqa: E731
        return _there(await self._write(request.workspace, account, path, work, to=to))

    async def delete(self, request: DeleteNote, account: Account | None) -> Empty:
        """Into the trash."""
        path = NotePath.parse(request.path)
        await self._write(request.workspace, account, path, lambda vault, named: vault.trash(named, request.content_hash))
        return Empty()

    async def append(self, request: AppendExchange, account: Account | None) -> Appended:
        """An exchange at the end, once per message."""
        path = NotePath.parse(request.path)
        entry = Entry(request.message_id, request.conversation_title, request.question, request.answer)
        new = _data(entry.appended_to(""))

        def edit(data: bytes) -> bytes:
            content = _text(path, data)
            return data if entry.is_in(content) else _valid(entry.appended_to(content).encode())

        created = False

        def work(vault: VaultWriter, named: NotePath) -> RawNote:
            nonlocal created
            # Another version, or a note that was not there before: to be tried again, as where another program is writing.
            try:
                return vault.replace(named, edit)
            except NoteStale:
                raise NoteBusy from None
            except NoSuchNote:
                pass
            try:
                raw = vault.create(named, new)
            except NoteExists as error:
                if error.current is None:
                    raise
                raise NoteBusy from None
            created = True
            return raw

        note = await self._write(request.workspace, account, path, work)
        return Appended(note=_there(note), created=created)

    async def apply(self, request: ApplyDraft, account: Account | None) -> Note:
        """A change as it was drafted; done once, however often it is asked for."""
        path = NotePath.parse(request.path)

        def edit(data: bytes) -> bytes:
            new = _valid(changed(data, request.change))
            if digest(new) != request.content_hash:
                raise ServiceError(ErrorCode.INVALID, "The change does not make what was drafted.")
            return new

        def work(vault: VaultWriter, named: NotePath) -> RawNote:
            try:
                if request.base_hash is None:
                    return vault.create(named, edit(b""))
                return vault.replace(named, edit, request.base_hash)
            except NoSuchNote:
                raise NoteStale(None) from None
            except (NoteStale, NoteExists) as error:
                if error.current != request.content_hash:
                    raise
            return vault.replace(named, lambda data: data, request.content_hash)

        return _there(await self._write(request.workspace, account, path, work))

    async def _write(
        self, workspace: UUID, account: Account | None, path: NotePath, work: Work, *, to: NotePath | None = None
    ) -> Note | None:
        kept = await workspaces.require_writable(self._pool, workspace, account)
        if kept.problem is not None:
            raise vault_unavailable(kept.directory)
        # Who gives up waiting does not stop it: a thread cannot be, and the lock must last as long as it writes.
        task = asyncio.create_task(self._while_busy(kept, path, to, work))
        self._running.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Note | None]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # seen; whoever still waits gets it

    async def _while_busy(self, workspace: Kept, path: NotePath, to: NotePath | None, work: Work) -> Note | None:
        for attempt in range(BUSY_ATTEMPTS):
            if attempt:
                await asyncio.sleep(BUSY_SECONDS * 2 ** (attempt - 1))
            try:
                return await self._locked(workspace, path, to, work)
            except NoteBusy:
                continue
        raise ServiceError(ErrorCode.NOTE_BUSY, f"Another program is writing {path.text}; try again when it is done.", retry_after=2)

    async def _locked(self, workspace: Kept, path: NotePath, to: NotePath | None, work: Work) -> Note | None:
        raw: RawNote | None = None
        seen: Seen | None = None
        revision, written = 0, False
        try:
            async with self._locks.held(workspace.id) as connected:
                path = await self._threads.run(workspace.id, workspace.vault.named, path)
                target = to or path
                raw, seen = await self._threads.run(workspace.id, in_vault, workspace, path, target, work)
                written = True
                await self._index(connected, workspace.id, path, target, seen)
                entry = (await catalog.entries(connected, workspace.id, [target.text])).get(target.text)
                revision = entry.revision if entry else 0
        except (ServiceError, asyncpg.PostgresError) as error:
            if not written:
                raise
            logger.warning("%s is written; the index follows later: %s", target.text, said(error))
        self._outboxes.of(workspace.id).wake()
        return None if raw is None or seen is None else _note(seen, raw, revision)

    async def _index(self, connected: Connection, workspace: UUID, path: NotePath, target: NotePath, seen: Seen | None) -> None:
        if seen is None:
            await changes.commit(connected, workspace, [], [path.text])
        elif target == path:
            await changes.commit(connected, workspace, [seen])
        else:
            # The index may not know yet what other programs did: an edit of this note, and a note that was where it goes now.
            await changes.commit(connected, workspace, [replace(seen, path=path.text)], [target.text])
            await changes.commit(connected, workspace, [seen], [path.text])


def in_vault(workspace: Kept, path: NotePath, target: NotePath, work: Work) -> tuple[RawNote | None, Seen | None]:
    """Do it, in a thread.

    Raises:
        NoteBusy: see there.
        ServiceError: as `NoteWriter` says.
    """
    try:
        raw = work(VaultWriter(workspace.vault, workspace.identity), path)
    except NoSuchNote:
        raise not_found(path) from None
    except NoteExists as error:
        raise ServiceError(ErrorCode.NOTE_EXISTS, f"There is something named {target.text} already.", current_hash=error.current) from None
    except NoteStale as error:
        raise ServiceError(
            ErrorCode.NOTE_STALE, f"{path.text} is not the version you name any more; read it again.", current_hash=error.current
        ) from None
    except NoteUnreadable as error:
        raise unreadable(path, str(error)) from None
    except VaultUnavailable:
        raise vault_unavailable(workspace.directory) from None
    except NoteInaccessible as error:
        raise ServiceError(ErrorCode.VAULT_UNAVAILABLE, f"{error}; try again later.", retry_after=5) from None
    except OSError as error:
        logger.warning("A change in %s failed: %s", workspace.directory, error)
        raise _not_taken(error) from error
    return raw, None if raw is None else seen_of(target.text, raw)


def _not_taken(error: OSError) -> ServiceError:
    """What a request is told of a disk that does not take a change."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return ServiceError(ErrorCode.STORAGE_FULL, "There is no room left for the notes; nothing was changed.")
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return ServiceError(
            ErrorCode.VAULT_READ_ONLY, "The notes' directory does not take changes from this service; nothing was changed.", retry_after=30
        )
    if error.errno == errno.EXDEV:
        return ServiceError(
            ErrorCode.PATH_INVALID, "That path lies on another file system, to which a note cannot be moved; create it there instead."
        )
    if error.errno == errno.ENAMETOOLONG:
        return ServiceError(ErrorCode.PATH_INVALID, "The path has a name that is too long for the file system.")
    return ServiceError(
        ErrorCode.VAULT_UNAVAILABLE, f"The change could not be written ({error.strerror}); read the note again.", retry_after=5
    )


def _data(content: str) -> bytes:
    return _valid(content.encode())


def _valid(data: bytes) -> bytes:
    if b"\0" in data:
        raise ServiceError(ErrorCode.INVALID, "A note cannot hold a NUL character.")
    return data


def _text(path: NotePath, data: bytes) -> str:
    if (content := as_text(data)) is None:
        raise unreadable(path, NO_TEXT)
    return content


def _there(note: Note | None) -> Note:
    assert note is not None  # only what went into the trash is not
    return note


def _note(seen: Seen, raw: RawNote, revision: int) -> Note:
    return Note(
        path=seen.path,
        title=seen.title,
        tags=seen.tags,
        content_hash=seen.content_hash,
        size=len(raw.data),
        modified_at=modified_at(raw.stat),
        content=raw.data.decode(),
        revision=revision,
        properties=properties(raw.data.decode()),
    )
