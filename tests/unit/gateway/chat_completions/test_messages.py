"""A client's history: what is instructions, what is said again, which pairs stay."""

from typing import Any

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
