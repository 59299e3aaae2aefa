"""Who may: recognising accounts, and what a browser must show before it may change anything.

A cookie session's state-changing request needs an `Origin` on the allow-list and the session's CSRF token; a bearer token, which no
browser sends by itself, needs neither.
"""

import hmac
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from starlette.requests import HTTPConnection

from services.gateway.accounts import Accounts, Identity
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.subject import Message, Query
from shared.messaging.bus import Bus
from shared.messaging.scope import Account, Scope

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
COOKIE = "marginalia_session"
SECURE_COOKIE = "__Host-marginalia_session"
REQUEST_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Caller:
    """The account behind a request, and the way to ask services for it."""

    identity: Identity
    bus: Bus

    def scope(self, seconds: float = REQUEST_SECONDS, *, scope_id: str | None = None) -> Scope:
        """A scope for work on this request's behalf."""
        return Scope.root(seconds, account=Account(self.identity.id, self.identity.role), scope_id=scope_id)

    async def ask[Q: Message, R: Message](self, query: Query[Q, R], request: Q, seconds: float = REQUEST_SECONDS) -> R:
        """Ask a service on behalf of the account."""
        return await self.bus.client.ask(query, request, self.scope(seconds))

    def require_admin(self) -> None:
        """Raises `forbidden` for members."""
        if self.identity.role != "admin":
            raise ServiceError(ErrorCode.FORBIDDEN, "Only an admin may do this.")


def session_token(connection: HTTPConnection) -> str | None:
    """The session cookie. Two of one name are none: somebody else may have planted one."""
    raw = connection.headers.getlist("cookie")
    pairs = [part.strip().partition("=") for header in raw for part in header.split(";")]
    values = [value for name, _, value in pairs if name in (COOKIE, SECURE_COOKIE)]
    return values[0] if len(values) == 1 else None


def bearer_token(connection: HTTPConnection) -> str | None:
    """The token of an `Authorization: Bearer` header."""
    scheme, _, token = connection.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def check_origin(request: Request) -> str:
    """The request's origin, on the allow-list.

    Raises:
        ServiceError: `origin_rejected`.
    """
    origin = request.headers.get("origin", "")
    if origin not in request.app.state.origins or request.headers.get("sec-fetch-site") == "cross-site":
        raise ServiceError(ErrorCode.ORIGIN_REJECTED, "The Origin header is missing or not on the allow-list (MARGINALIA_ALLOWED_ORIGINS).")
    return origin


async def _recognised(request: Request) -> Identity:
    accounts: Accounts = request.app.state.accounts
    if "authorization" in request.headers:
        token = bearer_token(request)
        if token is None or (identity := await accounts.by_token(token)) is None:
            raise _unauthenticated()
        return identity
    token = session_token(request)
    if token is None or (identity := await accounts.by_session(token)) is None:
        raise _unauthenticated()
    if request.method not in SAFE_METHODS:
        check_origin(request)
        sent = request.headers.get("x-csrf-token", "")
        if not hmac.compare_digest(sent.encode(), (identity.csrf_token or "").encode()):
            raise ServiceError(ErrorCode.CSRF_REJECTED, "The X-CSRF-Token header is missing or not the session's.")
    return identity


async def _caller(request: Request) -> Caller:
    return Caller(await _recognised(request), request.app.state.bus)


async def _admin(caller: Annotated[Caller, Depends(_caller)]) -> Caller:
    caller.require_admin()
    return caller


async def _token_caller(caller: Annotated[Caller, Depends(_caller)]) -> Caller:
    if caller.identity.via != "token":
        raise ServiceError(ErrorCode.UNAUTHENTICATED, "Send a personal access token as `Authorization: Bearer …`.")
    return caller


def _unauthenticated() -> ServiceError:
    return ServiceError(ErrorCode.UNAUTHENTICATED, "Log in first, or send a valid bearer token.")


AnyCaller = Annotated[Caller, Depends(_caller)]
# Programs only: no browser sends a token by itself.
TokenCaller = Annotated[Caller, Depends(_token_caller)]
AdminCaller = Annotated[Caller, Depends(_admin)]
