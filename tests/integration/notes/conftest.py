"""A notes service on a vault, served in this process, and someone who asks it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest

from services.notes.app import serve
from services.notes.settings import NotesSettings
from shared.contracts import notes
from shared.contracts.control import HEALTH
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.notes import ListNotes, Note, NoteChanged, NotePage, ReadNote, Workspace
from shared.contracts.subject import Empty, Message, Query
from shared.messaging import streams
from shared.messaging.bus import Bus
from shared.messaging.scope import Account, Scope
from tests.support.polling import eventually

# What is allowed between another program's edit and its being known.
# The promise is 2 s on a machine that has nothing else to do; a loaded one is no failure.
NOTICED_SECONDS = 10.0


class Asker:
    """Asks the service as another service does; `account` None is a service itself."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus

    async def ask[Q: Message, R: Message](self, query: Query[Q, R], request: Q, account: Account | None = None) -> R:
        return await self.bus.client.ask(query, request, Scope.root(10, account=account))

    async def workspaces(self, account: Account | None = None) -> dict[str, Workspace]:
        found = await self.ask(notes.WORKSPACE_LIST, Empty(), account)
        return {workspace.directory: workspace for workspace in found.items}

    async def workspace(self, directory: str = "vault") -> Workspace:
        return (await self.workspaces())[directory]

    async def page(self, workspace: UUID, **more: object) -> NotePage:
        return await self.ask(notes.NOTE_LIST, ListNotes.model_validate({"workspace": workspace, **more}))

    async def hashes(self, workspace: UUID) -> dict[str, str]:
        """The index, whole: content hash by path."""
        found: dict[str, str] = {}
        cursor = None
        while True:
            page = await self.page(workspace, limit=1000, cursor=cursor)
            found.update({note.path: note.content_hash for note in page.items})
            if (cursor := page.next_cursor) is None:
                return found

    async def read(self, workspace: UUID, path: str) -> Note:
        return await self.ask(notes.NOTE_READ, ReadNote(workspace=workspace, path=path))

    async def changes(self, workspace: UUID) -> list[NoteChanged]:
        """Every fact that the stream holds of a workspace, in its order."""
        subject = notes.CHANGED.subject(workspace)
        stored = await streams.read_subject(self.bus.nats, notes.STREAM, subject)
        found = [NoteChanged.model_validate_json(message.data) for message in stored]
        assert [change.revision for change in found] == sorted({change.revision for change in found})
        return found

    async def told(self, workspace: UUID, kind: str, path: str, within: float = NOTICED_SECONDS) -> NoteChanged:
        """The last such fact, once the stream has it."""

        async def look() -> NoteChanged | None:
            return next((c for c in reversed(await self.changes(workspace)) if (c.kind, c.path) == (kind, path)), None)

        return await eventually(look, within)

    async def problems(self) -> dict[str, str]:
        return (await self.ask(HEALTH["notes"], Empty())).problems

    async def ready(self, within: float = 15.0) -> None:
        async def look() -> bool:
            try:
                return not await self.problems()
            except ServiceError:
                return False

        await eventually(look, within)


type Serving = Callable[..., AbstractAsyncContextManager[Asker]]


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    directory = tmp_path / "vault"
    directory.mkdir()
    return directory


@pytest.fixture
async def asker(nats_url: str) -> AsyncIterator[Asker]:
    bus = Bus("tests", nats_url)
    await bus.connect()
    yield Asker(bus)
    await bus.stop()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def serving(database_url: str, nats_url: str, vault: Path, home: Path, asker: Asker) -> Serving:
    """Starts a service in this process; ends it at the end of the block."""

    @asynccontextmanager
    async def start(*vaults: Path, wait: bool = True) -> AsyncIterator[Asker]:
        directories = ":".join(map(str, vaults or (vault,)))
        settings = NotesSettings(MARGINALIA_VAULTS=directories, MARGINALIA_HOME=home, DATABASE_URL=database_url, NATS_URL=nats_url)
        stop = asyncio.Event()
        task = asyncio.create_task(serve(settings, stop))
        try:
            if wait:
                await asker.ready()
            yield asker
        finally:
            stop.set()
            await task

    return start


@pytest.fixture
async def service(serving: Serving) -> AsyncIterator[Asker]:
    """A service on the one vault, ready."""
    async with serving() as asker:
        yield asker


async def refused(asking: Awaitable[object], code: ErrorCode) -> ServiceError:
    """The refusal, which has this code."""
    with pytest.raises(ServiceError) as caught:
        await asking
    assert caught.value.code == code
    return caught.value
