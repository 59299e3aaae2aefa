"""A client's own history into ours: instructions, what was said, and the message to be answered.

Assistant messages that follow one another are one reply, each of them a round of it. A tool call of the client's stays with its result,
or goes with it: half a pair is refused by every provider.
"""

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from services.gateway import strict_json
from services.gateway.problems import invalid
from shared.contracts.chat import HistoryCall, HistoryMessage, HistoryRound, ToolCall
from shared.contracts.errors import ErrorCode, ServiceError

# What providers take for a function's name.
TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
INSTRUCTING = ("system", "developer")
# Which parts of a content are text, and the field that holds it.
TEXT_FIELDS = {"text": "text", "refusal": "refusal"}


class MessageIn(BaseModel):
    """One message of the request; the fields that are read."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[dict[str, Any]] | None = None
    reasoning_content: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None


type Said = tuple[str, MessageIn, str]  # where it stands, the message, its text


def conversation(messages: list[MessageIn]) -> tuple[str | None, list[HistoryMessage], str]:
    """The instructions (None without any), the history, and the user's last message.

    Raises:
        ServiceError: `unsupported_parameter` for content that is no text, or where the last message is not the user's; `invalid`.
    """
    said = [(place := f"messages.{number}", message, _text(message, place)) for number, message in enumerate(messages)]
    instructions = [text for _, message, text in said if message.role in INSTRUCTING and text.strip()]
    rest = [one for one in said if one[1].role not in INSTRUCTING]
    if not rest or rest[-1][1].role != "user":
        raise _unsupported("The last message must be the user's.", "messages")
    place, _, text = rest.pop()
    if not text.strip():
        raise invalid(f"body.{place}.content", "must not be blank")
    return "\n\n".join(instructions) or None, list(_history(rest)), text


def _text(message: MessageIn, place: str) -> str:
    if message.role == "function":
        raise _unsupported("Messages of the role function are not supported; use tool.", place)
    if not isinstance(message.content, list):
        return message.content or ""
    texts = []
    for number, part in enumerate(message.content):
        text = part.get(TEXT_FIELDS.get(str(part.get("type")), ""))
        if not isinstance(text, str):
            raise _unsupported("Only text is supported as content.", f"{place}.content.{number}")
        texts.append(text)
    return "".join(texts)


def _unsupported(detail: str, place: str) -> ServiceError:
    return ServiceError(ErrorCode.UNSUPPORTED_PARAMETER, detail, param=place)


def _history(said: list[Said]) -> Iterator[HistoryMessage]:
    for is_users, group in groupby(said, key=lambda one: one[1].role == "user"):
        if is_users:
            yield from (HistoryMessage(role="user", content=text) for _, _, text in group)
        elif rounds := list(_rounds(list(group))):
            yield _reply(rounds)


def _reply(rounds: list[HistoryRound]) -> HistoryMessage:
    calls = [
        ToolCall(id=call.id, name=call.name, arguments=strict_json.parsed(call.arguments), status="completed", round=number)
        for number, round_ in enumerate(rounds, 1)
        for call in round_.calls
    ]
    return HistoryMessage(
        role="assistant",
        content="\n\n".join(round_.content for round_ in rounds if round_.content),
        thinking="".join(round_.thinking for round_ in rounds),
        tool_calls=calls,
        rounds=rounds,
    )


def _rounds(said: list[Said]) -> Iterator[HistoryRound]:
    """Each assistant message with the results that follow it directly."""
    for position, (_, message, text) in enumerate(said):
        if message.role != "assistant":
            continue
        results: dict[str, str] = {}
        for _, result, result_text in said[position + 1 :]:
            if result.role != "tool":
                break
            results.setdefault(result.tool_call_id or "", result_text)
        yield HistoryRound(content=text, thinking=message.reasoning_content or "", calls=_calls(message, results))


def _calls(message: MessageIn, results: dict[str, str]) -> list[HistoryCall]:
    calls: dict[str, HistoryCall] = {}
    for call in message.tool_calls or []:
        identifier, function = call.get("id"), call.get("function")
        if not isinstance(identifier, str) or not identifier or identifier not in results or not isinstance(function, dict):
            continue
        name, arguments = function.get("name"), function.get("arguments")
        if isinstance(name, str) and TOOL_NAME.fullmatch(name) and _is_object(arguments):
            calls.setdefault(identifier, HistoryCall(id=identifier, name=name, arguments=arguments, result=results[identifier]))
    return list(calls.values())


def _is_object(arguments: object) -> bool:
    """Whether a provider would take these arguments back (ON-4), and all that they pass on the way: they are read like a body."""
    if not isinstance(arguments, str):
        return False
    try:
        return isinstance(strict_json.parsed(arguments), dict)
    except ServiceError:
        return False
