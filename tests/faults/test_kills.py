"""kill -9 of any one process: ready again within 10 s, a turn in flight ends with one `Done` or goes on, the next turn works, and no
note change is lost."""

import asyncio
from pathlib import Path

import httpx
import pytest

from tests.support.chat_client import Streamed
from tests.support.local_stack import LocalStack, local_stack
from tests.support.polling import eventually
from tests.support.scripted_provider import Gate, Script, ScriptedProvider, answer, chunk

READY_WITHIN = 10.0
DONE_WITHIN = 20.0
PROCESSES = ("agent", "retrieval", "notes", "contexts", "gateway", "nats", "postgres", "index", "embedder")
ANIMALS = ("zebra", "walrus", "badger", "heron", "lynx", "otter", "stoat", "raven", "viper")


async def test_a_kill_of_any_process_loses_no_turn_and_no_note(tmp_path: Path, provider: ScriptedProvider) -> None:
    vault = tmp_path / "vault"
    vault.mkdir()
    (vault / "note.md").write_text("# A note\n\nIts text.\n")
    environment = {"MARGINALIA_VAULTS": str(vault), "MODEL_BASE_URL": provider.base_url, "MODEL_NAME": "scripted"}
    async with local_stack(tmp_path / "home", environment) as stack:
        await stack.searchable()
        for name, animal in zip(PROCESSES, ANIMALS, strict=True):
            await a_turn_survives_a_kill(stack, provider, name)
            (vault / f"{animal}.md").write_text(f"# New\n\nThis speaks of the {animal}.\n")
            await stack.kill(name)
            await stack.ready(READY_WITHIN)
            await eventually(lambda word=animal: found(stack, word), 10, every=0.2)  # type: ignore[misc]


async def a_turn_survives_a_kill(stack: LocalStack, provider: ScriptedProvider, name: str) -> None:
    gate = Gate()
    provider.next(Script([chunk(role="assistant", content="Half "), gate, chunk(content="done."), chunk(finish_reason="stop")]))
    provider.standing = answer("Anew.")
    async with asyncio.timeout(DONE_WITHIN + READY_WITHIN):
        streamed = await partly_read(stack, "TextDelta")
        await stack.kill(name)
        gate.open()
        await stack.ready(READY_WITHIN)
        whole = await eventually(lambda: the_whole(stack, streamed), DONE_WITHIN, every=0.2)
    assert whole.events[: len(streamed.events)] == streamed.events, name
    assert whole.ids == list(range(1, len(whole.ids) + 1)), name
    assert whole.done["status"] == "completed", (name, whole.events[-3:])
    # When the agent itself is lost, the one in its place asks the model again.
    assert whole.text == ("Anew." if name == "agent" else "Half done."), name
    conversation = await stack.client.conversation(whole.started["conversation_id"])
    assert conversation["messages"][1]["content"] == whole.text, name
    provider.next(answer("Next."))
    assert (await stack.client.ask("Next", conversation_id=whole.started["conversation_id"])).text == "Next.", name


async def partly_read(stack: LocalStack, until: str) -> Streamed:
    """A turn that its client leaves on purpose; it goes on."""
    async with stack.client.chat("Go", on_disconnect="keep") as streamed:
        await streamed.read(until=until)
        return streamed  # type: ignore[no-any-return]


async def the_whole(stack: LocalStack, streamed: Streamed) -> Streamed | None:
    """The turn's events once it has ended."""
    try:
        state = (await stack.client.http.get(f"/api/chat/turns/{streamed.started['turn_id']}")).json()
        if state.get("status") in (None, "running"):
            return None
        return await stack.client.events(streamed.started["turn_id"])
    except httpx.TransportError:
        return None


async def found(stack: LocalStack, word: str) -> bool:
    try:
        run = await stack.client.http.post("/api/retrieval/runs", json={"mode": "keyword_chunks", "query": word})
    except httpx.TransportError:
        return False
    return run.status_code == 201 and len(run.json()["results"]) == 1


@pytest.mark.parametrize("name", ["agent", "nats"])
async def test_a_reader_that_stays_sees_the_turn_through_a_kill(tmp_path: Path, provider: ScriptedProvider, name: str) -> None:
    gate = Gate()
    environment = {"MODEL_BASE_URL": provider.base_url, "MODEL_NAME": "scripted"}
    async with local_stack(tmp_path / "home", environment) as stack:
        provider.next(Script([chunk(role="assistant", content="Half "), gate, chunk(content="done."), chunk(finish_reason="stop")]))
        async with asyncio.timeout(DONE_WITHIN + READY_WITHIN), stack.client.chat("Go") as streamed:
            await streamed.read(until="TextDelta")
            await stack.kill(name)
            gate.open()
            await streamed.read()
        assert streamed.done["status"] == "completed"
        assert streamed.text == ("Hello." if name == "agent" else "Half done.")
        assert streamed.ids == list(range(1, len(streamed.ids) + 1))
