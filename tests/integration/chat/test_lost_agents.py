"""Turns whose agent is gone, or could not store their end: another look at the database ends them."""

import asyncio
from typing import Any

import asyncpg
import pytest

from services.agent.turn_store import TurnStore
from tests.support.chat_client import ChatStack
from tests.support.polling import eventually
from tests.support.scripted_provider import Gate


async def state_of(stack: ChatStack, turn_id: str) -> tuple[str, int]:
    state = (await stack.client.http.get(f"/api/chat/turns/{turn_id}")).json()
    return state["status"], state["attempt"]


async def test_no_reader_learns_of_the_end_before_it_is_stored(chat_stack: ChatStack, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, end = Gate(), TurnStore.end

    async def slow_end(*arguments: Any) -> Any:
        await gate.wait()
        return await end(*arguments)

    monkeypatch.setattr(TurnStore, "end", slow_end)
    async with asyncio.timeout(20), chat_stack.client.chat("Hi") as streamed:
        await streamed.read(until="Usage")
        await gate.reached.wait()
        turn_id = streamed.started["turn_id"]
        assert (await state_of(chat_stack, turn_id))[0] == "running"
        async with chat_stack.client.stream("GET", f"/api/chat/turns/{turn_id}/events") as other:
            await other.read(until="Usage")
            assert "Done" not in other.types
        gate.open()
        await streamed.read()
    assert streamed.done["status"] == "completed"
    assert (await state_of(chat_stack, turn_id))[0] == "completed"
    assert (await chat_stack.client.events(turn_id)).events == streamed.events


@pytest.mark.parametrize("owner", ["gen_random_uuid()", "owner"])
async def test_a_turn_that_nobody_works_on_is_ended_once_with_what_there_was(chat_stack: ChatStack, owner: str) -> None:
    turn = await chat_stack.client.ask("Hi")
    turn_id = turn.started["turn_id"]
    db = await asyncpg.connect(chat_stack.database_url, server_settings={"search_path": "agent"})
    try:
        # As an agent leaves it that was killed, or that could not store: the log is in the stream alone, without its end.
        await db.execute(f"UPDATE turns SET status = 'running', owner = {owner}, log = NULL WHERE id = $1", turn_id)
    finally:
        await db.close()

    async def ended() -> bool:
        return await state_of(chat_stack, turn_id) == ("failed", 2)

    await eventually(ended, 15, every=0.2)
    conversation = await chat_stack.client.conversation(turn.started["conversation_id"])
    assert conversation["messages"][1]["content"] == turn.text
