"""The demo model's HTTP surface: OpenAI's Chat Completions, streamed or whole."""

import re
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import orjson
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from local.demo_model.conversation import SEARCH_TOOL, ChatRequest, read
from local.demo_model.language import terms
from local.demo_model.reply import Reply, reply_to

MODEL = "marginalia-demo"
# A few words, or a few Chinese characters.
_PIECE = re.compile(r"(?:\s*[^\s\u3000-\u9fff\uff00-\uffef]+){1,3}|\s*[\u3000-\u9fff\uff00-\uffef]{1,4}|\s+")


def app() -> Starlette:
    """The ASGI application."""
    return Starlette(
        routes=[
            Route("/v1/chat/completions", chat_completions, methods=["POST"]),
            Route("/v1/models", models),
            Route("/healthz", healthz),
        ]
    )


async def healthz(_request: Request) -> Response:
    """This process answers."""
    return _json({"status": "ok"})


async def models(_request: Request) -> Response:
    """The one model."""
    return _json({"object": "list", "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "marginalia"}]})


async def chat_completions(request: Request) -> Response:
    """One completion; errors in OpenAI's form."""
    try:
        asked = ChatRequest.model_validate_json(await request.body())
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        return _error(400, f"{'.'.join(map(str, first['loc'])) or 'body'}: {first['msg']}", "invalid_request_error")
    if asked.model != MODEL:
        return _error(404, f"The model {asked.model!r} does not exist; this server has {MODEL}.", "model_not_found")
    reply = reply_to(read(asked))
    usage = _usage(asked, reply)
    if not asked.stream:
        return _json(_whole(reply, usage))
    include_usage = asked.stream_options is not None and asked.stream_options.include_usage
    return StreamingResponse(_frames(reply, usage if include_usage else None), media_type="text/event-stream")


async def _frames(reply: Reply, usage: dict[str, int] | None) -> AsyncIterator[bytes]:
    head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "object": "chat.completion.chunk", "created": int(time.time()), "model": MODEL}
    for delta, finish in _deltas(reply):
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        yield _frame({**head, "choices": [choice], "usage": None})
    if usage is not None:
        yield _frame({**head, "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def _deltas(reply: Reply) -> Iterator[tuple[dict[str, Any], str | None]]:
    yield {"role": "assistant", "content": ""}, None
    for piece in pieces(reply.thinking):
        yield {"content": None, "reasoning_content": piece}, None
    for piece in pieces(reply.text):
        yield {"content": piece}, None
    if reply.query is None:
        yield {}, "stop"
        return
    call = _call(reply.query)
    arguments = call["function"]["arguments"]
    yield {"tool_calls": [{"index": 0, **call, "function": {"name": SEARCH_TOOL, "arguments": ""}}]}, None
    for piece in pieces(arguments):
        yield {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}, None
    yield {}, "tool_calls"


def pieces(text: str) -> list[str]:
    """The text in the small parts it is streamed in."""
    return _PIECE.findall(text)


def _whole(reply: Reply, usage: dict[str, int]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if reply.thinking:
        message["reasoning_content"] = reply.thinking
    if reply.query is not None:
        message["tool_calls"] = [_call(reply.query)]
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": "stop" if reply.query is None else "tool_calls",
    }
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": MODEL,
        "choices": [choice],
        "usage": usage,
    }


def _call(query: str) -> dict[str, Any]:
    arguments = orjson.dumps({"query": query}).decode()
    return {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": {"name": SEARCH_TOOL, "arguments": arguments}}


def _usage(asked: ChatRequest, reply: Reply) -> dict[str, Any]:
    """Words and pairs of Chinese characters, which is what this model works in, for tokens."""
    prompt = sum(len(terms(message.text)) for message in asked.messages)
    reasoning = len(terms(reply.thinking))
    completion = reasoning + len(terms(reply.text or reply.query or ""))
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


def _frame(payload: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(payload) + b"\n\n"


def _json(payload: dict[str, Any], status: int = 200) -> Response:
    return Response(orjson.dumps(payload), status, media_type="application/json")


def _error(status: int, message: str, code: str) -> Response:
    return _json({"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}, status)
