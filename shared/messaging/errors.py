"""Exceptions to error replies, and back. The one place that turns an unknown exception into words, none of them the library's."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from shared.contracts.errors import ErrorBody, ErrorCode, ServiceError
from shared.messaging import headers as names

logger = logging.getLogger(__name__)


def to_service_error(error: BaseException) -> ServiceError:
    """What a caller is told of `error`. Anything but a `ServiceError` or a refused request is logged here, and is `internal`."""
    if isinstance(error, ServiceError):
        return error
    logger.error("A request failed unexpectedly", exc_info=error)
    return ServiceError(ErrorCode.INTERNAL, "The service met an unexpected error; its log has the details.")


def invalid_request(error: ValidationError, body: bytes) -> ServiceError:
    """A request that is not of the subject's model. Locations and reasons, never the offending values."""
    items = error.errors(include_url=False, include_input=False, include_context=False)
    # What is no JSON has one error, at no place.
    sent = from_json(body) if any(item["loc"] for item in items) else None
    reasons = [
        {
            "location": ".".join(location(item["loc"], sent, missing=item["type"] == "missing")),
            "message": item["msg"].removeprefix("Value error, "),
        }
        for item in items
    ]
    return ServiceError(ErrorCode.INVALID, "The request does not have the form of its subject.", errors=reasons)


def location(steps: Sequence[str | int], body: Any, *, missing: bool) -> list[str]:
    """The place that pydantic says is wrong, as whoever wrote the body would name it: without the names of the kinds among which pydantic
    chose on its way. `missing`: the last step is not in the body.
    """
    found: list[str] = []
    value: Any = body
    chosen = False
    for position, step in enumerate(steps):
        last = position == len(steps) - 1
        # A node's kind comes before its fields, one of which may have the same name.
        if not chosen and not last and isinstance(value, dict) and value.get("type") == step:
            chosen = True
        elif (isinstance(value, dict) and step in value) or (isinstance(value, list) and isinstance(step, int) and step < len(value)):
            value = value[step]  # type: ignore[index]
            chosen = False
            found.append(str(step))
        elif missing and last:
            found.append(str(step))
    return found


def encode(error: ServiceError) -> tuple[dict[str, str], bytes]:
    """The headers and the body of an error reply."""
    return {names.ERROR_CODE: error.code.value}, ErrorBody.of(error).model_dump_json().encode()


def decode(headers: Mapping[str, str] | None, body: bytes) -> ServiceError | None:
    """The error in a reply, or None where the reply is a good one."""
    if not headers or names.ERROR_CODE not in headers:
        return None
    try:
        return ErrorBody.model_validate_json(body).error()
    except ValidationError:
        return ServiceError(ErrorCode.INTERNAL, "A service answered with an error that this version does not know.")
