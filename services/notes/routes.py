"""The table of what the notes service answers. Each handler names the core function that does it."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from services.notes import catalog, drafting, finding, reading, syntax_catalog, workspaces
from services.notes.compose import compose
from services.notes.file_threads import FileThreads
from services.notes.settings import NotesSettings
from services.notes.writing import NoteWriter
from shared.contracts import markdown, notes
from shared.contracts.subject import Empty, Message
from shared.database.pool import Pool
from shared.messaging.bus import Route
from shared.messaging.scope import Account, Scope


def routes(settings: NotesSettings, pool: Pool, threads: FileThreads, writer: NoteWriter) -> list[Route[Any, Any]]:
    """All but health."""

    async def list_workspaces(_: Empty, scope: Scope) -> notes.WorkspaceList:
        return notes.WorkspaceList(items=await workspaces.list_workspaces(pool, scope.account))

    async def get_workspace(request: notes.WorkspaceRef, scope: Scope) -> notes.Workspace:
        return await workspaces.get(pool, request.workspace, scope.account)

    async def update_workspace(request: notes.UpdateWorkspace, scope: Scope) -> notes.Workspace:
        return await workspaces.update(pool, request, scope.account)

    async def create_workspace(request: notes.CreateWorkspace, scope: Scope) -> notes.Workspace:
        return await workspaces.create(pool, settings.created_vaults, request, scope.account)

    async def get_members(request: notes.WorkspaceRef, scope: Scope) -> notes.MemberList:
        return notes.MemberList(items=await workspaces.members(pool, request.workspace, scope.account))

    async def put_members(request: notes.PutMembers, scope: Scope) -> notes.MemberList:
        return notes.MemberList(items=await workspaces.put_members(pool, request, scope.account))

    async def list_notes(request: notes.ListNotes, scope: Scope) -> notes.NotePage:
        await workspaces.require(pool, request.workspace, scope.account)
        return await catalog.page(pool, request)

    async def hashes(request: notes.HashesRequest, scope: Scope) -> notes.Hashes:
        readable = {workspace.id for workspace in await workspaces.list_workspaces(pool, scope.account)}
        return notes.Hashes(items=await catalog.hashes(pool, request.items, readable))

    async def find_notes(request: notes.FindNotes, scope: Scope) -> notes.FoundNotes:
        return notes.FoundNotes(items=await finding.find(pool, request, await workspaces.list_workspaces(pool, scope.account)))

    return [
        Route(notes.WORKSPACE_LIST, list_workspaces),
        Route(notes.WORKSPACE_GET, get_workspace),
        Route(notes.WORKSPACE_UPDATE, update_workspace),
        Route(notes.WORKSPACE_CREATE, create_workspace),
        Route(notes.MEMBERS_GET, get_members),
        Route(notes.MEMBERS_PUT, put_members),
        Route(notes.NOTE_LIST, list_notes),
        Route(notes.NOTE_HASHES, hashes),
        Route(notes.NOTE_READ, _for_account(partial(reading.read, pool, threads))),
        Route(notes.NOTE_READ_SOME, _for_account(partial(reading.read_some, pool, threads))),
        Route(notes.NOTE_CREATE, _for_account(writer.create)),
        Route(notes.NOTE_REPLACE, _for_account(writer.replace)),
        Route(notes.NOTE_PATCH, _for_account(writer.patch)),
        Route(notes.NOTE_MOVE, _for_account(writer.move)),
        Route(notes.NOTE_DELETE, _for_account(writer.delete)),
        Route(notes.NOTE_APPEND, _for_account(writer.append)),
        Route(notes.NOTE_FIND, find_notes),
        Route(notes.NOTE_DRAFT, _for_account(partial(drafting.draft, pool, threads))),
        Route(notes.NOTE_APPLY, _for_account(writer.apply)),
        Route(markdown.CATALOG, _markdown_catalog),
        Route(markdown.COMPOSE, _compose_markdown),
    ]


async def _markdown_catalog(request: markdown.CatalogRequest, _: Scope) -> markdown.Catalog:
    return syntax_catalog.catalog(request.preset)


async def _compose_markdown(request: markdown.Compose, _: Scope) -> markdown.Composed:
    # The largest documents take a third of a second, for which nothing else need wait.
    return markdown.Composed(markdown=await asyncio.to_thread(compose, request.document, request.preset))


def _for_account[Q: Message, R: Message](
    answer: Callable[[Q, Account | None], Coroutine[Any, Any, R]],
) -> Callable[[Q, Scope], Coroutine[Any, Any, R]]:
    """A handler that passes on for whom the question is asked."""

    async def handler(request: Q, scope: Scope) -> R:
        return await answer(request, scope.account)

    return handler
