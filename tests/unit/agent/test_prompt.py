"""What a model is told, in an order that every server takes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.agent import prompt
from services.agent.prompt import Past, Round
from services.agent.providers import Replay
from services.agent.tool_calls import Call
from shared.contracts.tools import SEARCH, TOOLS
from tests.support.strict_provider import Strict

NOTE = {"title": "Tea", "ref": "tea.md", "path": "tea.md", "text": 'A note: {"text": "80 °C"}'}


def call(identifier: str = "a") -> dict[str, Any]:
    return {"id": identifier, "type": "function", "function": {"name": "rag_search", "arguments": "{}"}}


def user(text: str, *injected: dict[str, Any]) -> Past:
    return Past("user", text, list(injected), [], [])


def reply(*rounds: Round, content: str = "") -> Past:
    return Past("assistant", content, [], list(rounds), [])


def branch(*past: Past, replay: Replay = Replay.KEPT) -> list[dict[str, Any]]:
    messages = prompt.branch(list(past), replay, [TOOLS[SEARCH]])
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


def test_a_message_of_the_user_stands_before_each_reply_though_a_history_has_none() -> None:  # VT-5
    asking = [Round("Look.", calls=[call()], results={"a": "r"})]
    messages = branch(reply(content="Welcome."), reply(Round("One."), Round("Two.")), reply(*asking), reply(content="Four."), user("Hi"))
    said = [message["content"] for message in messages if message["role"] == "assistant"]
    assert said == ["Welcome.", "One.", "Two.", "Look.", prompt.UNFINISHED_REPLY, "Four."]
    assert [message["content"] for message in messages if message["role"] == "user"] == [prompt.SILENT_USER] * 5 + ["Hi"]


def test_a_message_without_words_is_said_to_be_one_unless_it_stands_beside_words() -> None:
    contents = [message["content"] for message in branch(user(" "), user("\n"), reply(), user(""), user("Hi"), user("\t"))[1:]]
    assert contents == [prompt.SILENT_USER, prompt.UNFINISHED_REPLY, "Hi"]


def test_an_id_that_is_used_again_is_made_another_one_for_the_call_and_its_result() -> None:
    first, again, third = (Round("", calls=[call(name)], results={name: text}) for name, text in (("a", "1"), ("a", "2"), ("a-2", "3")))
    within = Round("", calls=[call("a"), call("a")], results={"a": "4"})
    past = [user("One"), reply(first, again), user("Two"), reply(third, within), user("Three")]
    results = {message["tool_call_id"]: message["content"] for message in branch(*past) if message["role"] == "tool"}
    assert results == {"a": "1", "a-2": "2", "a-2-2": "3", "a-3": "4", "a-4": "4"}
    assert prompt.call_ids(past) == results.keys()  # new calls get others


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ('{"sources": [{"number": 1, "content": "x"}, "y"], "already_given": [2]}', '{"sources":[{"content":"x"},"y"]}'),
        ('{"sources": [{"number": 1, "content": "a \\\\u0000 in words"}]}', '{"sources":[{"content":"a \\\\u0000 in words"}]}'),
        ('{"number": 1}', '{"number": 1}'),
        ('{"sources": "none"}', '{"sources": "none"}'),
        ("21 °C", "21 °C"),
        ("[" * 5000, "[" * 5000),
        (f'{{"sources": {"[" * 500}{"]" * 500}}}', f'{{"sources": {"[" * 500}{"]" * 500}}}'),
        ("", prompt.SILENT_RESULT),
    ],
)
def test_an_earlier_result_has_no_numbers_whichever_tool_gave_them(stored: str, said: str) -> None:  # ON-13
    result = branch(user("One"), reply(Round("", calls=[call()], results={"a": stored})), user("Two"))[3]
    assert result == {"role": "tool", "tool_call_id": "a", "content": said}


WORDS = st.sampled_from(["", " ", "\n", "Words.", "As [1] says.", "[1]"])
RESULTS = st.sampled_from(["", " ", "r", "[1]", "NaN", "{", '{"sources": [{"number": 1}]}', '{"sources": [1]}', '{"sources": {}}'])
IDS = st.sampled_from(["a", "b", "a-2", "a-2-2"])
ROUNDS = st.builds(
    lambda content, thinking, ids, results, name: Round(content, thinking, [call(one) for one in ids], results, name),
    WORDS, st.sampled_from(["", " ", "Hm."]), st.lists(IDS, max_size=3), st.dictionaries(IDS, RESULTS, max_size=3),
    st.sampled_from(["reasoning_content", "reasoning", "content"]),
)  # fmt: skip
SOURCES = st.lists(st.just({"number": 1, "citation_id": None, "file_path": "tea.md"}), max_size=1)
HISTORIES = st.lists(
    st.builds(Past, st.just("user"), WORDS, st.lists(st.just(NOTE), max_size=1), st.just([]), st.just([]))
    | st.builds(Past, st.just("assistant"), WORDS, st.just([]), st.lists(ROUNDS, max_size=3), SOURCES),
    max_size=7,
)


@given(HISTORIES, WORDS, st.sampled_from([(Replay.KEPT, None), (Replay.REQUIRED, "required"), (Replay.NEVER, "never")]))
def test_whatever_is_stored_is_said_in_an_order_that_every_server_takes(past: list[Past], last: str, rule: tuple[Replay, Any]) -> None:
    replay, reasoning = rule
    past = [*past, user(last)]
    messages = prompt.branch(past, replay, [TOOLS[SEARCH]])
    assert Strict(reasoning).objection({"messages": messages, "stream": True}) is None
    ids = [one["id"] for message in messages for one in message.get("tool_calls", [])]
    assert prompt.call_ids(past) == {*ids}
    for role, texts in (("user", [one.content for one in past if one.role == "user"]), ("assistant", _said(past))):
        contents = json.dumps([message["content"] for message in messages if message["role"] == role])
        assert contents.count("Words.") == texts.count("Words.")
    for end in range(1, len(past)):  # MN-6
        if (past[end - 1].role, past[end].role) == ("user", "assistant"):
            before = prompt.branch(past[:end], replay, [TOOLS[SEARCH]])
            assert messages[: len(before)] == before


def _said(past: list[Past]) -> list[str]:
    replies = [one for one in past if one.role == "assistant"]
    return [round_.content for one in replies for round_ in one.rounds or [Round(one.content)]]


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
    last = prompt.without_more_calls(messages)
    assert json.loads(last[-1]["content"]) == {**result, "notice": notice + prompt.LAST_REQUEST}
    assert last[:-1] == messages[:-1]
    assert json.loads(messages[-1]["content"]) == result


@pytest.mark.parametrize("name", ["rag_search", "rag.search", "delete everything!", "工具", "x" * 100])
def test_a_call_goes_back_in_a_form_that_servers_take(name: str) -> None:  # ON-4, unslothai/unsloth#10059
    broken = prompt.wire_call(Call(0, "a", name=name, arguments='{"query": "te'), None)
    assert broken["function"]["arguments"] == "{}"
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}, *prompt.said(Round(calls=[broken]), Replay.KEPT)]
    assert Strict().objection({"messages": messages, "stream": True}) is None
