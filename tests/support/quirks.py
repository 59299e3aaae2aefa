"""How servers that call themselves compatible differ, each as a named script with what must come of it (docs/providers.md).

A quirk that asks for a search has the answer to it as its second script.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from tests.support.scripted_provider import DONE, USAGE, Script, Step, answer, chunk, frame, usage_chunk, whole

COUNTED = (40, 12)
TEA = '{"query": "tea"}'
MILK = '{"query": "milk"}'
SIGNATURE = {"google": {"thought_signature": "c2lnbmF0dXJl+/=="}}


@dataclass(frozen=True)
class Quirk:
    """`scripts` are played one per request. `usage`: input and output tokens summed, None where nothing was reported; `replayed` are
    fields that the assistant's message of the second request must carry.
    """

    name: str
    scripts: tuple[Script, ...]
    text: str = "Tea."
    thinking: str = ""
    queries: tuple[str, ...] = ()
    failed_calls: int = 0
    usage: tuple[int | None, int | None] = COUNTED
    status: str = "completed"
    notices: tuple[str, ...] = ()
    error: str | None = None
    replayed: dict[str, Any] = field(default_factory=dict)


def choice(**fields: Any) -> bytes:
    """A chunk whose one choice is exactly this."""
    return frame({"object": "chat.completion.chunk", "choices": [{"index": 0, **fields}]})


def fragments(*entries: Any, finish: str | None = "tool_calls", first: tuple[Step, ...] = ()) -> Script:
    """A round that asks for searches in these entries of `tool_calls`, one chunk each."""
    end = [chunk(finish_reason=finish)] if finish else []
    return Script([chunk(role="assistant", content=None), *first, *(chunk(tool_calls=[entry]) for entry in entries), *end, DONE])


def call(arguments: Any = None, name: Any = None, **fields: Any) -> dict[str, Any]:
    return {**fields, "function": {"name": name, "arguments": arguments}}


def searching(name: str, script: Script, *queries: str, usage: tuple[int | None, int | None] = COUNTED, **fields: Any) -> Quirk:
    return Quirk(name, (script, answer("Tea.")), queries=queries or ("tea",), usage=usage, **fields)


QUIRKS = [
    # OpenAI
    searching(
        "OPENAI_INTERLEAVED_PARALLEL_CALLS",
        fragments(
            call("", "rag_search", index=0, id="a", type="function"),
            call('{"query":', index=0),
            call(MILK, "rag_search", index=1, id="b", type="function"),
            call(' "tea"}', index=0),
        ),
        "milk",
        "tea",
    ),
    searching("OPENAI_STOP_INSTEAD_OF_TOOL_CALLS", fragments(call(TEA, "rag_search", index=0, id="a"), finish="stop")),
    Quirk(
        "OPENAI_USAGE_NULL_IN_EVERY_OTHER_CHUNK",
        (
            Script(
                [
                    frame(
                        {"choices": [{"index": 0, "delta": {"content": "Tea."}, "finish_reason": None}], "usage": None, "obfuscation": "x"}
                    ),
                    choice(delta={}, finish_reason="stop"),
                    usage_chunk(),
                    DONE,
                ]
            ),
        ),
    ),
    Quirk(
        "OPENAI_REFUSAL",
        (Script([chunk(role="assistant", content=None, refusal="I can"), chunk(refusal="not."), chunk("stop", usage=USAGE), DONE]),),
        text="I cannot.",
    ),
    searching(
        "OPENAI_DEPRECATED_FUNCTION_CALL",
        Script(
            [
                chunk(role="assistant", content=None, function_call={"name": "rag_search", "arguments": ""}),
                chunk(function_call={"arguments": '{"query": '}),
                chunk(function_call={"arguments": '"tea"}'}),
                chunk("function_call"),
                DONE,
            ]
        ),
    ),
    Quirk(
        "AZURE_PROMPT_FILTER_CHUNK_AND_NULL_DELTA",
        (
            Script(
                [
                    frame({"model": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]}),
                    choice(delta=None, finish_reason=None),
                    chunk(content="Tea."),
                    choice(delta=None, finish_reason="stop", content_filter_results={}),
                    usage_chunk(),
                    DONE,
                ]
            ),
        ),
    ),
    # DeepSeek
    Quirk(
        "DEEPSEEK_THINKING_THEN_CONTENT_AND_USAGE_ON_THE_LAST_CHUNK",
        (
            Script(
                [
                    b": keep-alive\n\n",
                    chunk(role="assistant", content=None, reasoning_content="Let me"),
                    b": keep-alive\n\n",
                    chunk(content=None, reasoning_content=" see."),
                    chunk(content="Tea", reasoning_content=None),
                    chunk("stop", usage={**USAGE, "prompt_cache_hit_tokens": 8}, content=".", reasoning_content=None),
                    DONE,
                ]
            ),
        ),
        thinking="Let me see.",
    ),
    searching(
        "DEEPSEEK_CALL_WITH_THINKING",
        fragments(
            call("", "rag_search", index=0, id="call_00_x", type="function"),
            call(TEA, index=0),
            first=(chunk(content="", reasoning_content=None), chunk(content=None, reasoning_content="I look.")),
        ),
        thinking="I look.",
        replayed={"reasoning_content": "I look."},
    ),
    Quirk(
        "DEEPSEEK_INSUFFICIENT_SYSTEM_RESOURCE",
        (Script([chunk(content="Te"), chunk("insufficient_system_resource"), DONE]),),
        text="Te",
        usage=(None, None),
        status="failed",
        error="provider_stream_broken",
    ),
    Quirk(
        "DEEPSEEK_ABORTED_BEFORE_THE_FIRST_TOKEN",
        (Script([chunk(role="assistant", content=""), chunk("aborted"), DONE]), answer("Tea.")),
        notices=("provider_retry",),
    ),
    # Qwen, DashScope
    searching(
        "QWEN_EMPTY_IDS_IN_CONTINUATIONS",
        Script(
            [
                choice(delta={"role": "assistant", "content": None, "reasoning_content": ""}),
                choice(delta={"reasoning_content": "I look."}),
                choice(delta={"tool_calls": [call("", "rag_search", index=0, id="call_q", type="function")]}, finish_reason=None),
                choice(delta={"tool_calls": [call('{"query": ', index=0, id="")]}),
                choice(delta={"tool_calls": [call(None, None, index=0, id="")]}),
                choice(delta={"tool_calls": [call('"tea"}', "", index=0, id="")]}),
                choice(delta={}, finish_reason="tool_calls"),
                usage_chunk(),
                DONE,
            ]
        ),
        thinking="I look.",
        usage=(80, 24),
    ),
    # Groq
    searching(
        "GROQ_WHOLE_ARGUMENTS_AND_USAGE_IN_X_GROQ",
        Script(
            [
                frame({"choices": [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}], "x_groq": {"id": "req_1"}}),
                chunk(reasoning="I look."),
                chunk(tool_calls=[call(TEA, "rag_search", index=0, id="g1", type="function")]),
                frame({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}], "x_groq": {"id": "req_1", "usage": USAGE}}),
                DONE,
            ]
        ),
        thinking="I look.",
        usage=(80, 24),
        replayed={"reasoning": "I look."},
    ),
    # Mistral
    searching(
        "MISTRAL_WHOLE_CALL_WITHOUT_INDEX",
        Script(
            [
                chunk(role="assistant", content=""),
                chunk(
                    "tool_calls",
                    usage=USAGE,
                    tool_calls=[call(TEA, "rag_search", id="D681PevKs"), call(MILK, "rag_search", id="E681PevKs")],
                ),
                DONE,
            ]
        ),
        "milk",
        "tea",
        usage=(80, 24),
    ),
    searching(
        "MISTRAL_SECOND_FRAGMENT_WITHOUT_NAME_OR_ID",
        fragments(call('{"query": ', "rag_search", id="D681PevKs"), call('"tea"}', "")),
    ),
    Quirk(
        "MISTRAL_MODEL_LENGTH",
        (Script([chunk(content="Tea."), chunk("model_length", usage=USAGE), DONE]),),
        notices=("answer_truncated",),
    ),
    searching(
        "MISTRAL_THINKING_AS_PARTS_OF_THE_CONTENT",
        fragments(
            call(TEA, "rag_search", id="D681PevKs"),
            first=(
                chunk(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "I "}]}]),
                chunk(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "look."}]}, {"type": "text", "text": "Hm."}]),
            ),
        ),
        text="Hm.\n\nTea.",
        thinking="I look.",
        replayed={"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "I look."}]}, {"type": "text", "text": "Hm."}]},
    ),
    # xAI
    Quirk(
        "XAI_CHOICES_WITHOUT_FINISH_REASON",
        (
            Script(
                [
                    choice(delta={"role": "assistant", "reasoning_content": "Hm."}),
                    choice(delta={"content": "Tea."}),
                    choice(delta={}, finish_reason="stop"),
                    usage_chunk(),
                    DONE,
                ]
            ),
        ),
        thinking="Hm.",
    ),
    # Ollama
    searching(
        "OLLAMA_EMPTY_IDS",
        fragments(call(TEA, "rag_search", index=0, id="", type="function"), call(MILK, "rag_search", index=1, id="", type="function")),
        "milk",
        "tea",
    ),
    searching(
        "OLLAMA_CALLS_WITHOUT_INDEX",
        fragments(call(TEA, "rag_search", id="call_1", type="function"), call(MILK, "rag_search", id="call_2", type="function")),
        "milk",
        "tea",
    ),
    searching(
        "OLLAMA_ALL_CALLS_ON_INDEX_0",
        fragments(call(TEA, "rag_search", index=0, id="call_1"), call(MILK, "rag_search", index=0, id="call_2")),
        "milk",
        "tea",
    ),
    searching("OLLAMA_ARGUMENTS_AS_AN_OBJECT", fragments(call({"query": "tea"}, "rag_search"), finish="stop")),
    Quirk("OLLAMA_NULL_FINISH", (Script([chunk(content="Tea."), DONE]),), usage=(None, None)),
    Quirk(
        "OLLAMA_OTHER_DONE_REASON", (Script([chunk(reasoning="Hm."), chunk("load", content="Tea."), usage_chunk(), DONE]),), thinking="Hm."
    ),
    # vLLM
    Quirk(
        "VLLM_REASONING_UNDER_BOTH_NAMES",
        (Script([chunk(reasoning="Hm.", reasoning_content="Hm."), chunk(content="Tea."), chunk("stop"), usage_chunk(), DONE]),),
        thinking="Hm.",
    ),
    Quirk(
        "VLLM_LENGTH_TOGETHER_WITH_CONTENT",
        (Script([chunk(content="Te"), chunk("length", content="a."), usage_chunk(), DONE]),),
        notices=("answer_truncated",),
    ),
    Quirk(
        "VLLM_ERROR_WITHOUT_ERROR_KEY",
        (Script([chunk(content="Te"), frame({"object": "error", "message": "engine died", "code": 400}), DONE]),),
        text="Te",
        usage=(None, None),
        status="failed",
        error="provider_refused",
    ),
    Quirk(
        "VLLM_ANSWER_IN_REASONING",
        (Script([chunk(role="assistant", content=""), chunk(reasoning="Tea."), chunk("stop"), usage_chunk(), DONE]),),
        text="",
        thinking="Tea.",
        status="failed",
        error="empty_answer",
    ),
    # llama.cpp
    searching(
        "LLAMA_CPP_NAME_IN_EVERY_FRAGMENT",
        fragments(
            *(call(part, "rag_search", index=0, id="l1") for part in ("", '{"query"', ": ", '"tea"', "}")), first=(frame({"timings": {}}),)
        ),
    ),
    # Gemini
    searching(
        "GEMINI_STOP_WITH_CALLS_AND_A_SIGNATURE_TO_SEND_BACK",
        fragments(call(TEA, "rag_search", index=0, id="g1", type="function", extra_content=SIGNATURE), finish="stop"),
        replayed={
            "tool_calls": [
                {"id": "g1", "type": "function", "function": {"name": "rag_search", "arguments": TEA}, "extra_content": SIGNATURE}
            ]
        },
    ),
    # Kimi
    Quirk(
        "KIMI_USAGE_IN_THE_CHOICE_AND_IN_A_LAST_CHUNK",
        (
            Script(
                [
                    chunk(content="Tea."),
                    choice(delta={}, finish_reason="stop", usage={"prompt_tokens": 1, "completion_tokens": 1}),
                    usage_chunk(),
                    DONE,
                ]
            ),
        ),
    ),
    # TGI
    searching("TGI_CALLS_AS_AN_OBJECT", Script([chunk(tool_calls=call(TEA, "rag_search", index=0, id="")), chunk("stop"), DONE])),
    # OpenRouter
    Quirk(
        "OPENROUTER_COMMENTS_AND_REASONING_DETAILS",
        (
            Script(
                [
                    b": OPENROUTER PROCESSING\n\n" * 3,
                    chunk(reasoning="Hm.", reasoning_details=[{"type": "reasoning.text", "text": "Hm."}]),
                    chunk(content="Tea."),
                    chunk("stop"),
                    usage_chunk(),
                    DONE,
                ],
                headers={"X-Generation-Id": "gen-1"},
            ),
        ),
        thinking="Hm.",
    ),
    Quirk(
        "OPENROUTER_ERROR_IN_MID_STREAM",
        (
            Script(
                [
                    chunk(content="Te"),
                    frame(
                        {"error": {"code": 502, "message": "upstream"}, "choices": [{"delta": {"content": ""}, "finish_reason": "error"}]}
                    ),
                ]
            ),
        ),
        text="Te",
        usage=(None, None),
        status="failed",
        error="provider_refused",
    ),
    Quirk(
        "OPENROUTER_ERROR_BEFORE_THE_FIRST_TOKEN",
        (Script([frame({"error": {"code": 502, "message": "upstream"}})]), answer("Tea.")),
        notices=("provider_retry",),
    ),
    # Gateways of all kinds
    searching(
        "GATEWAY_NULLS_IN_CONTINUATIONS",
        fragments(
            call("", "rag_search", index=0, id="a", type="function"),
            {"index": 0, "id": None, "type": None, "function": {"name": None, "arguments": '{"query": "tea"}'}},
        ),
    ),
    searching("GATEWAY_ID_THAT_COMES_LATE", fragments(call("", "rag_search", index=0), call(TEA, index=0, id="late"))),
    searching(
        "GATEWAY_CALL_ONCE_MORE_AS_A_WHOLE",
        fragments(call("", "rag_search", index=0, id="a"), call(TEA, index=0), call(TEA, "rag_search", index=0, id="a")),
    ),
    Quirk(
        "GATEWAY_GLUED_OBJECTS_ARE_NOT_EXECUTED",
        (fragments(call(TEA, "rag_search", id="a"), call(MILK)), answer("Tea.")),
        failed_calls=1,
    ),
    Quirk("GATEWAY_IGNORES_STREAM", (whole({"content": "Tea.", "reasoning_content": "Hm."}),), thinking="Hm."),
    searching(
        "GATEWAY_IGNORES_STREAM_AND_CALLS",
        whole({"content": None, "tool_calls": [call(TEA, "rag_search", id="a"), call(MILK, "rag_search", id="a")]}, "tool_calls"),
        "milk",
        "tea",
        usage=(80, 24),
    ),
    Quirk(
        "GATEWAY_ERROR_AS_TEXT",
        (Script([chunk(content="Te"), frame({"error": "overloaded"})]),),
        text="Te",
        usage=(None, None),
        status="failed",
        error="provider_refused",
    ),
    Quirk(
        "GATEWAY_CARRIAGE_RETURNS_AND_NO_LINE_END_AT_THE_END",
        (
            Script(
                [
                    b'data:{"choices":[{"delta":{"content":"T\xc3',
                    b'\xa9a."}}]}\r\n\r\ndata: {"choices":[{"delta":{},"finish_reason":"stop"}]}\r\rdata:\r\rdata: '
                    + json.dumps({"choices": [], "usage": USAGE}).encode(),
                ]
            ),
        ),
        text="Téa.",
    ),
    Quirk(
        "GATEWAY_USAGE_THAT_IS_NONE",
        (Script([chunk("stop", content="Tea.", usage={"prompt_tokens": True, "completion_tokens": -1, "total_tokens": 10**30}), DONE]),),
        usage=(None, None),
    ),
]
