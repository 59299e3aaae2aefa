"""JSON from elsewhere, read without repair: what two readers may understand differently, or one cannot pass on, is refused (RFC 7493)."""

import json
import re
from typing import Any, NoReturn

# What readers of a stored record can write again.
DEPTH_MAX = 100
INTEGER_MAX = 2**63 - 1
# Half a surrogate pair has no UTF-8, and NUL no place in PostgreSQL's text.
UNUSABLE = re.compile("[\x00\ud800-\udfff]")


def loads(data: bytes) -> Any:
    """The value.

    Raises:
        ValueError: it is no JSON in UTF-8; or a key stands twice, or a number is out of range. The message says which.
    """
    text = data.decode("utf-8")
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite, parse_int=_integer)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def is_usable(text: str) -> bool:
    """Whether the text can be stored and passed on."""
    return UNUSABLE.search(text) is None


def require_usable(value: Any, depth: int = 1) -> None:
    """That all of it can be stored and passed on.

    Raises:
        ValueError: a string holds NUL or half a surrogate pair, or it is nested too deep.
    """
    if depth > DEPTH_MAX:
        raise ValueError("it is nested too deep")
    if isinstance(value, str) and not is_usable(value):
        raise ValueError("a string holds NUL or half a surrogate pair")
    if isinstance(value, list):
        for item in value:
            require_usable(item, depth + 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            require_usable(key, depth + 1)
            require_usable(item, depth + 1)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has one key twice")
    return found


def _no_constant(_: str) -> NoReturn:
    raise ValueError("NaN and Infinity are no JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise ValueError("a number is too large")
    return value


def _integer(digits: str) -> int:
    # Python refuses to convert thousands of digits.
    if len(digits) > 20 or abs(value := int(digits)) > INTEGER_MAX:
        raise ValueError("a number is too large")
    return value
