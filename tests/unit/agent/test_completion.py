"""Reading completions as servers really send them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.agent.completion import (
    CallArguments,
    CallStarted,
    Completion,
    MalformedStream,
    PayloadReader,
    ProviderSaidError,
    Text,
    Thinking,
)


def chunk(finish_reason=None, **delta):  # type: ignore[no-untyped-def]
    return json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]})


def fed(*payloads: str) -> Completion:
    completion = Completion()
    for payload in payloads:
        completion.feed(payload)
    return completion


def test_payloads_are_found_however_the_bytes_are_cut() -> None:
    stream = 'data: {"a":"é漢"}\r\n\r\n: a comment\nevent: x\ndata:no space\r\rdata: last'.encode()
    for size in range(1, len(stream) + 1):
        reader = PayloadReader()
        payloads = [payload for start in range(0, len(stream), size) for payload in reader.feed(stream[start : start + size])]
        assert payloads + reader.close() == ['{"a":"é漢"}', "no space", "last"], size


@given(
    st.lists(st.text(alphabet=st.characters(blacklist_characters="\r\n", blacklist_categories=("Cs",)), min_size=1), max_size=5), st.data()
)
def test_any_payloads_survive_any_cutting(payloads: list[str], data: st.DataObject) -> None:
    stream = "".join(f"data: {payload}\n\n" for payload in payloads).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    reader = PayloadReader()
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert [payload for piece in pieces for payload in reader.feed(piece)] + reader.close() == payloads


def test_bytes_that_are_not_text_are_malformed() -> None:
    with pytest.raises(MalformedStream):
        PayloadReader().feed(b"data: \xff\n")


def test_parallel_calls_are_assembled_by_index() -> None:
    completion = fed(
        chunk(tool_calls=[{"index": 0, "id": "a", "function": {"name": "search", "arguments": ""}}]),
        chunk(tool_calls=[{"index": 0, "function": {"arguments": '{"q":'}}]),
        chunk(tool_calls=[{"index": 1, "id": "b", "function": {"name": "read", "arguments": '{"id":7}'}}]),
        chunk(tool_calls=[{"index": 0, "function": {"arguments": '"nats"}'}}]),
        chunk("tool_calls"),
    )
    assert [(call.id, call.name, call.arguments) for call in completion.calls] == [
        ("a", "search", '{"q":"nats"}'),
        ("b", "read", '{"id":7}'),
    ]


def test_fragments_without_index_go_to_the_open_call_and_empty_values_overwrite_nothing() -> None:
    completion = fed(
        chunk(tool_calls=[{"id": "a", "function": {"name": "search", "arguments": '{"q":'}}]),
        chunk(tool_calls=[{"id": "", "function": {"name": "", "arguments": '"x"}'}}]),
        chunk(tool_calls=[{"id": None, "function": {"name": None, "arguments": None}}]),
        chunk(tool_calls=[{"id": "b", "function": {"name": "search", "arguments": "{}"}}]),
    )
    assert [(call.id, call.arguments) for call in completion.calls] == [("a", '{"q":"x"}'), ("b", "{}")]


def test_a_repeated_name_is_not_glued() -> None:
    completion = fed(
        chunk(tool_calls=[{"index": 0, "id": "a", "function": {"name": "add", "arguments": "{"}}]),
        chunk(tool_calls=[{"index": 0, "function": {"name": "add", "arguments": "}"}}]),
    )
    assert [(call.name, call.arguments) for call in completion.calls] == [("add", "{}")]


def test_objects_for_arguments_and_for_the_list_are_taken() -> None:
    completion = fed(chunk(tool_calls={"id": "", "function": {"name": "search", "arguments": {"q": "漢"}}}))
    (call,) = completion.calls
    assert json.loads(call.arguments) == {"q": "漢"}
    assert call.id == "call_0"


def test_a_new_id_on_a_used_index_is_a_new_call() -> None:
    completion = fed(
        chunk(tool_calls=[{"index": 0, "id": "a", "function": {"name": "search", "arguments": "{}"}}]),
        chunk(tool_calls=[{"index": 0, "id": "b", "function": {"name": "search", "arguments": "{}"}}]),
    )
    assert [call.id for call in completion.calls] == ["a", "b"]


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


def test_the_last_chunk_may_carry_content() -> None:
    completion = fed(chunk("length", content="end"))
    assert (completion.text, completion.finish_reason, completion.ended_properly) == ("end", "length", True)


def test_a_stream_that_just_stops_has_not_ended_properly() -> None:
    assert not fed(chunk(content="half")).ended_properly
    assert fed(chunk(content="x"), "[DONE]").ended_properly


@pytest.mark.parametrize("body", [{"error": {"message": "no"}}, {"error": "no"}, {"object": "error", "message": "no"}])
def test_error_frames_are_the_providers_words(body: dict[str, object]) -> None:
    with pytest.raises(ProviderSaidError, match="no"):
        fed(json.dumps(body))


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
