"""Reading the notes that a message mentions, so that the model gets them with it (MN-6).

Each note once, by path and hash. A note that is gone, or that the account may not read, is passed over: the link stays as it is.
"""

import asyncio

from services.contexts.mentions import Link, Target, links, resolve
from shared.contracts import notes
from shared.contracts.contexts import Injection, InjectReply, InjectRequest
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.notes import Note, ReadNote, Workspace
from shared.contracts.subject import Empty
from shared.messaging.client import Client
from shared.messaging.scope import Scope

MENTIONS_MAX = 50
# All notes of one message together; what no longer fits goes in as an outline and its head (MN-10).
CHARACTERS_MAX = 60_000
HEAD_CHARACTERS = 1_000
OUTLINE_HEADINGS_MAX = 100
PASSED_OVER = frozenset({ErrorCode.NOTE_NOT_FOUND, ErrorCode.PATH_INVALID, ErrorCode.NOTE_UNREADABLE, ErrorCode.WORKSPACE_NOT_FOUND})


class Injector:
    """See the module."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def inject(self, request: InjectRequest, scope: Scope) -> InjectReply:
        """The notes that `request.text` mentions, in order.

        Raises:
            ServiceError: a note could not be read although it may be there (`vault_unavailable`, `service_unavailable`, …).
        """
        mentioned = [(link, target) for link in links(request.text) if (target := resolve(link.ref)) is not None][:MENTIONS_MAX]
        if not mentioned:
            return InjectReply(items=[])
        workspaces = (await self._client.ask(notes.WORKSPACE_LIST, Empty(), scope)).items
        found = await asyncio.gather(*(self._read(target, request, workspaces, scope) for _, target in mentioned))
        present, left, items = {tuple(pair) for pair in request.present}, CHARACTERS_MAX, []
        for (link, _), note in zip(mentioned, found, strict=True):
            if note is None or (note.path, note.content_hash) in present:
                continue
            present.add((note.path, note.content_hash))
            item = _injection(link, note, left)
            left -= item.characters
            items.append(item)
        return InjectReply(items=items)

    async def _read(self, target: Target, request: InjectRequest, workspaces: list[Workspace], scope: Scope) -> Note | None:
        workspace = _workspace(target, request, workspaces)
        if workspace is None:
            return None
        path = target.path
        if workspace.notes_dir:
            if not path.startswith(f"{workspace.notes_dir}/"):
                return None
            path = path.removeprefix(f"{workspace.notes_dir}/")
        try:
            return await self._client.ask(notes.NOTE_READ, ReadNote(workspace=workspace.id, path=path), scope)
        except ServiceError as error:
            if error.code in PASSED_OVER:
                return None
            raise


def _workspace(target: Target, request: InjectRequest, workspaces: list[Workspace]) -> Workspace | None:
    for workspace in workspaces:
        if target.directory is None and workspace.id == request.workspace:
            return workspace
        if target.directory is not None and workspace.directory == target.directory:
            return workspace
    return None


def _injection(link: Link, note: Note, left: int) -> Injection:
    fits = len(note.content) <= left
    text = note.content if fits else _outline(note.content)
    return Injection(
        ref=link.ref,
        title=note.title,
        path=note.path,
        content_hash=note.content_hash,
        characters=len(text),
        form="full" if fits else "outline",
        text=text,
    )


def _outline(content: str) -> str:
    """A long note's headings and head; the model can look up the rest by searching."""
    headings = [line for line in content.splitlines() if line.startswith("#")][:OUTLINE_HEADINGS_MAX]
    return "\n".join(
        [
            "(This note is too long to be given whole: its headings and its beginning. Search for the rest.)",
            *headings,
            "",
            content[:HEAD_CHARACTERS],
        ]
    )
