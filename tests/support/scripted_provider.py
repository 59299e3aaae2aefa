"""A model provider that speaks the real protocol over a real socket and does what the test's script says.

Each request takes the next `Script` of the queue (or the standing one). A script's steps are sent in order; a `Gate` holds the stream until
the test opens it, so that nothing depends on time. The provider notes what it was asked and when its client closed the socket. With
`strict` it answers 400 to what the strictest servers refuse, and takes no script for it.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from tests.support.strict_provider import Strict

# What the client of this provider sends as its key; made of what is escaped in addresses and JSON.
KEY = "sk-scripted/0123+4567=89"


class Gate:
    """Holds a stream until opened; `reached` tells that it got there."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._open = asyncio.Event()

    def open(self) -> None:
        self._open.set()

    async def wait(self) -> None:
        self.reached.set()
        await self._open.wait()


@dataclass(frozen=True)
class Break:
    """Cut the connection without an end."""


@dataclass(frozen=True)
class Drip:
    """These bytes again and again, as a provider that keeps its connection alive sends them."""

    data: bytes
    every: float = 0.1


type Step = bytes | Gate | Break | Drip


@dataclass
class Script:
    """One answer: `body` as JSON, or where there is none `steps`."""

    steps: Sequence[Step] = ()
    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "text/event-stream"


@dataclass
class Exchange:
    """One request as the provider saw it."""

    body: dict[str, Any]
    headers: dict[str, str]
    client_port: int
    closed_early: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    closed_at: float | None = None


def frame(value: Any) -> bytes:
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False).encode()) + b"\n\n"


def chunk(finish_reason: str | None = None, usage: dict[str, Any] | None = None, **delta: Any) -> bytes:
    """One chunk in OpenAI's shape."""
    body: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1790000000,
        "model": "scripted",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
    }
    if usage is not None:
        body["usage"] = usage
    return frame(body)


USAGE = {"prompt_tokens": 40, "completion_tokens": 12, "total_tokens": 52, "prompt_tokens_details": {"cached_tokens": 8}}
DONE = b"data: [DONE]\n\n"


def usage_chunk(usage: dict[str, Any] | None = None) -> bytes:
    return frame({"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [], "usage": usage or USAGE})


def answer(*texts: str, thinking: str = "", usage: bool = True) -> Script:
    """A plain answer in these pieces."""
    steps: list[Step] = [chunk(role="assistant", content="")]
    if thinking:
        steps.append(chunk(reasoning_content=thinking))
    steps += [chunk(content=text) for text in texts]
    steps.append(chunk(finish_reason="stop"))
    if usage:
        steps.append(usage_chunk())
    return Script([*steps, DONE])


def streamed(*steps: str | Gate) -> Script:
    """An answer in these pieces, held at the gates."""
    texts = [chunk(content=step) if isinstance(step, str) else step for step in steps]
    return Script([chunk(role="assistant", content=""), *texts, chunk(finish_reason="stop"), usage_chunk(), DONE])


def call_fragments(*queries: str, name: str = "rag_search", prefix: str = "call") -> list[Step]:
    """Parallel calls of the search tool, their arguments in two fragments each."""
    steps: list[Step] = []
    for index, query in enumerate(queries):
        arguments = json.dumps({"query": query}, ensure_ascii=False)
        half = len(arguments) // 2
        steps.append(
            chunk(tool_calls=[{"index": index, "id": f"{prefix}_{index}", "type": "function", "function": {"name": name, "arguments": ""}}])
        )
        for piece in (arguments[:half], arguments[half:]):
            steps.append(chunk(tool_calls=[{"index": index, "function": {"arguments": piece}}]))
    return steps


def whole(message: dict[str, Any], finish_reason: str | None = "stop", usage: dict[str, Any] | None = USAGE) -> Script:
    """An answer that is not streamed."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish_reason}
    return Script(body={"id": "chatcmpl-1", "object": "chat.completion", "created": 1790000000, "choices": [choice], "usage": usage})


def calls(*queries: str, thinking: str = "", text: str = "", name: str = "rag_search", prefix: str = "call") -> Script:
    """A round that asks for searches."""
    steps: list[Step] = [chunk(role="assistant", content=None)]
    if thinking:
        steps.append(chunk(reasoning_content=thinking))
    if text:
        steps.append(chunk(content=text))
    steps += call_fragments(*queries, name=name, prefix=prefix)
    return Script([*steps, chunk(finish_reason="tool_calls"), usage_chunk(), DONE])


def tool_calls(*wanted: tuple[str, dict[str, Any]], text: str = "", prefix: str = "tool") -> Script:
    """A round that calls these tools, by their names on the wire, with these arguments."""
    called = [
        {"index": index, "id": f"{prefix}_{index}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for index, (name, arguments) in enumerate(wanted)
    ]
    steps: list[Step] = [chunk(role="assistant", content=text or None), *(chunk(tool_calls=[call]) for call in called)]
    return Script([*steps, chunk(finish_reason="tool_calls"), usage_chunk(), DONE])


class ScriptedProvider:
    """See the module. `base_url` is what `MODEL_BASE_URL` would be."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self.queue: list[Script] = []
        self.standing: Script | Callable[[dict[str, Any]], Script] = answer("Hello.")
        self.strict: Strict | None = None
        self.objections: list[str] = []
        self._runner: web.AppRunner | None = None
        self.base_url = ""

    def next(self, *scripts: Script) -> None:
        """What the next requests get."""
        self.queue += scripts

    @property
    def open_streams(self) -> int:
        return sum(1 for exchange in self.exchanges if not exchange.ended.is_set())

    async def start(self) -> None:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_post("/v1/responses", self._complete)
        # Cancelling the handler is how a closed socket shows.
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        self.base_url = f"http://127.0.0.1:{port}/v1"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def _script(self, body: dict[str, Any]) -> Script:
        if self.queue:
            return self.queue.pop(0)
        return self.standing(body) if callable(self.standing) else self.standing

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        assert request.transport is not None
        exchange = Exchange(body, dict(request.headers), request.transport.get_extra_info("peername")[1])
        self.exchanges.append(exchange)
        try:
            if self.strict is not None and (why := self.strict.objection(body)) is not None:
                self.objections.append(why)
                return web.json_response({"error": {"message": why, "type": "invalid_request_error"}}, status=400)
            return await self._play(request, self._script(body))
        except (asyncio.CancelledError, ConnectionError):
            exchange.closed_at = asyncio.get_running_loop().time()
            exchange.closed_early.set()
            raise
        finally:
            exchange.ended.set()

    async def _play(self, request: web.Request, script: Script) -> web.StreamResponse:
        if script.body is not None:
            return web.json_response(script.body, status=script.status, headers=script.headers)
        response = web.StreamResponse(status=script.status, headers={"Content-Type": script.content_type, **script.headers})
        await response.prepare(request)
        for step in script.steps:
            if isinstance(step, Gate):
                await step.wait()
            elif isinstance(step, Break):
                assert request.transport is not None
                request.transport.abort()
                return response
            elif isinstance(step, Drip):
                while True:
                    await response.write(step.data)
                    await asyncio.sleep(step.every)
            else:
                await response.write(step)
        await response.write_eof()
        return response


@pytest.fixture
async def provider() -> AsyncIterator[ScriptedProvider]:
    """A scripted provider on a free port."""
    scripted = ScriptedProvider()
    await scripted.start()
    try:
        yield scripted
    finally:
        with contextlib.suppress(asyncio.CancelledError):
            await scripted.stop()
