"""What the tools of the MCP door do, each for the account of its caller: only what that may read is found and read."""

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from services.gateway.access import Caller
from services.gateway.routes.preferences import Preferences
from shared.contracts import markdown, notes, retrieval
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.markdown import CatalogRequest, Compose, Document
from shared.contracts.notes import ApplyDraft, Draft, DraftNote, PatchText, ReadNote, Workspace
from shared.contracts.retrieval import Filters, Hit, SearchRequest
from shared.contracts.subject import Empty
from shared.contracts.tools import READ_CHARACTERS_MAX, PatchArguments, ReadArguments, SearchArguments


@dataclass(frozen=True, slots=True)
class NoteChange:
    """A change as the user is to see it, and where."""

    workspace: Workspace
    change: PatchText
    draft: Draft


class Tools:
    """The tools of one caller."""

    def __init__(self, caller: Caller, preferences: Preferences) -> None:
        self._caller = caller
        self._preset = preferences.markdown

    async def run(self, arguments: BaseModel) -> dict[str, Any]:
        """The result of a tool that changes nothing, by its arguments.

        Raises:
            ServiceError: as the services say.
        """
        match arguments:
            case SearchArguments():
                return await self._search(arguments.query)
            case ReadArguments():
                return await self._read(arguments)
            case Document():
                composed = await self._caller.ask(markdown.COMPOSE, Compose(document=arguments, preset=self._preset))
                return {"markdown": composed.markdown}
            case _:
                catalog = await self._caller.ask(markdown.CATALOG, CatalogRequest(preset=self._preset))
                return catalog.model_dump(mode="json")

    async def proposed(self, arguments: PatchArguments) -> NoteChange:
        """What a change would be. Nothing is written.

        Raises:
            ServiceError: whatever would refuse the change itself.
        """
        workspace = await self._workspace(arguments.workspace)
        change = PatchText(content_hash=arguments.content_hash, old_text=arguments.old_text, new_text=arguments.new_text)
        draft = await self._caller.ask(notes.NOTE_DRAFT, DraftNote(workspace=workspace.id, path=arguments.path, change=change))
        return NoteChange(workspace, change, draft)

    async def make(self, proposed: NoteChange) -> dict[str, Any]:
        """Make that change of that version, with that outcome.

        Raises:
            ServiceError: it was not made, or nobody answers whether it was.
        """
        draft = proposed.draft
        order = ApplyDraft(
            workspace=proposed.workspace.id,
            path=draft.path,
            change=proposed.change,
            base_hash=draft.base_hash,
            content_hash=draft.content_hash,
        )
        note = await self._caller.ask(notes.NOTE_APPLY, order)
        return {"workspace": proposed.workspace.directory, "path": note.path, "content_hash": note.content_hash}

    async def _search(self, query: str) -> dict[str, Any]:
        request = SearchRequest(query=query, filters=Filters(), limit=retrieval.HITS_PER_SEARCH_MAX)
        reply = await self._caller.ask(retrieval.SEARCH, request)
        directories = {workspace.id: workspace.directory for workspace in await self._readable()}
        sources = [
            _source(number, directories[hit.workspace], hit)
            for number, hit in enumerate((hit for hit in reply.hits if hit.workspace in directories), 1)
        ]
        return {"sources": sources} if sources else {"sources": [], "notice": "Nothing was found for these words."}

    async def _read(self, arguments: ReadArguments) -> dict[str, Any]:
        workspace = await self._workspace(arguments.workspace)
        note = await self._caller.ask(notes.NOTE_READ, ReadNote(workspace=workspace.id, path=arguments.path))
        whole, start = len(note.content), arguments.offset
        if start > whole:
            raise ServiceError(ErrorCode.INVALID, f"offset: the note has {whole} characters.")
        end = min(whole, start + READ_CHARACTERS_MAX)
        more = {"next_offset": end, "total_characters": whole} if end < whole else {}
        about = {"workspace": workspace.directory, "path": note.path, "title": note.title, "content_hash": note.content_hash}
        return {**about, "content": note.content[start:end], **more}

    async def _workspace(self, directory: str | None) -> Workspace:
        """The one with that directory; without one the only one that the account may read."""
        readable = await self._readable()
        named = [workspace for workspace in readable if directory in (None, workspace.directory)]
        if len(named) == 1:
            return named[0]
        there = ", ".join(workspace.directory for workspace in readable) or "none"
        if directory is None:
            raise ServiceError(ErrorCode.INVALID, f"workspace: say which; there are: {there}.")
        raise ServiceError(ErrorCode.WORKSPACE_NOT_FOUND, f"There is no workspace {directory!r}; there are: {there}.")

    async def _readable(self) -> list[Workspace]:
        return (await self._caller.ask(notes.WORKSPACE_LIST, Empty())).items


def _source(number: int, directory: str, hit: Hit) -> dict[str, Any]:
    return {
        "number": number,
        "workspace": directory,
        "file_path": hit.file_path,
        "heading_path": hit.heading_path,
        "content": hit.text,
    }
