"""What a provider can do wrong, and what the client is told: typed, once, with the text that came kept."""

import asyncio
from pathlib import Path

import pytest

from local.ports import free_port
from services.agent.app import serve as serve_agent
from services.agent.settings import AgentSettings
from services.gateway.app import serve as serve_gateway
from services.gateway.settings import GatewaySettings
from tests.support.chat_client import PASSWORD, ChatStack, client_of, running
from tests.support.polling import eventually
from tests.support.scripted_provider import DONE, Break, Gate, Script, ScriptedProvider, answer, calls, chunk, frame

COMMENT = b": keep-alive\n\n"


@pytest.mark.parametrize(
    ("script", "code", "requests"),
    [
        (Script(status=400, body={"error": {"message": "bad words"}}), "provider_refused", 1),
        (Script(status=401, body={"error": {"message": "bad key"}}), "provider_refused", 1),
        (Script(status=302, body={}, headers={"location": "http://127.0.0.1:1/"}), "provider_refused", 1),
        (Script(status=429, body={"error": {"message": "slow down"}}, headers={"retry-after": "0"}), "provider_rate_limited", 3),
        (Script(status=503, body={}, headers={"retry-after": "0"}), "provider_unreachable", 3),
        (Script(status=400, body={"error": {"message": "maximum context length is 10"}}), "context_too_long", 1),
        (Script([chunk(content="Half"), Break()]), "provider_stream_broken", 1),
        (Script([chunk(content="Half")]), "provider_stream_broken", 1),
        (Script([chunk(content="Half"), frame({"error": {"message": "overloaded"}})]), "provider_refused", 1),
        (Script([chunk(content="Half"), b"data: {\n\n"]), "provider_malformed", 1),
        (Script([b"data: \xff\xfe\n\n"]), "provider_malformed", 1),
        (Script([b"<html>down</html>"], content_type="text/html"), "provider_malformed", 1),
        (Script([b'{"error":{"message":"in a 200"}}'], content_type="application/json"), "provider_refused", 1),
        (Script([chunk(finish_reason="stop"), DONE]), "empty_answer", 1),
    ],
)
async def test_a_failing_provider_ends_the_turn_with_one_typed_error(
    chat_stack: ChatStack, script: Script, code: str, requests: int
) -> None:
    chat_stack.provider.standing = script
    turn = await chat_stack.client.ask("Hi")
    (error,) = turn.of("Error")
    assert error["code"] == code
    assert turn.done["status"] == "failed"
    assert len(chat_stack.provider.exchanges) == requests
    assert len(turn.of("Notice")) == requests - 1
    conversation = await chat_stack.client.conversation(turn.started["conversation_id"])
    reply = conversation["messages"][1]
    assert (reply["status"], reply["content"]) == ("failed", turn.text)
    assert turn.text == ("Half" if any(step == chunk(content="Half") for step in script.steps) else "")
    if isinstance(script.body, dict) and "error" in script.body:
        assert script.body["error"]["message"] in error["message"]


async def test_a_failure_that_passes_before_the_first_token_is_tried_again(chat_stack: ChatStack) -> None:
    gone = Script([Break()])
    chat_stack.provider.next(gone, Script(status=500, body={}, headers={"retry-after": "0"}), answer("Here."))
    turn = await chat_stack.client.ask("Hi")
    assert (turn.text, turn.done["status"]) == ("Here.", "completed")
    assert [notice["code"] for notice in turn.of("Notice")] == ["provider_retry"] * 2
    assert turn.of("Usage")[0]["rounds"] == 1  # ON-12: a retried request is not a round


async def test_arguments_that_are_cut_off_are_not_executed_and_not_said_again(chat_stack: ChatStack) -> None:  # ON-4
    broken = [
        chunk(tool_calls=[{"index": 0, "id": "c", "function": {"name": "rag_search", "arguments": '{"query": "te'}}]),
        chunk(finish_reason="tool_calls"),
    ]
    chat_stack.provider.next(Script([*broken, DONE]), answer("Sorry."))
    turn = await chat_stack.client.ask("Hi")
    (end,) = turn.of("ToolCallEnd")
    assert (end["status"], end["arguments"]) == ("failed", '{"query": "te')
    assert chat_stack.retrieval.asked == []
    message = chat_stack.provider.exchanges[1].body["messages"][-2]
    assert message["tool_calls"][0]["function"]["arguments"] == "{}"
    assert turn.done["status"] == "completed"


async def test_whole_arguments_of_an_answer_cut_by_length_are_not_executed(chat_stack: ChatStack) -> None:  # ON-4
    script = calls("tea")
    cut = Script([step if step != chunk(finish_reason="tool_calls") else chunk(finish_reason="length") for step in script.steps])
    chat_stack.provider.next(cut, answer("Sorry."))
    await chat_stack.client.ask("Hi")
    assert chat_stack.retrieval.asked == []


@pytest.mark.parametrize("where", ["content", "reasoning_content", "arguments", "name", "id"])
async def test_nul_characters_of_a_model_end_no_turn_and_no_agent(chat_stack: ChatStack, where: str) -> None:
    call = {"index": 0, "id": "c", "function": {"name": "rag_search", "arguments": '{"query": "tea"}'}}
    if where in ("content", "reasoning_content"):
        steps = [chunk(**{where: "a\0b"}), chunk(content="c"), chunk(finish_reason="stop"), DONE]
        chat_stack.provider.next(Script(steps))
    else:
        broken = {"arguments": '{"query": "a\\u0000b"}', "name": "rag\0search"}
        function = {**call["function"], **({where: broken[where]} if where in broken else {})}  # type: ignore[dict-item]
        odd = {**call, "function": function, **({"id": "c\0"} if where == "id" else {})}
        chat_stack.provider.next(Script([chunk(tool_calls=[odd]), chunk(finish_reason="tool_calls"), DONE]), answer("c"))
    turn = await chat_stack.client.ask("Hi")
    assert turn.done["status"] == "completed"
    assert "\0" not in turn.text
    assert turn.text.endswith("c")
    reply = (await chat_stack.client.conversation(turn.started["conversation_id"]))["messages"][1]
    assert reply["content"] == turn.text
    # What was kept can be said again.
    chat_stack.provider.next(answer("Fine."))
    assert (await chat_stack.client.ask("And?", conversation_id=turn.started["conversation_id"])).text == "Fine."


async def test_an_error_with_half_a_character_is_told_at_once(chat_stack: ChatStack) -> None:
    chat_stack.provider.next(Script([b'data: {"error":{"message":"oops \\ud800 \\u0000 x"}}\n\n']))
    turn = await chat_stack.client.ask("Hi")
    (error,) = turn.of("Error")
    assert (error["code"], error["message"]) == ("provider_refused", "oops \ufffd \ufffd x")
    chat_stack.provider.next(Script(status=400, body={"error": {"message": "z\0\ud800"}}))
    turn = await chat_stack.client.ask("Hi")
    assert turn.of("Error")[0]["message"] == "z\ufffd\ufffd"


async def test_a_reply_that_cannot_be_stored_still_ends(chat_stack: ChatStack, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object) -> None:
        raise ValueError("no column takes this")

    monkeypatch.setattr("services.agent.turn_store.TurnStore._store_end", refuse)
    turn = await chat_stack.client.ask("Hi")
    assert turn.done["type"] == "Done"
    state = (await chat_stack.client.http.get(f"/api/chat/turns/{turn.started['turn_id']}")).json()
    assert state["status"] == "failed"


async def test_characters_whose_halves_come_apart_are_put_together(chat_stack: ChatStack) -> None:
    halves = ['data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\n\n', 'data: {"choices":[{"delta":{"content":"\\ude00!"}}]}\n\n']
    lonely = 'data: {"choices":[{"delta":{"content":"x\\ude00y"}}]}\n\n'
    chat_stack.provider.next(Script([*(half.encode() for half in halves), lonely.encode(), chunk(finish_reason="stop"), DONE]))
    turn = await chat_stack.client.ask("Hi")
    assert turn.text == "\U0001f600!x\ufffdy"


async def test_a_long_pause_that_a_provider_asks_for_is_not_waited_for(chat_stack: ChatStack) -> None:
    chat_stack.provider.standing = Script(status=429, body={"error": {"message": "later"}}, headers={"retry-after": "3600"})
    turn = await chat_stack.client.ask("Hi")
    assert turn.of("Error")[0]["code"] == "provider_rate_limited"
    assert len(chat_stack.provider.exchanges) == 1


async def test_an_answer_that_is_whole_but_not_closed_is_completed(chat_stack: ChatStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.agent.chat_model.AFTER_FINISH_SECONDS", 0.3)
    chat_stack.provider.next(Script([chunk(content="Whole."), chunk(finish_reason="stop"), Gate()]))
    turn = await chat_stack.client.ask("Hi")
    assert (turn.text, turn.done["status"]) == ("Whole.", "completed")


async def test_arguments_without_end_are_given_up(chat_stack: ChatStack) -> None:
    piece = chunk(tool_calls=[{"index": 0, "function": {"arguments": "x" * 60_000}}])
    begin = chunk(tool_calls=[{"index": 0, "id": "c", "function": {"name": "rag_search", "arguments": ""}}])
    chat_stack.provider.next(Script([begin, *[piece] * 10, Gate()]))
    turn = await chat_stack.client.ask("Hi")
    assert turn.of("Error")[0]["code"] == "provider_malformed"
    assert turn.of("ToolCallEnd")[0]["status"] == "failed"
    async with asyncio.timeout(1):
        await chat_stack.provider.exchanges[0].closed_early.wait()


async def test_a_long_answer_streams_whole(chat_stack: ChatStack) -> None:
    pieces = [f"word {number} " for number in range(20_000)]
    chat_stack.provider.next(answer(*pieces, thinking="Long."))
    turn = await chat_stack.client.ask("Hi")
    assert turn.text == "".join(pieces)
    conversation = await chat_stack.client.conversation(turn.started["conversation_id"])
    assert conversation["messages"][1]["content"] == turn.text


async def test_a_turn_whose_time_is_over_ends_like_a_cancelled_one_and_says_so(
    chat_stack: ChatStack, monkeypatch: pytest.MonkeyPatch
) -> None:  # ON-13
    monkeypatch.setattr("services.agent.turns.TURN_SECONDS_MAX", 0.5)
    chat_stack.provider.next(Script([chunk(content="Half"), Gate()]))
    turn = await chat_stack.client.ask("Hi")
    assert turn.of("Error")[0]["code"] == "deadline_exceeded"
    assert turn.done["status"] == "cancelled"
    conversation = await chat_stack.client.conversation(turn.started["conversation_id"])
    assert (conversation["messages"][1]["status"], conversation["messages"][1]["content"]) == ("interrupted", "Half")
    async with asyncio.timeout(1):
        await chat_stack.provider.exchanges[0].closed_early.wait()


TIMEOUTS = """
[[provider]]
name = "slow"
base_url = "{url}"
models = ["scripted"]
tool_calling = {tools}
[provider.timeouts]
first_payload = 0.6
idle = 0.6
total = 2.5
"""


@pytest.mark.parametrize(
    "script",
    [
        Script([Gate()]),
        Script([COMMENT, Gate()]),
        Script([chunk(content="Half"), Gate()]),
    ],
)
async def test_time_without_payload_ends_the_turn_and_comments_feed_no_timer(
    nats_url: str, database_url: str, provider: ScriptedProvider, tmp_path: Path, script: Script
) -> None:
    toml = tmp_path / "providers.toml"
    toml.write_text(TIMEOUTS.format(url=provider.base_url, tools="false"))
    port = free_port()
    agent = AgentSettings(NATS_URL=nats_url, DATABASE_URL=database_url, MARGINALIA_PROVIDERS=toml)
    gateway = GatewaySettings(
        NATS_URL=nats_url, DATABASE_URL=database_url, MARGINALIA_PORT=port, MARGINALIA_ADMIN_PASSWORD=PASSWORD, MARGINALIA_HOME=tmp_path
    )
    async with running(serve_agent, agent), running(serve_gateway, gateway), client_of(f"http://127.0.0.1:{port}") as client:
        await client.login()

        async def up() -> bool:
            return (await client.http.get("/api/providers")).status_code == 200

        await eventually(up, 10)
        provider.standing = script
        async with asyncio.timeout(10):
            turn = await client.ask("Hi")
        assert turn.of("Error")[0]["code"] == "provider_timeout"
        assert turn.done["status"] == "failed"
        # ON-2: a provider without tool calling answers directly, and the client is told.
        assert turn.started["retrieval"] == "unavailable"
        assert turn.of("Notice")[0]["code"] == "retrieval_unavailable"
        assert "tools" not in provider.exchanges[0].body
        async with asyncio.timeout(1):
            await provider.exchanges[0].closed_early.wait()
