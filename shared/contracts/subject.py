"""The kinds of subject. Each is declared once, beside the models it carries, and registered by being declared.

Names: namespace first, identifier last; commands in the imperative, events in the past tense (NATS ADR-6 characters).
"""

from dataclasses import dataclass, field
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

SERVICES = ("gateway", "agent", "retrieval", "notes", "contexts")
EVERYONE = ("*",)


class Message(BaseModel):
    """Base of everything that crosses NATS. Unknown fields are ignored, so that fields can be added (NATS ADR-2)."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Empty(Message):
    """A request or reply that says nothing but that it happened."""


@dataclass(frozen=True, slots=True)
class Query[Request: Message, Reply: Message]:
    """A request-reply subject on core NATS, answered by one member of its owner's queue group.

    `askers` are the services that may ask. `timeout_seconds` is the most a caller waits; its own remaining budget may be less. An
    `idempotent` query may be asked again when the connection broke or nobody was listening.
    """

    subject: str
    request: type[Request]
    reply: type[Reply]
    owner: str
    askers: tuple[str, ...] = ()
    timeout_seconds: float = 10.0
    idempotent: bool = True
    registry: ClassVar[list["Query[Message, Message]"]] = []

    def __post_init__(self) -> None:
        Query.registry.append(self)


@dataclass(frozen=True, slots=True)
class Event:
    """A subject that its owner publishes and others listen to. `template` ends in the identifier, e.g. `x.changed.{id}`.

    Attributes:
        owner: who publishes; "*" is everyone.
        listeners: who hears it as it is published.
        stream: the JetStream stream that keeps the messages; None for core NATS alone.
        consumers: who takes every message from the stream, by a durable consumer of its own name.
        read_back: the owner reads in the stream what another process of it has published.
    """

    template: str
    owner: str
    stream: str | None
    message: type[Message] | None = None
    listeners: tuple[str, ...] = ()
    consumers: tuple[str, ...] = ()
    read_back: bool = False
    registry: ClassVar[list["Event"]] = []
    prefix: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "prefix", self.template.split("{", 1)[0])
        Event.registry.append(self)

    def subject(self, identifier: object) -> str:
        """The concrete subject of one identifier."""
        return f"{self.prefix}{identifier}"

    @property
    def wildcard(self) -> str:
        """What to subscribe to for all identifiers."""
        return f"{self.prefix}>"
