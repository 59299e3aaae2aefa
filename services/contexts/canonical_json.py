r"""Canonical JSON: one sequence of bytes for one value, in every language (RFC 8785; docs/prepared-contexts.md).

Keys sorted, no white space, UTF-8, nothing escaped but `"`, `\` and control characters, numbers as ECMAScript writes them.
"""

import hashlib
import json
from decimal import Decimal
from typing import Any

# From here on, and below its opposite, ECMAScript writes exponents.
LARGE, SMALL = 1e21, 1e-6
# Up to here every whole number is a double.
WHOLE_MAX = 2**53


def canonical(value: Any) -> str:
    """The value's canonical JSON.

    Raises:
        ValueError: it holds what JSON has nothing for, or a whole number that is none of ECMAScript's.
    """
    match value:
        case dict():
            keys = sorted(value, key=lambda key: key.encode("utf-16-be", "surrogatepass"))
            return "{" + ",".join(f"{json.dumps(key, ensure_ascii=False)}:{canonical(value[key])}" for key in keys) + "}"
        case list():
            return "[" + ",".join(map(canonical, value)) + "]"
        case float():
            return _number(value)
        case None | bool() | str():
            return json.dumps(value, ensure_ascii=False)
        case int():
            return _integer(value)
        case _:
            raise ValueError(f"{type(value).__name__} is no JSON")


def sha256(value: Any) -> str:
    """SHA-256 hex of the canonical JSON in UTF-8."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def _integer(value: int) -> str:
    if abs(value) > WHOLE_MAX:
        raise ValueError("JSON's numbers are doubles, which this one is not")
    return str(value)


def _number(value: float) -> str:
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError("JSON has no such number")
    if value == 0:
        return "0"
    if SMALL <= abs(value) < LARGE:
        text = format(Decimal(repr(value)), "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    digits, _, exponent = repr(value).partition("e")
    return f"{digits.removesuffix('.0')}e{int(exponent):+d}"
