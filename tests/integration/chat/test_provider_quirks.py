"""Each known way to differ from the protocol gives the answer that was meant."""

import pytest

from tests.support.chat_client import ChatStack, Streamed
from tests.support.quirks import QUIRKS, Quirk
from tests.support.strict_provider import Strict


@pytest.mark.parametrize("quirk", [pytest.param(quirk, id=quirk.name) for quirk in QUIRKS])
async def test_a_quirk_changes_nothing_of_what_was_meant(chat_stack: ChatStack, quirk: Quirk) -> None:  # decolua/9router#2397
    chat_stack.provider.strict = Strict()
    chat_stack.provider.next(*quirk.scripts)
    turn = await chat_stack.client.ask("How hot is tea?")
    assert turn.text == quirk.text
    assert "".join(event["text"] for event in turn.of("ThinkingDelta")) == quirk.thinking
    assert sorted(asked.query for asked in chat_stack.retrieval.asked) == sorted(quirk.queries)
    statuses = [event["status"] for event in turn.of("ToolCallEnd")]
    assert (statuses.count("completed"), statuses.count("failed")) == (len(quirk.queries), quirk.failed_calls)
    assert len(turn.of("ToolCallStart")) == len(statuses)
    (usage,) = turn.of("Usage")
    assert (usage["input_tokens"], usage["output_tokens"]) == quirk.usage
    assert turn.done["status"] == quirk.status
    assert tuple(notice["code"] for notice in turn.of("Notice")) == quirk.notices
    assert [error["code"] for error in turn.of("Error")] == [code for code in [quirk.error] if code]
    assert len(chat_stack.provider.exchanges) == len(quirk.scripts)
    assert chat_stack.provider.objections == []
    if quirk.replayed:
        said_again(chat_stack, quirk, -2)
        await chat_stack.client.ask("And milk?", conversation_id=turn.started["conversation_id"])
        said_again(chat_stack, quirk, 2)  # from what is stored
    await reload_equals(chat_stack, turn)


def said_again(stack: ChatStack, quirk: Quirk, at: int) -> None:
    message = stack.provider.exchanges[-1].body["messages"][at]
    assert {name: message.get(name) for name in quirk.replayed} == quirk.replayed


async def reload_equals(stack: ChatStack, turn: Streamed) -> None:
    reply = (await stack.client.conversation(turn.started["conversation_id"]))["messages"][1]
    assert (reply["content"], reply["thinking"]) == (turn.text, "".join(event["text"] for event in turn.of("ThinkingDelta")))
