"""Drafts: what a change would make of a note, for a person to judge before it is made (MD-5). Nothing is written here."""

import hashlib

from services.notes import reading, workspaces
from services.notes.durable_file import digest
from services.notes.file_threads import FileThreads
from services.notes.note_path import NotePath
from services.notes.text_change import changed
from services.notes.unified_diff import unified_diff
from services.notes.vault_writer import VaultWriter, require_size
from services.notes.workspaces import Kept
from services.notes.writing import in_vault
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.notes import DIFF_CHARACTERS_MAX, Draft, DraftNote, Note, PatchText, ReadNote
from shared.database.pool import Pool
from shared.messaging.scope import Account


async def draft(pool: Pool, threads: FileThreads, request: DraftNote, account: Account | None) -> Draft:
    """The change as a diff.

    Raises:
        ServiceError: whatever would refuse the change itself; `invalid` where it would change nothing; `too_large` for a diff that is
            too long to be judged.
    """
    workspace = await workspaces.require_writable(pool, request.workspace, account)
    path = NotePath.parse(request.path)
    note = await _present(pool, threads, request, account)
    if note is None:
        await threads.run(workspace.id, _require_room, workspace, path)
    # A file may be spelled in another way than it was asked for, and beside another one: that note is meant, and is to be written.
    return await threads.run(workspace.id, _drafted, path.text if note is None else note.path, note, request)


async def _present(pool: Pool, threads: FileThreads, request: DraftNote, account: Account | None) -> Note | None:
    """The note that is to be changed, in the version that is named; None where it is to be made."""
    try:
        note = await reading.read(pool, threads, ReadNote(workspace=request.workspace, path=request.path), account)
    except ServiceError as error:
        if error.code is not ErrorCode.NOTE_NOT_FOUND or isinstance(request.change, PatchText):
            raise
        return None
    if request.change.kind == "create":
        raise ServiceError(ErrorCode.NOTE_EXISTS, f"{note.path} is there already; patch it instead.", current_hash=note.content_hash)
    if isinstance(request.change, PatchText) and request.change.content_hash != note.content_hash:
        raise ServiceError(
            ErrorCode.NOTE_STALE, f"{note.path} is not the version you name any more; read it again.", current_hash=note.content_hash
        )
    return note


def _require_room(workspace: Kept, path: NotePath) -> None:
    def work(vault: VaultWriter, place: NotePath) -> None:
        vault.require_room(place)

    in_vault(workspace, path, path, work)


def _drafted(path: str, note: Note | None, request: DraftNote) -> Draft:
    old = note.content.encode() if note is not None else b""
    new = changed(old, request.change)
    require_size(new)
    content = new.decode()
    if "\0" in content:
        raise ServiceError(ErrorCode.INVALID, "A note cannot hold a NUL character.")
    if note is not None and new == old:
        raise ServiceError(ErrorCode.INVALID, "That would change nothing.")
    diff = unified_diff(None if note is None else note.content, content, path)
    if len(diff) > DIFF_CHARACTERS_MAX:
        raise ServiceError(
            ErrorCode.TOO_LARGE,
            f"The change is shown to the user as a diff, which may have {DIFF_CHARACTERS_MAX} characters and would have {len(diff)}.",
            limit=DIFF_CHARACTERS_MAX,
        )
    return Draft(
        path=path,
        base_hash=note.content_hash if note is not None else None,
        content_hash=digest(new),
        diff=diff,
        diff_sha256=hashlib.sha256(diff.encode()).hexdigest(),
    )
