"""The MCP door with the protocol's own client: the tools for what the account may read, and changes by the user's consent alone (MD-5)."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, ElicitRequestParams, ElicitResult

from local.ports import free_port
from services.gateway.app import serve as serve_gateway
from services.gateway.settings import GatewaySettings
from services.notes.app import serve as serve_notes
from services.notes.settings import NotesSettings
from services.retrieval.app import serve as serve_retrieval
from services.retrieval.settings import RetrievalSettings
from tests.support.chat_client import PASSWORD, client_of, running
from tests.support.polling import eventually

HERON = "# Heron\r\n\r\nThe heron stands.\r\n"
MODERN = {"MCP-Protocol-Version": "2026-07-28", "Accept": "application/json, text/event-stream"}


@dataclass
class User:
    """Who answers a client's question about a change, and what was asked."""

    action: str = "accept"
    asked: list[str] = field(default_factory=list)
    meanwhile: Callable[[], Any] = lambda: None

    async def __call__(self, _: Any, params: ElicitRequestParams) -> ElicitResult:
        self.asked.append(params.message)
        self.meanwhile()
        return ElicitResult(action=self.action, content={} if self.action == "accept" else None)  # type: ignore[arg-type]


@dataclass
class Door:
    """The system as a program of one account finds it."""

    base_url: str
    admin: httpx.AsyncClient
    token: str
    birds: Path
    secrets: Path

    @asynccontextmanager
    async def client(self, user: User | None = None, *, mode: str = "auto", token: str | None = None) -> AsyncIterator[Client]:
        headers = {"Authorization": f"Bearer {token or self.token}"}
        async with httpx2.AsyncClient(headers=headers, timeout=20) as http:
            transport = streamable_http_client(f"{self.base_url}/mcp", http_client=http)
            async with Client(transport, mode=mode, elicitation_callback=user) as client:  # type: ignore[arg-type]
                yield client

    async def post(self, content: bytes | str, **headers: str) -> httpx.Response:
        async with httpx.AsyncClient(base_url=self.base_url) as http:
            sent = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", **MODERN, **headers}
            return await http.post("/mcp", content=content, headers={name: value for name, value in sent.items() if value})

    async def workspace(self, directory: str) -> str:
        items = (await self.admin.get("/api/workspaces")).json()["items"]
        return next(item["id"] for item in items if item["directory"] == directory)

    async def let(self, access: str) -> None:
        """Give the member this access to the birds."""
        (account,) = [item for item in (await self.admin.get("/api/accounts")).json()["items"] if item["role"] == "member"]
        members = {"items": [{"account_id": account["id"], "access": access}]}
        answer = await self.admin.put(f"/api/workspaces/{await self.workspace('birds')}/members", json=members)
        assert answer.status_code == 200, answer.text


@pytest.fixture
async def door(nats_url: str, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Door]:
    """Two vaults; the token's account is a member that may write in one of them."""
    monkeypatch.setattr("services.retrieval.reconciliation.RETRY_SECONDS", 0.1)
    birds, secrets, home, port = tmp_path / "birds", tmp_path / "secrets", tmp_path / "home", free_port()
    for vault, name, text in ((birds, "heron.md", HERON), (secrets, "heron.md", "# Secret\n\nThe heron is a spy.\n")):
        vault.mkdir()
        (vault / name).write_bytes(text.encode())
    stores: dict[str, Any] = {"NATS_URL": nats_url, "DATABASE_URL": database_url}
    gateway = GatewaySettings(**stores, MARGINALIA_PORT=port, MARGINALIA_ADMIN_PASSWORD=PASSWORD, MARGINALIA_HOME=home)
    base_url = f"http://127.0.0.1:{port}"
    async with (
        running(serve_notes, NotesSettings(**stores, MARGINALIA_VAULTS=f"{birds}:{secrets}", MARGINALIA_HOME=home)),
        running(serve_retrieval, RetrievalSettings(**stores)),
        running(serve_gateway, gateway),
        client_of(base_url) as admin,
        client_of(base_url) as member,
    ):
        await admin.login()
        await admin.http.post("/api/accounts", json={"username": "ann", "password": "correct horse", "role": "member"})
        await member.login("ann", "correct horse")
        made = await member.http.post("/api/auth/tokens", json={"name": "an MCP client"})

        async def indexed() -> bool:
            answer = await admin.http.post("/api/retrieval/runs", json={"mode": "keyword_chunks", "query": "heron"})
            return answer.status_code == 201 and len(answer.json()["results"]) == 2

        await eventually(indexed, 20)
        there = Door(base_url, admin.http, made.json()["token"], birds, secrets)
        await there.let("write")
        yield there


def said(result: CallToolResult) -> str:
    (content,) = result.content
    assert content.type == "text"
    return content.text


async def names(client: Client) -> list[str]:
    return [tool.name for tool in (await client.list_tools()).tools]


READING = ["rag.search", "notes.read", "markdown.catalog", "markdown.compose"]


async def test_the_tools_are_listed_and_the_one_that_writes_only_where_the_user_can_be_asked(door: Door) -> None:
    async with door.client(User()) as client:
        assert await names(client) == [*READING, "notes.patch_markdown"]
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools["notes.read"].annotations.read_only_hint is True  # type: ignore[union-attr]
        assert tools["notes.patch_markdown"].annotations.destructive_hint is True  # type: ignore[union-attr]
        assert set(tools["notes.patch_markdown"].input_schema["required"]) == {"path", "content_hash", "old_text", "new_text"}
    for mode in ("auto", "legacy"):
        async with door.client(None, mode=mode) as client:
            assert await names(client) == READING


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_notes_are_found_and_read_in_the_workspaces_of_the_account_alone(door: Door, mode: str) -> None:  # MD-3
    async with door.client(mode=mode) as client:
        found = await client.call_tool("rag.search", {"query": "heron"})
        assert found.structured_content == json.loads(said(found))
        (source,) = found.structured_content["sources"]
        assert (source["number"], source["workspace"], source["file_path"]) == (1, "birds", "heron.md")
        assert "The heron stands." in source["content"]
        assert "spy" not in said(found)
        read = (await client.call_tool("notes.read", {"path": "heron.md"})).structured_content
        assert (read["workspace"], read["content"]) == ("birds", HERON)
        assert (await client.call_tool("notes.read", {"path": "heron.md", "offset": 2})).structured_content["content"] == HERON[2:]
        for arguments, why in (
            ({"path": "heron.md", "workspace": "secrets"}, "workspace_not_found: There is no workspace 'secrets'; there are: birds."),
            ({"path": "../secrets/heron.md"}, "path_invalid"),
            ({"path": "none.md"}, "note_not_found"),
            ({"path": "heron.md", "offset": 1000}, f"invalid: offset: the note has {len(HERON)} characters."),
        ):
            refused = await client.call_tool("notes.read", arguments)
            assert refused.is_error, arguments
            assert said(refused).startswith(why)


async def test_markdown_is_explained_and_composed_as_the_account_prefers(door: Door) -> None:  # MD-1, MD-2, MD-6
    async with door.client() as client:
        catalog = (await client.call_tool("markdown.catalog", {})).structured_content
        assert catalog == (await door.admin.get("/api/markdown/catalog")).json()
        blocks = {"blocks": [{"type": "heading", "level": 1, "content": "A *star*"}, "text"]}
        composed = await client.call_tool("markdown.compose", blocks)
        assert composed.structured_content == {"markdown": "# A \\*star\\*\n\ntext\n"}


async def change(client: Client, **other: str) -> CallToolResult:
    read = (await client.call_tool("notes.read", {"path": "heron.md"})).structured_content
    arguments = {"path": "heron.md", "content_hash": read["content_hash"], "old_text": "stands", "new_text": "flies", **other}
    result = await client.call_tool("notes.patch_markdown", arguments)
    assert isinstance(result, CallToolResult)
    return result


async def test_a_change_is_made_once_the_user_has_seen_its_diff_and_consented(door: Door) -> None:  # MD-4, MD-5
    user = User()
    async with door.client(user) as client:
        result = await change(client)
        assert not result.is_error, said(result)
        changed = HERON.replace("stands", "flies")
        assert (door.birds / "heron.md").read_bytes() == changed.encode()
        (asked,) = user.asked
        assert "heron.md" in asked
        assert "-The heron stands." in asked
        assert "+The heron flies." in asked
        read = (await client.call_tool("notes.read", {"path": "heron.md"})).structured_content
        assert result.structured_content == {"workspace": "birds", "path": "heron.md", "content_hash": read["content_hash"]}


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_without_consent_nothing_is_changed_and_the_model_is_told(door: Door, action: str) -> None:  # MD-5
    async with door.client(User(action)) as client:
        result = await change(client)
        assert result.is_error
        assert said(result) == "rejected: the user did not consent to this change; nothing was changed."
    assert (door.birds / "heron.md").read_bytes() == HERON.encode()


async def test_a_client_that_cannot_ask_changes_nothing(door: Door) -> None:  # MD-5
    for mode, user in (("auto", None), ("legacy", User())):
        async with door.client(user, mode=mode) as client:
            result = await change(client)
            assert result.is_error
            assert said(result).startswith("Nothing was changed: this client cannot ask its user for consent.")
    assert (door.birds / "heron.md").read_bytes() == HERON.encode()


async def test_consent_is_for_the_diff_that_was_shown_of_the_version_that_it_was_shown_of(door: Door) -> None:  # MD-4, MD-5
    note = door.birds / "heron.md"
    user = User(meanwhile=lambda: note.write_text("# Heron\n\nThe heron stands still.\n"))
    async with door.client(user) as client:
        result = await change(client)
    assert result.is_error
    assert said(result).startswith("note_stale: ")
    assert "current_hash: " in said(result)
    assert note.read_text() == "# Heron\n\nThe heron stands still.\n"


async def test_consent_to_one_change_is_none_to_another(door: Door) -> None:  # MD-5
    """A client that answers at once, for a diff that nobody was shown, is asked."""
    async with door.client(User()) as client:
        read = (await client.call_tool("notes.read", {"path": "heron.md"})).structured_content
        arguments = {"path": "heron.md", "content_hash": read["content_hash"], "old_text": "stands", "new_text": "flies"}
        first = await client.session.call_tool("notes.patch_markdown", arguments, allow_input_required=True)
        other = await client.session.call_tool(
            "notes.patch_markdown",
            {**arguments, "new_text": "burns"},
            input_responses={"consent": ElicitResult(action="accept", content={})},
            request_state=first.request_state,  # type: ignore[union-attr]
            allow_input_required=True,
        )
        assert other.result_type == "input_required"
    assert (door.birds / "heron.md").read_bytes() == HERON.encode()


async def test_who_may_only_read_changes_nothing_and_is_not_asked(door: Door) -> None:
    await door.let("read")
    user = User()
    async with door.client(user) as client:
        result = await change(client)
        assert result.is_error
        assert said(result).startswith("forbidden: ")
        assert user.asked == []
        for other, why in (({"old_text": "e"}, "forbidden"), ({"workspace": "secrets"}, "workspace_not_found")):
            assert said(await change(client, **other)).startswith(why)
    assert (door.birds / "heron.md").read_bytes() == HERON.encode()


async def test_wrong_arguments_are_told_to_the_model_as_it_would_say_them(door: Door) -> None:
    async with door.client(User()) as client:
        for tool, arguments, why in (
            ("rag.search", {}, "invalid: query: Field required"),
            ("rag.search", {"query": "x", "limit": 5}, "invalid: limit: Extra inputs are not permitted"),
            ("rag.search", {"query": " "}, "invalid: query: String should match pattern"),
            ("notes.read", {"path": 7}, "invalid: path: Input should be a valid string"),
            ("markdown.catalog", {"x": 1}, "invalid: x: Extra inputs are not permitted"),
            ("markdown.compose", {"blocks": [{"type": "heading", "level": 9, "content": "x"}]}, "invalid: "),
            (
                "notes.patch_markdown",
                {"path": "heron.md"},
                "invalid: content_hash: Field required; old_text: Field required; new_text: Field",
            ),
        ):
            result = await client.call_tool(tool, arguments)
            assert result.is_error, (tool, arguments)
            assert said(result).startswith(why), said(result)
        assert said(await change(client, old_text="e")).startswith("match_not_unique: ")
        with pytest.raises(MCPError, match=r"There is no tool 'notes\.delete'"):
            await client.call_tool("notes.delete", {})


def message(method: str = "tools/list", **params: Any) -> str:
    capabilities = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": capabilities, **params}})


async def test_who_shows_no_valid_token_does_not_come_in(door: Door) -> None:
    sent = {"Mcp-Method": "tools/list"}
    assert (await door.post(message(), **sent)).status_code == 200
    for authorization in ("", "Bearer mgl_wrong", "Basic x", "Bearer"):
        refused = await door.post(message(), **sent, Authorization=authorization)
        assert (refused.status_code, refused.json()["code"]) == (401, "unauthenticated")
        assert refused.headers["www-authenticate"] == "Bearer"
    by_session = await door.admin.post("/mcp", content=message(), headers={"Content-Type": "application/json", **MODERN})
    assert (by_session.status_code, by_session.json()["code"]) == (401, "unauthenticated")


async def test_another_sites_page_is_refused_though_it_has_a_token(door: Door) -> None:
    for origin in ("https://evil.example", "null", door.base_url + ".evil.example"):
        refused = await door.post(message(), Origin=origin)
        assert (refused.status_code, refused.json()["code"]) == (403, "origin_rejected")
    assert (await door.post(message(), **{"Mcp-Method": "tools/list", "Origin": door.base_url})).status_code == 200


BAD: dict[str, tuple[bytes | str, dict[str, str], int]] = {
    "cut off": ("{", {}, 400),
    "a list": ("[]", {}, 400),
    "nothing": ("{}", {}, 400),
    "no text": (b"\xff", {}, 400),
    "empty": ("", {}, 400),
    "type": (message(), {"Content-Type": "text/plain"}, 400),
    "accept": (message(), {"Accept": "text/html"}, 406),
    "version": (message(), {"MCP-Protocol-Version": "1999-01-01"}, 400),
    "method": (message("notes/erase"), {"Mcp-Method": "notes/erase"}, 404),
    "header": (message(), {"Mcp-Method": "tools/call"}, 400),
    "deep": ("[" * 100_000, {}, 400),
    "large": (" " * (1024 * 1024 + 1), {}, 413),
}


async def test_what_is_no_request_is_refused_with_its_reason(door: Door) -> None:
    for name, (content, headers, status) in BAD.items():
        answer = await door.post(content, **headers)
        assert answer.status_code == status, (name, answer.text)


async def test_other_methods_are_refused(door: Door) -> None:
    for method in ("GET", "DELETE", "PUT"):
        async with httpx.AsyncClient(base_url=door.base_url) as http:
            answer = await http.request(method, "/mcp", headers={"Authorization": f"Bearer {door.token}", "Accept": "text/event-stream"})
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


async def test_an_account_that_is_disabled_is_out_at_once(door: Door) -> None:
    (account,) = [item for item in (await door.admin.get("/api/accounts")).json()["items"] if item["role"] == "member"]
    async with door.client() as client:
        await client.call_tool("markdown.catalog", {})
        assert (await door.admin.patch(f"/api/accounts/{account['id']}", json={"disabled": True})).status_code == 200
        with pytest.raises(MCPError):
            await client.call_tool("markdown.catalog", {})
    assert (await door.post(message())).status_code == 401


async def test_a_service_that_is_away_is_said_to_be(nats_url: str, database_url: str, tmp_path: Path) -> None:
    port = free_port()
    settings = GatewaySettings(
        NATS_URL=nats_url, DATABASE_URL=database_url, MARGINALIA_PORT=port, MARGINALIA_ADMIN_PASSWORD=PASSWORD, MARGINALIA_HOME=tmp_path
    )
    base_url = f"http://127.0.0.1:{port}"
    async with running(serve_gateway, settings), client_of(base_url) as admin:
        await admin.login()
        token = (await admin.http.post("/api/auth/tokens", json={"name": str(uuid4())})).json()["token"]
        alone = Door(base_url, admin.http, token, tmp_path, tmp_path)
        async with alone.client() as client:
            result = await client.call_tool("notes.read", {"path": "x.md"})
            assert result.is_error
            assert said(result).startswith("service_unavailable: ")
