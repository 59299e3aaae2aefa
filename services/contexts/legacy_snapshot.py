"""Snapshots of the format before `protocol`, which hold a Chat Completions body: rebuilt, checked, parsed; never made (RC-16). Pure."""

from collections.abc import Set
from typing import Any

from services.contexts.canonical_json import canonical
from services.contexts.response_text import Rejected, counts, judged, outcome_of
from shared.contracts.evidence import ParsedResponse

TOKEN_PARAMETERS = frozenset({"max_tokens", "max_completion_tokens"})
INSTRUCTION_ROLES = frozenset({"system", "developer"})
USAGE = {
    "input_tokens": ("prompt_tokens",),
    "output_tokens": ("completion_tokens",),
    "total_tokens": ("total_tokens",),
    "cached_tokens": ("prompt_tokens_details", "cached_tokens"),
    "reasoning_tokens": ("completion_tokens_details", "reasoning_tokens"),
}


def request_body(record: dict[str, Any]) -> dict[str, Any]:
    """The body that the record's own fields make.

    Raises:
        ValueError: the record is not of this format.
    """
    completion = record["completion"]
    parameter, role = completion.get("token_parameter"), completion.get("instruction_role")
    if parameter not in TOKEN_PARAMETERS or role not in INSTRUCTION_ROLES:
        raise ValueError("its token_parameter or instruction_role is none of this format")
    body = {
        "model": completion["model"],
        "messages": [
            {"role": role, "content": record["instructions"]},
            {"role": "user", "content": canonical({"question": record["question"], "evidence": record["evidence"]})},
        ],
        "n": 1,
        "stream": False,
        parameter: completion["output_tokens"],
    }
    return body if completion.get("temperature") is None else {**body, "temperature": completion["temperature"]}


def parse(response: Any, labels: Set[str]) -> ParsedResponse:
    """What a chat completion amounts to. The Responses parser never reads one, nor does this one read a response."""
    return outcome_of(_parsed, response, labels)


def _parsed(response: Any, labels: Set[str]) -> ParsedResponse:
    if not isinstance(response, dict) or response.get("object") != "chat.completion":
        raise Rejected("not_a_chat_completion")
    choices = response.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        raise Rejected("malformed")
    if not all(isinstance(response.get(name), str) and response[name] for name in ("id", "model")):
        raise Rejected("malformed")
    known = {"response_id": response["id"], "model": response["model"], "usage": counts(response.get("usage"), USAGE)}
    reason, message = choices[0].get("finish_reason"), choices[0].get("message")
    if not isinstance(message, dict) or message.get("role") != "assistant":
        raise Rejected("malformed")
    if message.get("tool_calls") or message.get("function_call"):
        raise Rejected("unsupported_output")
    if message.get("refusal") or reason == "content_filter":
        return ParsedResponse(outcome="refused", reason="refusal" if message.get("refusal") else "content_filter", **known)
    if reason == "length":
        return ParsedResponse(outcome="incomplete", reason="max_output_tokens", **known)
    if reason != "stop" or not isinstance(message.get("content"), str):
        raise Rejected("not_final" if reason is None else "malformed")
    return judged(message["content"], labels).model_copy(update=known)
