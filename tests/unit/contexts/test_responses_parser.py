"""Reading a provider's response strictly (RC-12 to RC-15)."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.contexts.evidence_prompt import INSUFFICIENT
from services.contexts.responses_parser import parse
from tests.unit.contexts.evidence import response

LABELS = frozenset({"E1", "E2"})


def outcome(value: Any) -> tuple[str, str | None]:
    parsed = parse(value, LABELS)
    if parsed.outcome not in ("answer_candidate", "insufficient_evidence"):
        assert (parsed.text, parsed.citations) == (None, [])
    return parsed.outcome, parsed.reason


def test_a_completed_message_is_a_candidate() -> None:  # RC-12, RC-15
    usage = {
        "input_tokens": 30,
        "output_tokens": 20,
        "total_tokens": 50,
        "input_tokens_details": {"cached_tokens": 8},
        "output_tokens_details": {"reasoning_tokens": 20},
    }
    parsed = parse(response("Both [E2][E1], [E2].", usage=usage), LABELS)
    assert (parsed.outcome, parsed.reason, parsed.text, parsed.citations) == (
        "answer_candidate",
        None,
        "Both [E2][E1], [E2].",
        ["E2", "E1"],
    )
    assert (parsed.response_id, parsed.model) == ("resp_1", "m-1")
    assert parsed.usage == {"input_tokens": 30, "output_tokens": 20, "total_tokens": 50, "cached_tokens": 8, "reasoning_tokens": 20}


def test_parts_are_joined_in_order_and_reasoning_is_no_answer() -> None:  # RC-12
    value = response()
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "[E2]"}]}
    value["output"].insert(0, reasoning)
    value["output"][1]["content"] = [{"type": "output_text", "text": "Ten "}, {"type": "output_text", "text": "minutes [E1]."}]
    value["output_text"] = "Something else [E2]."
    assert parse(value, LABELS).text == "Ten minutes [E1]."


@pytest.mark.parametrize("text", ["x [E1, E2]", "x [E1，E2] y", "x [ E1 ; E2 ]"])
def test_labels_may_share_a_pair_of_brackets(text: str) -> None:  # RC-14
    assert parse(response(text), LABELS).citations == ["E1", "E2"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("No source.", "no_citation"),
        ("E1 without brackets", "no_citation"),
        ("[E1", "no_citation"),
        ("[1]", "no_citation"),
        ("[e1]", "no_citation"),
        ("[E１]", "no_citation"),
        ("[E3]", "unknown_citation"),
        ("[E1] [E0]", "unknown_citation"),
        ("[E01]", "unknown_citation"),
        ("[E1, E3]", "unknown_citation"),
        ("", "empty_text"),
        (" \n\u3000", "empty_text"),
        ("[E1]" + "x" * 32_000, "text_too_long"),
    ],
)
def test_a_text_without_citations_that_exist_is_rejected(text: str, reason: str) -> None:  # RC-14
    assert outcome(response(text)) == ("rejected", reason)


def test_the_longest_text_is_taken() -> None:  # RC-14
    assert outcome(response("[E1]" + "x" * 31_996))[0] == "answer_candidate"


def test_the_fixed_sentence_says_that_the_evidence_does_not_suffice() -> None:  # RC-14
    parsed = parse(response(f" {INSUFFICIENT}\n"), LABELS)
    assert (parsed.outcome, parsed.citations) == ("insufficient_evidence", [])
    assert outcome(response(f"{INSUFFICIENT} But perhaps.")) == ("rejected", "no_citation")


def without(value: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: item for name, item in value.items() if name not in names}


def changed(message: dict[str, Any]) -> dict[str, Any]:
    value = response()
    value["output"][0] |= message
    return value


INCOMPLETE = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ("rejected", "not_a_response")),
        ([], ("rejected", "not_a_response")),
        ({}, ("rejected", "not_a_response")),
        (response(object="chat.completion"), ("rejected", "not_a_response")),
        (response(status="in_progress"), ("rejected", "not_final")),
        (response(status="queued"), ("rejected", "not_final")),
        (response(status="cancelled"), ("rejected", "not_final")),
        (response(status=None), ("rejected", "not_final")),
        (response(status=["completed"]), ("rejected", "not_final")),
        (response(error={"code": "server_error"}), ("rejected", "contradictory")),
        (response(incomplete_details={"reason": "max_output_tokens"}), ("rejected", "contradictory")),
        (response(**{**INCOMPLETE, "error": {"code": "x"}}), ("rejected", "contradictory")),
        (response(status="failed", error="x"), ("rejected", "malformed")),
        (response(status="failed", error={"code": "server_error"}), ("failed", "server_error")),
        (response(None, status="failed"), ("failed", "unknown")),
        (response(**INCOMPLETE), ("incomplete", "max_output_tokens")),
        (response(None, status="incomplete"), ("incomplete", "unknown")),
        (response(status="incomplete", incomplete_details={}), ("incomplete", "unknown")),
        (response(status="incomplete", incomplete_details={"reason": 7}), ("rejected", "malformed")),
        (response(status="incomplete", incomplete_details={"reason": "content_filter"}), ("refused", "content_filter")),
        (response(None), ("rejected", "not_one_message")),
        ({**response(), "output": response()["output"] * 2}, ("rejected", "not_one_message")),
        (response(output={}), ("rejected", "malformed")),
        (without(response(), "output"), ("rejected", "malformed")),
        (response(output=[7]), ("rejected", "malformed")),
        (without(response(), "id"), ("rejected", "malformed")),
        (response(model=""), ("rejected", "malformed")),
        ({**response(), "output": [{"type": "function_call", "name": "x"}, *response()["output"]]}, ("rejected", "unsupported_output")),
        ({**response(), "output": [*response()["output"], {"type": "web_search_call"}]}, ("rejected", "unsupported_output")),
        (changed({"role": "user"}), ("rejected", "malformed")),
        (changed({"status": "in_progress"}), ("rejected", "contradictory")),
        (changed({"status": "incomplete"}), ("rejected", "contradictory")),
        (changed({"content": "text"}), ("rejected", "malformed")),
        (changed({"content": [{"type": "output_text", "text": 7}]}), ("rejected", "malformed")),
        (changed({"content": [{"type": "output_audio"}]}), ("rejected", "unsupported_output")),
        (changed({"content": [{"type": "refusal", "refusal": "No."}]}), ("refused", "refusal")),
        (changed({"content": [{"type": "output_text", "text": "x [E1]"}, {"type": "refusal", "refusal": "No."}]}), ("refused", "refusal")),
        ({**changed({"content": [{"type": "refusal", "refusal": "No."}]}), **INCOMPLETE}, ("refused", "refusal")),
        (response(usage=[]), ("rejected", "usage_malformed")),
        (response(usage={"input_tokens": -1}), ("rejected", "usage_malformed")),
        (response(usage={"input_tokens": True}), ("rejected", "usage_malformed")),
        (response(usage={"input_tokens": 1.0}), ("rejected", "usage_malformed")),
        (response(usage={"input_tokens": 1, "output_tokens": 2, "total_tokens": 4}), ("rejected", "usage_inconsistent")),
        (response(usage={"input_tokens": 5, "total_tokens": 4}), ("rejected", "usage_inconsistent")),
        (response(usage={"input_tokens": 5, "input_tokens_details": {"cached_tokens": 6}}), ("rejected", "usage_inconsistent")),
        (response(usage={"output_tokens_details": {"reasoning_tokens": 6}}), ("rejected", "usage_inconsistent")),
        (response(usage={"input_tokens_details": 3}), ("rejected", "usage_malformed")),
    ],
)
def test_each_state_has_its_outcome(value: Any, expected: tuple[str, str]) -> None:  # RC-12, RC-13, RC-15
    assert outcome(value) == expected


@pytest.mark.parametrize("usage", [None, {}, {"input_tokens": None}, {"input_tokens": 3}])
def test_what_was_not_reported_stays_null(usage: Any) -> None:  # RC-15
    parsed = parse(response(usage=usage), LABELS).usage
    assert parsed is None if usage is None else parsed is not None and parsed["output_tokens"] is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=True) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
TEXTS = st.lists(
    st.sampled_from(["[E1]", "[E2]", "[E3]", "[E0]", "[E1, E2]", "words ", "\n", INSUFFICIENT, "x" * 16_000, "[E", "1]"]), max_size=5
).map("".join)
COUNTS = st.none() | st.integers(-1, 60) | st.just("7") | st.booleans()
USAGES = (
    st.none()
    | JSON
    | st.fixed_dictionaries(
        {},
        optional={
            "input_tokens": COUNTS,
            "output_tokens": COUNTS,
            "total_tokens": COUNTS,
            "input_tokens_details": st.none() | st.fixed_dictionaries({"cached_tokens": COUNTS}),
            "output_tokens_details": st.none() | st.fixed_dictionaries({"reasoning_tokens": COUNTS}),
        },
    )
)
PARTS = st.lists(
    st.one_of(
        st.builds(lambda text: {"type": "output_text", "text": text}, TEXTS),
        st.just({"type": "refusal", "refusal": "No."}),
        JSON,
    ),
    max_size=3,
)
ITEMS = st.one_of(
    st.builds(
        lambda role, status, content: {"type": "message", "role": role, "status": status, "content": content},
        st.sampled_from(["assistant", "assistant", "assistant", "user"]),
        st.sampled_from(["completed", "completed", "completed", "incomplete"]),
        PARTS,
    ),
    st.just({"type": "reasoning", "summary": []}),
    st.just({"type": "function_call", "name": "x", "arguments": "{}"}),
    JSON,
)
RESPONSES = st.fixed_dictionaries(
    {
        "id": st.sampled_from(["resp_1", "resp_1", "", None]),
        "object": st.sampled_from(["response"] * 9 + ["chat.completion"]),
        "status": st.sampled_from(["completed"] * 6 + ["incomplete", "failed", "in_progress", "queued", "cancelled"]) | JSON,
        "model": st.sampled_from(["m-1", "m-1", None]),
        "output": st.lists(ITEMS, max_size=3) | JSON,
    },
    optional={"error": st.none() | JSON, "incomplete_details": st.none() | JSON, "usage": USAGES},
)


@given(RESPONSES)
@settings(max_examples=500)
def test_whatever_comes_there_is_an_outcome_and_what_is_accepted_is_sound(value: Any) -> None:  # RC-12 to RC-15
    parsed = parse(value, LABELS)
    if parsed.outcome != "answer_candidate":
        assert parsed.text is None or parsed.outcome == "insufficient_evidence"
        return
    assert value["status"] == "completed"
    assert not value.get("error")
    assert not value.get("incomplete_details")
    assert all(item["type"] in ("message", "reasoning") for item in value["output"])
    (message,) = [item for item in value["output"] if item["type"] == "message"]
    assert (message["role"], message["status"]) == ("assistant", "completed")
    assert [part["type"] for part in message["content"]] == ["output_text"] * len(message["content"])
    assert parsed.text == "".join(part["text"] for part in message["content"])
    assert 0 < len(parsed.text.strip()) <= len(parsed.text) <= 32_000
    cited = set(re.findall(r"E\d+", " ".join(re.findall(r"\[E[^\[\]]*\]", parsed.text))))
    assert set() < cited <= LABELS
    assert set(parsed.citations) <= LABELS
    usage = value.get("usage")
    if parsed.usage is not None:
        assert all(count is None or (type(count) is int and count >= 0) for count in parsed.usage.values())
        assert usage is not None


@given(JSON)
def test_any_json_has_an_outcome(value: Any) -> None:
    assert parse(value, LABELS).outcome == "rejected"


@pytest.mark.parametrize(
    "value",
    [
        response("Ten [E1].\0"),
        response("Ten [E1]. \ud83d"),
        response(id="resp\0"),
        response(model="m\udc00"),
        response(None, status="failed", error={"code": "\0"}),
        response(None, status="incomplete", incomplete_details={"reason": "\ud800"}),
    ],
)
def test_what_cannot_be_stored_is_malformed(value: Any) -> None:  # RC-13, RC-15
    parsed = parse(value, LABELS)
    assert (parsed.outcome, parsed.reason, parsed.text) == ("rejected", "malformed", None)


def test_a_count_beyond_every_reader_is_malformed() -> None:  # RC-15
    assert parse(response(usage={"total_tokens": 2**63}), LABELS).reason == "usage_malformed"
