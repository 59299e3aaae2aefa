"""A stand-in for the notes service on real NATS: notes in memory, facts in the stream. For tests of what asks notes."""

import asyncio
import hashlib
import math
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from shared.contracts import notes
from shared.contracts.errors import ErrorBody, ErrorCode, ServiceError
from shared.contracts.notes import (
    NOTES_PER_READ,
    ListNotes,
    Note,
    NoteChanged,
    NotePage,
    NoteRead,
    NotesRead,
    NoteSummary,
    ReadNote,
    ReadNotes,
    Workspace,
    WorkspaceList,
)
from shared.contracts.subject import Empty
from shared.messaging import streams
from shared.messaging.bus import Bus, Route
from shared.messaging.scope import Scope

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class ScriptedNotes:
    """Set `notes` for what is there from the start; call `put`, `move`, `delete` for changes with their facts."""

    bus: Bus
    workspaces: dict[UUID, Workspace] = field(default_factory=dict)
    notes: dict[tuple[UUID, str], Note] = field(default_factory=dict)
    # account → the workspaces it may read; whoever is not named may read all
    members: dict[UUID, list[UUID]] = field(default_factory=dict)
    unreadable: set[str] = field(default_factory=set)
    away: set[UUID] = field(default_factory=set)
    reads: list[str] = field(default_factory=list)
    notes_per_answer: int = NOTES_PER_READ
    # after so many, a note is read when `released` is set; with 0 even the list of notes
    reads_until_held: float = math.inf
    released: asyncio.Event = field(default_factory=asyncio.Event)
    revision: int = 0

    async def serve(self) -> None:
        """Begin to answer."""
        await streams.ensure(self.bus.nats, notes.STREAM, owned=True)
        await self.bus.serve(
            [
                Route(notes.WORKSPACE_LIST, self._workspaces),
                Route(notes.NOTE_LIST, self._list),
                Route(notes.NOTE_READ, self._read),
                Route(notes.NOTE_READ_SOME, self._read_some),
            ]
        )

    def workspace(self, directory: str = "vault") -> UUID:
        """A new, empty workspace."""
        one = uuid4()
        self.workspaces[one] = Workspace(id=one, title=directory, directory=directory, notes_dir="", notes=0)
        return one

    def write(
        self,
        workspace: UUID,
        path: str,
        content: str,
        *,
        title: str | None = None,
        tags: tuple[str, ...] = (),
        properties: dict[str, str] | None = None,
    ) -> Note:
        """A note is there, and nobody is told."""
        self.revision += 1
        note = Note(
            path=path,
            title=title or path.rsplit("/", 1)[-1].removesuffix(".md"),
            tags=list(tags),
            content_hash=hashlib.sha256(content.encode()).hexdigest(),
            size=len(content),
            modified_at=EPOCH + timedelta(seconds=self.revision),
            content=content,
            revision=self.revision,
            properties=properties or {},
        )
        self.notes[workspace, path] = note
        return note

    async def put(self, workspace: UUID, path: str, content: str, **more: object) -> Note:
        """A note is written, and the fact published."""
        kind = "updated" if (workspace, path) in self.notes else "created"
        note = self.write(workspace, path, content, **more)  # type: ignore[arg-type]
        await self.tell(workspace, kind, path, note.content_hash)
        return note

    async def delete(self, workspace: UUID, path: str) -> None:
        """A note goes."""
        del self.notes[workspace, path]
        self.revision += 1
        await self.tell(workspace, "deleted", path, None)

    async def move(self, workspace: UUID, path: str, to: str) -> None:
        """A note goes elsewhere."""
        note = self.notes.pop((workspace, path))
        self.revision += 1
        self.notes[workspace, to] = note.model_copy(update={"path": to, "revision": self.revision})
        await self.tell(workspace, "moved", to, note.content_hash, from_path=path)

    async def tell(self, workspace: UUID, kind: str, path: str, content_hash: str | None, from_path: str | None = None) -> None:
        """Publish a fact."""
        fact = NoteChanged(
            workspace=workspace,
            revision=self.revision,
            kind=kind,  # type: ignore[arg-type]
            path=path,
            content_hash=content_hash,
            from_path=from_path,
            changed_at=EPOCH,
        )
        await self.bus.nats.jetstream().publish(notes.CHANGED.subject(workspace), fact.model_dump_json().encode())

    async def _workspaces(self, _: Empty, scope: Scope) -> WorkspaceList:
        allowed = self.members.get(scope.account.id) if scope.account else None
        return WorkspaceList(items=[self._counted(one) for one in self.workspaces.values() if allowed is None or one.id in allowed])

    def _counted(self, workspace: Workspace) -> Workspace:
        return workspace.model_copy(update={"notes": sum(one == workspace.id for one, _ in self.notes)})

    async def _list(self, request: ListNotes, _: Scope) -> NotePage:
        if self.reads_until_held == 0:
            await self.released.wait()
        paths = sorted(path for workspace, path in self.notes if workspace == request.workspace and path > (request.cursor or ""))
        chosen = paths[: request.limit]
        items = [NoteSummary(**self.notes[request.workspace, path].model_dump()) for path in chosen]
        return NotePage(items=items, next_cursor=chosen[-1] if len(paths) > len(chosen) else None)

    async def _read_some(self, request: ReadNotes, scope: Scope) -> NotesRead:
        self._require_there(request.workspace)
        items = []
        for path in request.paths[: self.notes_per_answer]:
            try:
                items.append(NoteRead(note=await self._read(ReadNote(workspace=request.workspace, path=path), scope)))
            except ServiceError as error:
                items.append(NoteRead(problem=ErrorBody.of(error)))
        return NotesRead(items=items + [NoteRead()] * (len(request.paths) - len(items)))

    async def _read(self, request: ReadNote, _: Scope) -> Note:
        self.reads.append(request.path)
        if len(self.reads) > self.reads_until_held:
            await self.released.wait()
        self._require_there(request.workspace)
        if request.path in self.unreadable:
            raise ServiceError(ErrorCode.NOTE_UNREADABLE, "The note is not text.")
        if (note := self.notes.get((request.workspace, request.path))) is None:
            raise ServiceError(ErrorCode.NOTE_NOT_FOUND, "There is no such note.")
        return note

    def _require_there(self, workspace: UUID) -> None:
        if workspace in self.away:
            raise ServiceError(ErrorCode.VAULT_UNAVAILABLE, "The vault is away.")
