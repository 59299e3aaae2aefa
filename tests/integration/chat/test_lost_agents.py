"""Turns whose agent is gone, or could not store their end: another look at the database ends them."""

import asyncpg
import pytest

from tests.support.chat_client import ChatStack
from tests.support.polling import eventually


async def state_of(stack: ChatStack, turn_id: str) -> tuple[str, int]:
    state = (await stack.client.http.get(f"/api/chat/turns/{turn_id}")).json()
    return state["status"], state["attempt"]


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
