"""The notes asked by the real `openai` package, with a personal access token as its key."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import httpx
import openai
import pytest
from openai import AsyncOpenAI

from services.agent.expiry import Expiry
from shared.database.pool import open_pool
from tests.support.chat_client import ChatStack
from tests.support.polling import eventually
from tests.support.scripted_provider import Exchange, Gate, Script, answer, calls, chunk
from tests.support.scripted_retrieval import WORKSPACE, hit
from tests.support.strict_provider import Strict

QUESTION: list[Any] = [{"role": "user", "content": "How hot is tea brewed?"}]


@pytest.fixture
async def client(chat_stack: ChatStack) -> AsyncIterator[AsyncOpenAI]:
    """As a program would make it."""
    made = await chat_stack.client.http.post("/api/auth/tokens", json={"name": "openai"})
    async with AsyncOpenAI(base_url=f"{chat_stack.base_url}/v1", api_key=made.json()["token"], max_retries=0, timeout=20) as one:
        yield one


async def last(chat_stack: ChatStack) -> Exchange:
    return chat_stack.provider.exchanges[-1]


async def conversations(chat_stack: ChatStack) -> list[dict[str, Any]]:
    return (await chat_stack.client.http.get("/api/chat/conversations")).json()["items"]  # type: ignore[no-any-return]


async def test_models_are_listed_by_the_names_that_requests_use(client: AsyncOpenAI) -> None:
    models = [model.id async for model in client.models.list()]
    assert models[0] == "scripted"
    assert all(model.startswith("ruled/") for model in models[1:])
    assert (await client.models.retrieve("scripted")).owned_by == "default"
    with pytest.raises(openai.NotFoundError) as refused:
        await client.chat.completions.create(model="other/model", messages=QUESTION)
    assert refused.value.code == "model_not_found"
    assert "scripted" in refused.value.message


async def test_an_answer_comes_whole_with_its_thinking_sources_and_usage(chat_stack: ChatStack, client: AsyncOpenAI) -> None:
    chat_stack.retrieval.hits["tea"] = [hit("b1", "Tea is brewed at 80 °C."), hit("b2", "Tea keeps for a year.")]
    chat_stack.provider.next(calls("tea", thinking="I look."), answer("At 80 °C [1].", thinking="Found."))
    completion = await client.chat.completions.create(model="scripted", messages=QUESTION)
    (choice,) = completion.choices
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", "At 80 °C [1].", "stop")
    assert choice.message.model_extra is not None
    assert choice.message.model_extra["reasoning_content"] == "I look.Found."
    ours = choice.message.model_extra["marginalia"]
    assert [(source["number"], source["block_id"]) for source in ours["sources"]] == [(1, "b1"), (2, "b2")]
    assert ours["cited"] == [1]
    assert ours["notices"] == []
    assert completion.id == "chatcmpl-" + ours["turn_id"].replace("-", "")
    assert completion.model == "scripted"
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens, completion.usage.total_tokens) == (80, 24, 104)
    assert completion.usage.prompt_tokens_details is not None
    assert completion.usage.prompt_tokens_details.cached_tokens == 16
    assert completion.usage.completion_tokens_details is None  # the provider told nothing of it
    # The turn can be read like every other.
    assert (await chat_stack.client.http.get(f"/api/chat/turns/{ours['turn_id']}")).json()["content"] == "At 80 °C [1]."


async def test_an_answer_streams_in_chunks_and_ends_with_sources_and_usage(chat_stack: ChatStack, client: AsyncOpenAI) -> None:
    chat_stack.retrieval.hits["tea"] = [hit("b1", "Tea is brewed at 80 °C.")]
    chat_stack.provider.next(calls("tea"), answer("At ", "80 °C [1].", thinking="Found."))
    stream = await client.chat.completions.create(model="scripted", messages=QUESTION, stream=True, stream_options={"include_usage": True})
    chunks = [one async for one in stream]
    choices = [one.choices[0] for one in chunks if one.choices]
    assert choices[0].delta.role == "assistant"
    assert "".join(choice.delta.content or "" for choice in choices) == "At 80 °C [1]."
    thinking = ["" if choice.delta.model_extra is None else choice.delta.model_extra.get("reasoning_content", "") for choice in choices]
    assert "".join(thinking) == "Found."
    assert [choice.finish_reason for choice in choices if choice.finish_reason] == ["stop"]
    *_, end, tokens = chunks
    assert end.model_extra is not None
    ours = end.model_extra["marginalia"]
    assert ours["cited"] == [source["number"] for source in ours["sources"]] == [1]
    assert tokens.choices == []
    assert tokens.usage is not None
    assert tokens.usage.total_tokens == 104
    assert {one.id for one in chunks} == {"chatcmpl-" + ours["turn_id"].replace("-", "")}


async def test_usage_is_streamed_only_where_it_is_asked_for(client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(model="scripted", messages=QUESTION, stream=True)
    assert [one.usage async for one in stream if one.usage is not None] == []


async def test_the_clients_history_is_the_branch_and_its_instructions_follow_ours(chat_stack: ChatStack, client: AsyncOpenAI) -> None:
    messages: list[Any] = [
        {"role": "system", "content": "Answer in verse."},
        {"role": "user", "content": [{"type": "text", "text": "Is it "}, {"type": "text", "text": "warm?"}]},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "I ask the thermometer.",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "thermometer", "arguments": '{"where": "here"}'}},
                {"id": "b", "type": "function", "function": {"name": "barometer", "arguments": "{}"}},  # has no result
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "21 °C"},
        {"role": "tool", "tool_call_id": "c", "content": "a result without its call"},
        {"role": "assistant", "content": "It is warm [1]."},
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "And tea?"},
    ]
    completion = await client.chat.completions.create(model="scripted", messages=messages)
    system, *branch = (await last(chat_stack)).body["messages"]
    assert system["role"] == "system"
    assert system["content"].startswith("You help a person with their own notes.")
    assert system["content"].endswith("Answer in verse.\n\nBe brief.")
    call = {"id": "a", "type": "function", "function": {"name": "thermometer", "arguments": '{"where": "here"}'}}
    assert branch == [
        {"role": "user", "content": "Is it warm?"},
        {"role": "assistant", "content": "", "reasoning_content": "I ask the thermometer.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "21 °C"},
        # An earlier answer's number must not be taken for one of this answer's (ON-13).
        {"role": "assistant", "content": "It is warm (source of an earlier answer)."},
        {"role": "user", "content": "And tea?"},
    ]
    assert completion.choices[0].message.model_extra is not None
    conversation = await chat_stack.client.conversation(completion.choices[0].message.model_extra["marginalia"]["conversation_id"])
    assert [message["content"] for message in conversation["messages"]] == [
        "Is it warm?",
        "It is warm [1].",
        "And tea?",
        "Hello.",
    ]
    (shown,) = conversation["messages"][1]["tool_calls"]
    assert (shown["name"], shown["arguments"], shown["status"]) == ("thermometer", {"where": "here"}, "completed")
    assert conversation["messages"][1]["activity"] is None


async def test_whatever_a_client_sends_as_its_history_is_said_so_that_every_server_takes_it(
    chat_stack: ChatStack, client: AsyncOpenAI
) -> None:
    chat_stack.provider.strict = Strict()
    odd = [r'{"x": "\ud800"}', r'{"\u0000": 1}', f'{{"x": {"9" * 30}}}', '{"x": NaN}', f'{{"x": {"[" * 300}{"]" * 300}}}']
    arguments = {f"call_{number}": text for number, text in enumerate(['{"x": 1}', *odd])}
    calling = [{"id": name, "type": "function", "function": {"name": "f", "arguments": text}} for name, text in arguments.items()]
    exchange = [
        {"role": "assistant", "tool_calls": calling},
        *({"role": "tool", "tool_call_id": name, "content": ""} for name in arguments),
    ]
    messages: list[Any] = [{"role": "assistant", "content": "Welcome."}, *exchange, {"role": "user", "content": " "}, *exchange, *QUESTION]
    await client.chat.completions.create(model="scripted", messages=messages)
    assert chat_stack.provider.objections == []
    calls = [one for message in (await last(chat_stack)).body["messages"] for one in message.get("tool_calls", [])]
    assert [(one["id"], one["function"]["arguments"]) for one in calls] == [("call_0", '{"x": 1}'), ("call_0-2", '{"x": 1}')]


async def test_sampling_is_passed_on_and_harmless_fields_are_not(chat_stack: ChatStack, client: AsyncOpenAI) -> None:
    await client.chat.completions.create(
        model="scripted", messages=QUESTION, temperature=0, top_p=0.5, max_completion_tokens=100, stop=["END"], seed=7,
        presence_penalty=0.5, frequency_penalty=-0.5, reasoning_effort="low", user="somebody", metadata={"a": "b"}, store=False,
        service_tier="auto", n=1, tools=[], extra_body={"top_k": 4},
    )  # fmt: skip
    body = (await last(chat_stack)).body
    sampled = {name: value for name, value in body.items() if name not in ("model", "messages", "tools", "stream", "stream_options")}
    assert sampled == {
        "temperature": 0, "top_p": 0.5, "max_completion_tokens": 100, "stop": ["END"], "seed": 7, "presence_penalty": 0.5,
        "frequency_penalty": -0.5, "reasoning_effort": "low",
    }  # fmt: skip


async def test_where_searches_look_is_an_extension_of_the_request(chat_stack: ChatStack, client: AsyncOpenAI) -> None:
    chat_stack.provider.next(calls("tea"), answer("Done."), answer("Unsearched."))
    filters = {"path_prefix": "drinks/"}
    ours = {"workspace": str(WORKSPACE), "retrieval": {"filters": filters}}
    await client.chat.completions.create(model="scripted", messages=QUESTION, extra_body={"marginalia": ours})
    (asked,) = chat_stack.retrieval.asked
    assert (asked.filters.path_prefix, asked.filters.workspaces) == ("drinks/", [WORKSPACE])
    await client.chat.completions.create(model="scripted", messages=QUESTION, extra_body={"marginalia": {"retrieval": {"enabled": False}}})
    assert "tools" not in (await last(chat_stack)).body
    with pytest.raises(openai.UnprocessableEntityError):
        await client.chat.completions.create(model="scripted", messages=QUESTION, extra_body={"marginalia": {"where": 1}})
    with pytest.raises(openai.NotFoundError):
        await client.chat.completions.create(
            model="scripted", messages=QUESTION, extra_body={"marginalia": {"workspace": "22222222-2222-4222-8222-222222222222"}}
        )


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}, "tools"),
        ({"functions": [{"name": "f", "parameters": {}}]}, "functions"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x"}}]}]}, "messages.0.content.0"),
        ({"messages": [*QUESTION, {"role": "assistant", "content": "It is"}]}, "messages"),
        ({"messages": [{"role": "system", "content": "Hi"}]}, "messages"),
    ],
)
async def test_what_cannot_be_had_is_refused_and_named(
    chat_stack: ChatStack, client: AsyncOpenAI, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await client.chat.completions.create(**{"model": "scripted", "messages": QUESTION, **fields})
    assert refused.value.param == param
    assert refused.value.code == "unsupported_parameter"
    assert chat_stack.provider.exchanges == []


@pytest.mark.parametrize("fields", [{"temperature": 3}, {"max_tokens": 0}, {"top_p": "much"}, {"messages": []}, {"stop": [""]}])
async def test_numbers_have_their_ranges(client: AsyncOpenAI, fields: dict[str, Any]) -> None:
    with pytest.raises(openai.UnprocessableEntityError) as refused:
        await client.chat.completions.create(**{"model": "scripted", "messages": QUESTION, **fields})
    assert refused.value.type == "invalid_request_error"
    assert next(iter(fields)) in refused.value.message


async def test_nobody_gets_in_without_a_token(chat_stack: ChatStack) -> None:
    async with AsyncOpenAI(base_url=f"{chat_stack.base_url}/v1", api_key="wrong", max_retries=0) as stranger:
        with pytest.raises(openai.AuthenticationError) as refused:
            await stranger.chat.completions.create(model="scripted", messages=QUESTION)
        assert refused.value.code == "unauthenticated"
        with pytest.raises(openai.AuthenticationError):
            await stranger.models.list()
    body = {"model": "scripted", "messages": QUESTION}
    async with httpx.AsyncClient(base_url=chat_stack.base_url, cookies=chat_stack.client.http.cookies) as http:
        answered = await http.post("/v1/chat/completions", json=body)  # a session's cookie alone changes nothing
    assert (answered.status_code, answered.json()["code"]) == (403, "origin_rejected")
    assert answered.json()["error"]["code"] == "origin_rejected"


async def test_every_error_below_v1_has_openais_form_too(chat_stack: ChatStack, client: AsyncOpenAI) -> None:
    with pytest.raises(openai.APIStatusError) as large:
        await client.chat.completions.create(model="scripted", messages=[{"role": "user", "content": "x" * 1_100_000}])
    assert (large.value.status_code, large.value.code) == (413, "too_large")
    with pytest.raises(openai.APIStatusError) as long:
        await client.chat.completions.create(model="scripted", messages=[{"role": "user", "content": "x" * 200_001}])
    assert (long.value.status_code, long.value.code) == (413, "too_large")
    with pytest.raises(openai.NotFoundError) as nothing:
        await client.embeddings.create(model="scripted", input="x")
    assert nothing.value.code == "not_found"
    answered = await chat_stack.client.http.post("/v1/chat/completions", content=b"{", headers={"content-type": "application/json"})
    assert answered.headers["content-type"] == "application/problem+json"
    assert answered.json()["error"] == {
        "message": answered.json()["detail"], "type": "invalid_request_error", "param": None, "code": "malformed",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("refusal", "status", "code"),
    [
        (Script(status=400, body={"error": {"message": "no such thing"}}), 502, "provider_refused"),
        (Script(status=429, body={"error": {"message": "slow down"}}, headers={"Retry-After": "60"}), 429, "provider_rate_limited"),
        (Script(status=400, body={"error": {"message": "maximum context length is 10"}}), 400, "context_too_long"),
        (answer(""), 502, "empty_answer"),
    ],
)
async def test_a_turn_that_fails_is_an_error_with_the_providers_words(
    chat_stack: ChatStack, client: AsyncOpenAI, refusal: Script, status: int, code: str
) -> None:
    chat_stack.provider.next(refusal, refusal)
    with pytest.raises(openai.APIStatusError) as failed:
        await client.chat.completions.create(model="scripted", messages=QUESTION)
    assert (failed.value.status_code, failed.value.code) == (status, code)
    with pytest.raises(openai.APIError) as broken:  # the stream had begun
        [one async for one in await client.chat.completions.create(model="scripted", messages=QUESTION, stream=True)]
    assert not isinstance(broken.value, openai.APIStatusError)
    assert broken.value.code == code
    assert broken.value.message == failed.value.body["message"]  # type: ignore[index]


async def test_a_client_that_leaves_a_stream_closes_the_providers_socket(chat_stack: ChatStack, client: AsyncOpenAI) -> None:
    chat_stack.provider.next(Script([chunk(role="assistant", content="Half an "), Gate()]))
    stream = await client.chat.completions.create(model="scripted", messages=QUESTION, stream=True)
    async for one in stream:
        if one.choices[0].delta.content:
            break
    await stream.close()
    async with asyncio.timeout(5):
        await (await last(chat_stack)).closed_early.wait()


async def test_a_client_that_waits_no_longer_closes_the_providers_socket(chat_stack: ChatStack, client: AsyncOpenAI) -> None:
    gate = Gate()
    chat_stack.provider.next(Script([gate]))
    asking = asyncio.create_task(client.chat.completions.create(model="scripted", messages=QUESTION))
    async with asyncio.timeout(5):
        await gate.reached.wait()
        asking.cancel()
        await (await last(chat_stack)).closed_early.wait()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_a_turn_that_another_client_stops_is_no_answer_and_is_not_asked_again(chat_stack: ChatStack, client: AsyncOpenAI) -> None:
    gate = Gate()
    chat_stack.provider.next(Script([chunk(role="assistant", content="Half"), gate]))
    asking = asyncio.create_task(client.with_options(max_retries=2).chat.completions.create(model="scripted", messages=QUESTION))
    async with asyncio.timeout(10):
        await gate.reached.wait()
        turn_id = await eventually(lambda: _turn_of(chat_stack))
        await chat_stack.client.http.post(f"/api/chat/turns/{turn_id}/cancel")
        with pytest.raises(openai.APIStatusError) as stopped:
            await asking
    assert stopped.value.code == "cancelled"
    assert len(chat_stack.provider.exchanges) == 1


async def _turn_of(chat_stack: ChatStack) -> str | None:
    rows = await _database(chat_stack, "SELECT id FROM agent.turns WHERE status = 'running'")
    return str(rows[0]["id"]) if rows else None


async def _database(chat_stack: ChatStack, statement: str, *values: Any) -> list[Any]:
    connection = await asyncpg.connect(chat_stack.database_url)
    try:
        return await connection.fetch(statement, *values)  # type: ignore[no-any-return]
    finally:
        await connection.close()


async def test_notes_that_any_message_of_the_user_links_to_are_looked_for(chat_stack: ChatStack, client: AsyncOpenAI) -> None:  # MN-6
    messages: list[Any] = [
        {"role": "user", "content": "See [tea](notes/tea.md)."},
        {"role": "assistant", "content": "I see."},
        *QUESTION,
    ]
    completion = await client.chat.completions.create(model="scripted", messages=messages)
    assert completion.choices[0].message.model_extra is not None
    # No contexts service runs here: that it was asked shows in the notice.
    assert [notice["code"] for notice in completion.choices[0].message.model_extra["marginalia"]["notices"]] == ["context_unavailable"]


async def test_its_conversations_are_not_listed_and_go_after_a_day_unless_somebody_goes_on_in_them(
    chat_stack: ChatStack, client: AsyncOpenAI
) -> None:
    ids = []
    for _ in range(3):
        completion = await client.chat.completions.create(model="scripted", messages=QUESTION)
        assert completion.choices[0].message.model_extra is not None
        ids.append(completion.choices[0].message.model_extra["marginalia"]["conversation_id"])
    gone, continued, named = ids
    assert await conversations(chat_stack) == []
    assert (await chat_stack.client.conversation(gone))["messages"][1]["content"] == "Hello."
    await chat_stack.client.ask("Go on", conversation_id=continued)
    await chat_stack.client.http.patch(f"/api/chat/conversations/{named}", json={"title": "Kept"})
    assert {one["id"] for one in await conversations(chat_stack)} == {continued, named}

    pool = await open_pool(chat_stack.database_url, "agent", size=1)
    try:
        assert await Expiry(pool).remove() == 0
        await pool.execute("UPDATE conversations SET updated_at = now() - $1::interval", timedelta(hours=25))
        assert await Expiry(pool).remove() == 1
    finally:
        await pool.close()
    assert (await chat_stack.client.http.get(f"/api/chat/conversations/{gone}")).status_code == 404
    assert {one["id"] for one in await conversations(chat_stack)} == {continued, named}


async def test_two_accounts_do_not_see_each_others_conversations(chat_stack: ChatStack, client: AsyncOpenAI) -> None:
    completion = await client.chat.completions.create(model="scripted", messages=QUESTION)
    assert completion.choices[0].message.model_extra is not None
    conversation_id = completion.choices[0].message.model_extra["marginalia"]["conversation_id"]
    member = {"username": "mia", "password": "mia's password", "role": "member"}
    assert (await chat_stack.client.http.post("/api/accounts", json=member)).status_code == 201
    await chat_stack.client.login("mia", "mia's password")
    assert (await chat_stack.client.http.get(f"/api/chat/conversations/{conversation_id}")).status_code == 404
