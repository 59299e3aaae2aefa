"""A provider that searches first and then says its words one by one, about four seconds long; it has no state."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

WORDS = 40
PAUSE_SECONDS = 0.1


def words(question: str) -> list[str]:
    """What it answers: the question, numbered words, a citation."""
    return [f"About {question}:", *(f" word{number}" for number in range(WORDS)), " [1]"]


async def complete(request: Request) -> StreamingResponse:
    """One completion: a search where the question's has not been made yet, else the words."""
    messages = (await request.json())["messages"]
    asked = max(at for at, message in enumerate(messages) if message["role"] == "user")
    searched = any(message["role"] == "tool" for message in messages[asked:])
    return StreamingResponse(answer(messages[asked]["content"]) if searched else search(), media_type="text/event-stream")


async def search() -> AsyncIterator[bytes]:
    """A call of the search tool."""
    function = {"name": "rag_search", "arguments": '{"query": "sourdough starter"}'}
    yield chunk({"role": "assistant", "tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]})
    yield chunk({}, "tool_calls")
    yield b"data: [DONE]\n\n"


async def answer(question: str) -> AsyncIterator[bytes]:
    """The words, slowly."""
    for word in words(question):
        yield chunk({"content": word})
        await asyncio.sleep(PAUSE_SECONDS)
    yield chunk({}, "stop")
    yield b"data: [DONE]\n\n"


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    """One frame."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "slow", "object": "chat.completion.chunk", "choices": [choice]}).encode() + b"\n\n"


if __name__ == "__main__":
    uvicorn.run(
        Starlette(routes=[Route("/v1/chat/completions", complete, methods=["POST"])]), host="0.0.0.0", port=8000, log_level="warning"
    )
