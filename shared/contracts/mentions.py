"""The mention family: what a person can mention while writing, and what a message that mentions it says. Served by notes; asked by gateway
and agent.

Every request acts for the account in the message's headers: it is offered, and may refer to, the notes of the workspaces that it may read.
`workspace` is the session's, where refs start; `ref`, `label` and the form of a serialised line are those of `shared/references.py`.
"""

from typing import Literal
from uuid import UUID

from shared.contracts.subject import Message, Query

REFERENCES_MAX = 50
QUERY_CHARACTERS_MAX = 500
REF_CHARACTERS_MAX = 5000
LABEL_CHARACTERS_MAX = 1000
LIMIT_MAX = 1000
LIMIT = 50


class CandidatesRequest(Message):
    """What stands behind the `@` so far (MN-1, MN-2). Without a workspace there is nothing to offer."""

    workspace: UUID | None
    query: str = ""
    limit: int = LIMIT
    locale: Literal["zh", "en"] = "en"


class Insert(Message):
    """What choosing a note puts into the message. `clipboard_text` is the link itself."""

    source: Literal["notes"] = "notes"
    ref: str
    label: str
    clipboard_text: str


class NoteCandidate(Message):
    """A note, or a section of one. `description`: its file's name without the ending; of another workspace behind that one's title."""

    kind: Literal["note"] = "note"
    name: str
    description: str
    icon: str = "📝"
    insert: Insert


class WorkspaceCandidate(Message):
    """A workspace; `text` is what to go on from, so that its notes are offered."""

    kind: Literal["workspace"] = "workspace"
    name: str
    description: str
    icon: str = "🗂️"
    text: str


class Candidates(Message):
    """What fits best first."""

    items: list[NoteCandidate | WorkspaceCandidate]


class Reference(Message):
    """A note by its ref, and what to call it; an empty label stands for the note's title."""

    ref: str
    label: str = ""


class SerializeRequest(Message):
    """References to be put into a message; `reference_missing` where a note is not there (MN-4, MN-5)."""

    workspace: UUID | None
    references: list[Reference]
    locale: Literal["zh", "en"] = "en"


class Serialized(Message):
    """A line for each reference, in the order given."""

    text: str


class MissingReference(Message):
    """A reference that leads to no note. `moved_to`: the ref of the note that it has become, where that is known."""

    ref: str
    label: str
    message: str
    moved_to: str | None


class LexiconRequest(Message):
    """The titles of a workspace's notes from the `after`th on; none where their present version is `known`."""

    workspace: UUID | None
    known: list[str] = []
    after: int = 0


class Lexicon(Message):
    """For decoration only (MN-7). `titles` is None where the asker has them; `more`: ask again after these."""

    version: str
    titles: list[str] | None
    more: bool = False


CANDIDATES = Query("notes.mention.candidates", CandidatesRequest, Candidates, owner="notes", askers=("gateway",))
SERIALIZE = Query("notes.mention.serialize", SerializeRequest, Serialized, owner="notes", askers=("gateway", "agent"))
LEXICON = Query("notes.mention.lexicon", LexiconRequest, Lexicon, owner="notes", askers=("gateway",))
