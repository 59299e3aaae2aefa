"""The notes surface: create, replace, patch, move, delete, entries (http-api.md, Workspaces and notes)."""

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx
import pytest

from local.ports import free_port
from services.gateway.app import serve as serve_gateway
from services.gateway.settings import GatewaySettings
from services.notes.app import serve as serve_notes
from services.notes.settings import NotesSettings
from services.notes.vault import NOTE_BYTES_MAX
from tests.support.chat_client import PASSWORD, client_of, running
from tests.support.polling import eventually


def sha(data: bytes | str) -> str:
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def tag(data: bytes | str) -> str:
    return f'"{sha(data)}"'


CREATE = {"if-none-match": "*"}


@dataclass
class Surface:
    """A workspace as a client of the gateway sees it."""

    http: httpx.AsyncClient
    vault: Path
    url: str

    def at(self, path: str, action: str = "") -> str:
        return f"{self.url}/notes/{quote(path)}{action}"

    async def put(self, path: str, content: str, **headers: str) -> httpx.Response:
        return await self.http.put(self.at(path), json={"content": content}, headers={k.replace("_", "-"): v for k, v in headers.items()})

    async def create(self, path: str, content: str) -> dict[str, Any]:
        answer = await self.put(path, content, if_none_match="*")
        assert answer.status_code == 201, answer.text
        return answer.json()  # type: ignore[no-any-return]

    async def patch(self, path: str, content_hash: str, old_text: str, new_text: str) -> httpx.Response:
        return await self.http.patch(self.at(path), json={"content_hash": content_hash, "old_text": old_text, "new_text": new_text})


@pytest.fixture
async def surface(nats_url: str, database_url: str, tmp_path: Path) -> AsyncIterator[Surface]:
    """Gateway and notes; an admin has logged in."""
    vault = tmp_path / "vault"
    vault.mkdir()
    port = free_port()
    base_url = f"http://127.0.0.1:{port}"
    home = tmp_path / "home"
    notes = NotesSettings(MARGINALIA_VAULTS=str(vault), MARGINALIA_HOME=home, DATABASE_URL=database_url, NATS_URL=nats_url)
    gateway = GatewaySettings(
        NATS_URL=nats_url, DATABASE_URL=database_url, MARGINALIA_PORT=port, MARGINALIA_ADMIN_PASSWORD=PASSWORD, MARGINALIA_HOME=home
    )
    async with running(serve_notes, notes), running(serve_gateway, gateway), client_of(base_url) as client:
        await client.login()

        async def workspace() -> str | None:
            answer = await client.http.get("/api/workspaces")
            items = answer.json()["items"] if answer.status_code == 200 else []
            return items[0]["id"] if items else None

        yield Surface(client.http, vault, f"/api/workspaces/{await eventually(workspace, 10)}")


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert (answer.status_code, answer.json().get("code")) == (status, code), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.json()  # type: ignore[no-any-return]


async def test_a_note_lives_its_life(surface: Surface) -> None:
    # maxkuminov/obsidian-mcp#128: front matter and byte order mark come and go as they are
    text = "\ufeff---\r\ntitle: Tea\r\n---\r\nGreen.\r\n"
    created = await surface.put("tea/绿茶.md", text, if_none_match="*")
    assert (created.status_code, created.headers["etag"]) == (201, tag(text))
    assert created.json()["content"] == text
    assert (surface.vault / "tea" / "绿茶.md").read_bytes() == text.encode()
    read = await surface.http.get(surface.at("tea/绿茶.md"))
    assert read.json() == created.json()
    assert read.headers["etag"] == created.headers["etag"]

    replaced = await surface.put("tea/绿茶.md", "# Tea\n\nBlack.\n", if_match=tag(text))
    assert replaced.status_code == 200
    patched = await surface.patch("tea/绿茶.md", replaced.json()["content_hash"], "Black", "White")
    assert (patched.status_code, patched.json()["content"]) == (200, "# Tea\n\nWhite.\n")
    assert patched.headers["etag"] == tag("# Tea\n\nWhite.\n")

    version = {"if-match": patched.headers["etag"]}
    moved = await surface.http.post(surface.at("tea/绿茶.md", "/move"), json={"to": "Tea & more/a #1 50%.md"}, headers=version)
    assert (moved.status_code, moved.json()["path"]) == (200, "Tea & more/a #1 50%.md")
    assert moved.headers["etag"] == version["if-match"]
    # flowershow/flowershow#692: each segment is encoded once
    assert (await surface.http.get(surface.at("Tea & more/a #1 50%.md"))).json() == moved.json()
    problem(await surface.http.get(surface.at("tea/绿茶.md")), 404, "note_not_found")

    gone = await surface.http.delete(surface.at("Tea & more/a #1 50%.md"), headers=version)
    assert (gone.status_code, gone.content) == (204, b"")
    assert (surface.vault / ".trash" / "Tea & more" / "a #1 50%.md").read_text() == "# Tea\n\nWhite.\n"
    assert (await surface.http.get(f"{surface.url}/notes")).json()["items"] == []


async def test_the_head_of_a_note_is_that_of_its_text_without_it(surface: Surface) -> None:
    await surface.create("a.md", "# A")
    for headers in ({}, {"accept": "text/markdown"}, {"if-none-match": tag("# A")}):
        got, head = (
            await surface.http.get(surface.at("a.md"), headers=headers),
            await surface.http.head(surface.at("a.md"), headers=headers),
        )
        assert (head.status_code, head.content) == (got.status_code, b"")
        assert {name: head.headers.get(name) for name in ("etag", "content-type", "content-length")} == {
            name: got.headers.get(name) for name in ("etag", "content-type", "content-length")
        }
    assert (await surface.http.head(surface.at("b.md"))).status_code == 404


async def test_a_change_without_its_version_is_428(surface: Surface) -> None:
    await surface.create("a.md", "text")
    for headers in ({}, {"if-match": "*"}, {"if-match": ""}, {"if-none-match": tag("text")}):
        requests = [
            surface.http.put(surface.at("a.md"), json={"content": "x"}, headers=headers),
            surface.http.post(surface.at("a.md", "/move"), json={"to": "b.md"}, headers=headers),
            surface.http.delete(surface.at("a.md"), headers=headers),
        ]
        for request in requests:
            problem(await request, 428, "precondition_required")
    assert (surface.vault / "a.md").read_text() == "text"


async def test_a_change_of_another_version_is_412_or_for_a_patch_409(surface: Surface) -> None:
    await surface.create("a.md", "text")
    for stale in (tag("other"), "W/" + tag("text"), '""', '"x"'):
        version = {"if-match": stale}
        for request in (
            surface.http.put(surface.at("a.md"), json={"content": "x"}, headers=version),
            surface.http.post(surface.at("a.md", "/move"), json={"to": "b.md"}, headers=version),
            surface.http.delete(surface.at("a.md"), headers=version),
        ):
            assert problem(await request, 412, "note_stale")["current_hash"] == sha("text")
    assert problem(await surface.patch("a.md", sha("other"), "text", "x"), 409, "note_stale")["current_hash"] == sha("text")
    exists = problem(await surface.put("a.md", "x", if_none_match="*"), 412, "note_exists")
    assert exists["current_hash"] == sha("text")
    # RFC 9110, 13.2.1: without the header it would be created, so it is the header that fails
    assert problem(await surface.put("gone.md", "x", if_match=tag("text")), 412, "note_stale")["current_hash"] is None
    version = {"if-match": tag("text")}
    problem(await surface.http.delete(surface.at("gone.md"), headers=version), 404, "note_not_found")
    problem(await surface.http.post(surface.at("gone.md", "/move"), json={"to": "b.md"}, headers=version), 404, "note_not_found")
    problem(await surface.patch("gone.md", sha("text"), "a", "b"), 404, "note_not_found")
    for malformed in (sha("text"), f"{tag('a')}, {tag('b')}", '"'):
        problem(await surface.put("a.md", "x", if_match=malformed), 400, "malformed")
    problem(await surface.put("a.md", "x", if_match=tag("text"), if_none_match="*"), 400, "malformed")
    assert [entry.name for entry in surface.vault.iterdir()] == ["a.md"]


async def test_a_patch_names_one_place(surface: Surface) -> None:
    content_hash = (await surface.create("a.md", "one two one"))["content_hash"]
    assert problem(await surface.patch("a.md", content_hash, "one", "x"), 409, "match_not_unique")["matches"] == 2
    problem(await surface.patch("a.md", content_hash, "three", "x"), 409, "match_not_found")
    problem(await surface.patch("a.md", content_hash, "", "x"), 422, "invalid")
    (surface.vault / "a.md").write_bytes(b"one \xff two")
    problem(await surface.patch("a.md", sha(b"one \xff two"), "one", "x"), 422, "note_unreadable")
    assert (surface.vault / "a.md").read_bytes() == b"one \xff two"


async def test_a_path_that_is_taken_is_409_for_a_move(surface: Surface) -> None:
    await surface.create("a.md", "a")
    await surface.create("b.md", "b")
    moving = await surface.http.post(surface.at("a.md", "/move"), json={"to": "b.md"}, headers={"if-match": tag("a")})
    problem(moving, 409, "note_exists")
    same = await surface.http.post(surface.at("a.md", "/move"), json={"to": "a.md"}, headers={"if-match": tag("a")})
    assert same.status_code == 200
    assert {entry.name: entry.read_text() for entry in surface.vault.iterdir()} == {"a.md": "a", "b.md": "b"}


@pytest.mark.parametrize(
    "path",
    ["../a.md", "%2e%2e/a.md", "x%2F..%2Fa.md", "/etc/a.md", "a%00.md", "a//b.md", "%ff.md", "a%5Cb.md", "a.txt", ".git/a.md", "up/a.md"],
)
async def test_paths_lead_nowhere_else(surface: Surface, tmp_path: Path, path: str) -> None:
    # cosmicstack-labs/mercury-agent#105
    (tmp_path / "outside").mkdir()
    (surface.vault / "up").symlink_to(tmp_path / "outside")
    (surface.vault / "ours.md").write_text("text")
    url = httpx.URL(str(surface.http.base_url) + surface.url, raw_path=f"{surface.url}/notes/{path}".encode())
    for answer in (
        await surface.http.put(url, json={"content": "x"}, headers=CREATE),
        await surface.http.put(url, json={"content": "x"}, headers={"if-match": tag("text")}),
        await surface.http.patch(url, json={"content_hash": sha("text"), "old_text": "a", "new_text": "b"}),
        await surface.http.delete(url, headers={"if-match": tag("text")}),
    ):
        assert answer.status_code in (400, 404, 412), answer.text
    if not set(path) & set("%"):
        moving = await surface.http.post(surface.at("ours.md", "/move"), json={"to": path}, headers={"if-match": tag("text")})
        assert moving.status_code == 400, moving.text
    assert sorted(entry.name for entry in surface.vault.iterdir()) == ["ours.md", "up"]
    assert list((tmp_path / "outside").iterdir()) == []


async def test_bodies_are_read_strictly(surface: Surface) -> None:
    await surface.create("a.md", "text")
    put, url = surface.http.put, surface.at("b.md")
    problem(await put(url, content="text", headers={**CREATE, "content-type": "text/markdown"}), 415, "unsupported_media_type")
    problem(await put(url, json={}, headers=CREATE), 422, "invalid")
    problem(await put(url, json={"content": 1}, headers=CREATE), 422, "invalid")
    problem(await put(url, json={"content": "x", "mode": "force"}, headers=CREATE), 422, "invalid")
    problem(await put(url, json={"content": "a\0b"}, headers=CREATE), 422, "invalid")
    problem(await put(url, content=b'{"content": "\\ud800"}', headers={**CREATE, "content-type": "application/json"}), 422, "invalid")
    problem(await put(url, json={"content": "x" * (NOTE_BYTES_MAX + 1)}, headers=CREATE), 413, "too_large")
    problem(
        await put(url, content=b" " * (6 * NOTE_BYTES_MAX + 1), headers={**CREATE, "content-type": "application/json"}), 413, "too_large"
    )
    problem(await surface.http.post(surface.at("a.md", "/move"), json={}, headers={"if-match": tag("text")}), 422, "invalid")
    problem(await surface.http.post(surface.at("a.md", "/entries"), json={"question": "q"}), 422, "invalid")
    problem(await surface.http.post(surface.at("a.md", "/publish"), json={}), 405, "method_not_allowed")
    assert (await put(url, json={"content": "é" * (NOTE_BYTES_MAX // 2)}, headers=CREATE)).status_code == 201
    assert sorted(entry.name for entry in surface.vault.iterdir()) == ["a.md", "b.md"]


async def test_an_exchange_goes_into_a_note_once(surface: Surface) -> None:
    # MN-9; CherryHQ/cherry-studio#12679
    body = {"question": "为什么？\r\n  ", "answer": "$$x^2$$\n\n```py\ncode", "conversation_title": "A *talk*", "message_id": str(uuid4())}
    first = await surface.http.post(surface.at("talks/a.md", "/entries"), json=body)
    assert (first.status_code, first.headers["etag"]) == (201, f'"{first.json()["content_hash"]}"')
    data = (surface.vault / "talks" / "a.md").read_bytes()
    assert body["question"].encode() in data
    assert body["answer"].encode() in data
    again = await surface.http.post(surface.at("talks/a.md", "/entries"), json=body)
    assert (again.status_code, again.json()) == (200, first.json())
    other = await surface.http.post(surface.at("talks/a.md", "/entries"), json={**body, "message_id": str(uuid4())})
    assert other.status_code == 200
    assert (surface.vault / "talks" / "a.md").read_bytes().startswith(data)
    for wrong in ({"message_id": "1"}, {"question": " "}, {"answer": ""}, {"conversation_title": "x" * 1001}, {"more": 1}):
        problem(await surface.http.post(surface.at("b.md", "/entries"), json={**body, **wrong}), 422, "invalid")
    assert not (surface.vault / "b.md").exists()


async def test_a_member_writes_only_where_it_may(surface: Surface) -> None:
    await surface.create("a.md", "text")
    made = await surface.http.post("/api/accounts", json={"username": "mia", "password": "mia's password", "role": "member"})
    for access, status in ((None, 404), ("read", 403), ("write", 201)):
        items = [{"account_id": made.json()["id"], "access": access}] if access else []
        assert (await surface.http.put(f"{surface.url}/members", json={"items": items})).status_code == 200
        async with client_of(str(surface.http.base_url)) as mia:
            await mia.login("mia", "mia's password")
            answer = await mia.http.put(surface.at("b.md"), json={"content": "x"}, headers=CREATE)
            assert answer.status_code == status, answer.text
            if access == "read":
                assert (await mia.http.get(surface.at("a.md"))).status_code == 200


async def test_a_session_without_its_csrf_token_changes_nothing(surface: Surface) -> None:
    del surface.http.headers["x-csrf-token"]
    problem(await surface.put("a.md", "x", if_none_match="*"), 403, "csrf_rejected")
    assert list(surface.vault.iterdir()) == []
