"""Thinking is kept beside the calls of its own message, and goes back as each model wants it (ON-15)."""

from typing import Any

import pytest

from tests.support.chat_client import ChatStack
from tests.support.scripted_provider import DONE, Script, answer, call_fragments, calls, chunk, whole
from tests.support.strict_provider import Strict

CALL = {"id": "a", "type": "function", "function": {"name": "rag_search", "arguments": '{"query": "tea"}'}}


def assistants(stack: ChatStack, at: int = -1) -> list[dict[str, Any]]:
    return [message for message in stack.provider.exchanges[at].body["messages"] if message["role"] == "assistant"]


def thoughts(stack: ChatStack) -> list[str | None]:
    return [message.get("reasoning_content") for message in assistants(stack)]


@pytest.mark.parametrize("model", ["required", "whole-required", "whole", "never"])
async def test_each_messages_thinking_goes_back_with_it_in_this_turn_and_later_ones(chat_stack: ChatStack, model: str) -> None:
    # danny-avila/LibreChat#13366, NousResearch/hermes-agent#14938, bkywksj/knowledge-base#12, continuedev/continue#9940
    stack = chat_stack
    reasoning: Any = {"never": "never", "whole": None}.get(model, "required")
    stack.provider.strict = Strict(reasoning=reasoning)
    streamed = (
        calls("tea", thinking="First."),
        calls("milk", prefix="second"),
        answer("Hot.", thinking="Last."),
    )
    message = {"content": None, "reasoning_content": "First.", "tool_calls": [CALL]}
    in_one = (whole(message), whole({"content": "", "tool_calls": [CALL]}), whole({"content": "Hot.", "reasoning_content": "Last."}))
    stack.provider.next(*(in_one if model.startswith("whole") else streamed))
    first = await stack.client.ask("How hot?", provider="ruled", model=model)
    empty = "" if reasoning == "required" else None
    within = ["First.", empty] if model != "never" else [None, None]
    assert thoughts(stack) == within
    assert (first.text, first.done["status"]) == ("Hot.", "completed")
    stack.provider.next(answer("Sure.") if not model.startswith("whole") else whole({"content": "Sure."}))
    await stack.client.ask("Sure?", provider="ruled", model=model, conversation_id=first.started["conversation_id"])
    assert thoughts(stack) == [*within, "Last." if model != "never" else None]
    assert stack.provider.objections == []
    asked = stack.provider.exchanges[-1].body
    assert asked["stream"] is not model.startswith("whole")
    assert ("stream_options" in asked) is asked["stream"]


async def test_thinking_goes_back_under_the_name_it_came_in(chat_stack: ChatStack) -> None:  # decolua/9router#2397
    searching = Script([chunk(reasoning="I look."), *call_fragments("tea"), chunk("tool_calls"), DONE])
    chat_stack.provider.next(searching, Script([chunk(reasoning="Found."), chunk("stop", content="Hot."), DONE]), answer("Sure."))
    first = await chat_stack.client.ask("How hot?")
    await chat_stack.client.ask("Sure?", conversation_id=first.started["conversation_id"])
    assert [message.get("reasoning") for message in assistants(chat_stack)] == ["I look.", "Found."]
    assert thoughts(chat_stack) == [None, None]
    # A model that requires the other name gets it on messages with calls, whoever wrote them.
    chat_stack.provider.strict = Strict(reasoning="required")
    await chat_stack.client.ask("Really?", conversation_id=first.started["conversation_id"], provider="ruled", model="required")
    assert thoughts(chat_stack) == ["I look.", None, None]


async def test_thinking_of_an_interrupted_search_goes_back_with_its_call(chat_stack: ChatStack) -> None:  # open-webui/open-webui#24940
    broken = Script([chunk(reasoning_content="I look."), *call_fragments("tea"), chunk("insufficient_system_resource"), DONE])
    chat_stack.provider.next(broken)
    first = await chat_stack.client.ask("How hot?", provider="ruled", model="required")
    assert first.of("Error")[0]["code"] == "provider_stream_broken"
    assert chat_stack.retrieval.asked == []
    chat_stack.provider.strict = Strict(reasoning="required")
    await chat_stack.client.ask("And now?", provider="ruled", model="required", conversation_id=first.started["conversation_id"])
    assert chat_stack.provider.objections == []
    assert thoughts(chat_stack) == ["I look.", None]


async def test_thinking_and_calls_are_kept_in_the_order_in_which_they_came(chat_stack: ChatStack) -> None:  # VT-1
    # janhq/jan#8887, anthropics/claude-code#30762, 0verL1nk/PaperSage#130
    chat_stack.provider.next(calls("tea", thinking="One."), calls("milk", thinking="Two.", prefix="b"), answer("Hot.", thinking="Three."))
    turn = await chat_stack.client.ask("How hot?")
    reply = (await chat_stack.client.conversation(turn.started["conversation_id"]))["messages"][1]
    assert reply["activity"] == [
        {"type": "thinking", "text": "One."},
        {"type": "tool_call", "id": "call_0"},
        {"type": "thinking", "text": "Two."},
        {"type": "tool_call", "id": "b_0"},
        {"type": "thinking", "text": "Three."},
    ]


async def test_a_models_own_switches_are_in_each_request_and_a_forced_choice_of_a_tool_in_none(chat_stack: ChatStack) -> None:
    # can1357/oh-my-pi#886
    chat_stack.provider.next(calls("tea"), answer("Hot."))
    await chat_stack.client.ask("How hot?", provider="ruled", model="switched")
    for exchange in chat_stack.provider.exchanges:
        assert exchange.body["thinking"] == {"type": "disabled"}
        assert "tool_choice" not in exchange.body


async def test_a_model_without_tools_is_asked_without_beside_one_with(chat_stack: ChatStack) -> None:  # ON-2
    turn = await chat_stack.client.ask("Hi", provider="ruled", model="toolless")
    assert turn.started["retrieval"] == "unavailable"
    assert "tools" not in chat_stack.provider.exchanges[0].body
    assert (await chat_stack.client.ask("Hi", provider="ruled", model="required")).started["retrieval"] == "on_demand"
    listed = (await chat_stack.client.http.get("/api/providers")).json()["items"]
    names = ["required", "never", "whole", "whole-required", "toolless", "switched"]
    assert listed[1] == {"name": "ruled", "models": names, "tool_calling": True}
