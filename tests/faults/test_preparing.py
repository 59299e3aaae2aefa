"""Preparing contexts from real runs: of one publication, whole or not at all, whatever is edited or killed meanwhile (RC-4)."""

import asyncio
import itertools
import json
import random
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from local.stack import ROOT
from services.contexts.snapshot import check
from tests.support.local_stack import LocalStack, local_stack
from tests.support.polling import eventually

# More by hand: pytest tests/faults/test_preparing.py --kills 200
WITHIN = 30.0
NOTES = {
    "Kitchen/Rye.md": "---\nsource: https://example.org/rye\ncategory: baking\n---\n# Rye\n\nRye bread is kneaded for ten minutes.\n",
    "Kitchen/Wheat.md": "# Wheat\n\nWheat bread is kneaded for twelve minutes.\n",
    "蜂场.md": "# 蜂场\n\n紫云蜂场有九千只蜜蜂。\n",
}


@asynccontextmanager
async def stack_of(tmp_path: Path) -> AsyncIterator[tuple[LocalStack, Path]]:
    vault = tmp_path / "vault"
    for path, text in NOTES.items():
        (vault / path).parent.mkdir(parents=True, exist_ok=True)
        (vault / path).write_text(text)
    async with local_stack(tmp_path / "home", {"MARGINALIA_VAULTS": str(vault)}) as stack:
        await stack.searchable()
        yield stack, vault


async def completed(stack: LocalStack, query: str = "kneaded bread") -> dict[str, Any]:
    """A run that the engine has answered in time, which a loaded machine's may not."""

    async def one() -> dict[str, Any] | None:
        stored = await run(stack, query)
        return stored if stored["status"] == "completed" else None

    return await eventually(one, WITHIN)


async def run(stack: LocalStack, query: str = "kneaded bread", mode: str = "keyword_chunks") -> dict[str, Any]:
    answer = await stack.client.http.post("/api/retrieval/runs", json={"mode": mode, "query": query})
    assert answer.status_code == 201, answer.text
    stored: dict[str, Any] = answer.json()
    return stored


async def prepare(stack: LocalStack, run_id: str) -> httpx.Response:
    return await stack.client.http.post("/api/rag/contexts", json={"retrieval_run_id": run_id, "completion": {"model": "m"}})


async def rows(stack: LocalStack) -> list[dict[str, Any]]:
    """All snapshots, straight from the export."""
    exported = await stack.client.http.get("/api/rag/contexts/export")
    assert exported.status_code == 200
    return [json.loads(line) for line in exported.text.splitlines()[1:]]


async def test_evidence_says_where_it_is_from_and_stale_evidence_what_differs(tmp_path: Path) -> None:
    # RC-3, RC-4, RC-5, RC-19
    async with stack_of(tmp_path) as (stack, vault):
        first = await completed(stack)
        prepared = await prepare(stack, first["id"])
        assert prepared.status_code == 201, prepared.text
        snapshot = prepared.json()
        check(snapshot)
        rye = next(item for item in snapshot["evidence"] if item["title"] == "Rye")
        assert (rye["source_url"], rye["category"], rye["knowledge_version"]) == ("https://example.org/rye", "baking", 1)
        wheat = next(item for item in snapshot["evidence"] if item["title"] == "Wheat")
        assert (wheat["source_url"], wheat["category"]) == (None, "Kitchen")
        assert [item["rank"] for item in snapshot["evidence"]] == [1, 2]
        for name in ("text_publication", "catalog_revision", "corpus_fingerprint", "vector_publication"):
            assert snapshot[name] == first[name], name
        assert (await prepare(stack, first["id"])).json()["request_sha256"] == snapshot["request_sha256"]
        whole = await run(stack, mode="keyword")
        assert (await prepare(stack, whole["id"])).status_code == 422
        assert (await prepare(stack, "11111111-1111-4111-8111-111111111111")).status_code == 404

        (vault / "Kitchen/Rye.md").write_text(NOTES["Kitchen/Rye.md"].replace("ten", "eleven"))
        stale = await eventually(lambda: refused(stack, first["id"]), 15)
        assert stale["code"] == "evidence_stale"
        assert {"text_publication", "corpus_fingerprint", "document", "chunk"} <= set(stale["changed"])
        again = await completed(stack)
        renewed = (await prepare(stack, again["id"])).json()
        assert next(item for item in renewed["evidence"] if item["title"] == "Rye")["knowledge_version"] == 2
        # A single note can be withdrawn; what was prepared stays.
        (vault / "Kitchen/Rye.md").write_text("---\nretrieval: false\n---\n# Rye\n\nRye bread is kneaded for ten minutes.\n")
        await eventually(lambda: refused(stack, again["id"]), 15)
        assert (await stack.client.http.get(f"/api/rag/contexts/{snapshot['id']}")).json() == snapshot


async def refused(stack: LocalStack, run_id: str) -> dict[str, Any] | None:
    """Why a run cannot be prepared from any more; None while it still can."""
    answer = await prepare(stack, run_id)
    assert answer.status_code in (201, 409), answer.text
    return answer.json() if answer.status_code == 409 else None


async def test_every_context_is_of_one_publication_though_notes_change_all_the_time(tmp_path: Path) -> None:  # RC-4
    async with stack_of(tmp_path) as (stack, vault):
        stop = asyncio.Event()

        async def editing() -> None:
            for number in itertools.count():
                if stop.is_set():
                    return
                (vault / "Kitchen/Rye.md").write_text(f"# Rye\n\nRye bread is kneaded for {number} minutes.\n")
                await asyncio.sleep(0.05)

        async def preparing(wanted: int) -> list[dict[str, Any]]:
            made: list[dict[str, Any]] = []
            async with asyncio.timeout(90):
                while len(made) < wanted:
                    stored = await run(stack)
                    if stored["status"] == "degraded":  # a loaded machine's engine may not answer in time
                        continue
                    answer = await prepare(stack, stored["id"])
                    assert answer.status_code in (201, 409), answer.text
                    if answer.status_code == 201:
                        made.append(answer.json() | {"run": stored})
            return made

        editor = asyncio.create_task(editing())
        made = [one for some in await asyncio.gather(*(preparing(3) for _ in range(10))) for one in some]
        stop.set()
        await editor
        for snapshot in made:
            stored = snapshot.pop("run")
            check(snapshot)
            for name in ("text_publication", "catalog_revision", "corpus_fingerprint"):
                assert snapshot[name] == stored[name]
            texts = {result["chunk"]["id"]: result["chunk"]["text"] for result in stored["results"]}
            assert all(texts[item["chunk_id"]] == item["text"] for item in snapshot["evidence"])
        by_publication: dict[str, set[str]] = {}
        for snapshot in made:
            by_publication.setdefault(json.dumps(snapshot["text_publication"]), set()).add(snapshot["request_sha256"])
        assert all(len(hashes) == 1 for hashes in by_publication.values())
        assert len(await rows(stack)) == len(made)


async def test_a_kill_while_preparing_leaves_a_whole_snapshot_or_none(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    kills = max(4, int(request.config.getoption("kills")) // 2)
    async with stack_of(tmp_path) as (stack, _):
        stored = await completed(stack)
        answered: list[str] = []
        for number in range(kills):
            preparing = [asyncio.create_task(attempt(stack, stored["id"])) for _ in range(3)]
            await asyncio.sleep(chance.random() * 0.05)  # not to be safe: to hit another moment each time
            await stack.kill(("contexts", "retrieval")[number % 2])
            answered += [identifier for identifier in await asyncio.gather(*preparing) if identifier is not None]
            await stack.ready(WITHIN)
        present = {snapshot["id"]: snapshot for snapshot in await rows(stack)}
        assert set(answered) <= set(present), seed
        for snapshot in present.values():
            check(snapshot)
        assert len({snapshot["request_sha256"] for snapshot in present.values()}) <= 1, seed
        # No lock is left behind: an edit is published, and can be prepared from.
        fresh = await completed(stack, "kneaded")
        assert (await prepare(stack, fresh["id"])).status_code == 201, seed


async def attempt(stack: LocalStack, run_id: str) -> str | None:
    try:
        answer = await prepare(stack, run_id)
    except httpx.TransportError:
        return None
    assert answer.status_code in (201, 503), answer.text
    return str(answer.json()["id"]) if answer.status_code == 201 else None


def test_the_recipe_of_the_docs_finds_the_hash_in_another_language(tmp_path: Path) -> None:  # RC-10
    node = next((path for path in (Path("/usr/bin/node"), Path("/usr/local/bin/node")) if path.exists()), None)
    if node is None:
        pytest.skip("node is not installed")
    from tests.unit.contexts.test_snapshots import snapshot

    recipe = (ROOT / "docs" / "prepared-contexts.md").read_text().split("```js\n")[1].split("```")[0]
    (tmp_path / "check.mjs").write_text(recipe)
    record = snapshot(1, 2, completion={"temperature": 0.3})
    (tmp_path / "snapshot.json").write_text(json.dumps(record))
    for damaged, said in ((False, "the body is"), (True, "NOT the body")):
        if damaged:
            record["request_body"]["model"] = "another"
            (tmp_path / "snapshot.json").write_text(json.dumps(record))
        done = subprocess.run(
            [str(node), "check.mjs", "snapshot.json"], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=True
        )
        assert done.stdout.startswith(said), done.stdout
