"""The contexts family: what of the user's notes goes into a model request. Served by contexts; asked by agent."""

from typing import Literal
from uuid import UUID

from shared.contracts.subject import Message, Query

# All notes of one request to a model together (MN-10).
INJECTED_CHARACTERS_MAX = 60_000


class Injection(Message):
    """One note that a message mentions, or a section of it.

    Attributes:
        ref: the one spelling of the reference, as clients carry it.
        path: below the notes' directory of the workspace.
        characters: how many of the note's are in `text`.
        form: whole, or its headings and its beginning.
        text: what the model is given, byte for byte, in every request of the branch: the note and how to treat it.
        workspace: the note's, with its directory.
        root_path: from the workspace's root.
        section: the fragment that narrowed it, where the note has such a section.
    """

    ref: str
    title: str
    path: str
    content_hash: str
    characters: int
    form: Literal["full", "outline"]
    text: str
    workspace: UUID
    directory: str
    root_path: str
    section: str | None = None


# What of an injection a client gets to see.
SHOWN = ("ref", "title", "path", "content_hash", "characters", "form")


class Present(Message):
    """An injection that the branch has already; of `Injection`."""

    workspace: UUID
    path: str
    content_hash: str
    characters: int
    form: Literal["full", "outline"]
    section: str | None = None


class InjectRequest(Message):
    """Scan a branch's user messages for inline links to notes (MN-6). `workspace` is where relative links start; None: none resolve.

    Attributes:
        messages: the texts that were not prepared yet, oldest first.
        present: what the branch carries already, so that one text is sent once, and all of them within one budget.
        mode: the turn's; it decides by which tool the rest of a long note can be had.
    """

    messages: list[str]
    workspace: UUID | None
    present: list[Present] = []
    mode: Literal["chat", "agent"] = "chat"


class Prepared(Message):
    """What one message mentions, in that order. `problem`: why some of it could not be read, though it may be there."""

    items: list[Injection]
    problem: str | None = None


class InjectReply(Message):
    """One entry for each message; a note that is gone, or not for the account, is passed over."""

    messages: list[Prepared]


INJECT = Query("contexts.inject", InjectRequest, InjectReply, owner="contexts", askers=("agent",))
