"""What a provider can do wrong, and what the client is told: typed, once, with the text that came kept."""

import asyncio
import gzip
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import SecretStr

from local.ports import free_port
from services.agent import prompt
from services.agent.app import serve as serve_agent
from services.agent.chat_model import ChatModel, CompletionRequest
from services.agent.completion import Completion
from services.agent.provider_failure import ProviderFailure
from services.agent.providers import Provider
from services.agent.settings import AgentSettings
from services.gateway.app import serve as serve_gateway
from services.gateway.settings import GatewaySettings
from tests.support.chat_client import PASSWORD, ChatStack, client_of, running
from tests.support.polling import eventually
from tests.support.scripted_provider import (
    DONE,
    KEY,
    Break,
    Drip,
    Gate,
    Script,
    ScriptedProvider,
    answer,
    call_fragments,
    calls,
    chunk,
    frame,
    whole,
)
from tests.support.scripted_retrieval import hit
from tests.support.strict_provider import Strict

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
    # open-webui/open-webui#29628, TriliumNext/Trilium#11124, openclaw/openclaw#108989
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
        Script([Drip(COMMENT)]),
        Script([chunk(content="Half"), Drip(b"\n\ndata:\n\n")]),
        Script([Drip(b"\n")], content_type="application/json"),
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


async def test_an_answer_cut_off_by_length_is_kept_and_said_to_be_cut(chat_stack: ChatStack) -> None:  # jundot/omlx#2817
    for reason in ("length", "model_length", "max_tokens"):
        chat_stack.provider.next(Script([chunk(content="Half an"), chunk(finish_reason=reason), DONE]))
        turn = await chat_stack.client.ask("Hi")
        assert (turn.text, turn.done["status"]) == ("Half an", "completed")
        assert [notice["code"] for notice in turn.of("Notice")] == ["answer_truncated"]
    chat_stack.provider.next(Script([chunk(reasoning_content="Hm."), chunk(finish_reason="length"), DONE]))
    turn = await chat_stack.client.ask("Hi")
    assert turn.of("Error")[0]["code"] == "empty_answer"
    assert "limit of length" in turn.of("Error")[0]["message"]
    assert turn.of("Notice") == []


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("content_filter", "provider_refused"),  # HKUDS/LightRAG#3701
        ("insufficient_system_resource", "provider_stream_broken"),
        ("aborted", "provider_stream_broken"),
        ("error", "provider_stream_broken"),
    ],
)
async def test_calls_of_an_answer_that_was_stopped_are_not_executed(chat_stack: ChatStack, reason: str, code: str) -> None:
    # ON-4, NousResearch/hermes-agent#7693, 2389-research/tracker#507
    chat_stack.provider.next(Script([chunk(content="Well,"), *call_fragments("tea"), chunk(finish_reason=reason), DONE]))
    turn = await chat_stack.client.ask("Hi")
    assert chat_stack.retrieval.asked == []
    assert (turn.text, turn.of("Error")[0]["code"], turn.done["status"]) == ("Well,", code, "failed")
    assert turn.of("Error")[0]["retriable"] is (code == "provider_stream_broken")
    assert [event["status"] for event in turn.of("ToolCallEnd")] == ["failed"]


async def test_a_request_that_failed_leaves_nothing_to_the_one_after_it(chat_stack: ChatStack) -> None:
    """Arguments without a name are no token yet: the request is made again, and they belong to neither call."""
    lost = Script([chunk(tool_calls=[{"index": 0, "function": {"arguments": '{"query": "milk"}'}}], usage={"prompt_tokens": 9}), Break()])
    chat_stack.provider.next(lost, calls("tea"), answer("Hot."))
    turn = await chat_stack.client.ask("Hi")
    assert [asked.query for asked in chat_stack.retrieval.asked] == ["tea"]
    assert (turn.text, turn.of("Usage")[0]["input_tokens"]) == ("Hot.", 80)


@pytest.mark.parametrize(
    "failing",
    [
        Script(status=500, body={}),
        Script(status=502, body={"detail": "bad gateway"}),
        Script(status=529, body={"error": "overloaded"}),
        Script(status=429, body={"error": {"message": "slow down"}}, headers={"retry-after": "0.01"}),
        Script(status=408, body={}, headers={"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}),
        Script([frame({"error": {"type": "rate_limit_error", "message": "slow down"}})]),
        Script([frame({"error": {"code": "503", "message": "busy"}})]),
        Script([frame({"error": {"code": 502, "message": "busy"}})], content_type="application/json"),
        Script(body={"error": {"code": 503, "message": "busy"}}),
        Script([chunk(role="assistant", content=""), chunk(finish_reason="error"), DONE]),
        Script([]),
    ],
)
async def test_what_passes_before_the_first_token_is_tried_again_and_after_it_never(
    chat_stack: ChatStack, failing: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.agent.chat_model.BACK_OFF_SECONDS", 0.01)
    if failing.content_type == "application/json":
        failing = Script([failing.steps[0].removeprefix(b"data: ")], content_type=failing.content_type)  # type: ignore[union-attr]
    chat_stack.provider.next(failing, failing, answer("Here."))
    turn = await chat_stack.client.ask("Hi")
    assert (turn.text, len(chat_stack.provider.exchanges)) == ("Here.", 3)
    begun = [Script([chunk(content="Half"), *failing.steps])] if failing.body is None and not failing.headers else []
    for script in begun if failing.content_type == "text/event-stream" else []:
        chat_stack.provider.next(script, answer("Again."))
        turn = await chat_stack.client.ask("Hi")
        assert (turn.text, turn.done["status"], len(chat_stack.provider.exchanges)) == ("Half", "failed", 4)


async def test_a_whole_answer_of_any_size_streams_in_pieces_that_fit(chat_stack: ChatStack) -> None:
    text = "漢字 " * 400_000
    chat_stack.provider.next(whole({"content": text}))
    turn = await chat_stack.client.ask("Hi", provider="ruled", model="whole")
    assert turn.text == text
    assert max(len(event["text"]) for event in turn.of("TextDelta")) <= 128 * 1024


@pytest.mark.parametrize("levels", [60, 70, 199, 240])
async def test_a_conversation_with_deep_arguments_stays_readable(chat_stack: ChatStack, levels: int) -> None:
    deep = '{"query": ' + "[" * levels + "]" * levels + "}"
    fragment = {"index": 0, "id": "c", "function": {"name": "rag_search", "arguments": deep}}
    chat_stack.provider.next(Script([chunk(tool_calls=[fragment]), chunk(finish_reason="tool_calls"), DONE]), answer("Well."))
    turn = await chat_stack.client.ask("Hi")
    assert turn.done["status"] == "completed"
    (call,) = (await chat_stack.client.conversation(turn.started["conversation_id"]))["messages"][1]["tool_calls"]
    assert call["arguments"] == (json.loads(deep) if levels < 64 else deep)
    state = await chat_stack.client.http.get(f"/api/chat/turns/{turn.started['turn_id']}")
    assert state.json()["tool_calls"] == [call]


async def test_arguments_hundreds_of_levels_deep_end_no_turn(chat_stack: ChatStack) -> None:
    for depth in (240, 250, 253, 260, 2000):
        deep = '{"query":' + "[" * depth + "]" * depth + "}"
        entry = {"index": 0, "id": "c", "function": {"name": "rag_search", "arguments": deep}}
        chat_stack.provider.next(Script([chunk(tool_calls=[entry]), chunk(finish_reason="tool_calls"), DONE]), answer("Sorry."))
        turn = await chat_stack.client.ask("Hi")
        assert (turn.text, turn.done["status"]) == ("Sorry.", "completed")
        assert [event["status"] for event in turn.of("ToolCallEnd")] == ["failed"]


async def test_the_same_call_over_and_over_is_looked_up_once_and_the_last_round_gives_text(chat_stack: ChatStack) -> None:  # ON-8
    # superplanehq/superplane#4123, PrimeIntellect-ai/prime-agent#1326, open-webui/open-webui#24913, open-webui/open-webui#24144
    chat_stack.provider.strict = Strict()
    chat_stack.provider.next(*(calls("tea", prefix=f"r{number}") for number in range(3)), answer("Enough."))
    turn = await chat_stack.client.ask("How hot?")
    assert len(chat_stack.retrieval.asked) == 1
    assert (turn.text, turn.done["status"]) == ("Enough.", "completed")
    last = chat_stack.provider.exchanges[3].body
    assert "tools" not in last
    assert prompt.LAST_REQUEST in last["messages"][-1]["content"]
    await chat_stack.client.ask("Sure?", conversation_id=turn.started["conversation_id"])
    assert prompt.LAST_REQUEST not in json.dumps(chat_stack.provider.exchanges[4].body)  # never stored
    assert chat_stack.provider.objections == []


async def test_one_huge_result_or_many_fill_no_context(chat_stack: ChatStack) -> None:  # ON-7
    # imzodev/openaidy#436, CherryHQ/cherry-studio#16130, Lingtai-AI/lingtai-kernel#712
    chat_stack.retrieval.hits = {words: [hit(f"{words}{n}", "x" * 15_000) for n in range(3)] for words in ("tea", "milk", "water")}
    chat_stack.provider.next(calls("tea", "milk"), calls("water", prefix="b"), answer("Hot."))
    await chat_stack.client.ask("How hot?")
    results = [message["content"] for message in chat_stack.provider.exchanges[2].body["messages"] if message["role"] == "tool"]
    assert sum(result.count("x") for result in results) <= 36_100
    assert all("source_budget_exhausted" in result for result in results)


async def test_no_proxy_of_the_environment_and_no_redirect_is_followed(chat_stack: ChatStack, monkeypatch: pytest.MonkeyPatch) -> None:
    async with trap() as (address, caught):
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, address)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        # The environment is read when a client is made.
        asked = Provider(name="direct", base_url=chat_stack.provider.base_url, models=["m"])
        assert (await completed(asked)).text == "Hello."
        for status in (301, 302, 303, 307, 308):
            chat_stack.provider.next(Script(status=status, body={}, headers={"location": f"{address}/v1/chat/completions"}))
            turn = await chat_stack.client.ask("Hi")
            assert turn.of("Error")[0]["code"] == "provider_refused"
        assert caught == []


@asynccontextmanager
async def trap() -> AsyncIterator[tuple[str, list[bytes]]]:
    """Something that listens, and what it was sent."""
    caught: list[bytes] = []

    async def catch(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        caught.append(await reader.read(1000))
        writer.close()

    server = await asyncio.start_server(catch, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", caught


async def test_what_is_too_large_or_compressed_is_given_up(chat_stack: ChatStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.agent.chat_model.STREAM_BYTES_MAX", 200_000)
    monkeypatch.setattr("services.agent.chat_model.LINE_CHARACTERS_MAX", 100_000)
    bomb = gzip.compress(b"data: " + b"x" * 10_000_000)
    for script in (
        Script([chunk(content="Half"), *[b": comment\n" * 1000] * 30, Gate()]),
        Script([b" " * 50_000] * 3, content_type="application/json"),
        Script([bomb], headers={"content-encoding": "gzip"}),
    ):
        chat_stack.provider.next(script)
        turn = await chat_stack.client.ask("Hi")
        assert turn.of("Error")[0]["code"] == "provider_malformed"
    chat_stack.provider.next(Script([b"x" * 10_000] * 100, status=400, content_type="text/plain"))
    assert (await chat_stack.client.ask("Hi")).of("Error")[0]["message"] == "The provider answered with HTTP status 400."


PERCENT = "".join(f"%{ord(character):02x}" for character in KEY)
UNICODE = "".join(f"\\u{ord(character):04X}" for character in KEY)
SPELLINGS = [KEY, quote(KEY, safe=""), quote(quote(KEY, safe=""), safe=""), PERCENT, UNICODE, json.dumps(KEY.replace("/", "\\/"))[1:-1]]


def echoes(words: str) -> list[Script]:
    """A provider that says these words wherever it can."""
    error = {"error": {"message": words, "type": "invalid_request_error"}}
    return [
        Script(status=401, body=error),
        Script(status=400, body={"detail": words}),
        Script(status=503, body=error, headers={"retry-after": "0", "www-authenticate": KEY}),
        Script(status=302, body={}, headers={"location": f"http://127.0.0.1:1/{KEY}"}),
        Script([chunk(content="Half"), frame(error)]),
        Script([frame({"object": "error", "message": words})]),
        Script(body=error),
        Script([chunk(content="Half"), frame({"choices": [{"delta": {}, "error": {"message": words}}]})]),
        Script([chunk(content="Half"), b"data: {" + words.encode() + b"\n\n"]),
    ]


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_the_key_is_in_no_error_no_log_and_no_trace(
    chat_stack: ChatStack, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, spelling: str
) -> None:
    exporter, tracers = InMemorySpanExporter(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("shared.telemetry.tracing._tracer", tracers.get_tracer("test"))
    caplog.set_level(logging.DEBUG)
    told = ""
    # At the end of what is quoted, so that a part of it would be left.
    for script in [*echoes(f"Authorization: Bearer {spelling} is not known"), *echoes("x" * 490 + spelling)]:
        chat_stack.provider.standing = script
        turn = await chat_stack.client.ask("Hi")
        assert turn.done["status"] == "failed"
        told += json.dumps(turn.events)
        told += json.dumps(await chat_stack.client.conversation(turn.started["conversation_id"]))
        told += (await chat_stack.client.http.get(f"/api/chat/turns/{turn.started['turn_id']}")).text
    assert chat_stack.provider.exchanges[0].headers["Authorization"] == f"Bearer {KEY}"
    assert "[key]" in told
    told += caplog.text + "".join(span.to_json() for span in exporter.get_finished_spans())
    assert "gen_ai.provider.name" in told
    for secret in (*SPELLINGS, KEY[:10], quote(KEY[:14], safe=""), UNICODE[:60], PERCENT[:30]):
        assert secret not in told


async def test_a_header_that_cannot_be_read_is_logged_without_the_key(
    chat_stack: ChatStack, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.agent.chat_model.BACK_OFF_SECONDS", 0.01)
    caplog.set_level(logging.DEBUG)

    async def answer_badly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\nx-seen: Bearer {KEY}\0\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer_badly, "127.0.0.1", 0)
    async with server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        provider = Provider(name="odd", base_url=address, api_key=SecretStr(KEY), models=["m"])
        with pytest.raises(ProviderFailure) as failed:
            await completed(provider)
    assert failed.value.code == "provider_unreachable"
    assert "odd cannot be reached" in caplog.text
    assert KEY not in caplog.text + str(failed.value)


async def completed(provider: Provider) -> Completion:
    """One request without a turn around it."""
    model, completion = ChatModel(), Completion()

    async def nothing(_: object) -> None:
        """Nobody reads along."""

    try:
        request = CompletionRequest(provider.model("m"), [{"role": "user", "content": "Hi"}], [])
        await model.complete(provider, request, completion, nothing, nothing)
    finally:
        await model.close()
    return completion
