"""Logging in and out, personal tokens, accounts."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import asyncpg
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from services.gateway.access import COOKIE, SECURE_COOKIE, AdminCaller, AnyCaller, check_origin, session_token
from services.gateway.accounts import SESSION_LIFETIME, Accounts, Identity
from services.gateway.passwords import PASSWORD_BYTES_MAX
from services.gateway.problems import invalid
from services.gateway.strict_route import Body, NotBlank, StrictRoute

router = APIRouter(route_class=StrictRoute)

Username = Annotated[NotBlank, Field(min_length=1, max_length=100)]
Password = Annotated[str, Field(min_length=1, max_length=PASSWORD_BYTES_MAX)]
NewPassword = Annotated[str, Field(min_length=8, max_length=PASSWORD_BYTES_MAX)]
Role = Literal["admin", "member"]


class Login(Body):
    """A name and a password."""

    username: Username
    password: Password


class NewToken(Body):
    """`role` at most the account's own, which is the default."""

    name: Annotated[NotBlank, Field(max_length=100)]
    role: Role | None = None


class NewAccount(Body):
    """A new account."""

    username: Username
    password: NewPassword
    role: Role


class AccountChange(Body):
    """What to change; what is absent stays."""

    role: Role | None = None
    password: NewPassword | None = None
    disabled: bool | None = None


class AccountOut(BaseModel):
    """An account."""

    id: UUID
    username: str
    role: Role


class AccountDetails(AccountOut):
    """An account as an admin sees it."""

    disabled: bool
    created_at: datetime


class AccountList(BaseModel):
    """All accounts."""

    items: list[AccountDetails]
    next_cursor: str | None = None


class SessionOut(BaseModel):
    """Who is logged in, and what to send as `X-CSRF-Token`."""

    account: AccountOut
    csrf_token: str


class TokenOut(BaseModel):
    """A personal access token's description."""

    id: UUID
    name: str
    role: Role
    created_at: datetime


class TokenCreated(TokenOut):
    """With the token itself, shown this once."""

    token: str


class TokenList(BaseModel):
    """The account's tokens."""

    items: list[TokenOut]
    next_cursor: str | None = None


@router.post("/api/auth/login", response_model=SessionOut, summary="Log in")
async def login(body: Login, request: Request, response: Response) -> SessionOut:
    """Begins a session, in a cookie. Needs an allowed `Origin`."""
    origin = check_origin(request)
    if len(body.password.encode()) > PASSWORD_BYTES_MAX:
        raise invalid("body.password", f"must have at most {PASSWORD_BYTES_MAX} bytes")
    address = request.client.host if request.client else ""
    accounts: Accounts = request.app.state.accounts
    session = await accounts.login(body.username, body.password, address, session_token(request))
    # A `__Host-` cookie needs https; on plain loopback http browsers would not keep it.
    secure = origin.startswith("https://")
    response.set_cookie(
        SECURE_COOKIE if secure else COOKIE,
        session.token,
        max_age=int(SESSION_LIFETIME.total_seconds()),
        path="/",
        httponly=True,
        secure=secure,
        samesite="lax",
    )
    return _session(session.identity)


@router.get("/api/auth/session", response_model=SessionOut, summary="Who is logged in")
async def session(caller: AnyCaller) -> SessionOut:
    """The same object as at login; a bearer token's `csrf_token` is empty, since it needs none."""
    return _session(caller.identity)


@router.post("/api/auth/logout", status_code=204, summary="Log out")
async def logout(caller: AnyCaller, request: Request) -> Response:
    """Ends the session. A bearer token has no session to end."""
    if caller.identity.via == "session" and (token := session_token(request)) is not None:
        await request.app.state.accounts.logout(token)
    response = Response(status_code=204)
    for name in (COOKIE, SECURE_COOKIE):
        response.delete_cookie(name, path="/", secure=name == SECURE_COOKIE, httponly=True, samesite="lax")
    return response


@router.post("/api/auth/tokens", response_model=TokenCreated, status_code=201, summary="Make a personal access token")
async def create_token(body: NewToken, caller: AnyCaller, request: Request) -> TokenCreated:
    """The token is shown this once."""
    row, token = await request.app.state.accounts.create_token(caller.identity, body.name, body.role)
    return TokenCreated(**dict(row), token=token)


@router.get("/api/auth/tokens", response_model=TokenList, summary="List personal access tokens")
async def list_tokens(caller: AnyCaller, request: Request) -> TokenList:
    """Without the tokens themselves."""
    rows = await request.app.state.accounts.tokens(caller.identity)
    return TokenList(items=[TokenOut(**dict(row)) for row in rows])


@router.delete("/api/auth/tokens/{token_id}", status_code=204, summary="Revoke a personal access token")
async def delete_token(token_id: UUID, caller: AnyCaller, request: Request) -> Response:
    """It stops working at once."""
    await request.app.state.accounts.delete_token(caller.identity, token_id)
    return Response(status_code=204)


@router.post("/api/accounts", response_model=AccountDetails, status_code=201, summary="Make an account")
async def create_account(body: NewAccount, _: AdminCaller, request: Request) -> AccountDetails:
    """Admins only."""
    return _details(await request.app.state.accounts.create(body.username, body.password, body.role))


@router.get("/api/accounts", response_model=AccountList, summary="List accounts")
async def list_accounts(_: AdminCaller, request: Request) -> AccountList:
    """Admins only."""
    return AccountList(items=[_details(row) for row in await request.app.state.accounts.all()])


@router.patch("/api/accounts/{account_id}", response_model=AccountDetails, summary="Change an account")
async def change_account(account_id: UUID, body: AccountChange, _: AdminCaller, request: Request) -> AccountDetails:
    """Admins only. A new password, or disabling, ends the account's sessions."""
    return _details(await request.app.state.accounts.update(account_id, body.role, body.password, body.disabled))


def _session(identity: Identity) -> SessionOut:
    account = AccountOut(id=identity.id, username=identity.username, role=identity.role)
    return SessionOut(account=account, csrf_token=identity.csrf_token or "")


def _details(row: asyncpg.Record | dict[str, Any]) -> AccountDetails:
    return AccountDetails(**{name: row[name] for name in AccountDetails.model_fields})
