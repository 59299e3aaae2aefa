"""Reading a response of the Responses API strictly (RC-12 to RC-15). Pure: whatever is given, there is an outcome and no exception."""

from collections.abc import Set
from typing import Any

from services.contexts.response_text import Rejected, counts, judged, outcome_of
from shared.contracts.evidence import ParsedResponse

FINAL = frozenset({"completed", "incomplete", "failed"})
USAGE = {
    "input_tokens": ("input_tokens",),
    "output_tokens": ("output_tokens",),
    "total_tokens": ("total_tokens",),
    "cached_tokens": ("input_tokens_details", "cached_tokens"),
    "reasoning_tokens": ("output_tokens_details", "reasoning_tokens"),
}


def parse(response: Any, labels: Set[str]) -> ParsedResponse:
    """What the response amounts to; `labels` are those of the evidence that its request held."""
    return outcome_of(_parsed, response, labels)


def _parsed(response: Any, labels: Set[str]) -> ParsedResponse:
    if not isinstance(response, dict) or response.get("object") != "response":
        raise Rejected("not_a_response")
    status = response.get("status")
    if not isinstance(status, str) or status not in FINAL:
        raise Rejected("not_final")
    _require_consistent(response, status)
    known = {
        "response_id": _name(response, "id"),
        "model": _name(response, "model"),
        "usage": counts(response.get("usage"), USAGE),
    }
    messages = _messages(response)
    if status == "failed":
        return ParsedResponse(outcome="failed", reason=_slug(response.get("error"), "code"), **known)
    refused = any(part.get("type") == "refusal" for message in messages for part in _parts(message))
    if status == "incomplete":
        reason = _slug(response.get("incomplete_details"), "reason")
        outcome = "refused" if refused or reason == "content_filter" else "incomplete"
        return ParsedResponse(outcome=outcome, reason="refusal" if refused else reason, **known)
    text = _text(messages)
    if refused:
        return ParsedResponse(outcome="refused", reason="refusal", **known)
    return judged(text, labels).model_copy(update=known)


def _require_consistent(response: dict[str, Any], status: str) -> None:
    """No state may say what only another one says."""
    error, details = response.get("error"), response.get("incomplete_details")
    if (error is not None and status != "failed") or (details is not None and status != "incomplete"):
        raise Rejected("contradictory")
    if any(one is not None and not isinstance(one, dict) for one in (error, details)):
        raise Rejected("malformed")


def _name(response: dict[str, Any], field: str) -> str:
    value = response.get(field)
    if not isinstance(value, str) or not value:
        raise Rejected("malformed")
    return value


def _slug(holder: Any, field: str) -> str:
    value = holder.get(field) if isinstance(holder, dict) else None
    if value is None:
        return "unknown"
    if not isinstance(value, str) or not value:
        raise Rejected("malformed")
    return value


def _messages(response: dict[str, Any]) -> list[dict[str, Any]]:
    """The assistant's messages in the output; reasoning is no answer, and nothing else may be there."""
    output = response.get("output")
    if not isinstance(output, list):
        raise Rejected("malformed")
    messages = []
    for item in output:
        if not isinstance(item, dict) or not isinstance(item.get("type"), str):
            raise Rejected("malformed")
        if item["type"] == "message":
            messages.append(item)
        elif item["type"] != "reasoning":
            raise Rejected("unsupported_output")
    return messages


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    parts = message.get("content")
    if message.get("role") != "assistant" or not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise Rejected("malformed")
    return parts


def _text(messages: list[dict[str, Any]]) -> str:
    """The text of the one completed message, its parts in order."""
    if len(messages) != 1:
        raise Rejected("not_one_message")
    if messages[0].get("status") != "completed":
        raise Rejected("contradictory")
    text = ""
    for part in _parts(messages[0]):
        if part.get("type") == "output_text" and isinstance(part.get("text"), str):
            text += part["text"]
        elif part.get("type") != "refusal" or not isinstance(part.get("refusal"), str):
            raise Rejected("unsupported_output" if isinstance(part.get("type"), str) and part["type"] != "output_text" else "malformed")
    return text
