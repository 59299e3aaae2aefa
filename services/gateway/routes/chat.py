"""Turns and conversations."""

import asyncio
import hashlib
from typing import Annotated, Any, Literal
from uuid import UUID, uuid4

import orjson
from fastapi import APIRouter, Query, Request, Response
from pydantic import Field, model_validator

from services.gateway.accept import MARKDOWN, prefers_markdown
from services.gateway.access import AnyCaller
from services.gateway.conversation_markdown import document
from services.gateway.conversation_reader import read_conversation
from services.gateway.event_stream import EventStream
from services.gateway.imported_conversation import ImportedConversation
from services.gateway.responses import as_json, open_streams
from services.gateway.routes.mentions import ReferenceIn
from services.gateway.routes.preferences import preferences_of
from services.gateway.search_filters import RetrievalOptions
from services.gateway.strict_route import Body, Id, NotBlank, StrictRoute
from services.gateway.turn_request import TurnRequest
from shared.contracts import chat
from shared.contracts.chat import (
    MESSAGE_CHARACTERS_MAX,
    Conversation,
    ConversationPage,
    ConversationRef,
    ConversationSummary,
    DecideCall,
    Decision,
    ListConversations,
    Mode,
    ProviderList,
    RenameConversation,
    SelectVersion,
    StartTurn,
    TurnRef,
    TurnResult,
    TurnState,
)
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.markdown import Preset
from shared.contracts.mentions import REFERENCES_MAX
from shared.contracts.subject import Empty
from shared.references import Locale

router = APIRouter(route_class=StrictRoute)

EVENT_STREAM = "text/event-stream"
SEQ_MAX = 10**9


class ChatRequest(Body):
    """One user message, or a reply to be made anew."""

    conversation_id: Id | None = None
    workspace: Id | None = None
    message: NotBlank | None = None
    references: Annotated[list[ReferenceIn], Field(max_length=REFERENCES_MAX)] = []
    retry_message_id: Id | None = None
    parent_message_id: Id | None = None
    client_message_id: Annotated[NotBlank, Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")] | None = None
    mode: Mode = "chat"
    allowed_tools: Annotated[list[Annotated[str, Field(min_length=1, max_length=64)]], Field(max_length=50)] | None = None
    retrieval: RetrievalOptions = RetrievalOptions()
    provider: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    model: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    locale: Literal["zh", "en"] | None = None
    on_disconnect: Literal["cancel", "keep"] = "cancel"
    stream: bool = True

    @model_validator(mode="after")
    def _has_something_to_do(self) -> "ChatRequest":
        if self.message is None and self.retry_message_id is None:
            raise ValueError("a message is needed, unless a reply is regenerated")
        if self.retry_message_id is not None and self.parent_message_id is not None:
            raise ValueError("retry_message_id says where the message stands; parent_message_id cannot be given with it")
        if self.references and self.message is None:
            raise ValueError("references go into a message; there is none")
        return self

    def to_contract(self, turn_id: UUID, locale: Locale | None, preset: Preset) -> StartTurn:
        """The command to the agent."""
        # How the answer is to be delivered does not make it another turn.
        asked = self.model_dump(mode="json", exclude={"stream", "on_disconnect"})
        digest = hashlib.sha256(orjson.dumps(asked, option=orjson.OPT_SORT_KEYS)).hexdigest()
        return StartTurn(
            turn_id=turn_id,
            conversation_id=self.conversation_id,
            workspace=self.workspace,
            message=self.message,
            references=[reference.to_contract() for reference in self.references],
            retry_message_id=self.retry_message_id,
            parent_message_id=self.parent_message_id,
            client_message_id=self.client_message_id,
            request_digest=digest,
            mode=self.mode,
            allowed_tools=self.allowed_tools,
            preset=preset,
            retrieval=self.retrieval.to_contract(),
            provider=self.provider,
            model=self.model,
            locale=locale,
        )


class DecisionBody(Body):
    """What is decided, about which change."""

    decision: Decision
    diff_sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Title(Body):
    """A conversation's title."""

    title: Annotated[NotBlank, Field(max_length=200)]


EVENTS_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {"description": "The turn's events; docs/http.md describes them.", "content": {EVENT_STREAM: {"schema": {"type": "string"}}}}
}


class EventStreamResponse(Response):
    """Says in the description what kind of answer it is."""

    media_type = EVENT_STREAM


@router.post("/api/chat", summary="Ask", response_model=TurnResult, responses=EVENTS_RESPONSE)
async def ask(body: ChatRequest, request: Request, caller: AnyCaller) -> Response:
    """Begins a turn and streams its events, or with `"stream": false` answers once it has ended. Where a note that `references` name is
    missing, the answer is 409 `reference_missing` with `missing`, and nothing is stored or sent.
    """
    if body.message is not None and len(body.message) > MESSAGE_CHARACTERS_MAX:
        raise ServiceError(ErrorCode.TOO_LARGE, f"A message may have {MESSAGE_CHARACTERS_MAX} characters.", limit=MESSAGE_CHARACTERS_MAX)
    locale, preset = body.locale, Preset()
    if body.mode == "agent" or (body.references and locale is None):
        preferences = await preferences_of(caller, request)
        locale, preset = locale or preferences.locale, preferences.markdown
    cancel = body.on_disconnect == "cancel"
    turn = await TurnRequest.begin(body.to_contract(uuid4(), locale, preset), caller)
    if not body.stream:
        return as_json(await turn.result(request.receive, cancel=cancel))

    async def close(left_early: bool) -> None:
        await turn.close(cancel=left_early and cancel)

    return EventStream(turn.stream, open_streams(request), request.app.state.metrics, close)


@router.get("/api/chat/turns/{turn_id}", response_model=TurnState, summary="A turn so far")
async def turn_state(turn_id: UUID, caller: AnyCaller) -> Response:
    """What its events amount to."""
    return as_json(await caller.ask(chat.TURN_GET, TurnRef(turn=turn_id)))


@router.get("/api/chat/turns/{turn_id}/events", summary="A turn's events", responses=EVENTS_RESPONSE, response_class=EventStreamResponse)
async def turn_events(turn_id: UUID, request: Request, caller: AnyCaller) -> Response:
    """From the start, or after `Last-Event-ID`; during the turn and after it. Leaving this stream cancels nothing."""
    stream = await TurnRequest.reading(turn_id, caller, after=_last_event_id(request))

    async def close(_: bool) -> None:
        await stream.__aexit__(None, None, None)

    return EventStream(stream, open_streams(request), request.app.state.metrics, close)


@router.post("/api/chat/turns/{turn_id}/cancel", status_code=202, summary="Cancel a turn")
async def cancel_turn(turn_id: UUID, caller: AnyCaller) -> Response:
    """Also when it has ended already, which changes nothing."""
    await caller.ask(chat.TURN_CANCEL, TurnRef(turn=turn_id))
    return Response(status_code=202)


@router.post("/api/chat/turns/{turn_id}/approvals/{tool_call_id:path}", status_code=202, summary="Approve or reject a change")
async def decide(turn_id: UUID, tool_call_id: str, body: DecisionBody, caller: AnyCaller) -> Response:
    """Of exactly the change that `ApprovalRequired` showed. The turn goes on, its events with the next `seq`."""
    request = DecideCall(turn=turn_id, tool_call_id=tool_call_id, decision=body.decision, diff_sha256=body.diff_sha256)
    await caller.ask(chat.TURN_DECIDE, request)
    return Response(status_code=202)


@router.get("/api/chat/conversations", response_model=ConversationPage, summary="List conversations")
async def list_conversations(
    caller: AnyCaller, cursor: Annotated[str | None, Query(max_length=500)] = None, limit: Annotated[int, Query(ge=1, le=200)] = 50
) -> Response:
    """Latest activity first."""
    return as_json(await caller.ask(chat.CONVERSATION_LIST, ListConversations(cursor=cursor, limit=limit)))


@router.post("/api/chat/conversations/import", response_model=Conversation, status_code=201, summary="Import a conversation")
async def import_conversation(body: ImportedConversation, caller: AnyCaller) -> Response:
    """A linear history from elsewhere, kept as one path; all or nothing."""
    imported = await caller.ask(chat.CONVERSATION_IMPORT, body.to_contract())
    return as_json(await read_conversation(caller, imported.conversation), 201)


@router.get(
    "/api/chat/conversations/{conversation_id}",
    response_model=Conversation,
    responses={200: {"content": {MARKDOWN: {}}}},
    summary="Read a conversation",
)
async def get_conversation(conversation_id: UUID, request: Request, caller: AnyCaller) -> Response:
    """Its active path, root first; as a document with the cited sources below each reply, with `Accept: text/markdown`."""
    conversation = await read_conversation(caller, conversation_id)
    if prefers_markdown(request.headers.get("accept", "")):
        text = await asyncio.to_thread(document, conversation)  # reading a long reply as Markdown takes a while
        return Response(text.encode(), media_type=f"{MARKDOWN}; charset=utf-8", headers={"Vary": "Accept"})
    answer = as_json(conversation)
    answer.headers["Vary"] = "Accept"
    return answer


@router.patch("/api/chat/conversations/{conversation_id}", response_model=ConversationSummary, summary="Rename a conversation")
async def rename_conversation(conversation_id: UUID, body: Title, caller: AnyCaller) -> Response:
    """Sets its title."""
    return as_json(await caller.ask(chat.CONVERSATION_RENAME, RenameConversation(conversation=conversation_id, title=body.title)))


@router.delete("/api/chat/conversations/{conversation_id}", status_code=204, summary="Delete a conversation")
async def delete_conversation(conversation_id: UUID, caller: AnyCaller) -> Response:
    """With all its messages; turns that run in it are cancelled."""
    await caller.ask(chat.CONVERSATION_DELETE, ConversationRef(conversation=conversation_id))
    return Response(status_code=204)


@router.post(
    "/api/chat/conversations/{conversation_id}/messages/{message_id}/select", response_model=Conversation, summary="Choose a version"
)
async def select_version(conversation_id: UUID, message_id: UUID, caller: AnyCaller) -> Response:
    """Makes it active and restores the path last active below it."""
    await caller.ask(chat.CONVERSATION_SELECT, SelectVersion(conversation=conversation_id, message=message_id))
    return as_json(await read_conversation(caller, conversation_id))


@router.get("/api/providers", response_model=ProviderList, summary="List model providers")
async def providers(caller: AnyCaller) -> Response:
    """Names and abilities; no keys or addresses."""
    return as_json(await caller.ask(chat.PROVIDER_LIST, Empty()))


def _last_event_id(request: Request) -> int:
    value = request.headers.get("last-event-id", "")
    if not value:
        return 0
    if not (value.isascii() and value.isdigit()) or len(value) > len(str(SEQ_MAX)):
        raise ServiceError(ErrorCode.LAST_EVENT_ID_INVALID, "Last-Event-ID must be the number of one of the turn's events.")
    return int(value)
