"""What the trace of a turn says, over real NATS and PostgreSQL (OP-1, OP-2, ON-14)."""

import asyncio
from typing import Any

import pytest

from shared.telemetry.vocabulary import ATTRIBUTES
from tests.support.agent_stack import AgentStack
from tests.support.chat_client import ChatStack
from tests.support.polling import eventually
from tests.support.scripted_provider import USAGE, Gate, Script, answer, calls, chunk, tool_calls, usage_chunk
from tests.support.scripted_retrieval import hit
from tests.support.traces import ExportedSpan, Spans, Trace

TURN = "invoke_agent marginalia"

# Before the stacks, so that their services' spans are seen.
pytestmark = pytest.mark.usefixtures("spans")


async def trace_of(spans: Spans, turn_id: str, attempts: int = 1, roots: int | None = 1) -> Trace:
    """The trace of a turn, once its attempts, and with `roots` the request for it, have ended."""

    async def ended() -> Trace | None:
        for trace in spans.traces:
            found = sum(span.attributes.get("marginalia.turn.id") == turn_id for span in trace.spans)
            if found == attempts and roots in (None, len(trace.roots)):
                return trace
        return None

    trace = await eventually(ended, 10)
    assert trace is not None
    return trace


async def asked(spans: Spans, stack: ChatStack, **fields: Any) -> Trace:
    """The trace of a whole turn."""
    turn = await stack.client.ask("Hi", **fields)
    return await trace_of(spans, turn.started["turn_id"])


def facts(span: ExportedSpan, *keys: str) -> dict[str, Any]:
    return {key: span.attributes.get(key) for key in keys}


async def test_a_turn_is_one_trace_from_the_request_to_the_provider_and_the_tables(spans: Spans, chat_stack: ChatStack) -> None:
    chat_stack.retrieval.hits = {"tea": [hit("a", "Tea."), hit("b", "More tea.")]}
    chat_stack.provider.next(calls("tea", "coffee"), answer("It is [1]."))
    trace = await asked(spans, chat_stack)
    request = trace.root
    assert (request.name, request.kind) == ("POST /api/chat", "SERVER")
    assert request.attributes == {"http.request.method": "POST", "http.route": "/api/chat", "http.response.status_code": 200}
    turn = trace.one(TURN)
    assert trace.path(turn) == ["POST /api/chat", "send agent.turn.start", "process agent.turn.start", TURN]
    assert facts(turn, "marginalia.turn.status", "marginalia.turn.rounds", "marginalia.turn.attempt", "gen_ai.operation.name") == {
        "marginalia.turn.status": "completed",
        "marginalia.turn.rounds": 2,
        "marginalia.turn.attempt": 1,
        "gen_ai.operation.name": "invoke_agent",
    }
    first, last = trace.named("chat scripted")
    assert {span.parent for span in (first, last)} == {turn.id}
    assert (first.kind, first.attributes["gen_ai.response.finish_reasons"]) == ("CLIENT", ["tool_calls"])
    searches = trace.named("execute_tool rag.search")
    assert [(span.attributes["marginalia.hits"], span.attributes["marginalia.round"]) for span in searches] == [(2, 1), (0, 1)]
    assert all([one.name for one in trace.below(span)] == ["send retrieval.search", "process retrieval.search"] for span in searches)
    statements = [span for span in trace.spans if span.attributes.get("db.system.name") == "postgresql"]
    assert {span.attributes["db.namespace"] for span in statements} == {"agent", "gateway"}
    assert "INSERT conversations" in [span.name for span in trace.below(trace.one("process agent.turn.start"))]
    assert "UPDATE turns" in [span.name for span in trace.below(turn)]
    for span in trace.spans:
        assert span.attributes.keys() <= set(span.type.attributes)
        assert not span.failed


async def test_searches_are_told_as_events_without_their_words(spans: Spans, chat_stack: ChatStack) -> None:
    # ON-14
    chat_stack.retrieval.hits = {"secret herons": [hit("a", "Herons stand.")]}
    chat_stack.provider.next(calls("secret herons"), answer("So."))
    trace = await asked(spans, chat_stack)
    (event,) = trace.one("execute_tool rag.search").events
    assert (event.name, event.attributes.keys()) == ("chat.retrieval.completed", {"round", "hits", "duration_ms"})
    assert (event.attributes["round"], event.attributes["hits"]) == (1, 1)
    chat_stack.retrieval.failing = True
    chat_stack.provider.next(calls("secret otters"), answer("So."))
    trace = await asked(spans, chat_stack)
    search = trace.one("execute_tool rag.search")
    (event,) = search.events
    assert (event.name, event.attributes.keys()) == ("chat.retrieval.failed", {"round", "error.type", "duration_ms"})
    assert event.attributes["error.type"] == search.attributes["error.type"] == "retrieval_unavailable"
    assert search.failed
    assert not [text for span in spans.all for text in span.texts if "heron" in text.lower() or "otter" in text]


async def test_a_call_of_what_is_no_tool_does_not_name_the_span(spans: Spans, chat_stack: ChatStack) -> None:
    chat_stack.provider.next(calls("x", name="made_up_by_the_model"), answer("So."))
    trace = await asked(spans, chat_stack)
    (tool,) = [span for span in trace.spans if span.name.startswith("execute_tool")]
    assert (tool.name, tool.attributes["error.type"], tool.failed) == ("execute_tool unknown", "invalid_call", False)


async def test_tokens_and_the_times_to_the_first_token_are_told(spans: Spans, chat_stack: ChatStack) -> None:
    # OP-2, ON-12
    usage = {**USAGE, "completion_tokens_details": {"reasoning_tokens": 5}}
    gate = Gate()
    chat_stack.provider.next(
        Script([chunk(reasoning_content="Hm."), gate, chunk(content="So."), chunk(finish_reason="stop"), usage_chunk(usage)])
    )
    async with asyncio.timeout(20), chat_stack.client.chat("Hi") as streamed:
        await streamed.read(until="ThinkingDelta")
        gate.open()
        await streamed.read()
    trace = await trace_of(spans, streamed.started["turn_id"])
    model, turn = trace.one("chat scripted"), trace.one(TURN)
    assert {key: value for key, value in model.attributes.items() if key.startswith("gen_ai.usage")} == {
        "gen_ai.usage.input_tokens": 40,
        "gen_ai.usage.output_tokens": 12,
        "gen_ai.usage.cache_read.input_tokens": 8,
        "gen_ai.usage.reasoning.output_tokens": 5,
    }
    # The model's first chunk is a thought; what the user waits for is text.
    thought, text = model.attributes["gen_ai.response.time_to_first_chunk"], turn.attributes["marginalia.turn.time_to_first_token"]
    assert 0 < thought < text < turn.seconds


async def test_each_request_to_a_provider_is_a_span_and_a_failed_one_says_why(
    spans: Spans, chat_stack: ChatStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.agent.chat_model.BACK_OFF_SECONDS", 0.01)
    chat_stack.provider.standing = Script(status=503, body={"error": {"message": "the question was: Hi there"}})
    trace = await asked(spans, chat_stack)
    requests = trace.named("chat scripted")
    assert [(span.attributes["error.type"], span.failed) for span in requests] == [("provider_unreachable", True)] * 3
    assert {span.attributes["gen_ai.response.finish_reasons"][0] for span in requests} == {"error"}
    turn = trace.one(TURN)
    assert (turn.attributes["marginalia.turn.status"], turn.attributes["error.type"], turn.failed) == (
        "failed",
        "provider_unreachable",
        True,
    )


async def test_a_word_that_a_provider_makes_up_for_the_end_is_not_repeated(spans: Spans, chat_stack: ChatStack) -> None:
    chat_stack.provider.next(Script([chunk(content="So."), chunk(finish_reason="because of herons"), usage_chunk()]))
    trace = await asked(spans, chat_stack)
    assert trace.one("chat scripted").attributes["gen_ai.response.finish_reasons"] == ["other"]


@pytest.mark.parametrize("reason", ["requested", "disconnect"])
async def test_a_cancelled_turn_says_what_cancelled_it(spans: Spans, chat_stack: ChatStack, reason: str) -> None:
    # OP-2, ON-13
    chat_stack.provider.next(Script([chunk(content="Half "), Gate()]))
    async with asyncio.timeout(20), chat_stack.client.chat("Hi") as streamed:
        await streamed.read(until="TextDelta")
        turn_id = streamed.started["turn_id"]
        if reason == "requested":
            assert (await chat_stack.client.http.post(f"/api/chat/turns/{turn_id}/cancel")).status_code == 202
            await streamed.read()
    trace = await trace_of(spans, turn_id)
    turn, model = trace.one(TURN), trace.one("chat scripted")
    assert facts(turn, "marginalia.turn.status", "marginalia.cancel.reason") == {
        "marginalia.turn.status": "cancelled",
        "marginalia.cancel.reason": reason,
    }
    assert (model.attributes["error.type"], model.failed, turn.failed) == ("cancelled", False, False)


async def test_a_turn_that_another_agent_goes_on_with_keeps_its_trace(spans: Spans, chat_stack: ChatStack) -> None:
    chat_stack.provider.next(Script([chunk(content="Half "), Gate()]), answer("Whole."))
    async with asyncio.timeout(20), chat_stack.client.chat("Hi") as streamed:
        await streamed.read(until="TextDelta")
        turn_id = streamed.started["turn_id"]
        await chat_stack.execute("UPDATE turns SET owner = gen_random_uuid() WHERE id = $1", turn_id)
        await streamed.read()
    trace = await trace_of(spans, turn_id, attempts=2)
    first, second = trace.named(TURN)
    assert [span.attributes["marginalia.turn.attempt"] for span in (first, second)] == [1, 2]
    assert [span.attributes["marginalia.turn.status"] for span in (first, second)] == ["superseded", "completed"]
    assert trace.path(first) == trace.path(second)
    assert trace.root.name == "POST /api/chat"


async def test_an_attempt_whose_end_came_too_late_does_not_count_as_the_turns(spans: Spans, chat_stack: ChatStack) -> None:
    gate = Gate()
    chat_stack.provider.next(Script([chunk(content="Whole."), gate, chunk(finish_reason="stop"), usage_chunk()]), answer("Whole."))
    async with asyncio.timeout(20), chat_stack.client.chat("Hi") as streamed:
        await streamed.read(until="TextDelta")
        turn_id = streamed.started["turn_id"]
        # Another attempt is the turn's now, which the one at work learns only when it stores its end.
        await chat_stack.execute("UPDATE turns SET attempt = attempt + 1 WHERE id = $1", turn_id)
        gate.open()
        (attempt,) = (await trace_of(spans, turn_id, roots=None)).named(TURN)
        assert facts(attempt, "marginalia.turn.status", "marginalia.turn.rounds") == {
            "marginalia.turn.status": "superseded",
            "marginalia.turn.rounds": None,
        }


async def test_a_turn_that_waited_for_its_user_keeps_its_trace_and_is_linked_to_the_decision(spans: Spans, agent_stack: AgentStack) -> None:
    # MD-5
    wanted = {"path": "Bread.md", "content_hash": agent_stack.hash_of("Bread.md"), "old_text": "ten", "new_text": "twelve"}
    agent_stack.provider.next(tool_calls(("notes_patch_markdown", wanted)), answer("Done."))
    turn = await agent_stack.ask(allowed_tools=["notes.patch_markdown"])
    (question,) = turn.of("ApprovalRequired")
    assert (await agent_stack.decide(question)).status_code == 202
    await agent_stack.client.events(question["turn_id"], after=turn.ids[-1])
    trace = await trace_of(spans, question["turn_id"], attempts=2)
    waited, went_on = trace.named(TURN)
    assert [span.attributes["marginalia.turn.status"] for span in (waited, went_on)] == ["suspended", "completed"]
    assert "marginalia.turn.rounds" not in waited.attributes
    assert went_on.attributes["marginalia.turn.rounds"] == 2
    (decision,) = [one for one in spans.traces if one.spans[0].name.endswith("/approvals/{tool_call_id}")]
    assert went_on.links == [decision.spans[0].trace]
    written = [span for span in trace.below(went_on) if span.name == "process notes.apply"]
    assert len(written) == 1


async def test_what_answers_says_how_many_waited_and_refusals_of_the_asker_are_no_failures(spans: Spans, chat_stack: ChatStack) -> None:
    missing = "11111111-1111-4111-8111-111111111112"
    assert (await chat_stack.client.http.get(f"/api/chat/turns/{missing}")).status_code == 404
    (asked_for,) = spans.named("send agent.turn.get")
    (answered,) = spans.named("process agent.turn.get")
    assert answered.attributes == {
        "messaging.system": "nats",
        "messaging.destination.name": "agent.turn.get",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.consumer.group.name": "agent",
        "marginalia.queue.depth": 0,
        "error.type": "turn_not_found",
    }
    assert (asked_for.attributes["error.type"], asked_for.failed, answered.failed) == ("turn_not_found", False, False)


async def test_no_name_has_an_id_and_no_address_of_an_inbox_is_told(spans: Spans, chat_stack: ChatStack) -> None:
    await asked(spans, chat_stack)
    for span in spans.all:
        assert not any("INBOX" in text for text in span.texts)
        assert not any(character.isdigit() for character in span.name.replace("/v1", "")), span.name
        assert span.attributes.keys() <= ATTRIBUTES.keys()
