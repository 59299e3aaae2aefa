"""The Markdown tools over HTTP: gateway, notes, the account's preferences (MD-1, MD-2, MD-6)."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.notes.app import serve
from services.notes.settings import NotesSettings
from tests.support.chat_client import ChatStack, running
from tests.support.polling import eventually


@pytest.fixture
async def http(chat_stack: ChatStack, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client that has logged in, with the notes service there."""
    settings = NotesSettings(DATABASE_URL=chat_stack.database_url, NATS_URL=chat_stack.nats_url, MARGINALIA_HOME=tmp_path)
    client = chat_stack.client.http
    async with running(serve, settings):

        async def up() -> bool:
            return (await client.get("/api/markdown/catalog")).status_code == 200

        await eventually(up, 10)
        yield client


def files(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*"))


async def compose(http: httpx.AsyncClient, *blocks: Any, **fields: Any) -> httpx.Response:
    return await http.post("/api/markdown/compose", json={"blocks": list(blocks), **fields})


async def test_a_document_becomes_markdown_and_nothing_is_saved(http: httpx.AsyncClient, tmp_path: Path) -> None:
    before = files(tmp_path)
    answer = await compose(http, {"type": "heading", "level": 1, "content": "茶"}, "# no heading", front_matter={"tags": ["drinks"]})
    assert answer.json() == {"markdown": "---\ntags:\n- drinks\n---\n\n# 茶\n\n\\# no heading\n"}
    assert files(tmp_path) == before


async def test_the_catalog_and_the_composer_follow_the_accounts_preferences(http: httpx.AsyncClient) -> None:
    catalog = (await http.get("/api/markdown/catalog")).json()
    assert set(catalog) == {"formats", "callouts", "limits", "rendering", "editing"}
    formula = {"type": "math", "tex": "x"}
    assert (await compose(http, formula)).status_code == 200
    await http.put("/api/preferences", json={"markdown": {"math": False, "callouts": False}})
    reduced = (await http.get("/api/markdown/catalog")).json()
    assert {one["type"] for one in catalog["formats"]} - {one["type"] for one in reduced["formats"]} == {"math", "callout"}
    assert reduced["callouts"] == []
    refused = await compose(http, "a", formula)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid")
    assert [error["location"] for error in refused.json()["errors"]] == ["body.blocks.1"]


DEEP: Any = "a"
for _ in range(13):
    DEEP = {"type": "quote", "blocks": [DEEP]}


@pytest.mark.parametrize(
    ("body", "location"),
    [
        ({}, "body.blocks"),
        ({"blocks": []}, "body.blocks"),
        ({"blocks": ["a"], "x": 1}, "body.x"),
        ({"blocks": [{"type": "video"}]}, "body.blocks.0"),
        ({"blocks": ["a", {"type": "heading", "content": "a"}]}, "body.blocks.1.level"),
        ({"blocks": [{"type": "list", "items": ["a", {"blocks": [{"type": "paragraph", "content": [{"type": "bold", "content": 1}]}]}]}]},
         "body.blocks.0.items.1.blocks.0.content.0.content"),
        ({"blocks": [{"type": "rule", "width": 3}]}, "body.blocks.0.width"),
        ({"blocks": [{"type": "callout", "kind": "shout"}]}, "body.blocks.0.kind"),
        ({"blocks": [{"type": "table", "header": ["a"], "rows": [["b", "c"]]}]}, "body.blocks.0.rows.0"),
        ({"blocks": ["a\u0007"]}, "body.blocks.0"),
        ({"blocks": [DEEP]}, "body" + ".blocks.0" * 13),
    ],
)  # fmt: skip
async def test_what_cannot_be_written_is_a_problem_that_names_its_place(
    http: httpx.AsyncClient, body: dict[str, Any], location: str
) -> None:
    answer = await http.post("/api/markdown/compose", json=body)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    errors = answer.json()["errors"]
    assert all(set(error) == {"location", "message"} for error in errors)
    assert {error["location"] for error in errors} == {location}
    assert "shout" not in answer.text


async def test_too_much_is_too_large(http: httpx.AsyncClient) -> None:
    table = {"type": "table", "header": ["a"] * 1000, "rows": [["a"] * 1000] * 1000}
    for block in (table, {"type": "table", "header": ["a"] * 100, "rows": [["a"] * 100] * 100}, "a" * 200_001):
        answer = await compose(http, block)
        assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    bomb = await compose(http, "[a](" * 50_000)
    assert bomb.status_code == 200


async def test_ten_thousand_levels_are_no_document(http: httpx.AsyncClient) -> None:
    body = b'{"blocks":[' + b'{"type":"quote","blocks":[' * 10_000 + b"]}" * 10_000 + b"]}"
    answer = await http.post("/api/markdown/compose", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed")


async def test_both_need_a_login(chat_stack: ChatStack) -> None:
    async with httpx.AsyncClient(base_url=chat_stack.base_url) as stranger:
        assert (await stranger.get("/api/markdown/catalog")).status_code == 401
        assert (await compose(stranger, "a")).status_code == 401


async def test_without_the_notes_service_the_answer_is_503(chat_stack: ChatStack) -> None:
    for answer in (await chat_stack.client.http.get("/api/markdown/catalog"), await compose(chat_stack.client.http, "a")):
        assert (answer.status_code, "retry-after" in answer.headers) == (503, True)
