"""A client's history: what is instructions, what is said again, which pairs stay."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.chat_completions.messages import MessageIn, conversation
from services.gateway.chat_completions.models import catalogue, chosen
from shared.contracts.chat import HistoryMessage, ProviderInfo
from shared.contracts.errors import ServiceError


def parsed(*messages: dict[str, Any]) -> tuple[str | None, list[HistoryMessage], str]:
    return conversation([MessageIn.model_validate(message) for message in messages])


def call(identifier: Any, name: Any = "f", arguments: Any = "{}") -> dict[str, Any]:
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}


ASKED = {"role": "user", "content": "?"}


def test_one_message_is_a_turn_without_history() -> None:
    assert parsed(ASKED) == (None, [], "?")


def test_messages_that_follow_each_other_keep_their_order_and_number() -> None:
    said = [("user", "a"), ("user", "b"), ("assistant", "c"), ("assistant", "d"), ("user", "e")]
    _, history, message = parsed(*({"role": role, "content": text} for role, text in said), ASKED)
    assert message == "?"
    assert [(one.role, one.content) for one in history] == [("user", "a"), ("user", "b"), ("assistant", "c\n\nd"), ("user", "e")]
    assert history[2].rounds is not None
    assert [round_.content for round_ in history[2].rounds] == ["c", "d"]


@pytest.mark.parametrize(
    ("calls", "results", "kept"),
    [
        ([call("a"), call("b")], ["b", "a"], ["a", "b"]),
        ([call("a"), call("b")], ["b"], ["b"]),
        ([call("a")], [], []),
        ([], ["a"], []),
        ([call("a"), call("a")], ["a", "a"], ["a"]),
        ([call("a", arguments='{"cut": "o')], ["a"], []),  # never said again in its broken form (ON-4)
        ([call("a", arguments="[1]")], ["a"], []),
        ([call("a", arguments={"already": "parsed"})], ["a"], []),
        ([call("a", name="not a name")], ["a"], []),
        ([call(None)], ["a"], []),
        ([call("")], [""], []),
        ([{"id": "a", "type": "custom", "custom": {"name": "f", "input": "x"}}], ["a"], []),
    ],
)
def test_a_call_stays_with_its_result_or_goes_with_it(calls: list[Any], results: list[str], kept: list[str]) -> None:
    tools = [{"role": "tool", "tool_call_id": identifier, "content": "r"} for identifier in results]
    _, history, _ = parsed(ASKED, {"role": "assistant", "content": "x", "tool_calls": calls}, *tools, ASKED)
    (round_,) = history[1].rounds or []
    assert [one.id for one in round_.calls] == [one.id for one in history[1].tool_calls] == kept


# Each is a string of a well-formed body; what it holds is not to be stored, sent between services or said to a provider.
ODD_ARGUMENTS = (
    r'{"x": "\ud800"}', r'{"\udc00": 1}', r'{"x": "\u0000"}', r'{"\u0000": 1}', f'{{"x": {"9" * 30}}}', '{"x": -9223372036854775809}',
    f'{{"x": {"9" * 5000}}}', '{"x": 1e999}', '{"x": NaN}', '{"x": -Infinity}', '{"x": 1, "x": 2}',
    f'{{"x": {"[" * 300}{"]" * 300}}}', "{" * 5000, '{"x":' * 100_000, "", " ", "null", "{} {}", "\ufeff{}",
)  # fmt: skip


@pytest.mark.parametrize("arguments", ODD_ARGUMENTS, ids=range(len(ODD_ARGUMENTS)))
def test_arguments_that_cannot_be_carried_go_with_their_result(arguments: str) -> None:  # ON-4
    calls = [call("a", arguments=arguments), call("b", arguments='{"x": [1]}')]
    tools = [{"role": "tool", "tool_call_id": identifier, "content": "r"} for identifier in "ab"]
    _, history, _ = parsed(ASKED, {"role": "assistant", "content": "x", "tool_calls": calls}, *tools, ASKED)
    (round_,) = history[1].rounds or []
    assert [(one.id, one.result) for one in round_.calls] == [("b", "r")]
    assert [one.arguments for one in history[1].tool_calls] == [{"x": [1]}]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.sampled_from(["\ud800", "\0"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(), max_size=3), inner, max_size=3),
)


@given(JSON)
def test_a_call_that_is_kept_can_be_sent_to_every_service(value: Any) -> None:
    said = {"role": "assistant", "tool_calls": [call("a", arguments=json.dumps({"x": value}))]}
    _, history, _ = parsed(ASKED, said, {"role": "tool", "tool_call_id": "a", "content": "r"}, ASKED)
    for kept in history[1].tool_calls:
        assert b"\\u0000" not in orjson.dumps(kept.arguments)
        assert json.loads(kept.model_dump_json())["arguments"] == json.loads(orjson.dumps(kept.arguments)) == {"x": value}


def test_a_result_after_other_words_belongs_to_no_call() -> None:
    _, history, _ = parsed(
        {"role": "assistant", "content": None, "tool_calls": [call("a")]},
        ASKED,
        {"role": "tool", "tool_call_id": "a", "content": "late"},
        ASKED,
    )
    assert [one.tool_calls for one in history] == [[], []]


FRAGMENTS = st.sampled_from(
    [
        {"role": "system", "content": "s"},
        ASKED,
        {"role": "assistant", "content": "x", "tool_calls": [call("a"), call("b")]},
        {"role": "assistant", "content": [{"type": "text", "text": "y"}, {"type": "refusal", "refusal": "z"}], "reasoning_content": "t"},
        {"role": "tool", "tool_call_id": "a", "content": "ra"},
        {"role": "tool", "tool_call_id": "b", "content": "rb"},
    ]
)


@given(st.lists(FRAGMENTS, max_size=12))
def test_whatever_the_order_every_call_has_its_result_and_no_text_is_lost(messages: list[dict[str, Any]]) -> None:
    instructions, history, _ = parsed(*messages, ASKED)
    assert (instructions or "").count("s") == sum(one["role"] == "system" for one in messages)
    assert sum(one.role == "user" for one in history) == sum(one["role"] == "user" for one in messages)
    rounds = [round_ for one in history for round_ in one.rounds or []]
    assert len(rounds) == sum(one["role"] == "assistant" for one in messages)
    assert {one.result for round_ in rounds for one in round_.calls} <= {"ra", "rb"}


def test_models_of_the_default_provider_keep_their_names_and_no_name_means_two() -> None:
    providers = [
        ProviderInfo(name="default", models=["m", "x/y"], tool_calling=True),
        ProviderInfo(name="x", models=["m", "y"], tool_calling=True),
    ]
    assert catalogue(providers) == {"m": ("default", "m"), "x/y": ("default", "x/y"), "x/m": ("x", "m")}
    assert chosen(providers, "x/m") == ("x", "m")
    with pytest.raises(ServiceError) as refused:
        chosen(providers, "default/m")
    assert refused.value.status == 404
