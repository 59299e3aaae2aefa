"""The contexts family: what of the user's notes goes into a model request. Served by contexts; asked by agent."""

from typing import Literal
from uuid import UUID

from shared.contracts.subject import Message, Query


class InjectRequest(Message):
    """Scan one user message for inline links to notes (MN-6). `workspace` is where relative links start; None: none resolve.

    `present` names what the branch carries already, by path and hash, so that one text is sent once.
    """

    text: str
    workspace: UUID | None
    present: list[tuple[str, str]] = []


class Injection(Message):
    """One note that a message mentions. `text` is what the model gets, byte for byte, in every later request of the branch."""

    ref: str
    title: str
    path: str
    content_hash: str
    characters: int
    form: Literal["full", "outline"]
    text: str


class InjectReply(Message):
    """The injections in the order of the mentions; a note that is gone is passed over."""

    items: list[Injection]


INJECT = Query("contexts.inject", InjectRequest, InjectReply, owner="contexts")
