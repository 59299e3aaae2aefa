"""Reading one note: always from its file, never from the index, so that what is cited is what is there."""

from services.notes import catalog, workspaces
from services.notes.changes import modified_at
from services.notes.durable_file import digest
from services.notes.file_threads import FileThreads
from services.notes.indexing import as_text, describe
from services.notes.metadata import properties
from services.notes.note_path import NotePath
from services.notes.vault import NoSuchNote, NoteInaccessible, NoteUnreadable, RawNote, VaultUnavailable
from services.notes.workspaces import Kept
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.notes import Note, ReadNote
from shared.database.pool import Pool, connection
from shared.messaging.scope import Account

NO_TEXT = "it is not text in UTF-8, or holds a NUL character"


async def read(pool: Pool, threads: FileThreads, request: ReadNote, account: Account | None) -> Note:
    """The note with its whole text: byte order mark, front matter and line endings as they are.

    Raises:
        ServiceError: `workspace_not_found`, `path_invalid`, `note_not_found`, `note_unreadable`, `vault_unavailable`.
    """
    path = NotePath.parse(request.path)
    workspace = await workspaces.require(pool, request.workspace, account)
    if workspace.problem is not None:
        raise vault_unavailable(workspace.directory)
    try:
        path, raw, content, content_hash = await threads.run(workspace.id, _read, workspace, path)
    except VaultUnavailable:
        raise vault_unavailable(workspace.directory) from None
    except NoSuchNote:
        raise not_found(path) from None
    except NoteInaccessible as error:
        raise ServiceError(ErrorCode.VAULT_UNAVAILABLE, f"{error}; try again later.", retry_after=5) from None
    except NoteUnreadable as error:
        raise unreadable(path, str(error)) from None
    if content is None:
        raise unreadable(path, NO_TEXT)
    async with connection(pool) as connected:
        entry = await catalog.entry(connected, workspace.id, path.text)
    if entry is None or entry.content_hash != content_hash:
        found = await threads.run(workspace.id, describe, path.text, raw.data)
        title, tags = found.title, found.tags
    else:
        title, tags = entry.title, entry.tags
    return Note(
        path=path.text,
        title=title,
        tags=tags,
        content_hash=content_hash,
        size=len(raw.data),
        modified_at=modified_at(raw.stat),
        content=content,
        revision=entry.revision if entry else 0,
        properties=properties(content),
    )


def _read(workspace: Kept, asked: NotePath) -> tuple[NotePath, RawNote, str | None, str]:
    path = workspace.vault.named(asked)
    try:
        raw = workspace.vault.read(path)
    except NoSuchNote:
        # In an empty mount point nothing is there, which says nothing about the note.
        if workspace.identity not in (None, workspace.vault.identity()):
            raise VaultUnavailable(f"{workspace.vault.top} is not the directory it was") from None
        raise
    return path, raw, as_text(raw.data), digest(raw.data)


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
