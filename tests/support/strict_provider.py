"""What the strictest servers refuse, each for a reason that one of them gives: `ScriptedProvider.strict` answers 400 with it."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
AFTER = {
    "system": {"user"},
    "user": {"assistant"},
    "assistant": {"user"},
    "tool": {"assistant", "tool"},
}


@dataclass(frozen=True)
class Strict:
    """`reasoning`: `reasoning_content` must stand on each assistant's message with calls (DeepSeek), or on none (its predecessor)."""

    reasoning: Literal["required", "never"] | None = None

    def objection(self, body: dict[str, Any]) -> str | None:
        """Why the request is refused, or None."""
        return next(self._objections(body), None)

    def _objections(self, body: dict[str, Any]) -> Iterator[str]:
        messages = body["messages"]
        yield from _fields(body)
        yield from _order(messages)
        yield from _pairs(messages)
        yield from _numbers(messages)
        for number, message in enumerate(messages):
            yield from (f"messages[{number}]: {why}" for why in [*_content(message), *_calls(message), *self._reasoning(message)])

    def _reasoning(self, message: dict[str, Any]) -> Iterator[str]:
        there = "reasoning_content" in message
        if self.reasoning == "required" and message.get("tool_calls") and not there:
            yield "the reasoning_content in the thinking mode must be passed back"
        if self.reasoning == "never" and (there or "reasoning" in message):
            yield "reasoning_content is not supported in input messages"
        if there and (message["role"] != "assistant" or not isinstance(message["reasoning_content"], str)):
            yield "reasoning_content is text of the assistant"


def _fields(body: dict[str, Any]) -> Iterator[str]:
    if not body.get("stream") and "stream_options" in body:
        yield "stream_options goes with stream"
    if "tools" in body and not body["tools"]:
        yield "tools must not be empty"
    if "tools" not in body and ("tool_choice" in body or "parallel_tool_calls" in body):
        yield "tool_choice goes with tools"


def _order(messages: list[dict[str, Any]]) -> Iterator[str]:
    roles = [message["role"] for message in messages]
    if not messages or roles[0] != "system" or "system" in roles[1:]:
        yield f"one system message must come first: {roles}"
    if roles[-1] not in ("user", "tool"):
        yield "the last message must be the user's or a result"
    for before, message, after in zip(roles, messages, roles[1:], strict=False):
        allowed = {"tool"} if message.get("tool_calls") else AFTER.get(before, set())
        if after not in allowed:
            yield f"{after} cannot come after {before}: {roles}"


def _pairs(messages: list[dict[str, Any]]) -> Iterator[str]:
    open_, seen = [], set()
    for message in [*messages, {"role": "end"}]:
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_:
                yield f"no call directly before has the id {message['tool_call_id']}"
            else:
                open_.remove(message["tool_call_id"])
            continue
        if open_ and message["role"] != "end":
            yield f"these calls have no result directly after them: {open_}"
        if message["role"] == "end" and open_:
            yield f"these calls have no result: {open_}"
        open_ = [call["id"] for call in message.get("tool_calls", [])]
        if len({*open_} | seen) != len(open_) + len(seen):
            yield f"ids of calls repeat: {open_}"
        seen |= {*open_}


def _numbers(messages: list[dict[str, Any]]) -> Iterator[str]:
    """Not a server's rule but ours (ON-13): numbers of earlier replies are not said again."""
    last = max(at for at, message in enumerate(messages) if message["role"] == "user")
    for message in messages[:last]:
        if message["role"] == "tool" and any("number" in source for source in _sources(message["content"])):
            yield "an earlier reply's source has its number"


def _sources(result: Any) -> list[dict[str, Any]]:
    """Those of a result in the form of ours; another tool's may be any text."""
    try:
        value = json.loads(result)
    except (TypeError, ValueError, RecursionError):
        return []
    sources = value.get("sources") if isinstance(value, dict) else None
    return [source for source in sources if isinstance(source, dict)] if isinstance(sources, list) else []


def _content(message: dict[str, Any]) -> Iterator[str]:
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(str(part.get("text") or part.get("thinking")) for part in content)
    if not isinstance(content, str):
        yield "content must be text"
    elif not content.strip() and not message.get("tool_calls"):
        yield "content must not be empty"
    if message["role"] == "tool" and not isinstance(message.get("tool_call_id"), str):
        yield "a result must name its call"


def _calls(message: dict[str, Any]) -> Iterator[str]:
    if "tool_calls" in message and (message["role"] != "assistant" or not message["tool_calls"]):
        yield "tool_calls must not be empty, and are the assistant's"
    for call in message.get("tool_calls", []):
        if not isinstance(call["id"], str) or not call["id"] or call["type"] != "function":
            yield "a call must have an id and a type"
        if not NAME.fullmatch(call["function"]["name"]):
            yield f"{call['function']['name']!r} is no function's name"
        if not _is_object(call["function"]["arguments"]):
            yield "arguments must be a JSON object"


def _is_object(text: Any) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (TypeError, ValueError, RecursionError):
        return False
