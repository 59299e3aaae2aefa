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


def test_a_restarted_round_leaves_what_came_before_it_and_nothing_of_its_own() -> None:
    def round_(number: int) -> list[dict[str, Any]]:
        call = {"tool_call_id": f"c{number}"}
        return [
            {"type": "ThinkingDelta", "text": f"T{number}"},
            {"type": "TextDelta", "text": f"Text {number}. "},
            {"type": "ToolCallStart", **call, "name": "rag.search", "round": number},
            {"type": "Citation", "number": number, "block_id": f"b{number}"},
            {"type": "ToolCallEnd", **call, "name": "rag.search", "arguments": {}, "status": "completed", "hits": 1},
            {"type": "Notice", "code": "source_budget_exhausted", "left_out": [{"block_id": f"out {number}"}]},
        ]

    once = folded(*round_(1))
    kept = {"content_characters": 8, "activity_entries": 2, "citations": [1], "left_out": 1}
    again = folded(*round_(1), *round_(2), {"type": "RoundRestarted", "round": 2, "attempt": 2, **kept})
    for name in ("content", "thinking", "activity", "tool_calls", "sources", "left_out"):
        assert getattr(again, name) == getattr(once, name), name
    # None is ever given to something else.
    assert (again.numbers, again.call_ids) == ({"b1": 1, "b2": 2}, {"c1", "c2"})


def test_events_it_does_not_know_only_move_on() -> None:
    fold = folded(
        {"type": "TextDelta", "text": "a"}, {"type": "SomethingNew", "x": 1}, {"type": "Done", "status": "completed", "cited": [2]}
    )
    assert (fold.content, fold.last_seq, fold.status) == ("a", 3, "completed")
