"""What both parsers ask of an answer's text and token counts (RC-14, RC-15). Pure."""

import re
from collections.abc import Callable, Mapping, Set
from typing import Any

from services.contexts.evidence_prompt import INSUFFICIENT
from services.contexts.plain_json import INTEGER_MAX, is_usable
from shared.contracts.evidence import ANSWER_CHARACTERS_MAX, ParsedResponse

# Labels in brackets, alone or in a list. Only ASCII digits: no other script's number is a label.
CITATION = re.compile(r"\[\s*(E[0-9]+(?:\s*[,，、;；]\s*E[0-9]+)*)\s*\]")
LABEL = re.compile(r"E[0-9]+")


class Rejected(Exception):
    """The response cannot be taken for an answer; `reason` is the slug."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def outcome_of(read: Callable[[Any, Set[str]], ParsedResponse], response: Any, labels: Set[str]) -> ParsedResponse:
    """What a parser's `read` makes of a response, its rejections included. Whatever is given, no exception."""
    try:
        return _storable(read(response, labels))
    except Rejected as error:
        return ParsedResponse(outcome="rejected", reason=error.reason)


def judged(text: str, labels: Set[str]) -> ParsedResponse:
    """What a complete text amounts to.

    Raises:
        Rejected: `empty_text`, `text_too_long`, `no_citation`, `unknown_citation`.
    """
    if not text.strip():
        raise Rejected("empty_text")
    if len(text) > ANSWER_CHARACTERS_MAX:
        raise Rejected("text_too_long")
    if text.strip() == INSUFFICIENT:
        return ParsedResponse(outcome="insufficient_evidence", reason="evidence_insufficient", text=text)
    citations = list(dict.fromkeys(label for group in CITATION.findall(text) for label in LABEL.findall(group)))
    if not citations:
        raise Rejected("no_citation")
    if not set(citations) <= labels:
        raise Rejected("unknown_citation")
    return ParsedResponse(outcome="answer_candidate", text=text, citations=citations)


def _storable(parsed: ParsedResponse) -> ParsedResponse:
    """The outcome, where what it quotes can be stored.

    Raises:
        Rejected: `malformed`.
    """
    quoted = (parsed.reason, parsed.text, parsed.response_id, parsed.model)
    if not all(is_usable(one) for one in quoted if one is not None):
        raise Rejected("malformed")
    return parsed


def counts(usage: Any, names: Mapping[str, tuple[str, ...]]) -> dict[str, int | None] | None:
    """Token counts by our names, from where `names` says they stand; None where no usage was reported. Nothing is estimated.

    Raises:
        Rejected: `usage_malformed`, `usage_inconsistent`.
    """
    if usage is None:
        return None
    found = {name: _count(usage, path) for name, path in names.items()}
    given, made, total = found["input_tokens"], found["output_tokens"], found["total_tokens"]
    if None not in (given, made, total) and given + made != total:  # type: ignore[operator]
        raise Rejected("usage_inconsistent")
    if total is not None and max(given or 0, made or 0) > total:
        raise Rejected("usage_inconsistent")
    for detail, whole in (("cached_tokens", given), ("reasoning_tokens", made)):
        if (part := found[detail]) is not None and (whole is None or part > whole):
            raise Rejected("usage_inconsistent")
    return found


def _count(usage: Any, path: tuple[str, ...]) -> int | None:
    value = usage
    for name in path:
        if not isinstance(value, dict):
            raise Rejected("usage_malformed")
        if (value := value.get(name)) is None:
            return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= INTEGER_MAX:
        raise Rejected("usage_malformed")
    return value
