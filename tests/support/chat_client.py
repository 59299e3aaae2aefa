"""The agent and the gateway in this process, on real NATS and PostgreSQL, and an HTTP client that has logged in."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
from nats import connect

from local.ports import free_port
from services.agent.app import serve as serve_agent
from services.agent.settings import AgentSettings
from services.gateway.app import serve as serve_gateway
from services.gateway.settings import GatewaySettings
from shared.contracts.chat import STREAM
from shared.messaging import streams
from tests.support.polling import eventually
from tests.support.scripted_provider import KEY, ScriptedProvider
from tests.support.scripted_retrieval import ScriptedRetrieval

PASSWORD = "a password for tests"
# The scripted provider once more, with a model for each rule.
RULED = """
[[provider]]
name = "ruled"
base_url = "{url}"
models = [
    {{ name = "required", reasoning_replay = "required" }},
    {{ name = "never", reasoning_replay = "never" }},
    {{ name = "whole", stream = false }},
    {{ name = "whole-required", stream = false, reasoning_replay = "required" }},
    {{ name = "toolless", tool_calling = false }},
    {{ name = "switched", extra_body = {{ thinking = {{ type = "disabled" }} }} }},
]
"""


@dataclass
class Streamed:
    """The events of one stream, as they come."""

    response: httpx.Response
    events: list[dict[str, Any]] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    comments: int = 0

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    @property
    def text(self) -> str:
        """The text as a client shows it, what a restarted round had said left out."""
        text = ""
        for event in self.events:
            if event["type"] == "TextDelta":
                text += event["text"]
            elif event["type"] == "RoundRestarted":
                text = text[: event["content_characters"]]
        return text

    def of(self, type_: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == type_]

    @property
    def started(self) -> dict[str, Any]:
        return self.of("TurnStarted")[0]

    @property
    def done(self) -> dict[str, Any]:
        assert [event["type"] for event in self.events].count("Done") == 1
        assert self.events[-1]["type"] == "Done"
        return self.events[-1]

    async def read(self, until: str | None = None) -> "Streamed":
        """Read events until the stream ends, or until one of the given type has come."""
        while await self.read_one():
            if until is not None and self.events[-1]["type"] == until:
                break
        return self

    async def read_one(self) -> bool:
        """Read one event; False where the stream has ended."""
        event: dict[str, str] = {}
        async for line in self.lines:
            if line.startswith(":"):
                self.comments += 1
            elif line:
                name, _, value = line.partition(": ")
                event[name] = value
            elif "data" in event:
                self._take(event)
                return True
            else:
                event = {}
        return False

    def _take(self, event: dict[str, str]) -> None:
        data = json.loads(event["data"])
        assert data["type"] == event["event"]
        assert data["seq"] == int(event["id"])
        self.ids.append(data["seq"])
        self.events.append(data)

    def __post_init__(self) -> None:
        self.lines = self.response.aiter_lines()


class ChatClient:
    """A browser's session with the gateway."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def login(self, username: str = "admin", password: str = PASSWORD) -> None:
        answer = await self.http.post("/api/auth/login", json={"username": username, "password": password})
        assert answer.status_code == 200, answer.text
        self.http.headers["x-csrf-token"] = answer.json()["csrf_token"]

    @asynccontextmanager
    async def stream(self, method: str, path: str, **arguments: Any) -> AsyncIterator[Streamed]:
        async with self.http.stream(method, path, **arguments) as response:
            if response.status_code != 200:
                await response.aread()
                raise AssertionError(f"{response.status_code}: {response.text}")
            yield Streamed(response)

    def chat(self, message: str | None, **fields: Any) -> Any:
        body = {**({"message": message} if message is not None else {}), **fields}
        return self.stream("POST", "/api/chat", json=body)

    async def ask(self, message: str | None, **fields: Any) -> Streamed:
        """A whole turn."""
        async with asyncio.timeout(20), self.chat(message, **fields) as streamed:
            await streamed.read()
            return streamed  # type: ignore[no-any-return]

    async def events(self, turn_id: str, after: int | None = None) -> Streamed:
        headers = {} if after is None else {"last-event-id": str(after)}
        async with asyncio.timeout(20), self.stream("GET", f"/api/chat/turns/{turn_id}/events", headers=headers) as streamed:
            return await streamed.read()

    async def conversation(self, conversation_id: str) -> dict[str, Any]:
        answer = await self.http.get(f"/api/chat/conversations/{conversation_id}")
        assert answer.status_code == 200, answer.text
        return answer.json()  # type: ignore[no-any-return]


@dataclass
class ChatStack:
    """What a chat test works with."""

    client: ChatClient
    provider: ScriptedProvider
    retrieval: ScriptedRetrieval
    base_url: str
    nats_url: str
    database_url: str
    stop_agent: asyncio.Event

    async def execute(self, statement: str, *arguments: Any) -> None:
        """Have the agent's tables say something."""
        db = await asyncpg.connect(self.database_url, server_settings={"search_path": "agent"})
        try:
            await db.execute(statement, *arguments)
        finally:
            await db.close()

    async def forget_events(self) -> None:
        """What the stream does with old events."""
        nats = await connect(self.nats_url)
        try:
            # A stream that is there lets nobody take its messages out.
            await nats.jetstream().delete_stream(STREAM)
            await streams.ensure(nats, STREAM, owned=True)
        finally:
            await nats.close()


@asynccontextmanager
async def running(serve: Any, settings: Any) -> AsyncIterator[asyncio.Event]:
    """A service in this process; ended in order."""
    stop = asyncio.Event()
    task = asyncio.create_task(serve(settings, stop))
    try:
        yield stop
    finally:
        stop.set()
        async with asyncio.timeout(20):
            await task


@asynccontextmanager
async def client_of(base_url: str, *, within: float = 10) -> AsyncIterator[ChatClient]:
    """An HTTP client of a gateway, which is up when this begins."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=base_url, headers={"origin": base_url}, timeout=20, limits=limits) as http:

        async def up() -> bool:
            try:
                return (await http.get("/healthz")).status_code == 200
            except httpx.TransportError:
                return False

        await eventually(up, within)
        yield ChatClient(http)


@pytest.fixture
async def chat_stack(
    nats_url: str, database_url: str, provider: ScriptedProvider, scripted_retrieval: ScriptedRetrieval, tmp_path: Path
) -> AsyncIterator[ChatStack]:
    """Agent and gateway, a scripted provider and scripted searches; the client has logged in."""
    async with chat_services(nats_url, database_url, provider, scripted_retrieval, tmp_path) as stack:
        yield stack


@asynccontextmanager
async def chat_services(
    nats_url: str, database_url: str, provider: ScriptedProvider, retrieval: ScriptedRetrieval, tmp_path: Path
) -> AsyncIterator[ChatStack]:
    """See `chat_stack`."""
    port = free_port()
    base_url = f"http://127.0.0.1:{port}"
    ruled = tmp_path / "providers.toml"
    ruled.write_text(RULED.format(url=provider.base_url))
    agent = AgentSettings(
        NATS_URL=nats_url,
        DATABASE_URL=database_url,
        MODEL_BASE_URL=provider.base_url,
        MODEL_NAME="scripted",
        MODEL_API_KEY=KEY,
        MARGINALIA_PROVIDERS=ruled,
    )
    gateway = GatewaySettings(
        NATS_URL=nats_url, DATABASE_URL=database_url, MARGINALIA_PORT=port, MARGINALIA_ADMIN_PASSWORD=PASSWORD, MARGINALIA_HOME=tmp_path
    )
    async with running(serve_agent, agent) as stop, running(serve_gateway, gateway), client_of(base_url) as client:
        await client.login()
        await eventually(lambda: _agent_answers(client), 10)
        yield ChatStack(client, provider, retrieval, base_url, nats_url, database_url, stop)


async def _agent_answers(client: ChatClient) -> bool:
    return (await client.http.get("/api/providers")).status_code == 200
