"""A backup of the running system, brought back into a new data directory, is the same system: conversations, notes, contexts, search."""

import asyncio
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import httpx

from local.stack import ROOT
from tests.support.local_stack import LocalStack, local_stack
from tests.support.polling import eventually

TEA = "# Tea\n\nGreen tea is brewed at 80 °C.\n"
BREAD = "# Bread\r\n\r\nSourdough needs a starter.\r\n"


async def backup(command: str, directory: Path, home: Path) -> tuple[int, str]:
    """The exit status and what was said."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "local.backup", command, str(directory)),
        cwd=ROOT,
        env={**os.environ, "MARGINALIA_HOME": str(home)},
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(90):
        _, said = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


async def body(http: httpx.AsyncClient, address: str) -> Any:
    answer = await http.get(address)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def kept(stack: LocalStack) -> dict[str, Any]:
    """All that a user would miss."""
    http = stack.client.http
    conversations = (await body(http, "/api/chat/conversations"))["items"]
    workspaces = (await body(http, "/api/workspaces"))["items"]
    notes = {}
    for workspace in workspaces:
        for note in (await body(http, f"/api/workspaces/{workspace['id']}/notes"))["items"]:
            notes[workspace["directory"], note["path"]] = (await body(http, f"/api/workspaces/{workspace['id']}/notes/{note['path']}"))[
                "content"
            ]
    return {
        "conversations": [await stack.client.conversation(conversation["id"]) for conversation in conversations],
        "workspaces": workspaces,
        "notes": notes,
        "contexts": await body(http, "/api/rag/contexts"),
        "runs": await body(http, "/api/retrieval/runs"),
        "accounts": await body(http, "/api/accounts"),
        "preferences": await body(http, "/api/preferences"),
    }


async def finds(stack: LocalStack, mode: str, words: str, path: str) -> bool:
    run = await stack.client.http.post("/api/retrieval/runs", json={"mode": mode, "query": words})
    results = run.json().get("results", [])
    return run.status_code == 201 and run.json()["status"] == "completed" and [one["document"]["path"] for one in results][:1] == [path]


async def used(stack: LocalStack) -> None:
    """A workspace made here, a turn, an account, preferences, a prepared context."""
    http = stack.client.http
    made = await http.post("/api/workspaces", json={"directory": "Kitchen", "title": "The kitchen"})
    assert made.status_code == 201, made.text

    async def writable() -> bool:
        content = {"content": BREAD}
        answer = await http.put(f"/api/workspaces/{made.json()['id']}/notes/bread.md", json=content, headers={"If-None-Match": "*"})
        return answer.status_code == 201

    await eventually(writable, 10)
    turn = await stack.client.ask("How hot is the water for green tea?")
    assert turn.done["cited"]
    await http.post("/api/accounts", json={"username": "ann", "password": "correct horse", "role": "member"})
    await http.put("/api/preferences", json={"locale": "zh"})
    await eventually(lambda: finds(stack, "keyword_chunks", "sourdough", "bread.md"), 15)
    run = await http.post("/api/retrieval/runs", json={"mode": "keyword_chunks", "query": "green tea"})
    prepared = await http.post(
        "/api/rag/contexts", json={"retrieval_run_id": run.json()["id"], "completion": {"provider_profile": "compatible", "model": "m-1"}}
    )
    assert prepared.status_code == 201, prepared.text


async def test_a_backup_brings_back_conversations_notes_and_contexts_and_search_works(tmp_path: Path) -> None:
    vault, old, new, saved = tmp_path / "Drinks", tmp_path / "old", tmp_path / "new", tmp_path / "backup"
    vault.mkdir()
    (vault / "tea.md").write_text(TEA)
    (vault / "cup.png").write_bytes(b"\x89PNG\xff")
    (vault / "again.md").symlink_to("tea.md")
    async with local_stack(old, {"MARGINALIA_VAULTS": str(vault)}) as stack:
        await stack.searchable()
        await used(stack)
        before = await kept(stack)
        assert await backup("save", saved, old) == (0, "")
        status, said = await backup("save", saved, old)
        assert (status, said) == (1, f"backup: {saved} exists already\n")
        await stack.client.ask("A question that came after the backup?")
    assert saved.stat().st_mode & 0o077 == 0
    # The disk is lost.
    shutil.rmtree(old)
    shutil.rmtree(vault)
    assert await backup("restore", saved, new) == (0, "")
    async with local_stack(new, {}) as stack:
        after = await kept(stack)
        for what, value in before.items():
            assert after[what] == value, what
        assert (new / "vaults" / "Drinks" / "cup.png").read_bytes() == b"\x89PNG\xff"
        assert (new / "vaults" / "Drinks" / "again.md").is_symlink()
        # The engine has nothing, and is filled from the tables.
        await eventually(lambda: finds(stack, "hybrid", "green tea", "tea.md"), 30)
        again = await stack.client.ask("What does sourdough need?")
        assert again.done["cited"]
    status, said = await backup("restore", saved, new)
    assert status == 1
    assert said.endswith("holds data already; set MARGINALIA_HOME to a new one\n")


async def test_what_cannot_be_backed_up_or_brought_back_is_said_in_one_line(tmp_path: Path) -> None:
    assert await backup("save", tmp_path / "x", tmp_path / "none") == (
        1,
        f"backup: nothing has run on {tmp_path / 'none'} yet (MARGINALIA_HOME)\n",
    )
    assert await backup("restore", tmp_path, tmp_path / "new") == (1, f"backup: {tmp_path} is no backup: it has no tables.dump\n")
    home = tmp_path / "stopped"
    home.mkdir()
    (home / "endpoints.json").write_text('{"postgres": "postgresql://marginalia:x@127.0.0.1:1/marginalia"}')
    status, said = await backup("save", tmp_path / "x", home)
    assert (status, said.count("\n")) == (1, 1)
    assert "the database does not answer" in said
    assert not (tmp_path / "x").exists()
    assert not (tmp_path / "x.new").exists()
