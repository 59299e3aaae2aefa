"""Reading notes: always from their files, never from the index, so that what is cited is what is there."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from services.notes import catalog, workspaces
from services.notes.catalog import Entry
from services.notes.changes import modified_at
from services.notes.durable_file import digest
from services.notes.file_threads import FileThreads
from services.notes.indexing import as_text, describe
from services.notes.metadata import properties
from services.notes.note_path import NotePath
from services.notes.vault import NoSuchNote, NoteInaccessible, NoteUnreadable, RawNote, VaultUnavailable
from services.notes.workspaces import Kept
from shared.contracts.errors import ErrorBody, ErrorCode, ServiceError
from shared.contracts.notes import NOTES_PER_READ, Note, NoteRead, NotesRead, ReadNote, ReadNotes
from shared.database.pool import Pool, connection
from shared.messaging.scope import Account

NO_TEXT = "it is not text in UTF-8, or holds a NUL character"
# Of the notes in one answer; a longer one has an answer of its own.
BYTES_PER_ANSWER = 1024 * 1024


async def read(pool: Pool, threads: FileThreads, request: ReadNote, account: Account | None) -> Note:
    """The note with its whole text: byte order mark, front matter and line endings as they are.

    Raises:
        ServiceError: `workspace_not_found`, `path_invalid`, `note_not_found`, `note_unreadable`, `vault_unavailable`.
    """
    path = NotePath.parse(request.path)
    (found,) = await _read_each(pool, threads, request.workspace, [path], account)
    if isinstance(found, ServiceError):
        raise found
    return found


async def read_some(pool: Pool, threads: FileThreads, request: ReadNotes, account: Account | None) -> NotesRead:
    """Several notes as `read` has them, as many as fit into one answer, and what it would raise of a note beside the others.

    Raises:
        ServiceError: `workspace_not_found`, `invalid` for none or too many; `vault_unavailable` where it is known to be.
    """
    if not 1 <= len(request.paths) <= NOTES_PER_READ:
        raise ServiceError(ErrorCode.INVALID, f"1 to {NOTES_PER_READ} notes are read at once.")
    parsed = [_parsed(path) for path in request.paths]
    found = iter(await _read_each(pool, threads, request.workspace, [one for one in parsed if isinstance(one, NotePath)], account))
    return NotesRead(items=[_item(one if isinstance(one, ServiceError) else next(found, None)) for one in parsed])


def _parsed(path: str) -> NotePath | ServiceError:
    try:
        return NotePath.parse(path)
    except ServiceError as error:
        return error


def _item(found: Note | ServiceError | None) -> NoteRead:
    return NoteRead(problem=ErrorBody.of(found)) if isinstance(found, ServiceError) else NoteRead(note=found)


async def _read_each(
    pool: Pool, threads: FileThreads, workspace_id: UUID, asked: Sequence[NotePath], account: Account | None
) -> list[Note | ServiceError]:
    """What is found of the first of these, at least of one.

    What is known of a note is asked before its file is read: a text may be newer than its revision says, and never older, so that nobody
    who goes by revisions keeps an old text for a new one.
    """
    workspace = await workspaces.require(pool, workspace_id, account)
    if workspace.problem is not None:
        raise vault_unavailable(workspace.directory)
    paths = await threads.run(workspace.id, _named, workspace, asked)
    async with connection(pool) as connected:
        entries = await catalog.entries(connected, workspace.id, [path.text for path in paths])
    return await threads.run(workspace.id, _read_all, workspace, paths, entries)


def _named(workspace: Kept, asked: Sequence[NotePath]) -> list[NotePath]:
    return [workspace.vault.named(path) for path in asked]


def _read_all(workspace: Kept, paths: Sequence[NotePath], entries: Mapping[str, Entry]) -> list[Note | ServiceError]:
    found: list[Note | ServiceError] = []
    left = BYTES_PER_ANSWER
    for path in paths:
        try:
            raw = _read(workspace, path)
            left -= len(raw.data)
            if left < 0 and found:
                break
            found.append(_note(path, raw, entries.get(path.text)))
        except ServiceError as error:
            found.append(error)
    return found


def _read(workspace: Kept, path: NotePath) -> RawNote:
    try:
        return _raw(workspace, path)
    except VaultUnavailable:
        raise vault_unavailable(workspace.directory) from None
    except NoSuchNote:
        raise not_found(path) from None
    except NoteInaccessible as error:
        raise ServiceError(ErrorCode.VAULT_UNAVAILABLE, f"{error}; try again later.", retry_after=5) from None
    except NoteUnreadable as error:
        raise unreadable(path, str(error)) from None


def _raw(workspace: Kept, path: NotePath) -> RawNote:
    try:
        return workspace.vault.read(path)
    except NoSuchNote:
        # In an empty mount point nothing is there, which says nothing about the note.
        if workspace.identity not in (None, workspace.vault.identity()):
            raise VaultUnavailable(f"{workspace.vault.top} is not the directory it was") from None
        raise


def _note(path: NotePath, raw: RawNote, entry: Entry | None) -> Note:
    content = as_text(raw.data)
    if content is None:
        raise unreadable(path, NO_TEXT)
    content_hash = digest(raw.data)
    known = entry if entry is not None and entry.content_hash == content_hash else describe(path.text, raw.data)
    return Note(
        path=path.text,
        title=known.title,
        tags=known.tags,
        content_hash=content_hash,
        size=len(raw.data),
        modified_at=modified_at(raw.stat),
        content=content,
        revision=entry.revision if entry else 0,
        properties=properties(content),
    )


def not_found(path: NotePath) -> ServiceError:
    """What a request is told of a note that is not there."""
    return ServiceError(ErrorCode.NOTE_NOT_FOUND, f"There is no note {path.text} in this workspace.")


def vault_unavailable(directory: str) -> ServiceError:
    """What a request is told while a workspace's files cannot be relied on."""
    return ServiceError(
        ErrorCode.VAULT_UNAVAILABLE, f"The notes in {directory} cannot be reached at present; try again later.", retry_after=5
    )


def unreadable(path: NotePath, why: str) -> ServiceError:
    """What a request is told of a note that is there, and none to read."""
    return ServiceError(ErrorCode.NOTE_UNREADABLE, f"{path.text} cannot be read as a note: {why}.")
