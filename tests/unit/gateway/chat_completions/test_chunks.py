"""A turn's events as chunks, a round that is asked again included."""

import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.chat_completions.chunks import Chunks
from services.gateway.chat_completions.outcome import Outcome, events, usage

TURN = UUID("11111111-1111-4111-8111-111111111111")
STARTED = {"type": "TurnStarted", "conversation_id": "c"}
DONE = {"type": "Done", "status": "completed", "cited": []}


def text(words: str) -> dict[str, Any]:
    return {"type": "TextDelta", "text": words}


def thinking(words: str) -> dict[str, Any]:
    return {"type": "ThinkingDelta", "text": words}


CALL, CALL_END = ({"type": name, "tool_call_id": "c"} for name in ("ToolCallStart", "ToolCallEnd"))


def restarted(kept: int, entries: int = 0) -> dict[str, Any]:
    return {"type": "RoundRestarted", "round": 1, "attempt": 2, "content_characters": kept, "activity_entries": entries}


def streamed(*happened: dict[str, Any], include_usage: bool = False) -> list[Any]:
    chunks = Chunks(TURN, "m", 1, include_usage=include_usage)
    payloads = b"".join(chunks.take(event) for event in happened).decode().split("\n\n")[:-1]
    return [payload.removeprefix("data: ") if payload.endswith("[DONE]") else json.loads(payload[6:]) for payload in payloads]


def said(payloads: list[Any], kind: str = "content") -> str:
    choices = [payload["choices"][0] for payload in payloads if isinstance(payload, dict) and payload.get("choices")]
    return "".join(choice["delta"].get(kind, "") for choice in choices)


def test_a_stream_begins_with_the_role_and_ends_with_a_reason_and_done() -> None:
    first, *_, last, end = streamed(STARTED, text("Hi"), DONE)
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert (last["choices"][0]["finish_reason"], last["marginalia"]["turn_id"]) == ("stop", str(TURN))
    assert end == "[DONE]"
    assert first["id"] == last["id"] == f"chatcmpl-{TURN.hex}"


def test_a_round_asked_again_that_says_the_same_sends_only_the_surplus() -> None:
    payloads = streamed(STARTED, text("One. "), text("Tw"), restarted(5), text("T"), text("wo, three."), DONE)
    assert said(payloads) == "One. Two, three."
    assert payloads[-1] == "[DONE]"


def test_a_round_asked_again_that_says_something_else_ends_with_an_error() -> None:
    payloads = streamed(STARTED, text("One. "), text("Two"), restarted(5), text("Three"), text("Four"), DONE)
    assert said(payloads) == "One. Two"
    assert payloads[-1]["error"]["code"] == "agent_lost"
    assert "differs" in payloads[-1]["error"]["message"]


def test_a_round_asked_again_that_says_less_ends_with_an_error() -> None:
    payloads = streamed(STARTED, text("One. "), text("Two"), restarted(5), text("Tw"), DONE)
    assert payloads[-1]["error"]["code"] == "agent_lost"


def test_a_round_may_be_asked_again_twice() -> None:
    payloads = streamed(STARTED, text("One Two"), restarted(3), text(" T"), restarted(3), text(" Two Three"), DONE)
    assert said(payloads) == "One Two Three"


@given(st.lists(st.tuples(st.text("ab", max_size=6), st.none() | st.integers(0, 8)), max_size=8))
def test_what_a_client_has_is_always_what_is_stored_or_an_error_follows(happened: list[tuple[str, int | None]]) -> None:
    stored, sent = "", [STARTED]
    for words, kept in happened:
        sent.append(text(words))
        stored += words
        if kept is not None and kept <= len(stored):
            sent.append(restarted(kept))
            stored = stored[:kept]
    payloads = streamed(*sent, DONE)
    assert payloads[-1] != "[DONE]" or said(payloads) == stored


@pytest.mark.parametrize(
    ("before", "after", "had"),
    [
        ("I think.", ["I ", "think."], "I think."),
        ("I th", ["I think", " more."], "I think more."),
        ("I think.", ["I "], "I think."),
        ("I think.", ["I ", "doubt", " it."], "I think."),
        ("I think.", [], "I think."),
        ("", ["Now."], "Now."),
    ],
)
def test_a_client_has_no_thinking_twice(before: str, after: list[str], had: str) -> None:
    lost = [thinking(before)] if before else []
    payloads = streamed(STARTED, *lost, text("A"), restarted(0), *map(thinking, after), text("A"), CALL, CALL_END, thinking("Next."), DONE)
    assert said(payloads, "reasoning_content") == had + "Next."
    assert (said(payloads), payloads[-1]) == ("A", "[DONE]")


PIECES = st.lists(st.text("ab", min_size=1, max_size=2), max_size=3)
# For each round what each of its agents thought, and whether those that were lost had begun a call.
ROUNDS = st.lists(st.lists(st.tuples(PIECES, st.booleans()), min_size=1, max_size=4), max_size=4)


@given(ROUNDS)
def test_of_each_round_a_client_has_one_train_of_thought(rounds: list[list[tuple[list[str], bool]]]) -> None:
    happened, entries, expected = [STARTED], 0, ""
    for attempts in rounds:
        told = ""
        for number, (pieces, has_call) in enumerate(attempts):
            whole = "".join(pieces)
            told = whole if whole.startswith(told) else told
            is_last = number == len(attempts) - 1
            happened += [
                *map(thinking, pieces),
                *([CALL, CALL_END] if has_call or is_last else []),
                *([] if is_last else [restarted(0, entries)]),
            ]
        entries += bool(attempts[-1][0]) + 1
        expected += told
    assert said(streamed(*happened, DONE), "reasoning_content") == expected


def test_a_failed_turn_ends_with_its_error_and_without_done() -> None:
    error = {"type": "Error", "code": "provider_timeout", "message": "Too slow.", "retriable": True}
    payloads = streamed(STARTED, text("Hal"), error, {"type": "Done", "status": "failed", "cited": []})
    assert payloads[-1] == {"error": {"message": "Too slow.", "type": "server_error", "param": None, "code": "provider_timeout"}}


def test_a_failure_of_an_unknown_kind_is_an_internal_one() -> None:
    outcome = Outcome()
    outcome.apply({"type": "Error", "code": "something_new", "message": "Odd.", "retriable": False})
    outcome.apply({"type": "Done", "status": "failed", "cited": []})
    assert outcome.failure is not None
    assert (outcome.failure.status, outcome.failure.detail) == (500, "Odd.")


def test_an_answer_cut_off_at_a_limit_says_so() -> None:
    notice = {"type": "Notice", "code": "answer_truncated", "message": "Cut off."}
    for happened in ([notice, DONE], [{"type": "Done", "status": "limit_reached", "cited": []}]):
        *_, last, _ = streamed(STARTED, text("Hi"), *happened)
        assert last["choices"][0]["finish_reason"] == "length"
    assert streamed(STARTED, notice, DONE)[-2]["marginalia"]["notices"] == [{"code": "answer_truncated", "message": "Cut off."}]


def test_usage_names_only_what_was_reported() -> None:
    nothing = dict.fromkeys(("input_tokens", "output_tokens", "total_tokens", "cached_tokens", "reasoning_tokens"))
    assert usage(nothing) is None
    assert usage({**nothing, "input_tokens": 0, "reasoning_tokens": 3}) == {
        "prompt_tokens": 0,
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    event = {"type": "Usage", **nothing, "input_tokens": 1}
    *_, last, tokens, end = streamed(STARTED, event, DONE, include_usage=True)
    assert (last["usage"], tokens["usage"], tokens["choices"], end) == (None, {"prompt_tokens": 1}, [], "[DONE]")


def test_frames_are_read_back_as_the_events_they_hold() -> None:
    frames = b'id: 1\nevent: TextDelta\ndata: {"type":"TextDelta","text":"a\\n\\ndata: b"}\n\nid: 2\nevent: Done\ndata: {"type":"Done"}\n\n'
    assert list(events(frames)) == [{"type": "TextDelta", "text": "a\n\ndata: b"}, {"type": "Done"}]
