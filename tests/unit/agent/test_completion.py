"""Reading completions as servers really send them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.agent.completion import PIECE_CHARACTERS_MAX, Completion, ProviderSaidError, Text, Thinking
from services.agent.payloads import MalformedStream
from services.agent.tool_calls import CallArguments, CallStarted


def chunk(finish_reason=None, **delta):  # type: ignore[no-untyped-def]
    return json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]})


def fed(*payloads: str) -> Completion:
    completion = Completion()
    for payload in payloads:
        completion.feed(payload)
    return completion


def test_ids_that_an_earlier_round_used_are_made_unique() -> None:
    completion = Completion(taken=frozenset({"call_0"}))
    deltas = completion.feed(chunk(tool_calls=[{"index": 0, "id": "call_0", "function": {"name": "search", "arguments": "{"}}]))
    deltas += completion.feed(chunk(tool_calls=[{"index": 0, "id": "call_0", "function": {"arguments": "}"}}]))
    assert deltas == [CallStarted(0, "call_0-2", "search"), CallArguments(0, "{"), CallArguments(0, "}")]


def test_reasoning_comes_under_either_name_or_as_parts() -> None:
    assert Completion().feed(chunk(reasoning="a")) == [Thinking("a")]
    assert Completion().feed(chunk(reasoning_content="a", content=None)) == [Thinking("a")]
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "a"}]}, {"type": "text", "text": "b"}]
    assert Completion().feed(chunk(content=parts)) == [Thinking("a"), Text("b")]


def test_usage_is_found_wherever_it_comes() -> None:
    usage = {"prompt_tokens": 1}
    assert fed(json.dumps({"choices": [], "usage": usage})).usage == usage
    assert fed(json.dumps({"choices": [{"delta": None, "usage": usage, "finish_reason": "stop"}]})).usage == usage
    assert fed(json.dumps({"choices": [{"delta": {}}], "x_groq": {"usage": usage}})).usage == usage
    assert fed(json.dumps({"usage": usage}), chunk(content="x")).usage == usage


@pytest.mark.parametrize("odd", [True, -1, 1 << 70, 1.5, "7", None, [1], {}])
def test_what_is_no_count_is_not_counted(odd: object) -> None:
    usage = {"prompt_tokens": odd, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": odd}}
    assert fed(json.dumps({"choices": [], "usage": usage})).usage == {"completion_tokens": 3}
    assert fed(json.dumps({"choices": [], "usage": {"prompt_tokens": odd}})).usage is None


def test_reasoning_under_both_names_is_said_once_and_goes_back_under_the_one_it_came_in() -> None:
    assert Completion().feed(chunk(reasoning="a", reasoning_content="a")) == [Thinking("a")]
    for fields, name in (({"reasoning": "a", "reasoning_content": ""}, "reasoning"), ({"reasoning_content": "a"}, "reasoning_content")):
        assert fed(chunk(**fields)).thinking_field == name
    parts = [{"type": "thinking", "thinking": "a"}, {"type": "reasoning", "text": "b"}, "c"]
    completion = fed(chunk(content=parts))
    assert (completion.thinking, completion.text, completion.thinking_field) == ("ab", "", "content")


def test_a_refusal_is_text() -> None:  # crewAIInc/crewAI#3793
    assert fed(chunk(content=None, refusal="I can"), chunk(refusal="not.")).text == "I cannot."


def test_the_deprecated_function_call_is_a_call_and_one_that_is_said_twice_is_one() -> None:
    old = [{"name": "search", "arguments": ""}, {"arguments": '{"q":'}, {"arguments": "1}"}]
    (call,) = fed(*(chunk(function_call=fragment) for fragment in old), chunk("function_call")).calls
    assert (call.name, call.arguments) == ("search", '{"q":1}')
    both = chunk(tool_calls=[{"index": 0, "id": "a", "function": old[0]}], function_call=old[0])
    rest = chunk(function_call={"arguments": "{}"})
    assert [(call.id, call.arguments) for call in fed(both, rest).calls] == [("a", "")]


@pytest.mark.parametrize("choice", [{"delta": None}, {}, {"delta": {}}, {"delta": {"content": None, "tool_calls": None}}])
def test_chunks_without_anything_bring_nothing(choice: dict[str, object]) -> None:
    assert Completion().feed(json.dumps({"choices": [choice]})) == []
    assert not fed(json.dumps({"choices": [{**choice, "finish_reason": ""}]})).ended_properly


@pytest.mark.parametrize(("reason", "cut"), [("length", True), ("model_length", True), ("max_tokens", True), ("stop", False), ("x", False)])
def test_an_answer_knows_whether_it_was_cut_off(reason: str, cut: bool) -> None:
    completion = fed(chunk(reason))
    assert (completion.cut_off, completion.ended_properly) == (cut, True)


def test_a_whole_answer_is_read_like_a_stream_and_has_ended() -> None:
    calls = [{"id": "a", "type": "function", "function": {"name": "search", "arguments": '{"q":1}'}}] * 2
    message = {"role": "assistant", "content": "Hm.", "reasoning_content": "I look.", "tool_calls": calls}
    answer = {"object": "chat.completion", "choices": [{"index": 0, "message": message}], "usage": {"prompt_tokens": 1}}
    completion = fed(json.dumps(answer))
    assert (completion.text, completion.thinking, completion.usage) == ("Hm.", "I look.", {"prompt_tokens": 1})
    assert [call.id for call in completion.calls] == ["a", "a-2"]
    assert completion.finished


def test_a_message_after_its_deltas_is_the_same_once_more() -> None:
    again = json.dumps({"choices": [{"message": {"content": "Hello."}, "finish_reason": "stop"}]})
    assert fed(chunk(content="Hello."), again).text == "Hello."


def test_nothing_counts_after_the_end() -> None:
    assert fed(chunk(content="a"), "[DONE]", chunk(content="b"), "[DONE]", "{").text == "a"


def test_a_long_text_comes_in_pieces() -> None:
    deltas = Completion().feed(chunk(content="x" * (2 * PIECE_CHARACTERS_MAX + 1)))
    assert [len(delta.text) for delta in deltas if isinstance(delta, Text)] == [PIECE_CHARACTERS_MAX, PIECE_CHARACTERS_MAX, 1]


def test_a_completion_that_is_begun_anew_has_nothing_of_the_request_before() -> None:
    completion = Completion()
    completion.feed(json.dumps({"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": '{"q'}}]}}]}))
    completion.feed(json.dumps({"choices": [{"delta": {}, "finish_reason": "error"}], "usage": {"prompt_tokens": 1}}))
    assert not completion.begun
    completion.restart()
    completion.feed(chunk(tool_calls=[{"index": 0, "function": {"name": "search", "arguments": "{}"}}]))
    assert [call.arguments for call in completion.calls] == ["{}"]
    assert (completion.usage, completion.finish_reason) == (None, None)


def test_the_last_chunk_may_carry_content() -> None:
    completion = fed(chunk("length", content="end"))
    assert (completion.text, completion.finish_reason, completion.ended_properly) == ("end", "length", True)


def test_a_stream_that_just_stops_has_not_ended_properly() -> None:
    assert not fed(chunk(content="half")).ended_properly
    assert fed(chunk(content="x"), "[DONE]").ended_properly


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "no"}},
        {"error": "no"},
        {"error": {"code": "no"}},
        {"object": "error", "message": "no"},
        {"code": "Bad", "message": "no", "request_id": "x"},
        [{"error": {"message": "no"}}],
        {"choices": [{"delta": {"content": ""}, "error": {"code": 502, "message": "no"}, "finish_reason": "error"}]},
    ],
)
def test_error_frames_are_the_providers_words(body: object) -> None:
    with pytest.raises(ProviderSaidError, match="no"):
        fed(json.dumps(body))


@pytest.mark.parametrize("error", [None, "", {}])
def test_an_empty_error_is_none(error: object) -> None:
    payload = json.dumps({"error": error, "choices": [{"delta": {"content": "x"}, "error": error}]})
    assert fed(payload).text == "x"


@pytest.mark.parametrize("payload", ["{", "[]", "null", '"x"'])
def test_what_is_no_chunk_is_malformed(payload: str) -> None:
    with pytest.raises(MalformedStream):
        fed(payload)


KEYS = st.sampled_from(["choices", "delta", "tool_calls", "function", "arguments", "name", "id", "index", "content", "usage", "x"])
LEAVES = st.none() | st.booleans() | st.integers() | st.text()


@given(st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner)))
def test_no_json_breaks_the_reader(value: object) -> None:
    for body in (value, {"choices": [value]}, {"choices": [{"delta": value}]}, {"choices": [{"delta": {"tool_calls": value}}]}):
        try:
            fed(json.dumps(body))
        except (MalformedStream, ProviderSaidError):
            continue
