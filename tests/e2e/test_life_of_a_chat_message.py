"""The whole system as a new user has it: one command, a folder of notes, a question, a cited answer. The numbers in the comments are
the steps of docs/life-of-a-chat-message.md."""

import asyncio
import json
from pathlib import Path

import nats
import pytest

from local.stack import ROOT
from tests.support.local_stack import LocalStack, local_stack
from tests.support.polling import eventually

SHARED_VAULT = ROOT.parent / "shared" / "vaults" / "powershell-rfc"
TEA = """---
title: Brewing tea
tags: [drinks, tea]
---
# Brewing tea

Green tea is brewed at 80 °C for two minutes. Black tea takes boiling water.

## 绿茶

绿茶用八十度的水冲泡两分钟，水温太高会发苦。
"""


async def notes_of(stack: LocalStack) -> tuple[str, list[dict]]:  # type: ignore[type-arg]
    (workspace,) = (await stack.client.http.get("/api/workspaces")).json()["items"]
    listed = (await stack.client.http.get(f"/api/workspaces/{workspace['id']}/notes?limit=1000")).json()["items"]
    return workspace["id"], listed


async def tea_has_changed(stack: LocalStack, conversation_id: str) -> bool:
    """Whether a reload says that the note is no longer what was cited (ON-18)."""
    sources = (await stack.client.conversation(conversation_id))["messages"][1]["sources"]
    return {source["state"] for source in sources if source["file_path"] == "tea.md"} == {"changed"}


def one_trace_runs_through_all_hops(home: Path) -> None:
    """From the HTTP request to the search engine (OP-1); events without words of the question or the notes (ON-14)."""
    services: dict[str, set[str]] = {}
    events: dict[str, set[str]] = {}
    for path in (home / "traces").glob("*.jsonl"):
        text = path.read_text()
        assert "80 °C" not in text
        assert "green tea" not in text.lower()
        for line in text.splitlines():
            for span in (
                span for resource in json.loads(line)["resourceSpans"] for scope in resource["scopeSpans"] for span in scope["spans"]
            ):
                services.setdefault(span["traceId"], set()).add(path.stem)
                events |= {event["name"]: {one["key"] for one in event["attributes"]} for event in span.get("events", [])}
    assert {"gateway", "agent", "retrieval", "index"} in [found & {"gateway", "agent", "retrieval", "index"} for found in services.values()]
    assert events["chat.retrieval.completed"] == {"round", "hits", "duration_ms"}


async def test_a_question_in_either_language_is_answered_from_the_notes_and_seen_on_the_wire(tmp_path: Path) -> None:
    vault = tmp_path / "vault"
    vault.mkdir()
    (vault / "tea.md").write_text(TEA)
    (vault / "bread.md").write_text("# Bread\n\nSourdough needs a starter that is fed every day.\n")
    async with local_stack(tmp_path / "home", {"MARGINALIA_VAULTS": str(vault)}) as stack:
        await stack.searchable()
        endpoints = json.loads((stack.home / "endpoints.json").read_text())
        client = await nats.connect(endpoints["nats"])
        wire = await client.subscribe("chat.events.>")
        await client.flush()
        turn = await stack.client.ask("How hot is the water for green tea?")  # steps 1 to 9
        assert turn.started["retrieval"] == "on_demand"
        assert "80 °C" in turn.text
        (number, *_) = turn.done["cited"]
        citation = next(event for event in turn.of("Citation") if event["number"] == number)
        assert citation["file_path"] == "tea.md"
        _, listed = await notes_of(stack)
        note = next(note for note in listed if note["path"] == "tea.md")
        assert citation["locator"]["content_hash"] == note["content_hash"]
        start, end = citation["locator"]["start"], citation["locator"]["end"]
        assert TEA[start:end].startswith(citation["excerpt"].removesuffix("…")[:40])
        seen = [json.loads((await wire.next_msg(timeout=5)).data) for _ in turn.events]
        assert seen == turn.events
        await client.close()
        chinese = await stack.client.ask("绿茶用多少度的水冲泡？")
        assert "八十度" in chinese.text
        assert chinese.done["cited"]
        conversation = await stack.client.conversation(turn.started["conversation_id"])
        assert conversation["messages"][1]["content"] == turn.text
        assert {source["state"] for source in conversation["messages"][1]["sources"]} == {"current"}
        (vault / "tea.md").write_text(TEA + "\nMore.\n")
        await eventually(lambda: tea_has_changed(stack, turn.started["conversation_id"]), 5)
    one_trace_runs_through_all_hops(tmp_path / "home")
    # A second start on the same data reads no file again, and indexes nothing again.
    async with local_stack(tmp_path / "home", {"MARGINALIA_VAULTS": str(vault)}) as stack:
        await stack.searchable()
        again = await stack.client.events(turn.started["turn_id"])
        assert again.events == turn.events


async def test_edits_of_other_programs_are_searchable_within_two_seconds_and_deleted_text_is_gone(tmp_path: Path) -> None:
    vault = tmp_path / "vault"
    vault.mkdir()
    (vault / "tea.md").write_text(TEA)
    async with local_stack(tmp_path / "home", {"MARGINALIA_VAULTS": str(vault)}) as stack:
        await stack.searchable()

        async def found(words: str) -> list[str]:
            run = await stack.client.http.post("/api/retrieval/runs", json={"mode": "keyword_chunks", "query": words})
            assert run.status_code == 201, run.text
            return [result["document"]["path"] for result in run.json()["results"]]

        async def finds(words: str, *paths: str) -> bool:
            return await found(words) == list(paths)

        (vault / "new.md").write_text("# Rooibos\n\nRooibos never turns bitter.\n")
        await eventually(lambda: finds("rooibos", "new.md"), 3)
        (vault / "new.md").rename(vault / "moved.md")
        await eventually(lambda: finds("rooibos", "moved.md"), 3)
        (vault / "moved.md").write_text("# Honeybush\n\nHoneybush is its cousin.\n")
        await eventually(lambda: finds("honeybush", "moved.md"), 3)
        await eventually(lambda: finds("rooibos"), 3)
        (vault / "moved.md").unlink()
        await eventually(lambda: finds("honeybush"), 3)


@pytest.mark.skipif(not SHARED_VAULT.is_dir(), reason="the vault powershell-rfc is not beside the project")
async def test_a_real_vault_is_searchable_soon_and_cited_correctly(tmp_path: Path) -> None:
    async with local_stack(tmp_path / "home", {"MARGINALIA_VAULTS": str(SHARED_VAULT)}) as stack:
        async with asyncio.timeout(15):  # the bar
            await stack.searchable(15)
        turn = await stack.client.ask("How long is the comment period of an RFC?")
        assert turn.done["status"] == "completed"
        cited = {event["number"]: event for event in turn.of("Citation")}
        assert turn.done["cited"]
        assert all((SHARED_VAULT / cited[number]["file_path"]).is_file() for number in turn.done["cited"])
        assert "comment" in " ".join(cited[number]["excerpt"].lower() for number in turn.done["cited"])
