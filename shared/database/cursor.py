"""Cursors of lists that page by key: opaque to clients, the key of the last row to us."""

import base64
import binascii
import json

from shared.contracts.errors import ErrorCode, ServiceError


def encode(*key: str) -> str:
    """The cursor after the row with this key."""
    return base64.urlsafe_b64encode(json.dumps(key, ensure_ascii=False).encode()).decode().rstrip("=")


def decode(cursor: str, length: int) -> list[str]:
    """The key, of `length` parts.

    Raises:
        ServiceError: `malformed`, where the cursor is none that was given out.
    """
    try:
        key = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        raise unknown_cursor() from None
    if not isinstance(key, list) or len(key) != length or not all(isinstance(part, str) and part and "\0" not in part for part in key):
        raise unknown_cursor()
    return key


def unknown_cursor() -> ServiceError:
    """What a list says to a cursor that it has not given."""
    return ServiceError(ErrorCode.MALFORMED, "The cursor is none that this list has given.")
