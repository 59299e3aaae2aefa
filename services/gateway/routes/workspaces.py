"""Workspaces and the notes in them."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal
from urllib.parse import unquote_to_bytes
from uuid import UUID

import orjson
from fastapi import APIRouter, Query, Request, Response
from nats.aio.msg import Msg
from pydantic import Field

from services.gateway import entity_tag
from services.gateway.accept import MARKDOWN, prefers_markdown
from services.gateway.access import AdminCaller, AnyCaller, Caller
from services.gateway.event_stream import EventStream
from services.gateway.problems import invalid
from services.gateway.responses import as_json, open_streams
from services.gateway.routes.chat import EventStreamResponse
from services.gateway.sse_frame import event_frame
from services.gateway.strict_route import Body, Id, NotBlank, StrictRoute
from shared.contracts import notes, retrieval
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.notes import (
    AppendExchange,
    CreateNote,
    CreateWorkspace,
    DeleteNote,
    ListNotes,
    Member,
    MemberList,
    MoveNote,
    Note,
    NotePage,
    PatchNote,
    PutMembers,
    ReadNote,
    ReplaceNote,
    UpdateWorkspace,
    Workspace,
    WorkspaceList,
    WorkspaceRef,
)
from shared.contracts.retrieval import PUBLISH_SECONDS_MAX, ConfigurePublishing, PublishMode
from shared.contracts.subject import Empty
from shared.messaging.bus import Bus

router = APIRouter(route_class=StrictRoute)
ENTITY_TAG = re.compile(r'^(W/)?"[\x21\x23-\x7e\x80-\xff]*"$')
PATH_CHARACTERS_MAX = 2000
TITLE_CHARACTERS_MAX = 1000
# Of a note: what is between services.
NOT_SHOWN = {"revision", "properties"}
_PRECONDITIONS: dict[int | str, dict[str, Any]] = {
    412: {"description": "`note_stale` with `current_hash`: the note is another version. `note_exists`: there is one already."},
    428: {"description": "`precondition_required`: the version is not named."},
}


class WorkspaceChange(Body):
    """What to change; what is absent stays."""

    title: Annotated[NotBlank, Field(max_length=200)] | None = None
    publish: PublishMode | None = None


class NewWorkspace(Body):
    """A new directory for notes."""

    directory: Annotated[NotBlank, Field(max_length=200)]
    title: Annotated[NotBlank, Field(max_length=200)] | None = None
    notes_dir: Annotated[str, Field(max_length=500)] = ""


class MemberIn(Body):
    """One member."""

    account_id: Id
    access: Literal["read", "write"]


class Members(Body):
    """All members."""

    items: Annotated[list[MemberIn], Field(max_length=1000)]


class NoteText(Body):
    """A note, whole."""

    content: str


class PatchText(Body):
    """One place of a note, by what stands there."""

    content_hash: Annotated[str, Field(max_length=200)]
    old_text: Annotated[str, Field(min_length=1)]
    new_text: str


class Destination(Body):
    """Where to."""

    to: Annotated[str, Field(max_length=PATH_CHARACTERS_MAX)]


class ExchangeIn(Body):
    """A question and its answer."""

    question: NotBlank
    answer: NotBlank
    conversation_title: Annotated[NotBlank, Field(max_length=TITLE_CHARACTERS_MAX)]
    message_id: Id


@router.get("/api/workspaces", response_model=WorkspaceList, summary="List workspaces")
async def list_workspaces(caller: AnyCaller) -> Response:
    """Those the account may use."""
    return as_json(await caller.ask(notes.WORKSPACE_LIST, Empty()))


@router.post("/api/workspaces", response_model=Workspace, status_code=201, summary="Make a workspace")
async def create_workspace(body: NewWorkspace, caller: AdminCaller) -> Response:
    """A new directory below the data directory's `vaults/`. Admins only."""
    request = CreateWorkspace(directory=body.directory, title=body.title, notes_dir=body.notes_dir)
    return as_json(await caller.ask(notes.WORKSPACE_CREATE, request), 201)


@router.get("/api/workspaces/{workspace_id}", response_model=Workspace, summary="Read a workspace")
async def get_workspace(workspace_id: UUID, caller: AnyCaller) -> Response:
    """One workspace."""
    return as_json(await caller.ask(notes.WORKSPACE_GET, WorkspaceRef(workspace=workspace_id)))


@router.patch("/api/workspaces/{workspace_id}", response_model=Workspace, summary="Change a workspace")
async def change_workspace(workspace_id: UUID, body: WorkspaceChange, caller: AdminCaller) -> Response:
    """Its title, and whether changes publish by themselves; the directory never changes. Admins only.

    From `manual` to `auto`, what is held is published at once.
    """
    changed = await caller.ask(notes.WORKSPACE_UPDATE, UpdateWorkspace(workspace=workspace_id, title=body.title))
    if body.publish is not None:
        configuring = ConfigurePublishing(workspace=workspace_id, publish=body.publish)
        await caller.ask(retrieval.PUBLICATION_CONFIGURE, configuring, PUBLISH_SECONDS_MAX)
    return as_json(changed)


@router.get("/api/workspaces/{workspace_id}/members", response_model=MemberList, summary="Who may use a workspace")
async def get_members(workspace_id: UUID, caller: AdminCaller) -> Response:
    """Admins only."""
    return as_json(await caller.ask(notes.MEMBERS_GET, WorkspaceRef(workspace=workspace_id)))


@router.put("/api/workspaces/{workspace_id}/members", response_model=MemberList, summary="Say who may use a workspace")
async def put_members(workspace_id: UUID, body: Members, request: Request, caller: AdminCaller) -> Response:
    """Replaces the list. Admins only."""
    known = {row["id"] for row in await request.app.state.accounts.all()}
    if unknown := [number for number, item in enumerate(body.items) if item.account_id not in known]:
        raise invalid(f"body.items.{unknown[0]}.account_id", "there is no such account")
    items = [Member(account_id=item.account_id, access=item.access) for item in body.items]
    return as_json(await caller.ask(notes.MEMBERS_PUT, PutMembers(workspace=workspace_id, items=items)))


@router.get("/api/workspaces/{workspace_id}/notes", response_model=NotePage, summary="List notes")
async def list_notes(
    workspace_id: UUID,
    caller: AnyCaller,
    prefix: Annotated[str, Query(max_length=1000)] = "",
    tag: Annotated[str | None, Query(max_length=200)] = None,
    cursor: Annotated[str | None, Query(max_length=4000)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """Without their texts, by path."""
    request = ListNotes(workspace=workspace_id, prefix=prefix, tag=tag, cursor=cursor, limit=limit)
    return as_json(await caller.ask(notes.NOTE_LIST, request))


@router.head("/api/workspaces/{workspace_id}/notes/{path:any}", include_in_schema=False)  # RFC 9110, 9.3.2: wherever GET is
@router.get(
    "/api/workspaces/{workspace_id}/notes/{path:any}",
    response_model=Note,
    response_model_exclude=NOT_SHOWN,
    responses={200: {"content": {MARKDOWN: {}}}, 304: {"description": "If-None-Match names the current version."}},
    summary="Read a note",
)
async def read_note(workspace_id: UUID, request: Request, caller: AnyCaller) -> Response:
    """Whole, as JSON; or the file itself with `Accept: text/markdown`."""
    note = await caller.ask(notes.NOTE_READ, ReadNote(workspace=workspace_id, path=note_path(request)))
    headers = {"ETag": f'"{note.content_hash}"', "Vary": "Accept"}
    known = entity_tag.known(request.headers.get("if-none-match"))
    if note.content_hash in known or entity_tag.ANY in known:
        return Response(status_code=304, headers=headers)
    if prefers_markdown(request.headers.get("accept", "")):
        return Response(note.content.encode(), headers=headers, media_type=f"{MARKDOWN}; charset=utf-8")
    return Response(note.model_dump_json(exclude=NOT_SHOWN), headers=headers, media_type="application/json")


@router.put(
    "/api/workspaces/{workspace_id}/notes/{path:any}",
    response_model=Note,
    response_model_exclude=NOT_SHOWN,
    responses={201: {"model": Note, "description": "Created."}, **_PRECONDITIONS},
    summary="Create or replace a note",
)
async def put_note(workspace_id: UUID, body: NoteText, request: Request, caller: AnyCaller) -> Response:
    """Create with `If-None-Match: *`, replace with `If-Match: "<content_hash>"`."""
    path = note_path(request)
    if request.headers.get("if-none-match", "").strip() == "*":
        if "if-match" in request.headers:
            raise ServiceError(ErrorCode.MALFORMED, "If-Match and If-None-Match: * cannot both hold.")
        async with _precondition(ErrorCode.NOTE_EXISTS):
            return _as_note(await caller.ask(notes.NOTE_CREATE, CreateNote(workspace=workspace_id, path=path, content=body.content)), 201)
    replacing = ReplaceNote(workspace=workspace_id, path=path, content_hash=_version(request), content=body.content)
    async with _precondition():
        return _as_note(await caller.ask(notes.NOTE_REPLACE, replacing))


@router.patch(
    "/api/workspaces/{workspace_id}/notes/{path:any}",
    response_model=Note,
    response_model_exclude=NOT_SHOWN,
    responses={409: {"description": "`note_stale` with `current_hash`, `match_not_unique` with `matches`, `match_not_found`."}},
    summary="Change one place of a note",
)
async def patch_note(workspace_id: UUID, body: PatchText, request: Request, caller: AnyCaller) -> Response:
    """`new_text` for the one place where `old_text` stands; every other byte stays. A line feed stands for the line ending of the place,
    unless one of the texts has a carriage return.
    """
    patching = PatchNote(workspace=workspace_id, path=note_path(request), **body.model_dump())
    return _as_note(await caller.ask(notes.NOTE_PATCH, patching))


@router.delete(
    "/api/workspaces/{workspace_id}/notes/{path:any}", status_code=204, responses=_PRECONDITIONS, summary="Put a note into the trash"
)
async def delete_note(workspace_id: UUID, request: Request, caller: AnyCaller) -> Response:
    """Its bytes lie in `.trash` below the notes' directory. Needs `If-Match`."""
    async with _precondition():
        deleting = DeleteNote(workspace=workspace_id, path=note_path(request), content_hash=_version(request))
        await caller.ask(notes.NOTE_DELETE, deleting)
    return Response(status_code=204)


@router.post(
    "/api/workspaces/{workspace_id}/notes/{path:any}/move",
    response_model=Note,
    response_model_exclude=NOT_SHOWN,
    responses={409: {"description": "`note_exists`: the new path is taken."}, **_PRECONDITIONS},
    summary="Move a note",
)
async def move_note(workspace_id: UUID, body: Destination, request: Request, caller: AnyCaller) -> Response:
    """To another path of the workspace, whose directories are made. Links to it stay as they are. Needs `If-Match`."""
    async with _precondition():
        moving = MoveNote(workspace=workspace_id, path=note_path(request, action=True), to=body.to, content_hash=_version(request))
        return _as_note(await caller.ask(notes.NOTE_MOVE, moving))


@router.post(
    "/api/workspaces/{workspace_id}/notes/{path:any}/entries",
    response_model=Note,
    response_model_exclude=NOT_SHOWN,
    responses={201: {"model": Note, "description": "The note was made for it."}},
    summary="Append an exchange to a note",
)
async def append_exchange(workspace_id: UUID, body: ExchangeIn, request: Request, caller: AnyCaller) -> Response:
    """Question and answer byte for byte, once per `message_id`; the note is made where it is missing. What is appended stands between two
    comments by which retrieval leaves it out.
    """
    appending = AppendExchange(workspace=workspace_id, path=note_path(request, action=True), **body.model_dump())
    appended = await caller.ask(notes.NOTE_APPEND, appending)
    return _as_note(appended.note, 201 if appended.created else 200)


@router.get("/api/workspaces/{workspace_id}/events", summary="Changes of a workspace's notes", response_class=EventStreamResponse)
async def workspace_events(workspace_id: UUID, request: Request, caller: AnyCaller) -> Response:
    """`NoteChanged`, whoever made the change."""
    await caller.ask(notes.WORKSPACE_GET, WorkspaceRef(workspace=workspace_id))
    changes = Changes(caller, workspace_id)
    await changes.open(request.app.state.bus)

    async def close(_: bool) -> None:
        await changes.close()

    return EventStream(changes, open_streams(request), request.app.state.metrics, close)


class Changes:
    """A workspace's changes as frames, from now on. Access is looked at again in every silence."""

    def __init__(self, caller: Caller, workspace: UUID) -> None:
        self.ended = False
        self._caller = caller
        self._workspace = workspace
        self._ready: list[bytes] = []
        self._wake = asyncio.Event()

    async def open(self, bus: Bus) -> None:
        """Begin to listen."""
        self._subscription = await bus.nats.subscribe(notes.CHANGED.subject(self._workspace), cb=self._heard)

    async def close(self) -> None:
        """Listen no more."""
        await self._subscription.unsubscribe()

    async def _heard(self, message: Msg) -> None:
        change = notes.NoteChanged.model_validate_json(message.data)
        event: dict[str, object] = {
            "type": "NoteChanged",
            "path": change.path,
            "content_hash": change.content_hash,
            "kind": change.kind,
        }
        if change.from_path is not None:
            event["from"] = change.from_path
        self._ready.append(event_frame(change.revision, "NoteChanged", orjson.dumps(event)))
        self._wake.set()

    async def frames(self, seconds: float) -> bytes:
        """What has changed since the last call."""
        if not self._ready:
            self._wake.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            except TimeoutError:
                return b""
        ready, self._ready = self._ready, []
        return b"".join(ready)

    async def check(self) -> None:
        """End the stream when the account may no longer see the workspace."""
        try:
            await self._caller.ask(notes.WORKSPACE_GET, WorkspaceRef(workspace=self._workspace))
        except ServiceError as error:
            self.ended = error.code is ErrorCode.WORKSPACE_NOT_FOUND

    def wake(self) -> None:
        """Have `frames` return."""
        self._wake.set()


class PreconditionFailed(ServiceError):
    """An error that is a 412 because the version it is about came in a header."""

    @property
    def status(self) -> int:
        """412."""
        return 412


@asynccontextmanager
async def _precondition(failing: ErrorCode = ErrorCode.NOTE_STALE) -> AsyncIterator[None]:
    """Answers to a change whose version is named by a header: this error says that the header does not hold."""
    try:
        yield
    except ServiceError as error:
        if error.code is not failing:
            raise
        raise PreconditionFailed(error.code, error.detail, **error.extra) from None


def _version(request: Request) -> str:
    """The one version that `If-Match` names. A weak tag is none (RFC 9110, 13.1.1); `*` would be none in particular.

    Raises:
        ServiceError: `precondition_required`, `malformed`.
    """
    header = request.headers.get("if-match", "").strip()
    if header in ("", "*"):
        raise ServiceError(ErrorCode.PRECONDITION_REQUIRED, 'Say which version you have read: If-Match: "<content_hash>".')
    if not ENTITY_TAG.match(header):
        raise ServiceError(ErrorCode.MALFORMED, "If-Match must be one content_hash in double quotes.")
    return header.strip('"')


def _as_note(note: Note, status: int = 200) -> Response:
    """The note as it is after a change, as GET answers it."""
    headers = {"ETag": f'"{note.content_hash}"'}
    return Response(note.model_dump_json(exclude=NOT_SHOWN), status, headers, "application/json")


def note_path(request: Request, *, action: bool = False) -> str:
    """The note's path, decoded once per segment from the address as it was sent: a `%2F` cannot become a separator. `action`: the last
    segment says what to do with the note.

    Raises:
        ServiceError: `path_invalid`.
    """
    raw = request.scope["raw_path"].split(b"?", 1)[0].split(b"/notes/", 1)[1]
    try:
        segments = [unquote_to_bytes(segment).decode("utf-8") for segment in raw.split(b"/")]
    except UnicodeDecodeError:
        raise _bad_path("is not UTF-8") from None
    if any("/" in segment or "\x00" in segment for segment in segments):
        raise _bad_path("has a separator or NUL inside a segment")
    return "/".join(segments[:-1] if action else segments)


def _bad_path(why: str) -> ServiceError:
    return ServiceError(ErrorCode.PATH_INVALID, f"The note's path {why}.")
