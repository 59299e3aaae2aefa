"""Prepared contexts: evidence and the request made of it, for admins."""

from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal
from uuid import UUID

import orjson
from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import Field, JsonValue, model_validator

from services.gateway.access import AdminCaller, Caller
from services.gateway.responses import as_json
from services.gateway.strict_route import Body, Id, StrictRoute
from shared.contracts import evidence
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.evidence import (
    ANSWER_SECONDS_MAX,
    EVIDENCE_MAX,
    EXPORT_SECONDS_MAX,
    INPUT_CHARACTERS_MAX,
    INPUT_CHARACTERS_MIN,
    MODEL_PATTERN,
    OUTPUT_TOKENS_MAX,
    OUTPUT_TOKENS_MIN,
    PAGE_SIZE_MAX,
    Answer,
    AnswerList,
    Completion,
    ContextLines,
    ContextRef,
    ExportContexts,
    ListContexts,
    ParsedResponse,
    ParseResponse,
    PrepareContext,
)

router = APIRouter(route_class=StrictRoute)

JSONL = "application/jsonl"


class CompletionSettings(Body):
    """How the model is to be asked; nothing of it is checked with a provider."""

    protocol: Literal["responses"] = "responses"
    provider_profile: Literal["compatible", "openai", "deepseek", "bailian"] = "compatible"
    model: Annotated[str, Field(pattern=MODEL_PATTERN)]
    output_tokens: Annotated[int, Field(ge=OUTPUT_TOKENS_MIN, le=OUTPUT_TOKENS_MAX)] = 512
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _within_the_profile(self) -> "CompletionSettings":
        if self.provider_profile == "bailian" and self.temperature == 2:
            raise ValueError("temperature must be below 2 for bailian")
        return self


class PreparationRequest(Body):
    """From which run, for which model, within which budgets."""

    retrieval_run_id: Id
    completion: CompletionSettings
    max_input_characters: Annotated[int, Field(ge=INPUT_CHARACTERS_MIN, le=INPUT_CHARACTERS_MAX)] = 10_000
    max_evidence: Annotated[int, Field(ge=1, le=EVIDENCE_MAX)] = 5

    def to_contract(self) -> PrepareContext:
        """The command to contexts."""
        return PrepareContext(
            retrieval_run_id=self.retrieval_run_id,
            completion=Completion.model_validate(self.completion.model_dump()),
            max_input_characters=self.max_input_characters,
            max_evidence=self.max_evidence,
        )


class ResponseToParse(Body):
    """What a provider answered."""

    response: JsonValue


@router.post("/api/rag/contexts", status_code=201, response_model=dict[str, Any], summary="Prepare a request from evidence")
async def prepare(body: PreparationRequest, caller: AdminCaller) -> Response:
    """Verified against what is published now, and stored; no model is asked. Only in a session: a token may not."""
    if caller.identity.via != "session":
        raise ServiceError(ErrorCode.SESSION_REQUIRED, "Contexts are prepared in a browser's session, not with a token.")
    stored = await caller.ask(evidence.CONTEXT_PREPARE, body.to_contract())
    return Response(orjson.dumps(stored.snapshot), 201, media_type="application/json")


@router.get("/api/rag/contexts", response_model=dict[str, Any], summary="List prepared contexts")
async def contexts(
    caller: AdminCaller,
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    page_size: Annotated[int, Query(ge=1, le=PAGE_SIZE_MAX)] = 20,
) -> Response:
    """Newest first, each as it was stored."""
    part = await caller.ask(evidence.CONTEXT_LIST, ListContexts(page=page, page_size=page_size))
    items, length = part.items, part.length
    while len(items) < length and part.items:
        rest = ListContexts(page=page, page_size=page_size, skip=len(items), until=part.until)
        part = await caller.ask(evidence.CONTEXT_LIST, rest)
        items = [*items, *part.items]
    return Response(
        orjson.dumps({"items": items, "page": page, "page_size": page_size, "total": part.total}), media_type="application/json"
    )


@router.get("/api/rag/contexts/export", summary="Export prepared contexts", responses={200: {"content": {JSONL: {}}}})
async def export(caller: AdminCaller) -> StreamingResponse:
    """JSON lines: a manifest, then the records byte for byte, oldest first."""
    first = await caller.ask(evidence.CONTEXT_EXPORT, ExportContexts(), EXPORT_SECONDS_MAX)
    headers = {"Content-Disposition": 'attachment; filename="contexts.jsonl"'}
    return StreamingResponse(_lines(caller, first), media_type=JSONL, headers=headers)


async def _lines(caller: Caller, part: ContextLines) -> AsyncIterator[bytes]:
    while True:
        yield "".join(f"{line}\n" for line in part.lines).encode()
        if part.after >= part.until:
            return
        part = await caller.ask(evidence.CONTEXT_EXPORT, ExportContexts(after=part.after, until=part.until))


@router.get("/api/rag/contexts/{context_id}", response_model=dict[str, Any], summary="Read a prepared context")
async def context(context_id: UUID, caller: AdminCaller) -> Response:
    """As it was when it was prepared; no later change of notes alters it."""
    stored = await caller.ask(evidence.CONTEXT_GET, ContextRef(context=context_id))
    return Response(orjson.dumps(stored.snapshot), media_type="application/json")


@router.post("/api/rag/contexts/{context_id}/parse", response_model=ParsedResponse, summary="Judge a response")
async def parse(context_id: UUID, body: ResponseToParse, caller: AdminCaller) -> Response:
    """Reads a response that was obtained elsewhere, strictly; stores nothing."""
    return as_json(await caller.ask(evidence.CONTEXT_PARSE, ParseResponse(context=context_id, response=body.response)))


@router.post("/api/rag/contexts/{context_id}/answers", status_code=201, response_model=Answer, summary="Ask the model")
async def answer(context_id: UUID, caller: AdminCaller) -> Response:
    """Verifies everything anew, sends the stored body to the configured provider once, and stores what came. It is never tried again; a
    client that leaves does not stop what is being paid for.
    """
    scope = caller.scope(ANSWER_SECONDS_MAX)
    return as_json(await caller.bus.client.ask(evidence.CONTEXT_ANSWER, ContextRef(context=context_id), scope), 201)


@router.get("/api/rag/contexts/{context_id}/answers", response_model=AnswerList, summary="List answers")
async def answers(context_id: UUID, caller: AdminCaller) -> Response:
    """Oldest first."""
    return as_json(await caller.ask(evidence.ANSWER_LIST, ContextRef(context=context_id)))
