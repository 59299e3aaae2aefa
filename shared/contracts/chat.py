"""The chat family: turns, their events, conversations. Served by agent; asked by gateway.

A turn is a log of events with one writer, the agent that holds it: `chat.events.<turn_id>`, kept in the stream CHAT. The payload
is the event as clients get it, one JSON object; the headers `Event-Type`, `Event-Seq` and `Attempt` let readers frame, order and fence
it without looking inside. `seq` rises by one from 1 without gaps; a reader that sees a gap asks `agent.turn.log`. An agent that takes a
turn over writes on in the next attempt, after the last event it found; what an earlier attempt writes beyond that is void.
After the last event (`Done`, or `Suspended` for the time being) everything is stored.

Every request acts for the account in the message's headers; another account's things are not found.
"""

from datetime import datetime
from enum import StrEnum
from typing import Any, Literal
from uuid import UUID

from pydantic import SerializerFunctionWrapHandler, model_serializer

from shared.contracts.markdown import Preset
from shared.contracts.mentions import Reference
from shared.contracts.retrieval import Filters
from shared.contracts.subject import Empty, Event, Message, Query

MESSAGE_CHARACTERS_MAX = 200_000

# `chat`: the only tool is the search of the notes. `agent`: the model may work on the notes.
type Mode = Literal["chat", "agent"]
type Decision = Literal["approve", "reject"]
# Whether the model may search the notes; `unavailable`: it may, but cannot call tools.
type RetrievalState = Literal["on_demand", "off", "unavailable"]


class EventType(StrEnum):
    """The events of a turn, as `docs/http.md` names them."""

    TURN_STARTED = "TurnStarted"
    CONTEXT_INJECTED = "ContextInjected"
    THINKING_DELTA = "ThinkingDelta"
    TEXT_DELTA = "TextDelta"
    TOOL_CALL_START = "ToolCallStart"
    TOOL_CALL_DELTA = "ToolCallDelta"
    TOOL_CALL_END = "ToolCallEnd"
    CITATION = "Citation"
    APPROVAL_REQUIRED = "ApprovalRequired"
    NOTICE = "Notice"
    ROUND_RESTARTED = "RoundRestarted"
    USAGE = "Usage"
    ERROR = "Error"
    SUSPENDED = "Suspended"
    DONE = "Done"


# After one of these no event follows, or none before a decision.
LAST_EVENTS = frozenset({EventType.DONE, EventType.SUSPENDED})

TurnStatus = Literal["running", "suspended", "completed", "cancelled", "failed", "limit_reached"]


class RetrievalChoice(Message):
    """Whether the model may search, and where."""

    enabled: bool = True
    filters: Filters = Filters()


class Approval(Message):
    """A change of a note that the user is asked to consent to: its exact diff (unified), and the diff's SHA-256 (MD-5)."""

    workspace: UUID
    path: str
    diff: str
    diff_sha256: str


class ToolCall(Message):
    """A tool call and how it went. `arguments`: the parsed object, or the raw text where it did not parse. `approval`: what the user was
    asked to consent to, where that was needed.
    """

    id: str
    name: str
    arguments: Any
    status: Literal["running", "awaiting_approval", "completed", "error", "rejected"]
    round: int
    hits: int | None = None
    approval: Approval | None = None

    @model_serializer(mode="wrap")
    def _without_absent_approval(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Most calls need no consent; they have no such field."""
        fields: dict[str, Any] = serialize(self)
        if self.approval is None:
            del fields["approval"]
        return fields


class HistoryCall(Message):
    """A tool call with its result, both as a model reads them: `arguments` is the text of a JSON object."""

    id: str
    name: str
    arguments: str
    result: str


class HistoryRound(Message):
    """One assistant message as it was said. A call without a result is none: neither is here then."""

    content: str = ""
    thinking: str = ""
    calls: list[HistoryCall] = []


class HistoryMessage(Message):
    """A message that was not made here.

    Attributes:
        rounds: how a reply was said, where that is known; None: in one piece, its calls not to be said again, since their results are
            unknown.
        sources: as `Citation`; fields that were not known are None.
        created_at: None: now.
    """

    role: Literal["user", "assistant"]
    content: str
    thinking: str = ""
    tool_calls: list[ToolCall] = []
    sources: list[dict[str, Any]] = []
    rounds: list[HistoryRound] | None = None
    created_at: datetime | None = None


class StartTurn(Message):
    """Begin a turn; fields as in `POST /api/chat`. `turn_id` is chosen by the caller, so that it can listen first and cancel early.

    Attributes:
        request_digest: identifies the body for `client_message_id`.
        allowed_tools: in agent mode; None: every tool that changes nothing.
        preset: the syntax that the account has switched on, for the Markdown tools (MD-6).
        transient: in a new conversation that is not listed and goes after a day, unless somebody goes on in it.
        history: what such a conversation begins with, before `message`.
        references: to be put into the message, which is not stored or sent where the note of one is missing (MN-5).
        instructions: what the user asks of the model in general; said after what we ask of it.
        sampling: fields of the provider's request, passed on as they are.
    """

    turn_id: UUID
    conversation_id: UUID | None = None
    workspace: UUID | None = None
    message: str | None = None
    references: list[Reference] = []
    retry_message_id: UUID | None = None
    parent_message_id: UUID | None = None
    client_message_id: str | None = None
    request_digest: str = ""
    mode: Mode = "chat"
    allowed_tools: list[str] | None = None
    preset: Preset = Preset()
    retrieval: RetrievalChoice = RetrievalChoice()
    provider: str | None = None
    model: str | None = None
    locale: Literal["zh", "en"] | None = None
    transient: bool = False
    history: list[HistoryMessage] = []
    instructions: str | None = None
    sampling: dict[str, Any] = {}


class TurnAccepted(Message):
    """The turn that runs: `turn_id` is another one where `client_message_id` was seen before."""

    turn_id: UUID
    conversation_id: UUID
    response_id: UUID


class TurnRef(Message):
    """Names one turn."""

    turn: UUID


class DecideCall(Message):
    """What the user decides about a call that waits: for the diff that was shown, on the version that it was shown of (MD-5)."""

    turn: UUID
    tool_call_id: str
    decision: Decision
    diff_sha256: str


class LogRequest(Message):
    """Events after `after` (0: all), at most about 4 MB of them."""

    turn: UUID
    after: int = 0


class LoggedEvent(Message):
    """One event: its payload as it was published."""

    seq: int
    type: str
    payload: str


class TurnLog(Message):
    """Events in order. `more`: ask again after the last. `ended`: no further event will come; `suspended`: not before a decision.

    `attempt` is the turn's present one: live events of an earlier attempt count for nothing from now on.
    """

    events: list[LoggedEvent]
    attempt: int = 1
    last_seq: int
    more: bool
    ended: bool
    suspended: bool = False


class TurnState(Message):
    """A turn so far: the fold of its log."""

    turn_id: UUID
    conversation_id: UUID
    response_id: UUID
    status: TurnStatus
    attempt: int
    last_seq: int
    content: str
    thinking: str
    activity: list[dict[str, Any]]
    tool_calls: list[ToolCall]


class ChatMessage(Message):
    """A message as clients see it; see `docs/http.md`."""

    id: UUID
    turn_id: UUID | None
    parent_message_id: UUID | None
    role: Literal["user", "assistant"]
    content: str
    status: Literal["running", "completed", "interrupted", "failed", "limit_reached", "awaiting_approval"]
    thinking: str
    activity: list[dict[str, Any]] | None
    injected: list[dict[str, Any]]
    tool_calls: list[ToolCall]
    sources: list[dict[str, Any]]
    left_out: list[dict[str, Any]]
    cited: list[int]
    versions: list[UUID]
    usage: dict[str, Any] | None
    created_at: datetime


class ConversationRef(Message):
    """Names one conversation."""

    conversation: UUID


class ConversationSummary(Message):
    """A conversation in a list."""

    id: UUID
    title: str
    workspace: UUID | None
    created_at: datetime
    updated_at: datetime


class Conversation(Message):
    """A conversation with its active path, root first."""

    id: UUID
    title: str
    workspace: UUID | None
    active_leaf: UUID | None
    active_response_id: UUID | None
    messages: list[ChatMessage]
    created_at: datetime
    updated_at: datetime


class ReadConversation(Message):
    """A conversation, its messages after `after` only: one message of NATS may not hold all of a long one."""

    conversation: UUID
    after: UUID | None = None


class ConversationPart(Message):
    """A conversation with some of its messages. `more`: ask again after the last."""

    conversation: Conversation
    more: bool


class ListConversations(Message):
    """The account's conversations, latest activity first."""

    cursor: str | None = None
    limit: int = 50


class ConversationPage(Message):
    """One page; `next_cursor` is None on the last."""

    items: list[ConversationSummary]
    next_cursor: str | None = None


class RenameConversation(Message):
    """A new title."""

    conversation: UUID
    title: str


class SelectVersion(Message):
    """Makes `message` its siblings' active version (VT-3)."""

    conversation: UUID
    message: UUID


class ImportConversation(Message):
    """A linear history from elsewhere, to be kept as one path (VT-5)."""

    title: str
    workspace: UUID | None
    messages: list[HistoryMessage]


class TurnResult(Message):
    """What a non-streaming client gets at the end; of a turn that waits for an approval, what there is, with `done` None."""

    turn_id: UUID
    conversation_id: UUID
    message: ChatMessage
    usage: dict[str, Any] | None
    done: dict[str, Any] | None


class ProviderInfo(Message):
    """A provider by name; no address, no key."""

    name: str
    models: list[str]
    tool_calling: bool


class ProviderList(Message):
    """The configured providers, the default first."""

    items: list[ProviderInfo]


STREAM = "CHAT"

TURN_START = Query("agent.turn.start", StartTurn, TurnAccepted, owner="agent", askers=("gateway",), idempotent=False)
TURN_GET = Query("agent.turn.get", TurnRef, TurnState, owner="agent", askers=("gateway",))
TURN_LOG = Query("agent.turn.log", LogRequest, TurnLog, owner="agent", askers=("gateway",))
TURN_RESULT = Query("agent.turn.result", TurnRef, TurnResult, owner="agent", askers=("gateway",))
TURN_DECIDE = Query("agent.turn.decide", DecideCall, Empty, owner="agent", askers=("gateway",))
TURN_CANCEL = Query("agent.turn.cancel", TurnRef, Empty, owner="agent", askers=("gateway",))
CONVERSATION_LIST = Query("agent.conversation.list", ListConversations, ConversationPage, owner="agent", askers=("gateway",))
CONVERSATION_GET = Query("agent.conversation.get", ReadConversation, ConversationPart, owner="agent", askers=("gateway",))
CONVERSATION_RENAME = Query("agent.conversation.rename", RenameConversation, ConversationSummary, owner="agent", askers=("gateway",))
CONVERSATION_DELETE = Query("agent.conversation.delete", ConversationRef, Empty, owner="agent", askers=("gateway",))
CONVERSATION_SELECT = Query("agent.conversation.select", SelectVersion, Empty, owner="agent", askers=("gateway",))
CONVERSATION_IMPORT = Query(
    "agent.conversation.import", ImportConversation, ConversationRef, owner="agent", askers=("gateway",), idempotent=False
)
PROVIDER_LIST = Query("agent.provider.list", Empty, ProviderList, owner="agent", askers=("gateway",))

# Asked by an agent whose beat another misses: whoever listens here is there, though it may be slow. Nobody else listens.
ALIVE = Event("agent.alive.{agent}", owner="agent", stream=None, listeners=("agent",))
EVENTS = Event("chat.events.{turn_id}", owner="agent", stream=STREAM, listeners=("gateway",), read_back=True)
