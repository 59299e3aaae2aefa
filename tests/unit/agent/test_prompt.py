"""What a model is told, in an order that every server takes."""

import json
from typing import Any

import pytest

from services.agent import prompt
from services.agent.prompt import Past, Round
from services.agent.providers import Replay
from services.agent.tool_calls import Call
from tests.support.strict_provider import Strict

NOTE = {"title": "Tea", "ref": "tea.md", "path": "tea.md", "text": "80 °C"}


def call(identifier: str = "a") -> dict[str, Any]:
    return {"id": identifier, "type": "function", "function": {"name": "rag_search", "arguments": "{}"}}


def user(text: str, *injected: dict[str, Any]) -> Past:
    return Past("user", text, list(injected), [], [])


def reply(*rounds: Round, content: str = "") -> Past:
    return Past("assistant", content, [], list(rounds), [])


def branch(*past: Past, replay: Replay = Replay.KEPT) -> list[dict[str, Any]]:
    messages = prompt.branch(list(past), replay, searching=True)
    assert Strict().objection({"messages": messages, "stream": True}) is None
    return messages


def test_notes_stand_in_the_message_that_mentions_them_and_are_the_same_bytes_later() -> None:  # MN-6
    asked = user("How hot?", NOTE, {**NOTE, "title": "More"})
    first = branch(asked)
    assert [message["role"] for message in first] == ["system", "user"]
    assert first[1]["content"].endswith("\n\nHow hot?")
    assert first[1]["content"].count('"text": "80 °C"') == 2
    for earlier in (Round("Hot."), Round(calls=[call()]), Round()):
        assert branch(asked, reply(earlier), user("Sure?"))[: len(first)] == first


@pytest.mark.parametrize("rounds", [[], [Round()], [Round(" \n", "Only thought.")], [Round(calls=[call()])]])
def test_between_two_messages_of_the_user_stands_one_of_the_assistant(rounds: list[Round]) -> None:
    last = branch(user("One"), reply(*rounds), user("Two"))[-2]
    assert last == {"role": "assistant", "content": prompt.UNFINISHED_REPLY}


def test_an_imported_history_is_said_by_its_texts_and_two_messages_of_the_user_become_one() -> None:  # VT-5
    messages = branch(user("One"), user("Two"), reply(content="Answer."), user("Three"))
    assert [message["content"] for message in messages[1:]] == ["One\n\nTwo", "Answer.", "Three"]


def test_rounds_are_stored_whole_and_those_stored_before_there_was_more_to_them_are_read() -> None:
    extra = {"google": {"thought_signature": "abc"}}
    whole = Round("text", "thought", [{**call(), "extra_content": extra}], {"a": "{}"}, "reasoning", {"prompt_tokens": 1})
    assert Round.restored(json.loads(json.dumps(whole.stored()))) == whole
    old = {"content": "text", "thinking": "thought", "calls": [], "results": {}}
    assert Round.restored(old) == Round("text", "thought")
    assert (Round.restored(old).thinking_field, Round.restored(old).usage) == ("reasoning_content", None)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_thinking_goes_back_under_its_name_or_not_at_all(name: str) -> None:  # ON-15
    (kept,) = prompt.said(Round("Hi", "Hm.", thinking_field=name), Replay.KEPT)
    assert kept == {"role": "assistant", "content": "Hi", name: "Hm."}
    (never,) = prompt.said(Round("Hi", "Hm.", thinking_field=name), Replay.NEVER)
    assert never == {"role": "assistant", "content": "Hi"}
    required = prompt.said(Round("", "Hm.", [call()], thinking_field=name), Replay.REQUIRED)[0]
    assert (required[name], required["reasoning_content"]) == ("Hm.", "Hm.")
    assert prompt.said(Round("", "", [call()], thinking_field=name), Replay.REQUIRED)[0]["reasoning_content"] == ""
    assert "reasoning_content" not in prompt.said(Round("Hi"), Replay.REQUIRED)[0]


def test_thinking_that_came_as_parts_goes_back_as_parts() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    round_ = Round("Hi", "Hm.", thinking_field="content")
    assert prompt.said(round_, Replay.KEPT)[0]["content"] == [thinking, {"type": "text", "text": "Hi"}]
    assert prompt.said(round_, Replay.NEVER)[0]["content"] == "Hi"
    assert prompt.said(Round("", "Hm.", [call()], thinking_field="content"), Replay.KEPT)[0]["content"] == [thinking]


@pytest.mark.parametrize(("result", "notice"), [({"sources": []}, ""), ({"error": "x"}, ""), ({"notice": "Nothing."}, "Nothing. ")])
def test_the_last_request_says_in_its_last_result_that_it_is_the_last(result: dict[str, Any], notice: str) -> None:  # ON-8
    messages = [{"role": "user", "content": "x"}, {"role": "tool", "tool_call_id": "a", "content": json.dumps(result)}]
    last = prompt.without_more_searches(messages)
    assert json.loads(last[-1]["content"]) == {**result, "notice": notice + prompt.LAST_REQUEST}
    assert last[:-1] == messages[:-1]
    assert json.loads(messages[-1]["content"]) == result


@pytest.mark.parametrize("name", ["rag_search", "rag.search", "delete everything!", "工具", "x" * 100])
def test_a_call_goes_back_in_a_form_that_servers_take(name: str) -> None:  # ON-4, unslothai/unsloth#10059
    broken = prompt.wire_call(Call(0, "a", name=name, arguments='{"query": "te'), None)
    assert broken["function"]["arguments"] == "{}"
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}, *prompt.said(Round(calls=[broken]), Replay.KEPT)]
    assert Strict().objection({"messages": messages, "stream": True}) is None
