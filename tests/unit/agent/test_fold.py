"""What a log amounts to."""

from typing import Any

from services.agent.fold import Fold


def folded(*events: dict[str, Any]) -> Fold:
    fold = Fold()
    for seq, event in enumerate(events, 1):
        fold.apply({"seq": seq, "turn_id": "t", **event})
    return fold


def test_activity_keeps_the_order_of_thinking_and_calls() -> None:  # VT-1
    fold = folded(
        {"type": "ThinkingDelta", "text": "a"},
        {"type": "ThinkingDelta", "text": "b"},
        {"type": "ToolCallStart", "tool_call_id": "c1", "name": "rag.search", "round": 1},
        {"type": "ToolCallDelta", "tool_call_id": "c1", "arguments": '{"query":'},
        {"type": "ThinkingDelta", "text": "c"},
        {"type": "ToolCallDelta", "tool_call_id": "c1", "arguments": '"x"}'},
        {"type": "ToolCallEnd", "tool_call_id": "c1", "name": "rag.search", "arguments": {"query": "x"}, "status": "failed"},
    )
    assert fold.activity == [{"type": "thinking", "text": "ab"}, {"type": "tool_call", "id": "c1"}, {"type": "thinking", "text": "c"}]
    assert fold.tool_calls["c1"]["status"] == "error"
    assert fold.tool_calls["c1"]["arguments"] == {"query": "x"}
    assert fold.open_calls == []


def test_a_call_that_has_not_ended_is_open_with_what_came_of_its_arguments() -> None:
    fold = folded(
        {"type": "ToolCallStart", "tool_call_id": "c1", "name": "rag.search", "round": 1},
        {"type": "ToolCallDelta", "tool_call_id": "c1", "arguments": '{"qu'},
    )
    assert [(call["id"], call["arguments"]) for call in fold.open_calls] == [("c1", '{"qu')]


def test_events_it_does_not_know_only_move_on() -> None:
    fold = folded(
        {"type": "TextDelta", "text": "a"}, {"type": "SomethingNew", "x": 1}, {"type": "Done", "status": "completed", "cited": [2]}
    )
    assert (fold.content, fold.last_seq, fold.status) == ("a", 3, "completed")
