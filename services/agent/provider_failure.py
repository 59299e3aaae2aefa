"""How a provider can fail: the one exception that a turn knows, what errors of all shapes say, and keys kept out of it."""

import functools
import re
from dataclasses import dataclass, replace
from typing import Any

from services.agent.characters import storable

QUOTED_CHARACTERS_MAX = 500
# What providers name the error, in `code` or `type`.
NAMES_OF_TOO_LONG = re.compile(r"context_?(length|window|size)|(prompt|input|request)_(is_)?too_(long|large)")
# What they say where the name is a general one, or none.
WORDS_OF_TOO_LONG = re.compile(
    r"context[ _](length|window|size|limit)|maximum context"
    r"|\b(prompt|inputs?|request|messages|conversation) (is|are) too (long|large)\b"
    r"|\btoo many (input |prompt |total )?tokens\b"
    r"|\bmaximum (number of (input )?tokens allowed|prompt length)\b"
    r"|\b(prompt|input) (length |token count )?(of \d+ )?exceeds\b"
    r"|\brange of input length should be\b"
    r"|\breduce the length of the (messages|prompt|input)\b"
    r"|\bexceed(s|ed)? (the )?(model'?s? token limit|max(imum)? (message|input) (tokens|length))\b"
)
# A "key" this short is a placeholder for a server that wants none.
KEY_CHARACTERS_MIN = 8


class ProviderFailure(Exception):
    """The provider did not give a whole answer. `code` as in the event `Error`; `message` may hold the provider's own words."""

    def __init__(self, code: str, message: str, *, retriable: bool) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retriable = retriable

    def quotable(self, key: str | None) -> "ProviderFailure":
        """The same, bounded, and without the key, which some providers quote."""
        words = without_key(self.message, key)
        if len(words) > QUOTED_CHARACTERS_MAX:
            words = words[:QUOTED_CHARACTERS_MAX] + "…"
        return ProviderFailure(self.code, words, retriable=self.retriable)


@dataclass(frozen=True, slots=True)
class SaidError:
    """An error in the provider's own words, the HTTP status that it names or came with, and what it is named (`code`, `type`)."""

    message: str
    status: int | None = None
    names: tuple[str, ...] = ()

    @property
    def is_of_length(self) -> bool:
        """Whether the request was too long for the model. A name tells before a status does, words only after it: a limit of tokens per
        minute is one that passes.
        """
        if self.status == 413 or any(NAMES_OF_TOO_LONG.search(name) for name in self.names):
            return True
        return self.status != 429 and WORDS_OF_TOO_LONG.search(self.message.lower()) is not None

    @property
    def passes(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in (408, 429) or (self.status or 0) >= 500


def said_error(body: Any) -> SaidError | None:
    """The error that `body` is, where it has one of the known shapes."""
    if isinstance(body, list):  # Gemini's are in a list
        body = body[0] if body else None
    if not isinstance(body, dict):
        return None
    if error := body.get("error"):
        return _said(error if isinstance(error, dict) else {"message": error})
    if body.get("object") == "error" or ("message" in body and "code" in body and "choices" not in body):
        return _said(body)
    return None


def refusal(status: int, body: Any) -> SaidError:
    """What an answer with another status than 200 says, whatever it is made of."""
    said = said_error(body)
    if said is None and isinstance(body, dict) and isinstance(words := body.get("message") or body.get("detail"), str):
        said = _said({**body, "message": words})
    return SaidError(f"The provider answered with HTTP status {status}.", status) if said is None else replace(said, status=status)


def _said(error: dict[str, Any]) -> SaidError:
    words = error.get("message") or error.get("code") or "the provider reported an error"
    names = (value.lower() for name in ("code", "type") if isinstance(value := error.get(name), str))
    return SaidError(storable(str(words)), _status(error), tuple(names))


def _status(error: dict[str, Any]) -> int | None:
    for name in ("status", "code", "status_code", "type"):
        value = error.get(name)
        if isinstance(value, str) and "rate_limit" in value:
            return 429
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) == 3:
            value = int(value)
        if isinstance(value, int) and 400 <= value <= 599:
            return value
    return None


def failure_of(said: SaidError) -> ProviderFailure:
    """What an error means for the turn."""
    if said.is_of_length:
        return ProviderFailure("context_too_long", said.message, retriable=False)
    if said.status == 429:
        return ProviderFailure("provider_rate_limited", said.message, retriable=True)
    return ProviderFailure("provider_refused", said.message, retriable=said.passes)


def broken_off() -> ProviderFailure:
    """The stream ended without an end."""
    return ProviderFailure("provider_stream_broken", "The provider's answer broke off before its end.", retriable=True)


def without_key(words: str, key: str | None) -> str:
    """`words` with the key taken out, also where it is percent- or JSON-escaped."""
    if key is None or len(key) < KEY_CHARACTERS_MIN:
        return words
    return _pattern(key).sub("[key]", words)


@functools.lru_cache(maxsize=64)
def _pattern(key: str) -> re.Pattern[str]:
    return re.compile("".join(_in_any_spelling(character) for character in key))


def _in_any_spelling(character: str) -> str:
    code = ord(character)
    return rf"(?:\\{{0,8}}{re.escape(character)}|%(?:25){{0,3}}(?i:{code:02x})|\\{{1,8}}u(?i:{code:04x}))"
