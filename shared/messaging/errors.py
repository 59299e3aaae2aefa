"""Exceptions to error replies, and back. The one place that turns an unknown exception into words, none of them the library's."""

import logging
from collections.abc import Mapping

from pydantic import ValidationError

from shared.contracts.errors import ErrorBody, ErrorCode, ServiceError
from shared.messaging import headers as names

logger = logging.getLogger(__name__)


def to_service_error(error: BaseException) -> ServiceError:
    """What a caller is told of `error`. Anything but a `ServiceError` or a refused request is logged here, and is `internal`."""
    if isinstance(error, ServiceError):
        return error
    logger.error("A request failed unexpectedly", exc_info=error)
    return ServiceError(ErrorCode.INTERNAL, "The service met an unexpected error; its log has the details.")


def invalid_request(error: ValidationError) -> ServiceError:
    """A request that is not of the subject's model. Locations and reasons, never the offending values."""
    reasons = [
        {"location": ".".join(map(str, item["loc"])), "message": item["msg"]}
        for item in error.errors(include_url=False, include_input=False, include_context=False)
    ]
    return ServiceError(ErrorCode.INVALID, "The request does not have the form of its subject.", errors=reasons)


def encode(error: ServiceError) -> tuple[dict[str, str], bytes]:
    """The headers and the body of an error reply."""
    body = ErrorBody(code=error.code, detail=error.detail, extra=error.extra)
    return {names.ERROR_CODE: error.code.value}, body.model_dump_json().encode()


def decode(headers: Mapping[str, str] | None, body: bytes) -> ServiceError | None:
    """The error in a reply, or None where the reply is a good one."""
    if not headers or names.ERROR_CODE not in headers:
        return None
    try:
        said = ErrorBody.model_validate_json(body)
    except ValidationError:
        return ServiceError(ErrorCode.INTERNAL, "A service answered with an error that this version does not know.")
    return ServiceError(said.code, said.detail, **said.extra)
