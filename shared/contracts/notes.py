"""The notes family: workspaces and the notes in them. Served by notes; asked by gateway, agent, retrieval and contexts.

Every request acts for the account named in the message's headers: an admin may use every workspace, a member those it was given;
another's is `workspace_not_found`. A request without an account comes from a service itself and may use all.

Whoever changes a note names the version it has seen, needs `write` access (`forbidden`), and gets the note as it then is. Until a change is
answered it may or may not have happened; once it is answered, it is on the disk for good.

`notes.changed.<workspace>` is a fact in the stream NOTES: published after the index row is committed, at least once (with
`Nats-Msg-Id`), in order of `revision` within a workspace. Readers acknowledge after their own work is committed. Where a request was the
cause, `traceparent` is of it, to be linked to and not gone on with: one request may change many notes, one batch be of many requests.
"""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field

from shared.contracts.errors import ErrorBody
from shared.contracts.subject import Empty, Event, Message, Query

# What nobody reads through cannot be approved; and it travels in an event.
DIFF_CHARACTERS_MAX = 400_000
NOTES_PER_READ = 16


class Workspace(Message):
    """A directory of Markdown files.

    Attributes:
        directory: the name on disk; never changes.
        notes_dir: where the notes lie below the directory: `""`, or e.g. `.notes`.
        notes: how many notes it has.
        access: what the asking account may do.
        available: false while its directory cannot be read; nothing is forgotten meanwhile.
    """

    id: UUID
    title: str
    directory: str
    notes_dir: str
    notes: int
    access: Literal["read", "write"] = "write"
    available: bool = True


class WorkspaceList(Message):
    """Every workspace the account may use, by directory."""

    items: list[Workspace]


class WorkspaceRef(Message):
    """Names one workspace."""

    workspace: UUID


class UpdateWorkspace(Message):
    """What to change; None leaves it."""

    workspace: UUID
    title: str | None = None


class CreateWorkspace(Message):
    """A new directory of that name in the data directory's `vaults/`; `workspace_exists` where the name is taken."""

    directory: str
    title: str | None = None
    notes_dir: str = ""


class Member(Message):
    """What one account may do in a workspace."""

    account_id: UUID
    access: Literal["read", "write"]


class MemberList(Message):
    """The members of one workspace, whole."""

    items: list[Member]


class PutMembers(Message):
    """Replaces the members of a workspace."""

    workspace: UUID
    items: list[Member]


class NoteSummary(Message):
    """A note without its text. `path` is relative to `directory/notes_dir`; `content_hash` the SHA-256 hex of the file's bytes."""

    path: str
    title: str
    tags: list[str]
    content_hash: str
    size: int
    modified_at: datetime


class Note(NoteSummary):
    """A note with `content`, the raw text of the file, front matter and a byte order mark included.

    Attributes:
        revision: of its last change.
        properties: the front matter's entries whose value is one text, as written.
    """

    content: str
    revision: int = 0
    properties: dict[str, str] = {}


class ListNotes(Message):
    """Notes by path. `prefix` is a prefix of the path, `tag` one tag; `cursor` comes from the answer before; `limit` 1 to 1000."""

    workspace: UUID
    prefix: str = ""
    tag: str | None = None
    cursor: str | None = None
    limit: int = 100


class NotePage(Message):
    """One page; `next_cursor` is None on the last."""

    items: list[NoteSummary]
    next_cursor: str | None = None


class ReadNote(Message):
    """Names one note."""

    workspace: UUID
    path: str


class ReadNotes(Message):
    """Some notes of one workspace: 1 to `NOTES_PER_READ`."""

    workspace: UUID
    paths: list[str]


class NoteRead(Message):
    """A note, or why it cannot be read. Neither, where the answer was long enough without it: it is to be asked for again."""

    note: Note | None = None
    problem: ErrorBody | None = None


class NotesRead(Message):
    """In the order asked; the first one is a note or a problem."""

    items: list[NoteRead]


class CreateNote(Message):
    """A note where none is. `note_exists` (with `current_hash`) where the name is taken, `path_invalid` where it can be none."""

    workspace: UUID
    path: str
    content: str


class ReplaceNote(Message):
    """Other text in the place of the version `content_hash`; `note_stale` (with `current_hash`, None where the note is gone) where that is
    not the present one.
    """

    workspace: UUID
    path: str
    content_hash: str
    content: str


class PatchNote(Message):
    """`new_text` for the one place where `old_text` stands, in the version `content_hash`.

    `note_stale`, `match_not_found`, `match_not_unique` (with `matches`). A line feed in either text stands for the line ending of the
    place, unless one of them has a carriage return. No byte outside the place changes.
    """

    workspace: UUID
    path: str
    content_hash: str
    old_text: str
    new_text: str


class MoveNote(Message):
    """Another path for the version `content_hash`; `note_stale`, or `note_exists` where the new path is taken."""

    workspace: UUID
    path: str
    to: str
    content_hash: str


class DeleteNote(Message):
    """The version `content_hash` into the workspace's trash; `note_stale` where that is not the present one."""

    workspace: UUID
    path: str
    content_hash: str


class AppendExchange(Message):
    """A question and its answer at the end of a note, which is made where it is missing; once per `message_id` (MN-9)."""

    workspace: UUID
    path: str
    message_id: UUID
    conversation_title: str
    question: str
    answer: str


class Appended(Message):
    """The note as it is then. `created`: it was made for this."""

    note: Note
    created: bool


class CreateText(Message):
    """A note where none is."""

    kind: Literal["create"] = "create"
    content: str


class PatchText(Message):
    """As in `PatchNote`."""

    kind: Literal["patch"] = "patch"
    content_hash: str
    old_text: str
    new_text: str


class AppendText(Message):
    """Text as a block of its own at the end of a note, which is made where it is missing. Its lines end as the note's do."""

    kind: Literal["append"] = "append"
    text: str


type Change = Annotated[CreateText | PatchText | AppendText, Field(discriminator="kind")]


class DraftNote(Message):
    """Asks what a change would make of a note. Nothing is written; whatever would refuse the change itself refuses this."""

    workspace: UUID
    path: str
    change: Change


class Draft(Message):
    """A change as a person can judge it (MD-5).

    Attributes:
        path: as the note is, or would be, called.
        base_hash: the version that it changes; None where the note would be new.
        content_hash: of the note as it would be.
        diff: unified, three lines of context; `diff_sha256` is the SHA-256 hex of its UTF-8.
    """

    path: str
    base_hash: str | None
    content_hash: str
    diff: str
    diff_sha256: str


class ApplyDraft(Message):
    """Makes the change that was drafted, of that version, with that outcome; `note_stale` or `note_exists` where the note is another one
    by now. A note that has the outcome already is no failure: the same draft may be applied again.
    """

    workspace: UUID
    path: str
    change: Change
    base_hash: str | None
    content_hash: str


class FindNotes(Message):
    """Notes whose title, path or tags have all words of `query`, best first: the title itself, its beginning, within it, then the path.

    `workspace` None: all that the account may read. `limit` 1 to 50.
    """

    query: str
    workspace: UUID | None = None
    limit: int = 20


class FoundNote(NoteSummary):
    """A note and where it is."""

    workspace: UUID
    directory: str


class FoundNotes(Message):
    """At most as many as asked for."""

    items: list[FoundNote]


class HashesRequest(Message):
    """Which versions of these notes are the present ones."""

    items: list[ReadNote]


class Hashes(Message):
    """In the order asked; None for a note that is gone, or not for the asking account."""

    items: list[str | None]


class NoteChanged(Message):
    """A note is not what it was, whoever changed it.

    Attributes:
        revision: grows with each change of the workspace; a reader that has seen a later one for the path may drop this.
        content_hash: None when deleted.
        from_path: the old path of a move.
    """

    workspace: UUID
    revision: int
    kind: Literal["created", "updated", "moved", "deleted"]
    path: str
    content_hash: str | None
    from_path: str | None = None
    changed_at: datetime


STREAM = "NOTES"

WORKSPACE_LIST = Query("notes.workspace.list", Empty, WorkspaceList, owner="notes", askers=("gateway", "agent", "retrieval", "contexts"))
WORKSPACE_GET = Query("notes.workspace.get", WorkspaceRef, Workspace, owner="notes", askers=("gateway",))
WORKSPACE_UPDATE = Query("notes.workspace.update", UpdateWorkspace, Workspace, owner="notes", askers=("gateway",))
WORKSPACE_CREATE = Query("notes.workspace.create", CreateWorkspace, Workspace, owner="notes", askers=("gateway",), idempotent=False)
MEMBERS_GET = Query("notes.members.get", WorkspaceRef, MemberList, owner="notes", askers=("gateway",))
MEMBERS_PUT = Query("notes.members.put", PutMembers, MemberList, owner="notes", askers=("gateway",))
NOTE_LIST = Query("notes.list", ListNotes, NotePage, owner="notes", askers=("gateway", "retrieval"))
NOTE_HASHES = Query("notes.hashes", HashesRequest, Hashes, owner="notes", askers=("agent",))
NOTE_READ = Query("notes.read", ReadNote, Note, owner="notes", askers=("gateway", "agent", "contexts"))
NOTE_READ_SOME = Query("notes.read_some", ReadNotes, NotesRead, owner="notes", askers=("retrieval",), timeout_seconds=30)
NOTE_CREATE = Query("notes.create", CreateNote, Note, owner="notes", askers=("gateway",), idempotent=False)
NOTE_REPLACE = Query("notes.replace", ReplaceNote, Note, owner="notes", askers=("gateway",), idempotent=False)
NOTE_PATCH = Query("notes.patch", PatchNote, Note, owner="notes", askers=("gateway",), idempotent=False)
NOTE_MOVE = Query("notes.move", MoveNote, Note, owner="notes", askers=("gateway",), idempotent=False)
NOTE_DELETE = Query("notes.delete", DeleteNote, Empty, owner="notes", askers=("gateway",), idempotent=False)
NOTE_APPEND = Query("notes.append", AppendExchange, Appended, owner="notes", askers=("gateway",))
NOTE_DRAFT = Query("notes.draft", DraftNote, Draft, owner="notes", askers=("gateway", "agent"))
NOTE_APPLY = Query("notes.apply", ApplyDraft, Note, owner="notes", askers=("gateway", "agent"))
NOTE_FIND = Query("notes.find", FindNotes, FoundNotes, owner="notes", askers=("agent",))

CHANGED = Event(
    "notes.changed.{workspace}",
    owner="notes",
    stream=STREAM,
    message=NoteChanged,
    listeners=("gateway", "retrieval"),
    consumers=("retrieval",),
)
