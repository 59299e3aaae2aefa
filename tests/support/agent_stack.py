"""Agent, gateway and notes in this process, on real NATS and PostgreSQL, with a vault on disk; provider and searches are scripted."""

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.notes.app import serve as serve_notes
from services.notes.settings import NotesSettings
from tests.support.chat_client import ChatClient, ChatStack, Streamed, chat_services, running
from tests.support.polling import eventually
from tests.support.scripted_provider import ScriptedProvider
from tests.support.scripted_retrieval import serving

BREAD = "# Bread\r\n\r\nKnead for ten minutes.\r\n"


@dataclass
class AgentStack:
    """What a test of the agent mode works with."""

    chat: ChatStack
    vault: Path
    workspace: str

    @property
    def client(self) -> ChatClient:
        return self.chat.client

    @property
    def provider(self) -> ScriptedProvider:
        return self.chat.provider

    def hash_of(self, path: str) -> str:
        return hashlib.sha256((self.vault / path).read_bytes()).hexdigest()

    async def ask(self, message: str = "Do it.", **fields: Any) -> Streamed:
        return await self.client.ask(message, **{"mode": "agent", "workspace": self.workspace, **fields})

    async def decide(self, asked: dict[str, Any], decision: str = "approve", **fields: Any) -> httpx.Response:
        """Decide about an `ApprovalRequired`."""
        body = {"decision": decision, "diff_sha256": asked["diff_sha256"], **fields}
        return await self.client.http.post(f"/api/chat/turns/{asked['turn_id']}/approvals/{asked['tool_call_id']}", json=body)

    async def state(self, turn_id: str) -> dict[str, Any]:
        state: dict[str, Any] = (await self.client.http.get(f"/api/chat/turns/{turn_id}")).json()
        return state

    def results(self, exchange: int = -1) -> list[str]:
        """The tool results in a request to the provider."""
        return [message["content"] for message in self.provider.exchanges[exchange].body["messages"] if message["role"] == "tool"]


@pytest.fixture
async def agent_stack(nats_url: str, database_url: str, provider: ScriptedProvider, tmp_path: Path) -> AsyncIterator[AgentStack]:
    """A vault with one note, which the index has."""
    vault = tmp_path / "vault"
    vault.mkdir()
    (vault / "Bread.md").write_bytes(BREAD.encode())
    settings = NotesSettings(MARGINALIA_VAULTS=str(vault), MARGINALIA_HOME=tmp_path / "home", DATABASE_URL=database_url, NATS_URL=nats_url)
    async with (
        serving(nats_url, with_notes=False) as retrieval,
        running(serve_notes, settings),
        chat_services(nats_url, database_url, provider, retrieval, tmp_path) as chat,
    ):

        async def indexed() -> Any:
            answer = await chat.client.http.get("/api/workspaces")
            items = answer.json().get("items", [])
            return items and items[0]["notes"] == 1 and items[0]["id"]

        yield AgentStack(chat, vault, await eventually(indexed, 15))
