"""Turns whose agent is gone: another goes on with them, from the last whole round. And what no agent can store."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import asyncpg
import orjson
import pytest

from services.agent.app import serve as serve_agent
from services.agent.settings import AgentSettings
from services.agent.turn import attempt_scope
from services.agent.turn_store import TurnStore
from shared.messaging.bus import Bus
from shared.messaging.cancellation import SHUTDOWN
from tests.support.chat_client import ChatStack, running
from tests.support.polling import eventually
from tests.support.scripted_provider import KEY, Gate, Script, answer, calls, chunk
from tests.support.scripted_retrieval import hit

# More than there may be losses.
HAND_OVERS = 4


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
        await streamed.read(until="TextDelta")
        await gate.reached.wait()
        turn_id = streamed.started["turn_id"]
        assert (await state_of(chat_stack, turn_id))[0] == "running"
        async with chat_stack.client.stream("GET", f"/api/chat/turns/{turn_id}/events") as other:
            await other.read(until="TextDelta")
            assert "Done" not in other.types
        gate.open()
        await streamed.read()
    assert streamed.done["status"] == "completed"
    assert (await state_of(chat_stack, turn_id))[0] == "completed"
    assert (await chat_stack.client.events(turn_id)).events == streamed.events


async def lose_agent(stack: ChatStack, turn_id: str) -> None:
    """Have the turn belong to an agent that was killed: the one that runs it sees that it has lost it, and then that nobody has it."""
    await stack.execute("UPDATE turns SET owner = gen_random_uuid() WHERE id = $1", turn_id)


def half() -> Script:
    return Script([chunk(role="assistant", reasoning_content="Hm. "), chunk(content="Half "), Gate()])


async def reads_the_same_later(stack: ChatStack, turn_id: str, events: list[dict[str, Any]]) -> dict[str, Any]:
    """The log, the state and the stored message all say what was streamed; the message."""
    assert (await stack.client.events(turn_id)).events == events
    state = (await stack.client.http.get(f"/api/chat/turns/{turn_id}")).json()
    conversation = await stack.client.conversation(events[0]["conversation_id"])
    message: dict[str, Any] = conversation["messages"][1]
    for name in ("content", "thinking", "activity", "tool_calls"):
        assert state[name] == message[name], name
    assert state["last_seq"] == events[-1]["seq"] == len(events)
    return message


async def test_the_round_is_asked_again_and_the_client_forgets_what_it_had_said(chat_stack: ChatStack) -> None:
    chat_stack.provider.next(half(), answer("Whole.", thinking="Again."))
    async with asyncio.timeout(20), chat_stack.client.chat("Hi") as streamed:
        await streamed.read(until="TextDelta")
        turn_id = streamed.started["turn_id"]
        await lose_agent(chat_stack, turn_id)
        await streamed.read()
    assert streamed.done["status"] == "completed"
    (restart,) = streamed.of("RoundRestarted")
    assert {name: restart[name] for name in set(restart) - {"type", "seq", "turn_id"}} == {
        "round": 1, "attempt": 2, "content_characters": 0, "activity_entries": 0, "citations": [], "left_out": 0,
    }  # fmt: skip
    assert streamed.ids == list(range(1, len(streamed.ids) + 1))
    assert len(streamed.of("TurnStarted")) == 1
    # Nobody knows what the request that was given up has cost (ON-12).
    assert (streamed.of("Usage")[0]["rounds"], streamed.of("Usage")[0]["partial"]) == (1, True)
    first, second = chat_stack.provider.exchanges
    assert first.closed_early.is_set()
    assert first.body["messages"] == second.body["messages"]
    message = await reads_the_same_later(chat_stack, turn_id, streamed.events)
    assert message["content"] == streamed.text == "Whole."
    assert message["activity"] == [{"type": "thinking", "text": "Again."}]
    assert await state_of(chat_stack, turn_id) == ("completed", 2)


async def test_whole_rounds_are_kept_with_their_results_and_numbers(chat_stack: ChatStack) -> None:
    chat_stack.retrieval.hits = {"herons": [hit("h", "Herons stand.", "a.md")], "otters": [hit("o", "Otters swim.", "b.md")]}
    chat_stack.provider.next(calls("herons", text="Let me see."), half(), calls("otters"), answer("Both [1][2]."))
    async with asyncio.timeout(20), chat_stack.client.chat("Hi") as streamed:
        await streamed.read(until="ToolCallEnd")
        await streamed.read(until="TextDelta")
        turn_id = streamed.started["turn_id"]
        await lose_agent(chat_stack, turn_id)
        await streamed.read()
    assert streamed.done["status"] == "completed"
    (restart,) = streamed.of("RoundRestarted")
    assert (restart["round"], restart["content_characters"], restart["activity_entries"]) == (2, len("Let me see."), 1)
    second, third = chat_stack.provider.exchanges[1:3]
    assert second.body["messages"] == third.body["messages"]
    message = await reads_the_same_later(chat_stack, turn_id, streamed.events)
    assert message["content"] == streamed.text == "Let me see.\n\nBoth [1][2]."
    assert [source["number"] for source in message["sources"]] == [1, 2]
    assert [call["round"] for call in message["tool_calls"]] == [1, 2]
    assert streamed.of("Usage")[0]["rounds"] == 3


async def test_a_search_that_was_lost_ends_failed_and_its_numbers_mean_what_they_meant(chat_stack: ChatStack) -> None:
    """What the lost round was given is no source of the reply; a passage that is found again has the number it had."""
    chat_stack.retrieval.hits = {"herons": [hit("h", "Herons stand.", "a.md")], "otters": [hit("o", "Otters swim.", "b.md")]}
    gate = Gate()
    chat_stack.retrieval.gates["otters"] = gate
    chat_stack.provider.next(calls("herons", "otters"), calls("otters", "herons"), answer("So [1]."))
    async with asyncio.timeout(20), chat_stack.client.chat("Hi") as streamed:
        await streamed.read(until="ToolCallEnd")
        await gate.reached.wait()
        turn_id = streamed.started["turn_id"]
        await lose_agent(chat_stack, turn_id)
        await streamed.read(until="RoundRestarted")
        gate.open()
        await streamed.read()
    assert streamed.done["status"] == "completed"
    assert streamed.done["cited"] == [1]
    started = [event["tool_call_id"] for event in streamed.of("ToolCallStart")]
    assert sorted(started) == sorted(event["tool_call_id"] for event in streamed.of("ToolCallEnd"))
    assert len(set(started)) == 4
    message = await reads_the_same_later(chat_stack, turn_id, streamed.events)
    assert [call["id"] for call in message["tool_calls"]] == started[2:]
    assert {source["number"]: source["file_path"] for source in message["sources"]} == {1: "a.md", 2: "b.md"}
    tool_messages = [message for message in chat_stack.provider.exchanges[-1].body["messages"] if message["role"] == "tool"]
    given = [source["number"] for told in tool_messages for source in orjson.loads(told["content"])["sources"]]
    assert given == [2, 1]


@pytest.mark.parametrize("wish", ["cancel", "provider", "attempts"])
async def test_a_turn_that_cannot_be_gone_on_with_ends_once_with_what_there_was(chat_stack: ChatStack, wish: str) -> None:
    # bayesimpact/bayes-platform#673
    chat_stack.provider.next(half())
    async with asyncio.timeout(20), chat_stack.client.chat("Hi") as streamed:
        await streamed.read(until="TextDelta")
        turn_id = streamed.started["turn_id"]
        statement = {
            "cancel": "cancel_requested = true",
            "provider": "assignment = jsonb_set(assignment, '{start,provider}', '\"gone\"')",
            "attempts": "attempt = 3",
        }[wish]
        await chat_stack.execute(f"UPDATE turns SET owner = gen_random_uuid(), {statement} WHERE id = $1", turn_id)
        await streamed.read()
    assert streamed.done["status"] == ("cancelled" if wish == "cancel" else "failed")
    assert [error["code"] for error in streamed.of("Error")] == {"cancel": [], "provider": ["unknown_provider"]}.get(wish, ["agent_lost"])
    message = await reads_the_same_later(chat_stack, turn_id, streamed.events)
    assert (message["content"], message["status"]) == ("Half ", "interrupted" if wish == "cancel" else "failed")
    assert len(chat_stack.provider.exchanges) == 1


async def test_hand_overs_that_were_announced_are_no_losses(chat_stack: ChatStack, nats_url: str, database_url: str) -> None:
    chat_stack.provider.next(*(half() for _ in range(HAND_OVERS)), answer("Whole."))
    colleague = AgentSettings(
        NATS_URL=nats_url, DATABASE_URL=database_url, MODEL_BASE_URL=chat_stack.provider.base_url, MODEL_NAME="scripted", MODEL_API_KEY=KEY
    )
    bus = Bus("test", nats_url)
    await bus.connect()
    try:
        async with running(serve_agent, colleague), asyncio.timeout(60), chat_stack.client.chat("Hi") as streamed:
            await streamed.read(until="TextDelta")
            await two_agents(chat_stack)
            for attempt in range(1, HAND_OVERS + 1):
                # As a process that stops says it to what runs in it.
                await bus.client.cancel(attempt_scope(UUID(streamed.started["turn_id"]), attempt), SHUTDOWN)
                await streamed.read(until="RoundRestarted")
                await streamed.read(until="TextDelta")
            await streamed.read()
    finally:
        await bus.stop()
    assert (streamed.done["status"], streamed.text) == ("completed", "Whole.")
    assert await state_of(chat_stack, streamed.started["turn_id"]) == ("completed", HAND_OVERS + 1)
    # What the requests that were given up have cost, nobody knows all the same (ON-12).
    assert streamed.of("Usage")[0]["partial"]


async def two_agents(stack: ChatStack) -> None:
    """Until each of the two has seen the other beat: neither leaves a turn to nobody."""
    db = await asyncpg.connect(stack.database_url, server_settings={"search_path": "agent"})

    async def beats() -> list[int]:
        return [row["beats"] for row in await db.fetch("SELECT beats FROM agents ORDER BY id")]

    async def seen() -> bool:
        now = await beats()
        return len(now) == 2 and all(count >= before + 2 for count, before in zip(now, first, strict=True))

    try:
        await eventually(lambda: _two(beats), 10)
        first = await beats()
        await eventually(seen, 10)
    finally:
        await db.close()


async def _two(beats: Callable[[], Awaitable[list[int]]]) -> bool:
    return len(await beats()) == 2


async def test_a_user_may_cancel_a_turn_that_nobody_works_on(chat_stack: ChatStack) -> None:
    chat_stack.provider.next(half())
    async with asyncio.timeout(20), chat_stack.client.chat("Hi") as streamed:
        await streamed.read(until="TextDelta")
        turn_id = streamed.started["turn_id"]
        await lose_agent(chat_stack, turn_id)
        assert (await chat_stack.client.http.post(f"/api/chat/turns/{turn_id}/cancel")).status_code == 202
        await streamed.read()
    assert streamed.done["status"] == "cancelled"
    message = await reads_the_same_later(chat_stack, turn_id, streamed.events)
    assert message["status"] == "interrupted"
    assert len(chat_stack.provider.exchanges) == 1


async def test_a_reply_that_the_database_refuses_ends_failed_for_every_reader(
    chat_stack: ChatStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any) -> Any:
        raise asyncpg.DataError("not for this column")

    monkeypatch.setattr(TurnStore, "end", refuse)
    turn = await chat_stack.client.ask("Hi")
    assert turn.done["status"] == "failed"
    assert [error["code"] for error in turn.of("Error")] == ["internal"]
    assert len(turn.of("Usage")) == 1
    assert await state_of(chat_stack, turn.started["turn_id"]) == ("failed", 1)
    assert (await chat_stack.client.events(turn.started["turn_id"])).events == turn.events
