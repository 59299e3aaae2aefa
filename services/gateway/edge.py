"""What stands around every request, as plain ASGI (a `BaseHTTPMiddleware` would hide that a client has left): size and time limits on
bodies, a trace span, request counts, security headers.
"""

import asyncio
import re
import time
from typing import Any

from opentelemetry.trace import Span
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.gateway.problems import problem
from shared.contracts.errors import ErrorCode, ServiceError
from shared.messaging.headers import TRACEPARENT
from shared.telemetry import tracing
from shared.telemetry import vocabulary as words

BODY_BYTES_MAX = 1024 * 1024
# A note may have 8 MB; in JSON each of its bytes may be escaped, at worst as six.
NOTE_BYTES_MAX = 8 * 1024 * 1024
NOTE_PATH = re.compile(r"^/api/workspaces/[^/]+/notes/")
BODY_SECONDS = 10.0
# What else a client calls a method is not repeated in a trace.
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "QUERY"})
# A response may have stricter ones of its own.
SECURITY_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"content-security-policy", b"default-src 'self'; frame-ancestors 'none'; base-uri 'none'; object-src 'none'"),
]


class Metrics:
    """What `/metrics` shows."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "marginalia_http_requests", "HTTP requests by route and status", ["method", "route", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "marginalia_http_request_seconds", "Time to the first byte of the response", ["method", "route"], registry=self.registry
        )
        self.streams = Counter("marginalia_streams", "Event streams by how they ended", ["ended"], registry=self.registry)


class Edge:
    """The middleware."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, method = time.perf_counter(), scope["method"]
        headers = dict(scope["headers"])
        parent = tracing.extract({TRACEPARENT: headers.get(TRACEPARENT.encode(), b"").decode("latin-1")})
        told = method if method in METHODS else "_OTHER"
        span = tracing.begin(words.REQUEST, {words.HTTP_METHOD: told}, context=parent, method=told, route="unmatched")

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = _route(scope)
                self._metrics.requests.labels(method, route, message["status"]).inc()
                self._metrics.seconds.labels(method, route).observe(time.perf_counter() - started)
                _describe(span, told, route, message["status"])
                own = message.get("headers", [])
                names = {name.lower() for name, _ in own}
                message["headers"] = [*own, *(header for header in SECURITY_HEADERS if header[0] not in names)]
            await send(message)

        try:
            limited = _Limited(receive, _limit(scope["path"]))
            with tracing.using(span):
                if limited.declares_too_much(headers.get(b"content-length")):
                    await problem(_too_large(limited.limit), path=scope["path"])(scope, receive, sending)
                else:
                    await self.app(scope, limited, sending)
        except BaseException as error:
            tracing.note_failure(span, error)
            raise
        finally:
            span.end()


class _Limited:
    """`receive`, with a limit on the size of the body and on the time it may take to arrive."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self.limit = limit
        self._receive = receive
        self._size = 0
        self._whole = False
        self._deadline = asyncio.get_running_loop().time() + BODY_SECONDS

    def declares_too_much(self, content_length: bytes | None) -> bool:
        return content_length is not None and content_length.isdigit() and int(content_length) > self.limit

    async def __call__(self) -> Message:
        if self._whole:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise ServiceError(ErrorCode.REQUEST_TIMEOUT, f"The body did not arrive within {BODY_SECONDS:.0f} s.") from None
        if message["type"] == "http.request":
            self._size += len(message.get("body", b""))
            self._whole = not message.get("more_body", False)
            if self._size > self.limit:
                raise _too_large(self.limit)
        return message


def _limit(path: str) -> int:
    return 6 * NOTE_BYTES_MAX if NOTE_PATH.match(path) else BODY_BYTES_MAX


def _too_large(limit: int) -> ServiceError:
    return ServiceError(ErrorCode.TOO_LARGE, f"The body is larger than {limit} bytes.", limit=limit)


def _describe(span: Span, method: str, route: str, status: int) -> None:
    span.update_name(words.REQUEST.named(method=method, route=route))
    span.set_attributes({words.HTTP_ROUTE: route, words.HTTP_STATUS: status})
    if status >= 500:
        tracing.note_error(span, str(status))


def _route(scope: Scope) -> str:
    route: Any = scope.get("route")
    return getattr(route, "path_format", None) or getattr(route, "path", None) or "unmatched"
