"""Calls from fragments, as servers really send them (ON-4)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.agent.payloads import MalformedStream
from services.agent.tool_calls import CALLS_MAX, Call, CallArguments, Calls, CallStarted, is_whole, parsed

NOTHING: frozenset[str] = frozenset()


def read(*entries: Any, whole: bool = False) -> list[Call]:
    calls = Calls(NOTHING)
    for entry in entries:
        list(calls.read([entry], whole=whole))
    return calls.named


def assembled(*entries: Any, whole: bool = False) -> list[tuple[str, str, str]]:
    return [(call.id, call.name, call.arguments) for call in read(*entries, whole=whole)]


def piece(arguments: Any = None, name: Any = None, **fields: Any) -> dict[str, Any]:
    return {**fields, "function": {"name": name, "arguments": arguments}}


def test_parallel_calls_are_assembled_by_index() -> None:  # crmne/ruby_llm#710
    assert assembled(
        piece("", "search", index=0, id="a"),
        piece('{"q":', index=0),
        piece('{"id":7}', "read", index=1, id="b"),
        piece('"nats"}', index=0),
    ) == [("a", "search", '{"q":"nats"}'), ("b", "read", '{"id":7}')]


def test_gaps_between_indexes_do_not_matter() -> None:
    assert assembled(piece('{"a":1', "one", index=3, id="x"), piece("{}", "two", index=7, id="y"), piece("}", index=3)) == [
        ("x", "one", '{"a":1}'),
        ("y", "two", "{}"),
    ]


@pytest.mark.parametrize("empty", ["", None])
def test_empty_values_in_continuations_overwrite_nothing(empty: str | None) -> None:
    first = piece('{"q":', "search", index=0, id="a")
    assert assembled(first, piece('"x"}', empty, index=0, id=empty), piece(None, empty, index=0, id=empty)) == [
        ("a", "search", '{"q":"x"}')
    ]


def test_fragments_without_index_go_to_the_call_begun_last_or_the_one_of_their_id() -> None:
    assert assembled(
        piece('{"q":', "search", id="a"), piece('"x"', "", id=""), piece('{"q":', "search", id="b"), piece('"y"}'), piece("}", id="a")
    ) == [("a", "search", '{"q":"x"}'), ("b", "search", '{"q":"y"}')]


def test_an_index_that_comes_only_in_continuations_or_only_at_first_is_understood() -> None:
    assert assembled(piece('{"q":', "search", id="a"), piece("1}", index=0)) == [("a", "search", '{"q":1}')]
    assert assembled(piece('{"q":', "search", index=0, id="a"), piece("1}")) == [("a", "search", '{"q":1}')]


def test_whole_calls_without_id_or_index_are_calls_of_their_own() -> None:
    assert assembled(piece('{"q":1}', "search"), piece('{"q":2}', "search"), piece("{}", "read")) == [
        ("call_0", "search", '{"q":1}'),
        ("call_1", "search", '{"q":2}'),
        ("call_2", "read", "{}"),
    ]


def test_whole_calls_on_one_index_are_calls_of_their_own() -> None:
    assert assembled(piece('{"q":1}', "search", index=0), piece('{"q":2}', "search", index=0)) == [
        ("call_0", "search", '{"q":1}'),
        ("call_1", "search", '{"q":2}'),
    ]
    assert [call[2] for call in assembled(piece("{}", "search", index=0, id="a"), piece("{}", "search", index=0, id="b"))] == ["{}", "{}"]


def test_one_id_for_two_calls_makes_two_calls_with_ids_of_their_own() -> None:
    for index in ({"index": 0}, {"index": 1}, {}):
        first = piece('{"q":1}', "search", id="same", **({"index": 0} if index else {}))
        assert assembled(first, piece('{"q":2}', "search", id="same", **index)) == [
            ("same", "search", '{"q":1}'),
            ("same-2", "search", '{"q":2}'),
        ]
    begun = piece("", "search", id="same", index=0), piece("", "search", id="same", index=1)
    assert [call[2] for call in assembled(*begun, piece("{}", id="same", index=1), piece('{"q":1}', id="same", index=0))] == [
        '{"q":1}',
        "{}",
    ]


def test_a_repeated_name_is_not_glued_and_begins_nothing_while_arguments_are_open() -> None:
    for index in ({"index": 0}, {}):
        fragments = [piece(part, "add", **index) for part in ("", '{"a":', "1,", '"b":{}', "}", "")]
        assert assembled(*fragments) == [("call_0", "add", '{"a":1,"b":{}}')]


def test_a_call_that_is_said_once_more_as_a_whole_is_one_call() -> None:
    whole = piece('{"q":"x"}', "search", index=0, id="a")
    assert assembled(piece("", "search", index=0, id="a"), piece('{"q":"x"}', index=0), whole, whole) == [("a", "search", '{"q":"x"}')]


def test_glued_objects_are_no_arguments() -> None:
    (call,) = assembled(piece('{"q":1}', "search"), piece('{"q":2}'))
    assert call[2] == '{"q":1}{"q":2}'
    assert not is_whole(call[2])


def test_ids_that_come_late_change_nothing() -> None:
    (call,) = read(piece("", "search", index=0), piece("{}", index=0, id="late"), piece("", index=0, id="late"))
    assert (call.id, call.provider_id, call.arguments) == ("call_0", "late", "{}")


def test_arguments_before_the_name_are_kept() -> None:
    calls = Calls(NOTHING)
    assert list(calls.read([piece('{"q":', index=0)], whole=False)) == []
    assert list(calls.read([piece("1}", "search", index=0)], whole=False)) == [
        CallStarted(0, "call_0", "search"),
        CallArguments(0, '{"q":'),
        CallArguments(0, "1}"),
    ]


def test_arguments_as_an_object_are_taken_as_a_whole_and_an_empty_one_is_nothing_yet() -> None:
    ((_, _, arguments),) = assembled(piece({"q": "漢"}, "search"))
    assert json.loads(arguments) == {"q": "漢"}
    assert assembled(piece({}, "search", index=0), piece('{"q":1}', index=0)) == [("call_0", "search", '{"q":1}')]


@pytest.mark.parametrize("arguments", [[1], 1, True, {"q": "\ud83d"}, {"n": 1 << 70}])
def test_arguments_of_another_type_are_not_whole(arguments: Any) -> None:
    ((_, _, text),) = assembled(piece(arguments, "search"))
    assert not is_whole(text)


def test_halves_of_a_character_in_two_fragments_are_put_together() -> None:
    ((_, _, arguments),) = assembled(piece('{"q":"\ud83d', "search", index=0), piece('\ude00"}', index=0))
    assert json.loads(arguments) == {"q": "😀"}


def test_extra_content_stays_with_its_call() -> None:
    signature = {"google": {"thought_signature": "abc=="}}
    first, second = read(
        piece("{}", "search", index=0, id="a", extra_content=signature), piece("{}", "search", index=1, id="b", extra_content=None)
    )
    assert (first.extra_content, second.extra_content) == (signature, None)
    (odd,) = read(piece("{}", "search", extra_content={"x": "\0"}))
    assert odd.extra_content is None


def test_each_entry_of_a_whole_message_is_a_call() -> None:
    entries = [piece('{"q":', "search", id="a"), piece('"x"}', "search", id="a"), piece({"q": 1}, "search")]
    assert [call.id for call in read(*entries, whole=True)] == ["a", "a-2", "call_2"]


def test_ids_in_use_are_not_given_again() -> None:
    calls = Calls(frozenset({"call_0", "call_0-2"}))
    list(calls.read([piece("{}", "search", id="call_0"), piece("{}", "search")], whole=False))
    assert [call.id for call in calls.named] == ["call_0-3", "call_1"]


def test_calls_without_end_are_given_up() -> None:
    with pytest.raises(MalformedStream):
        read(*(piece("{}", "search", id=str(number)) for number in range(CALLS_MAX + 1)))


# Each call as (index, id, name, arguments), cut into fragments that interleave at random.
@given(st.data())
def test_any_interleaving_by_index_gives_back_the_calls(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 4))
    wanted = [(f"id{number}", "search", json.dumps({"q": data.draw(st.text(max_size=8))})) for number in range(count)]
    queues = []
    for index, (identifier, name, arguments) in enumerate(wanted):
        cuts = sorted(data.draw(st.lists(st.integers(0, len(arguments)), max_size=4)))
        parts = [arguments[a:b] for a, b in zip([0, *cuts], [*cuts, len(arguments)], strict=True)]
        empty = data.draw(st.sampled_from(["", None]))
        rest = [piece(part, empty, index=index, id=data.draw(st.sampled_from([empty, identifier]))) for part in parts[1:]]
        queues.append([piece(parts[0], name, index=index, id=identifier), *rest])
    fragments = [queue.pop(0) for queue in queues]  # they begin in order
    while any(queues):
        fragments.append(data.draw(st.sampled_from([queue for queue in queues if queue])).pop(0))
    assert assembled(*fragments) == wanted


@pytest.mark.parametrize(
    ("text", "is_json"),
    [
        (r'{"a": "six characters: \\u0000"}', True),
        (r'{"a": ["\u0000"]}', False),
        (r'{"\u0000": 1}', False),
        ("[" * 60 + "]" * 60, True),
        ("[" * 70 + "]" * 70, False),
        ('{"a": ', False),
    ],
)
def test_what_cannot_be_stored_or_passed_on_stays_text(text: str, is_json: bool) -> None:
    assert parsed(text) == (json.loads(text) if is_json else text)


@pytest.mark.parametrize("identifier", [".", "..", "a/../b", "a/.. /b", "a\\..\\b", "\n", "a\tb", "\u202ea", "x" * 501])
def test_an_id_that_no_address_can_carry_is_replaced(identifier: str) -> None:
    calls = Calls(frozenset({"call_0"}))
    one = {"index": 0, "id": identifier, "function": {"name": "search", "arguments": "{"}}
    rest = {"index": 0, "id": identifier, "function": {"arguments": "}"}}
    list(calls.read([one, rest], whole=False))
    assert [(call.id, call.arguments) for call in calls.named] == [("call_0-2", "{}")]


@pytest.mark.parametrize("identifier", ["functions.search:0", "a/b", "call 1", "ü☃", "...", "x" * 500])
def test_any_other_id_stays_as_it_is(identifier: str) -> None:
    calls = Calls(frozenset())
    list(calls.read([{"id": identifier, "function": {"name": "search", "arguments": "{}"}}], whole=True))
    assert [call.id for call in calls.named] == [identifier]
