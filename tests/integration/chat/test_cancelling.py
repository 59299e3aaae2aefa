"""Every way to stop a turn stops it everywhere (ON-13): the provider's socket, the search, the turn; and nothing stays behind."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from uuid import uuid4

import httpx
import nats
import pytest

from shared.contracts import chat
from shared.contracts.errors import ErrorCode, ServiceError
from shared.messaging.bus import Bus
from shared.messaging.scope import Account, Scope
from tests.support.chat_client import ChatStack, Streamed
from tests.support.polling import eventually
from tests.support.scripted_provider import Gate, Script, call_fragments, chunk
from tests.support.scripted_retrieval import hit

ROUNDS = 100
AT_ONCE = 20


def silent(gate: Gate) -> Script:
    """Nothing before the gate: the client waits for the first token."""
    return Script([gate])


def mid_text(gate: Gate) -> Script:
    return Script([chunk(role="assistant", content="Half an "), gate, chunk(content="answer.")])


def searching(_: Gate) -> Script:
    return Script([*call_fragments("tea"), chunk(finish_reason="tool_calls")])


async def leave(streamed: Streamed, stack: ChatStack) -> None:
    """The client goes away without a word."""
    await streamed.response.aclose()


async def press_stop(streamed: Streamed, stack: ChatStack) -> None:
    answer = await stack.client.http.post(f"/api/chat/turns/{streamed.started['turn_id']}/cancel")
    assert answer.status_code == 202


type Stop = Callable[[Streamed, ChatStack], Awaitable[None]]


async def status_of(stack: ChatStack, turn_id: str) -> str:
    return (await stack.client.http.get(f"/api/chat/turns/{turn_id}")).json()["status"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("stop", [leave, press_stop])
@pytest.mark.parametrize("phase", [silent, mid_text])
async def test_a_hundred_stops_close_every_provider_socket_within_a_second(
    chat_stack: ChatStack, phase: Callable[[Gate], Script], stop: Stop
) -> None:
    # langgenius/dify#41520, open-webui/open-webui#1166, #1567, brockamer/findajob#743, BerriAI/litellm#30245,
    # open-webui/open-webui#8777: by the turn's id, from any client
    chat_stack.provider.standing = lambda _: phase(Gate())
    limit = asyncio.Semaphore(AT_ONCE)
    await stop_once(chat_stack, stop, limit)
    before = await left_behind(chat_stack)
    turns = await asyncio.gather(*(stop_once(chat_stack, stop, limit) for _ in range(ROUNDS)))
    assert len(chat_stack.provider.exchanges) == ROUNDS + 1
    for turn_id in turns:
        assert await eventually(lambda t=turn_id: ended(chat_stack, t), 5) == "cancelled"  # type: ignore[misc]
    await nothing_left_behind(chat_stack, before)


async def stop_once(stack: ChatStack, stop: Stop, limit: asyncio.Semaphore) -> str:
    """Start a turn with a marked message, stop it once the provider streams, see the provider's socket close."""
    mark = uuid4().hex
    async with limit, asyncio.timeout(20), stack.client.chat(mark) as streamed:
        await streamed.read(until="TurnStarted")

        async def seen() -> object:
            return next((one for one in stack.provider.exchanges if one.body["messages"][-1]["content"] == mark), None)

        exchange = await eventually(seen)
        await stop(streamed, stack)
        async with asyncio.timeout(1):  # the bar
            await exchange.closed_early.wait()  # type: ignore[attr-defined]
        return str(streamed.started["turn_id"])


async def ended(stack: ChatStack, turn_id: str) -> str | None:
    status = await status_of(stack, turn_id)
    return None if status == "running" else status


@pytest.mark.parametrize("stop", [leave, press_stop])
async def test_a_hundred_stops_during_a_search_abandon_every_search(chat_stack: ChatStack, stop: Stop) -> None:
    # open-webui/open-webui#15695
    chat_stack.retrieval.gate = Gate()
    chat_stack.provider.standing = searching(Gate())
    before = await left_behind(chat_stack)

    async def once() -> str:
        asked = len(chat_stack.retrieval.asked)
        async with asyncio.timeout(20), chat_stack.client.chat("How hot?") as streamed:
            await streamed.read(until="ToolCallStart")
            await eventually(lambda: _longer(chat_stack.retrieval.asked, asked))
            await stop(streamed, chat_stack)
            return str(streamed.started["turn_id"])

    turns = [await once() for _ in range(ROUNDS)]
    for turn_id in turns:
        assert await eventually(lambda t=turn_id: ended(chat_stack, t), 5) == "cancelled"  # type: ignore[misc]
    await eventually(lambda: _longer([None] * chat_stack.retrieval.interrupted, ROUNDS - 1))
    assert chat_stack.retrieval.interrupted == ROUNDS
    assert len(chat_stack.provider.exchanges) == ROUNDS  # no next round was asked
    await nothing_left_behind(chat_stack, before)


async def _longer(items: list, than: int) -> bool:  # type: ignore[type-arg]
    return len(items) > than


async def left_behind(stack: ChatStack) -> tuple[int, int, int]:
    """Tasks and descriptors of this process, subscriptions at the NATS server."""
    client = await nats.connect(stack.nats_url)
    try:
        await client.flush()
    finally:
        await client.close()
    return len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd")), 0


async def nothing_left_behind(stack: ChatStack, before: tuple[int, int, int]) -> None:
    """Back to what there was, give or take idle pooled connections that any use may open."""
    pool = stack.client.http._transport._pool  # type: ignore[attr-defined]

    async def settled() -> bool:
        for connection in list(pool.connections):
            if connection.is_idle() or connection.is_closed():
                await connection.aclose()
                pool._connections.remove(connection)
        tasks, descriptors, _ = await left_behind(stack)
        # A pooled database connection holds one descriptor; the pools of both services may have grown by 8 each.
        return tasks <= before[0] + 2 and descriptors <= before[1] + 20

    await eventually(settled, 10, every=0.2)


async def test_what_was_written_stays_readable_and_the_call_is_paired(chat_stack: ChatStack) -> None:
    chat_stack.retrieval.gate = Gate()
    chat_stack.provider.next(
        Script([chunk(role="assistant", content="I look it up."), *call_fragments("tea"), chunk(finish_reason="tool_calls")])
    )
    async with asyncio.timeout(20), chat_stack.client.chat("How hot?") as streamed:
        await streamed.read(until="ToolCallStart")
        await chat_stack.retrieval.gate.reached.wait()
        await press_stop(streamed, chat_stack)
        await streamed.read()
    assert streamed.done["status"] == "cancelled"
    assert [event["status"] for event in streamed.of("ToolCallEnd")] == ["failed"]
    conversation = await chat_stack.client.conversation(streamed.started["conversation_id"])
    reply = conversation["messages"][1]
    assert (reply["status"], reply["content"]) == ("interrupted", "I look it up.")
    assert reply["tool_calls"][0]["status"] == "error"
    # The next turn says the pair again, whole.
    chat_stack.retrieval.gate = None
    await chat_stack.client.ask("Go on", conversation_id=streamed.started["conversation_id"])
    messages = chat_stack.provider.exchanges[-1].body["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert messages[3]["tool_call_id"] == messages[2]["tool_calls"][0]["id"]


async def test_a_client_may_leave_a_turn_to_go_on(chat_stack: ChatStack) -> None:
    gate = Gate()
    chat_stack.provider.next(mid_text(gate))
    async with asyncio.timeout(20), chat_stack.client.chat("Hi", on_disconnect="keep") as streamed:
        await streamed.read(until="TextDelta")
    gate.open()
    # The script ends without a finish reason: the turn fails by itself, rather than being cancelled.
    assert await eventually(lambda: ended(chat_stack, streamed.started["turn_id"]), 5) == "failed"
    whole = await chat_stack.client.events(streamed.started["turn_id"], after=streamed.ids[-1])
    assert whole.ids[0] == streamed.ids[-1] + 1
    assert whole.text == "answer."


async def test_cancelling_twice_or_after_the_end_does_nothing(chat_stack: ChatStack) -> None:
    turn = await chat_stack.client.ask("Hi")
    for _ in range(2):
        answered = await chat_stack.client.http.post(f"/api/chat/turns/{turn.started['turn_id']}/cancel")
        assert answered.status_code == 202
    assert (await chat_stack.client.events(turn.started["turn_id"])).events == turn.events


async def test_a_cancel_that_overtakes_its_command_is_remembered(chat_stack: ChatStack) -> None:
    bus = Bus("early", chat_stack.nats_url)
    await bus.connect()
    try:
        account = (await chat_stack.client.http.get("/api/auth/session")).json()["account"]
        turn_id = uuid4()
        await bus.client.cancel(str(turn_id), "requested")
        scope = Scope.root(5, account=Account(account["id"], "admin"), scope_id=str(turn_id))
        with pytest.raises(ServiceError) as refused:
            await bus.client.ask(chat.TURN_START, chat.StartTurn(turn_id=turn_id, message="Hi"), scope)
        assert refused.value.code is ErrorCode.CANCELLED
    finally:
        await bus.stop()
    assert chat_stack.provider.exchanges == []
    assert (await chat_stack.client.http.get("/api/chat/conversations")).json()["items"] == []


async def test_the_cancel_and_the_events_are_visible_on_the_wire(chat_stack: ChatStack) -> None:
    client = await nats.connect(chat_stack.nats_url)
    events = await client.subscribe("chat.events.>")
    cancels = await client.subscribe("cancel.>")
    await client.flush()
    gate = Gate()
    chat_stack.provider.next(mid_text(gate))
    try:
        async with asyncio.timeout(20), chat_stack.client.chat("Hi") as streamed:
            await streamed.read(until="TextDelta")
        message = await cancels.next_msg(timeout=5)
        assert message.subject == f"cancel.{streamed.started['turn_id']}"
        seen = []
        while not seen or seen[-1]["Event-Type"] != "Done":
            event = await events.next_msg(timeout=5)
            seen.append(event.headers)
        assert [int(headers["Event-Seq"]) for headers in seen] == list(range(1, len(seen) + 1))
        assert [headers["Event-Type"] for headers in seen][: len(streamed.types)] == streamed.types
    finally:
        await client.close()


async def test_a_client_that_does_not_stream_and_leaves_stops_its_turn(chat_stack: ChatStack) -> None:
    gate = Gate()
    chat_stack.provider.next(mid_text(gate))
    request = asyncio.create_task(chat_stack.client.http.post("/api/chat", json={"message": "Hi", "stream": False}))
    await eventually(lambda: _longer(chat_stack.provider.exchanges, 0))
    request.cancel()
    with pytest.raises((asyncio.CancelledError, httpx.HTTPError)):
        await request
    async with asyncio.timeout(1):
        await chat_stack.provider.exchanges[0].closed_early.wait()


async def test_deleting_a_conversation_stops_what_runs_in_it(chat_stack: ChatStack) -> None:
    chat_stack.provider.next(mid_text(Gate()))
    chat_stack.retrieval.hits["x"] = [hit("b", "x")]
    async with asyncio.timeout(20), chat_stack.client.chat("Hi", on_disconnect="keep") as streamed:
        await streamed.read(until="TextDelta")
        deleted = await chat_stack.client.http.delete(f"/api/chat/conversations/{streamed.started['conversation_id']}")
        assert deleted.status_code == 204
        async with asyncio.timeout(1):
            await chat_stack.provider.exchanges[0].closed_early.wait()
        await streamed.read()
    assert streamed.done["status"] == "cancelled"
