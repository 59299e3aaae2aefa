"""A conversation from elsewhere, as a request body: what `GET /api/chat/conversations/{id}` says of its messages can be sent back.

What is absent gets what can be known without guessing: a source's number by its place, null for the rest.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BeforeValidator, Field, Strict, model_validator

from services.gateway.strict_route import Body, Id, NotBlank
from shared.contracts.chat import MESSAGE_CHARACTERS_MAX, Approval, HistoryMessage, ImportConversation, ToolCall
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.notes import DIFF_CHARACTERS_MAX

MESSAGES_MAX = 2000
ENTRIES_MAX = 1000
INTEGER_MAX = 2**31 - 1
RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
# An offset may move a time by a day; both ends stay representable.
YEARS = range(1970, 9999)


def _time(value: object) -> object:
    if not isinstance(value, str) or RFC_3339.fullmatch(value) is None:
        raise ValueError("must be a time in RFC 3339, with its offset")
    if int(value[:4]) not in YEARS:
        raise ValueError(f"must be in the years {YEARS.start} to {YEARS.stop - 1}")
    return value


Time = Annotated[AwareDatetime, Strict(False), BeforeValidator(_time)]
Count = Annotated[int, Field(ge=0, le=INTEGER_MAX)]
Name = Annotated[str, Field(min_length=1, max_length=1000)]


class ImportedApproval(Body):
    """What the user was once asked to consent to; nothing waits for it any more."""

    workspace: Id
    path: Annotated[str, Field(max_length=1000)]
    diff: Annotated[str, Field(max_length=DIFF_CHARACTERS_MAX)]
    diff_sha256: Annotated[str, Field(max_length=64)]


class ImportedCall(Body):
    """A tool call. Its result is not part of a conversation's page, so it is shown and not said to a model again."""

    id: Name | None = None
    name: Name
    arguments: Any = {}
    status: Literal["running", "awaiting_approval", "completed", "error", "rejected"] = "completed"
    round: Annotated[int, Field(ge=1, le=INTEGER_MAX)] = 1
    hits: Count | None = None
    approval: ImportedApproval | None = None


class ImportedLocator(Body):
    """Where a source stood in its note, and which text of the note that was."""

    start: Count
    end: Count
    content_hash: Annotated[str, Field(max_length=64)]


class ImportedSource(Body):
    """A source that an answer was given. `state` is looked up anew whenever the conversation is read."""

    number: Annotated[int, Field(ge=1, le=INTEGER_MAX)] | None = None
    citation_id: Name | None = None
    block_id: Name | None = None
    workspace: Id | None = None
    file_path: Annotated[str, Field(max_length=4000)] = ""
    heading_path: Annotated[list[Annotated[str, Field(max_length=1000)]], Field(max_length=100)] = []
    locator: ImportedLocator | None = None
    excerpt: Annotated[str, Field(max_length=10_000)] = ""
    state: Literal["current", "changed", "gone"] | None = None

    @model_validator(mode="after")
    def _names_something(self) -> "ImportedSource":
        if not (self.file_path or self.citation_id):
            raise ValueError("a source needs a file_path or a citation_id")
        return self


class ImportedMessage(Body):
    """One message."""

    role: Literal["user", "assistant"]
    content: str
    thinking: str = ""
    tool_calls: Annotated[list[ImportedCall], Field(max_length=ENTRIES_MAX)] = []
    sources: Annotated[list[ImportedSource], Field(max_length=ENTRIES_MAX)] = []
    created_at: Time | None = None

    @model_validator(mode="after")
    def _is_consistent(self) -> "ImportedMessage":
        if self.role == "user" and (self.thinking or self.tool_calls or self.sources):
            raise ValueError("a user's message has no thinking, tool_calls or sources")
        numbers = [source["number"] for source in self._sources()]
        if len(set(numbers)) != len(numbers):
            raise ValueError("two sources have one number")
        ids = [call.id for call in self._calls()]
        if len(set(ids)) != len(ids):
            raise ValueError("two tool calls have one id")
        return self

    def to_contract(self) -> HistoryMessage:
        """As services know it."""
        return HistoryMessage(
            role=self.role,
            content=self.content,
            thinking=self.thinking,
            tool_calls=self._calls(),
            sources=self._sources(),
            created_at=self.created_at,
        )

    def _calls(self) -> list[ToolCall]:
        """What was running when the history was written will not end any more."""
        return [
            ToolCall(
                id=call.id or f"call_{position}",
                name=call.name,
                arguments=call.arguments,
                status="error" if call.status in ("running", "awaiting_approval") else call.status,
                round=call.round,
                hits=call.hits,
                approval=None if call.approval is None else Approval(**call.approval.model_dump()),
            )
            for position, call in enumerate(self.tool_calls, 1)
        ]

    def _sources(self) -> list[dict[str, Any]]:
        return [
            {**source.model_dump(mode="json", exclude={"state"}), "number": source.number or position}
            for position, source in enumerate(self.sources, 1)
        ]


class ImportedConversation(Body):
    """A linear history."""

    title: Annotated[NotBlank, Field(max_length=200)]
    workspace: Id | None = None
    messages: Annotated[list[ImportedMessage], Field(min_length=1, max_length=MESSAGES_MAX)]

    def to_contract(self) -> ImportConversation:
        """The command to the agent.

        Raises:
            ServiceError: `too_large`, for a message that is longer than a message may be.
        """
        for position, message in enumerate(self.messages):
            if max(len(message.content), len(message.thinking)) > MESSAGE_CHARACTERS_MAX:
                raise ServiceError(
                    ErrorCode.TOO_LARGE,
                    f"messages.{position}: a message may have {MESSAGE_CHARACTERS_MAX} characters.",
                    limit=MESSAGE_CHARACTERS_MAX,
                )
        messages = [message.to_contract() for message in self.messages]
        return ImportConversation(title=self.title, workspace=self.workspace, messages=messages)
