"""OpenAI's Chat Completions: any client of that protocol can ask the notes, with a personal access token as its key."""

import time
from typing import Any
from uuid import uuid4

import orjson
from fastapi import APIRouter, Request, Response

from services.gateway.access import AnyCaller, Caller
from services.gateway.chat_completions.chunks import Chunks, error_frame
from services.gateway.chat_completions.models import catalogue, chosen, listed
from services.gateway.chat_completions.outcome import Outcome, completion, events
from services.gateway.chat_completions.request import CompletionRequest
from services.gateway.chat_completions.stream import CompletionStream
from services.gateway.event_stream import EventStream
from services.gateway.responses import open_streams
from services.gateway.strict_route import JSON, StrictRoute
from services.gateway.turn_request import TurnRequest
from shared.contracts import chat
from shared.contracts.chat import ProviderInfo, TurnRef
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.subject import Empty

router = APIRouter(route_class=StrictRoute)

INTERRUPTED = ServiceError(ErrorCode.UNAVAILABLE, "The answer was interrupted; ask again.")
ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A `chat.completion`, or with `stream` its chunks; docs/http.md describes what is added.",
        "content": {JSON: {"schema": {"type": "object"}}, "text/event-stream": {"schema": {"type": "string"}}},
    }
}


@router.get("/v1/models", summary="List models, for OpenAI's clients")
async def list_models(caller: AnyCaller) -> dict[str, Any]:
    """The default provider's by their names, others' as `<provider>/<model>`."""
    models = catalogue(await _providers(caller))
    return {"object": "list", "data": [listed(name, provider) for name, (provider, _) in models.items()]}


@router.get("/v1/models/{name:path}", summary="One model, for OpenAI's clients")
async def get_model(name: str, caller: AnyCaller) -> dict[str, Any]:
    """By a name that the list has."""
    provider, _ = chosen(await _providers(caller), name)
    return listed(name, provider)


@router.post("/v1/chat/completions", summary="Ask, as OpenAI's clients do", responses=ANSWERS, response_class=Response)
async def complete(body: CompletionRequest, request: Request, caller: AnyCaller) -> Response:
    """Answers the last of `messages`; the others are the history. Leaving cancels the turn."""
    streams = open_streams(request)
    provider, model = chosen(await _providers(caller), body.model)
    turn = await TurnRequest.begin(body.to_contract(uuid4(), provider, model), caller)
    created = int(time.time())

    if body.stream:

        async def close(_: bool) -> None:
            await turn.close(cancel=not turn.stream.ended)

        chunks = Chunks(turn.accepted.turn_id, body.model, created, include_usage=body.includes_usage)
        source = CompletionStream(turn.stream, chunks)
        return EventStream(
            source, streams, request.app.state.metrics, close, opening=b"", breaking_off=error_frame(INTERRUPTED)
        )  # fmt: skip
    outcome = Outcome()

    def heard(frames: bytes) -> None:
        for event in events(frames):
            outcome.apply(event)

    await turn.wait(request.receive, cancel=True, heard=heard)
    if (failure := outcome.failure) is not None:
        raise failure
    result = await caller.ask(chat.TURN_RESULT, TurnRef(turn=turn.accepted.turn_id))
    return Response(orjson.dumps(completion(result, outcome, body.model, created)), media_type=JSON)


async def _providers(caller: Caller) -> list[ProviderInfo]:
    return (await caller.ask(chat.PROVIDER_LIST, Empty())).items
