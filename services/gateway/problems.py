"""Every error as RFC 9457 `application/problem+json`; the one place that makes them."""

import logging
from collections.abc import Mapping
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from shared.contracts.errors import ErrorCode, ServiceError
from shared.messaging.errors import location

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:marginalia:problem:"
RETRY_AFTER_SECONDS = 2
# Below it clients speak OpenAI's protocol, and read errors where that has them.
OPENAI_PREFIX = "/v1/"
OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
# What Starlette raises by itself, by status.
CODES: Mapping[int, ErrorCode] = {
    400: ErrorCode.MALFORMED,
    404: ErrorCode.NOT_FOUND,
    405: ErrorCode.METHOD_NOT_ALLOWED,
}


def problem(error: ServiceError, headers: Mapping[str, str] | None = None, *, path: str = "") -> Response:
    """The response that says what went wrong, at the address `path`."""
    body = {
        "type": TYPE_PREFIX + error.code.value,
        "title": error.code.value.replace("_", " ").capitalize(),
        "status": error.status,
        "detail": error.detail,
        "code": error.code.value,
        **error.extra,
    }
    if error.status == 422:
        body.setdefault("errors", [{"location": "request", "message": error.detail}])
    all_headers = dict(headers or {})
    if path.startswith(OPENAI_PREFIX):
        body["error"] = openai_error(error)
        # Their clients try most failures again by themselves; where that is known to be vain they are told.
        if error.extra.get("retriable") is False:
            all_headers["X-Should-Retry"] = "false"
    if error.status in (429, 503):
        all_headers["Retry-After"] = str(error.extra.get("retry_after", RETRY_AFTER_SECONDS))
    if error.status == 401:
        all_headers["WWW-Authenticate"] = "Bearer"
    return Response(orjson.dumps(body, default=str), error.status, all_headers, MEDIA_TYPE)


def invalid(location: str, message: str) -> ServiceError:
    """A 422 for one field."""
    return ServiceError(ErrorCode.INVALID, f"{location}: {message}", errors=[{"location": location, "message": message}])


def openai_error(error: ServiceError) -> dict[str, str | None]:
    """An error as OpenAI's clients read it, in a response's body and in the middle of a stream."""
    kind = OPENAI_TYPES.get(error.status, "server_error" if error.status >= 500 else "invalid_request_error")
    return {"message": error.detail, "type": kind, "param": error.extra.get("param"), "code": error.code.value}


def install(app: FastAPI) -> None:
    """Make these the app's answers to every kind of failure."""
    app.add_exception_handler(ServiceError, _service_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_exception)
    app.add_exception_handler(Exception, _unexpected)


async def _service_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ServiceError)
    return problem(error, path=request.url.path)


async def _validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    errors = [{"location": _location(item, error.body), "message": item["msg"].removeprefix("Value error, ")} for item in error.errors()]
    if any(item["loc"][0] == "path" for item in error.errors()):
        return problem(ServiceError(ErrorCode.NOT_FOUND, "There is nothing at this address."), path=request.url.path)
    detail = "; ".join(f"{item['location']}: {item['message']}" for item in errors[:3])
    return problem(ServiceError(ErrorCode.INVALID, f"The request is not valid. {detail}", errors=errors), path=request.url.path)


def _location(item: Mapping[str, Any], body: Any) -> str:
    """Where in the request, as whoever wrote it would say."""
    first, *steps = item["loc"]
    named = location(steps, body, missing=item["type"] == "missing") if first == "body" else map(str, steps)
    return ".".join([str(first), *named])


async def _http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, ServiceError):  # FastAPI wraps what reading a body raises
        return problem(error.__cause__, path=request.url.path)
    code = CODES.get(error.status_code, ErrorCode.INTERNAL if error.status_code >= 500 else ErrorCode.MALFORMED)
    details = {404: "There is nothing at this address.", 405: "This address does not take this method."}
    said = details.get(error.status_code, "The request cannot be read.")
    return problem(ServiceError(code, said), error.headers, path=request.url.path)


async def _unexpected(request: Request, error: Exception) -> Response:
    logger.error("A request failed unexpectedly", exc_info=error)
    said = "The gateway met an unexpected error; its log has the details."
    return problem(ServiceError(ErrorCode.INTERNAL, said), path=request.url.path)
