"""The retrieval surface: runs, publications, status (http-api.md, Retrieval). Without engine and model: words answer from the tables."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import httpx
import pytest

from local.ports import free_port
from services.gateway.app import serve as serve_gateway
from services.gateway.settings import GatewaySettings
from services.notes.app import serve as serve_notes
from services.notes.settings import NotesSettings
from services.retrieval.app import serve as serve_retrieval
from services.retrieval.settings import RetrievalSettings
from tests.support.chat_client import PASSWORD, client_of, running
from tests.support.polling import eventually


@dataclass
class Surface:
    """A workspace as a client of the gateway sees it."""

    http: httpx.AsyncClient
    vault: Path
    workspace: str
    database_url: str

    async def status(self, **expected: int) -> None:
        async def reached() -> bool:
            now = (await self.http.get("/api/retrieval/status")).json()
            return {key: now[key] for key in expected} == expected

        await eventually(reached, 15)

    async def run(self, query: str) -> httpx.Response:
        return await self.http.post("/api/retrieval/runs", json={"mode": "keyword_chunks", "query": query})

    async def found(self, query: str) -> list[str]:
        return [result["document"]["path"] for result in (await self.run(query)).json()["results"]]


@pytest.fixture
async def surface(nats_url: str, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Surface]:
    """Gateway, notes and retrieval; an admin has logged in."""
    monkeypatch.setattr("services.retrieval.reconciliation.RETRY_SECONDS", 0.1)
    vault = tmp_path / "vault"
    vault.mkdir()
    (vault / "a.md").write_text("---\nsource: https://example.org/heron\ncategory: Birds\n---\nThe heron stands.")
    port = free_port()
    home = tmp_path / "home"
    stores: dict[str, Any] = {"NATS_URL": nats_url, "DATABASE_URL": database_url}
    gateway = GatewaySettings(**stores, MARGINALIA_PORT=port, MARGINALIA_ADMIN_PASSWORD=PASSWORD, MARGINALIA_HOME=home)
    async with (
        running(serve_notes, NotesSettings(**stores, MARGINALIA_VAULTS=str(vault), MARGINALIA_HOME=home)),
        running(serve_retrieval, RetrievalSettings(**stores)),
        running(serve_gateway, gateway),
        client_of(f"http://127.0.0.1:{port}") as client,
    ):
        await client.login()

        async def workspace() -> str | None:
            answer = await client.http.get("/api/workspaces")
            items = answer.json()["items"] if answer.status_code == 200 else []
            return items[0]["id"] if items else None

        yield Surface(client.http, vault, await eventually(workspace, 10), database_url)


async def test_what_is_held_is_published_by_an_admin(surface: Surface) -> None:
    async def found() -> bool:
        return await surface.found("heron") == ["a.md"]

    await eventually(found, 15)
    address = f"/api/workspaces/{surface.workspace}"
    assert (await surface.http.patch(address, json={"publish": "by chance"})).status_code == 422
    assert (await surface.http.patch(address, json={"publish": "manual"})).json()["id"] == surface.workspace
    (surface.vault / "b.md").write_text("The otter swims.")
    await surface.status(held=1)
    assert await surface.found("otter") == []
    (before,) = (await surface.http.get("/api/retrieval/publications")).json()["items"]
    assert (before["publish"], before["documents"], before["vector"]) == ("manual", 1, None)

    published = await surface.http.post("/api/retrieval/publications", json={"workspace": surface.workspace})
    assert (published.status_code, published.json()["documents"]) == (201, 2)
    assert published.json()["text"]["generation"] == before["text"]["generation"] + 1
    assert await surface.found("otter") == ["b.md"]
    assert (await surface.http.get("/api/retrieval/publications")).json() == {"items": [published.json()]}
    await surface.status(held=0)

    for body, status in (({}, 422), ({"workspace": "x"}, 422), ({"workspace": str(uuid4())}, 404)):
        assert (await surface.http.post("/api/retrieval/publications", json=body)).status_code == status
    (surface.vault / "c.md").write_text("The kingfisher dives.")
    await surface.status(held=1)
    assert (await surface.http.patch(address, json={"title": "Nature", "publish": "auto"})).json()["title"] == "Nature"
    assert await surface.found("kingfisher") == ["c.md"]


async def test_a_stored_run_is_read_as_it_was_answered_byte_for_byte(surface: Surface) -> None:  # RC-10
    async def found() -> bool:
        return await surface.found("heron") == ["a.md"]

    await eventually(found, 15)
    answered = await surface.run("heron 0.1e-7 “stands”")
    (surface.vault / "a.md").write_text("Nothing of it is left.")
    await eventually(lambda: _gone(surface), 15)
    read = await surface.http.get(f"/api/retrieval/runs/{answered.json()['id']}")
    assert read.content == answered.content


async def test_the_front_matter_is_kept_with_the_document(surface: Surface) -> None:  # RC-5
    async def found() -> bool:
        return await surface.found("heron") == ["a.md"]

    await eventually(found, 15)
    connection = await asyncpg.connect(surface.database_url)
    try:
        kept = await connection.fetchrow("SELECT source_url, category, published FROM retrieval.documents")
    finally:
        await connection.close()
    assert tuple(kept) == ("https://example.org/heron", "Birds", 1)
    # What is between services is not shown.
    note = (await surface.http.get(f"/api/workspaces/{surface.workspace}/notes/a.md", headers={"accept": "application/json"})).json()
    assert not {"properties", "revision"} & set(note)


async def _gone(surface: Surface) -> bool:
    return await surface.found("heron") == []
