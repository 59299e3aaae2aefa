"""What every stream of events is like on the wire, whichever door it comes through."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from tests.support.chat_client import ChatStack
from tests.support.scripted_provider import Gate, Script, answer, chunk

DOORS = ("chat", "events", "workspace", "door")


@asynccontextmanager
async def stream_through(door: str, stack: ChatStack, gate: Gate) -> AsyncIterator[httpx.Response]:
    """A stream that stays silent after its beginning."""
    http = stack.client.http
    stack.provider.next(Script([chunk(role="assistant", content="Half "), gate, chunk(content="done."), chunk(finish_reason="stop")]))
    if door == "workspace":
        (workspace,) = (await http.get("/api/workspaces")).json()["items"]
        request = http.build_request("GET", f"/api/workspaces/{workspace['id']}/events")
    elif door == "door":
        token = (await http.post("/api/auth/tokens", json={"name": "test"})).json()["token"]
        body = {"model": "scripted", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
        request = http.build_request("POST", "/v1/chat/completions", json=body, headers={"authorization": f"Bearer {token}"})
    else:
        request = http.build_request("POST", "/api/chat", json={"message": "Hi", "on_disconnect": "keep"})
    response = await http.send(request, stream=True)
    try:
        if door == "events":
            turn_id = await _turn_of(response)
            await response.aclose()
            response = await http.send(http.build_request("GET", f"/api/chat/turns/{turn_id}/events"), stream=True)
        yield response
    finally:
        gate.open()
        await response.aclose()


async def _turn_of(response: httpx.Response) -> str:
    async for line in response.aiter_lines():
        if line.startswith("data:"):
            return line.split('"turn_id":"')[1].split('"')[0]
    raise AssertionError("no event came")


@pytest.mark.parametrize("door", DOORS)
async def test_no_proxy_may_hold_a_stream_back_and_a_silent_one_shows_that_it_lives(
    chat_stack: ChatStack, monkeypatch: pytest.MonkeyPatch, door: str
) -> None:
    # xorbitsai/xagent#1358, oneprolabs/sourcelens#4, esengine/DeepSeek-Reasonix#3064
    monkeypatch.setattr("services.gateway.event_stream.SILENCE_SECONDS", 0.1)
    async with asyncio.timeout(20), stream_through(door, chat_stack, Gate()) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-cache, no-transform"
        assert response.headers["x-accel-buffering"] == "no"
        comments = 0
        async for line in response.aiter_lines():
            comments += line.startswith(":")
            if comments == 3:
                break
        assert comments == 3


async def test_an_answer_may_be_of_several_conversations_at_once_and_each_gets_its_own(chat_stack: ChatStack) -> None:
    """A reply is bound to its turn and conversation when it begins, whatever is open when it ends."""
    # aws-samples/sample-voice-of-customer-datalake#265
    chat_stack.provider.standing = lambda body: answer(body["messages"][-1]["content"] + "!")
    turns = await asyncio.gather(*(chat_stack.client.ask(f"Question {number}") for number in range(20)))
    for number, turn in enumerate(turns):
        assert turn.text == f"Question {number}!"
        conversation = await chat_stack.client.conversation(turn.started["conversation_id"])
        assert [message["content"] for message in conversation["messages"]] == [f"Question {number}", f"Question {number}!"]
