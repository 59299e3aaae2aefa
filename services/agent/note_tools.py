"""The tools for notes: finding, reading, and changes as proposals. Each acts for the account of the turn (MD-3).

Paths are the notes' own; the workspace is the conversation's, unless a call names another by its directory.
"""

import asyncio
import logging
from typing import Any
from uuid import UUID

from services.agent.approval import Proposal
from shared import references
from shared.contracts import notes, retrieval
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.notes import AppendText, Change, CreateText, DraftNote, FindNotes, PatchText, ReadNote, Workspace
from shared.contracts.retrieval import Filters, SearchRequest
from shared.contracts.subject import Empty
from shared.contracts.tools import (
    READ_CHARACTERS_MAX,
    AppendArguments,
    Arguments,
    CreateArguments,
    FindArguments,
    PatchArguments,
    ReadArguments,
)
from shared.messaging.client import Client
from shared.messaging.scope import Scope

logger = logging.getLogger(__name__)

FOUND_MAX = 20
EXCERPT_CHARACTERS = 200
NOTHING_FOUND = "No note was found for these words."
FOUND_BY_NAME = "What the notes say cannot be searched just now; these were found by name alone."
WRITE_TRIES = 4
WRITE_PAUSE_SECONDS = 0.5


class NoteTools:
    """The tools of one turn. `workspace` is the conversation's; `within` the workspaces that the request keeps to, None: all readable."""

    def __init__(self, client: Client, workspace: UUID | None, within: list[UUID] | None) -> None:
        self._client = client
        self._workspace = workspace
        self._within = within

    async def search(self, arguments: FindArguments, scope: Scope) -> tuple[list[dict[str, Any]], str | None]:
        """Notes by title, path and tags, then by content, each once; and what is to be said about that.

        Raises:
            ServiceError: as the services say.
        """
        query, readable = arguments.query, await self._readable(scope)
        chosen = [_named(readable, arguments.workspace)] if arguments.workspace is not None else readable
        if not chosen:
            return [], NOTHING_FOUND
        named, passages = await asyncio.gather(self._by_name(query, chosen, scope), self._by_content(query, chosen, scope))
        session = self._session(readable)
        places = {workspace.id: workspace for workspace in chosen}
        found: dict[tuple[UUID, str], dict[str, Any]] = {}
        for note in named:
            if (place := places.get(note.workspace)) is not None:
                shown = {"tags": note.tags, "content_hash": note.content_hash}
                found[note.workspace, note.path] = {**_named_note(place, note.path, note.title, session), **shown}
        for hit in passages or []:
            if (place := places.get(hit.workspace)) is not None:
                shown = {"excerpt": hit.text[:EXCERPT_CHARACTERS]}
                found.setdefault((hit.workspace, hit.file_path), {**_named_note(place, hit.file_path, hit.title, session), **shown})
        notice = FOUND_BY_NAME if passages is None else NOTHING_FOUND if not found else None
        return list(found.values())[:FOUND_MAX], notice

    async def _by_name(self, query: str, chosen: list[Workspace], scope: Scope) -> list[notes.FoundNote]:
        only = chosen[0].id if len(chosen) == 1 else None
        return (await self._client.ask(notes.NOTE_FIND, FindNotes(query=query, workspace=only, limit=FOUND_MAX), scope)).items

    async def _by_content(self, query: str, chosen: list[Workspace], scope: Scope) -> list[retrieval.Hit] | None:
        request = SearchRequest(query=query, filters=Filters(workspaces=[workspace.id for workspace in chosen]), limit=FOUND_MAX)
        try:
            return (await self._client.ask(retrieval.SEARCH, request, scope, timeout=retrieval.SEARCH_SECONDS_MAX)).hits
        except ServiceError as error:
            logger.warning("Notes are found by name alone: %s", error.code)
            return None

    async def read(self, arguments: ReadArguments, scope: Scope) -> dict[str, Any]:
        """A note's raw text, or as much of it as one call reads.

        Raises:
            ServiceError: as the notes service says; `invalid` for an offset beyond the end.
        """
        readable = await self._readable(scope)
        workspace = self._chosen(arguments.workspace, readable)
        note = await self._client.ask(notes.NOTE_READ, ReadNote(workspace=workspace.id, path=arguments.path), scope)
        if arguments.offset > len(note.content):
            raise ServiceError(ErrorCode.INVALID, f"The note has {len(note.content)} characters.")
        end = min(len(note.content), arguments.offset + READ_CHARACTERS_MAX)
        result = {
            **_named_note(workspace, note.path, note.title, self._session(readable)),
            "content_hash": note.content_hash,
            "content": note.content[arguments.offset : end],
        }
        return result if end == len(note.content) else {**result, "next_offset": end, "total_characters": len(note.content)}

    # Changes

    async def propose(self, call: str, name: str, arguments: Arguments, scope: Scope) -> Proposal:
        """The change that a call asks for, as the user is to see it. Nothing is written.

        Raises:
            ServiceError: whatever would refuse the change itself.
        """
        path, directory, change = _change(arguments)
        workspace = self._chosen(directory, await self._readable(scope))
        draft = await self._client.ask(notes.NOTE_DRAFT, DraftNote(workspace=workspace.id, path=path, change=change), scope)
        return Proposal(
            call=call,
            name=name,
            arguments=arguments.model_dump(exclude_none=True),
            workspace=workspace.id,
            path=draft.path,
            change=change,
            base_hash=draft.base_hash,
            content_hash=draft.content_hash,
            diff=draft.diff,
            diff_sha256=draft.diff_sha256,
        )

    async def carry_out(self, proposal: Proposal, scope: Scope) -> None:
        """Make the change, once, however often it is asked for.

        Raises:
            ServiceError: it was not made (`note_stale`, `note_exists`, …), or nobody answers whether it was.
        """
        for attempt in range(WRITE_TRIES):
            try:
                await self._client.ask(notes.NOTE_APPLY, proposal.order, scope)
            except ServiceError as error:
                if not error.passing or attempt == WRITE_TRIES - 1:
                    raise
                await asyncio.sleep(WRITE_PAUSE_SECONDS * 2**attempt)
            else:
                return

    # Workspaces

    async def _readable(self, scope: Scope) -> list[Workspace]:
        items = (await self._client.ask(notes.WORKSPACE_LIST, Empty(), scope)).items
        if self._within is None:
            return items
        return [workspace for workspace in items if workspace.id in self._within or workspace.id == self._workspace]

    def _session(self, readable: list[Workspace]) -> Workspace | None:
        """The conversation's workspace, where its references start."""
        return next((workspace for workspace in readable if workspace.id == self._workspace), None)

    def _chosen(self, directory: str | None, readable: list[Workspace]) -> Workspace:
        """The workspace of a call."""
        if directory is not None:
            return _named(readable, directory)
        if (own := self._session(readable)) is not None:
            return own
        if self._workspace is None and len(readable) == 1:
            return readable[0]
        raise ServiceError(ErrorCode.INVALID, f"Say in which workspace: {_listed(readable)}.")


async def became_of(client: Client, proposal: Proposal, scope: Scope) -> bool | None:
    """Whether a change that somebody may have been at was made; None where the note does not say, or cannot be asked."""
    try:
        request = ReadNote(workspace=proposal.workspace, path=proposal.path)
        present: str | None = (await client.ask(notes.NOTE_READ, request, scope)).content_hash
    except ServiceError as error:
        if error.code is not ErrorCode.NOTE_NOT_FOUND:
            return None
        present = None
    return {proposal.content_hash: True, proposal.base_hash: False}.get(present)


def _named_note(workspace: Workspace, path: str, title: str, session: Workspace | None) -> dict[str, Any]:
    """What a note is called by the tools, and the link to it, as seen from the session: its path alone may there be another note's."""
    link = references.link(title, references.of_note(workspace, path, session), in_session=session is not None)
    return {"workspace": workspace.directory, "path": path, "title": title, "link": link}


def _named(readable: list[Workspace], name: str) -> Workspace:
    """The workspace with this directory; a model may also say the id or the title, where only one has it."""
    named = [workspace for workspace in readable if workspace.directory == name] or [
        workspace for workspace in readable if name in (workspace.title, str(workspace.id))
    ]
    if len(named) != 1:
        raise ServiceError(ErrorCode.WORKSPACE_NOT_FOUND, f"There is no workspace {name!r}; there are: {_listed(readable)}.")
    return named[0]


def _listed(readable: list[Workspace]) -> str:
    return ", ".join(workspace.directory for workspace in readable) or "none"


def _change(arguments: Arguments) -> tuple[str, str | None, Change]:
    """Path, workspace and change of a call."""
    match arguments:
        case CreateArguments():
            return arguments.path, arguments.workspace, CreateText(content=arguments.content)
        case PatchArguments():
            change = PatchText(content_hash=arguments.content_hash, old_text=arguments.old_text, new_text=arguments.new_text)
            return arguments.path, arguments.workspace, change
        case AppendArguments():
            return arguments.path, arguments.workspace, AppendText(text=arguments.text)
        case _:
            raise TypeError(f"{type(arguments).__name__} changes nothing")
