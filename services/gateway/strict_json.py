"""Reading JSON without silent repair: what a standard reader lets pass and later breaks on is refused here.

Cannot be read (400): not UTF-8, not JSON, NaN or Infinity, a key twice in one object, nested deeper than 32.
Read but not usable (422): a lone surrogate or NUL in a string, an integer beyond 64 bits.
"""

import json
import re
from typing import Any, NoReturn

from services.gateway.problems import invalid
from shared.contracts.errors import ErrorCode, ServiceError

DEPTH_MAX = 32
INTEGER_DIGITS_MAX = 20
INTEGER_MAX = 2**63 - 1
UNUSABLE = re.compile("[\x00\ud800-\udfff]")


def loads(body: bytes) -> Any:
    """The value.

    Raises:
        ServiceError: `malformed` or `invalid`, as the module says.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise malformed("The body is not UTF-8.") from None
    return parsed(text)


def parsed(text: str) -> Any:
    """The same for JSON that comes as text, such as within a body.

    Raises:
        ServiceError: `malformed` or `invalid`, as the module says.
    """
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=_integer, parse_float=_finite)
    except (json.JSONDecodeError, RecursionError):
        raise malformed("The body is not JSON.") from None
    _check(value, 1, "body")
    return value


def malformed(detail: str) -> ServiceError:
    """A 400."""
    return ServiceError(ErrorCode.MALFORMED, detail)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise malformed("An object has one key twice.")
    return found


def _no_constant(_: str) -> NoReturn:
    raise malformed("NaN and Infinity are not JSON.")


def _integer(digits: str) -> int:
    # Python refuses to convert thousands of digits; nothing here needs more than 64 bits.
    if len(digits) > INTEGER_DIGITS_MAX:
        raise malformed("A number has too many digits.")
    return int(digits)


def _finite(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise malformed("A number is too large.")
    return value


def _check(value: Any, depth: int, location: str) -> None:
    if depth > DEPTH_MAX:
        raise malformed(f"The body is nested deeper than {DEPTH_MAX}.")
    if isinstance(value, str):
        if UNUSABLE.search(value):
            raise invalid(location, "A string holds a NUL character or half a surrogate pair.")
    elif isinstance(value, int):
        if not -INTEGER_MAX <= value <= INTEGER_MAX:
            raise invalid(location, "A number is too large.")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            _check(item, depth + 1, f"{location}.{number}")
    elif isinstance(value, dict):
        for key, item in value.items():
            _check(key, depth + 1, location)
            _check(item, depth + 1, f"{location}.{key}" if not UNUSABLE.search(key) else location)
