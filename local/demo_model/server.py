"""The demo model's HTTP surface: OpenAI's Chat Completions, streamed or whole, and its Responses for prepared requests."""

import re
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from local.demo_model.conversation import SEARCH_TOOL, ChatRequest
from local.demo_model.conversation import read as understood
from local.demo_model.language import terms
from local.demo_model.prepared import ResponsesRequest, answer
from local.demo_model.reply import Reply, reply_to
from local.openai_server import Refused, as_json, common_routes, read

MODEL = "marginalia-demo"
# A few words, or a few Chinese characters.
_PIECE = re.compile(r"(?:\s*[^\s\u3000-\u9fff\uff00-\uffef]+){1,3}|\s*[\u3000-\u9fff\uff00-\uffef]{1,4}|\s+")


def app() -> Starlette:
    """The ASGI application."""
    return Starlette(
        routes=[
            Route("/v1/chat/completions", chat_completions, methods=["POST"]),
            Route("/v1/responses", responses, methods=["POST"]),
            *common_routes(MODEL),
        ]
    )


async def chat_completions(request: Request) -> Response:
    """One completion; errors in OpenAI's form."""
    try:
        asked = await read(request, ChatRequest, MODEL)
    except Refused as refused:
        return refused.response
    reply = reply_to(understood(asked))
    usage = _usage(asked, reply)
    if not asked.stream:
        return as_json(_whole(reply, usage))
    include_usage = asked.stream_options is not None and asked.stream_options.include_usage
    return StreamingResponse(_frames(reply, usage if include_usage else None), media_type="text/event-stream")


async def responses(request: Request) -> Response:
    """A prepared request's answer, whole; cut off where it has more tokens than are allowed."""
    try:
        asked = await read(request, ResponsesRequest, MODEL)
    except Refused as refused:
        return refused.response
    text = answer(asked)
    given, made = len(terms(f"{asked.instructions}\n{asked.text}")), len(terms(text))
    fits = asked.max_output_tokens is None or made <= asked.max_output_tokens
    status = "completed" if fits else "incomplete"
    part = {"type": "output_text", "text": text, "annotations": []}
    return as_json(
        {
            "id": f"resp_{uuid.uuid4().hex}",
            "object": "response",
            "created_at": int(time.time()),
            "status": status,
            "error": None,
            "incomplete_details": None if fits else {"reason": "max_output_tokens"},
            "model": MODEL,
            "output": [{"id": f"msg_{uuid.uuid4().hex}", "type": "message", "status": status, "role": "assistant", "content": [part]}],
            "usage": {
                "input_tokens": given,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": made,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": given + made,
            },
        }
    )


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
