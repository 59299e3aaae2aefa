"""Accounts, sessions, personal tokens: the gateway's tables."""

import hashlib
import hmac
import logging
import secrets
import unicodedata
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import asyncpg

from services.gateway import passwords
from shared.contracts.errors import ErrorCode, ServiceError
from shared.database.pool import Pool, connection, transaction
from shared.messaging.scope import Role

logger = logging.getLogger(__name__)

# Every request passes here first: a database that is frozen is said to be away within 2 s.
DATABASE_SECONDS = 1.5
SESSION_LIFETIME = timedelta(days=30)
TOKEN_PREFIX = "mgl_"  # noqa: S105 - a prefix, so that a leaked token is recognised
LOGIN_WINDOW_SECONDS = 60
LOGIN_FAILURES_MAX = 10
ADMIN = "admin"
PASSWORD_FILE = "admin-password"  # noqa: S105 - a file name


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a request comes from. `csrf_token` is None for a bearer token."""

    id: UUID
    username: str
    role: Role
    via: Literal["session", "token"]
    csrf_token: str | None = None


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session that was just begun: the cookie's value, and whose it is."""

    token: str
    identity: Identity


class Accounts:
    """See the module."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def bootstrap(self, password: str | None, home: Path | None) -> None:
        """Have the account `admin`. Without a given password it gets a random one, kept in the data directory (0600)."""
        async with connection(self._pool, seconds=DATABASE_SECONDS) as db:
            if await db.fetchval("SELECT true FROM accounts WHERE username = $1", ADMIN):
                return
        if password is None:
            password = secrets.token_urlsafe(12)
            _keep_password(password, home)
        password_hash = await passwords.hashed(password)
        async with connection(self._pool, seconds=DATABASE_SECONDS) as db:
            await db.execute(
                "INSERT INTO accounts (username, password_hash, role) VALUES ($1, $2, 'admin') ON CONFLICT DO NOTHING", ADMIN, password_hash
            )

    # Logging in

    async def login(self, username: str, password: str, address: str, old_token: str | None) -> NewSession:
        """Begin a session; the one that the client had ends.

        Raises:
            ServiceError: `unauthenticated`; `rate_limited` after repeated failures from this address for this name.
        """
        username = normal(username)
        if await self._failures(address, username) >= LOGIN_FAILURES_MAX:
            raise ServiceError(
                ErrorCode.RATE_LIMITED, "Too many failed logins; wait a minute and try again.", retry_after=LOGIN_WINDOW_SECONDS
            )
        async with connection(self._pool, seconds=DATABASE_SECONDS) as db:
            row = await db.fetchrow("SELECT id, password_hash, role, disabled FROM accounts WHERE username = $1", username)
        right = await passwords.matches(row["password_hash"] if row else None, password)
        if row is None or not right or row["disabled"]:
            await self._failed(address, username)
            raise ServiceError(ErrorCode.UNAUTHENTICATED, "The user name or the password is wrong.")
        token = secrets.token_urlsafe(32)
        async with transaction(self._pool, seconds=DATABASE_SECONDS) as db:
            if old_token is not None:
                await db.execute("DELETE FROM sessions WHERE token_sha256 = $1", _digest(old_token))
            await db.execute("DELETE FROM sessions WHERE expires_at < now()")
            await db.execute(
                "INSERT INTO sessions (token_sha256, account_id, expires_at) VALUES ($1, $2, now() + $3::interval)",
                _digest(token), row["id"], SESSION_LIFETIME,
            )  # fmt: skip
        return NewSession(token, Identity(row["id"], username, row["role"], "session", csrf_token(token)))

    async def _failures(self, address: str, username: str) -> int:
        async with connection(self._pool, seconds=DATABASE_SECONDS) as db:
            count: int = await db.fetchval(
                """
                SELECT count(*) FROM login_failures
                WHERE address = $1 AND username = $2 AND failed_at > now() - make_interval(secs => $3)
                """,
                address, username, LOGIN_WINDOW_SECONDS,
            )  # fmt: skip
        return count

    async def _failed(self, address: str, username: str) -> None:
        async with connection(self._pool, seconds=DATABASE_SECONDS) as db:
            await db.execute("DELETE FROM login_failures WHERE failed_at < now() - make_interval(secs => $1)", LOGIN_WINDOW_SECONDS)
            await db.execute("INSERT INTO login_failures (address, username) VALUES ($1, $2)", address, username)

    async def logout(self, token: str) -> None:
        """End a session."""
        async with connection(self._pool, seconds=DATABASE_SECONDS) as db:
            await db.execute("DELETE FROM sessions WHERE token_sha256 = $1", _digest(token))

    # Recognising

    async def by_session(self, token: str) -> Identity | None:
        """Whose session this is, if it is one."""
        async with connection(self._pool, seconds=DATABASE_SECONDS) as db:
            row = await db.fetchrow(
                """
                SELECT a.id, a.username, a.role FROM sessions s JOIN accounts a ON a.id = s.account_id
                WHERE s.token_sha256 = $1 AND s.expires_at > now() AND NOT a.disabled
                """,
                _digest(token),
            )
        return Identity(row["id"], row["username"], row["role"], "session", csrf_token(token)) if row else None

    async def by_token(self, token: str) -> Identity | None:
        """Whose personal token this is. Its role is the lesser of its own and its account's."""
        async with connection(self._pool, seconds=DATABASE_SECONDS) as db:
            row = await db.fetchrow(
                """
                SELECT a.id, a.username, CASE WHEN t.role = 'admin' AND a.role = 'admin' THEN 'admin' ELSE 'member' END AS role
                FROM tokens t JOIN accounts a ON a.id = t.account_id WHERE t.token_sha256 = $1 AND NOT a.disabled
                """,
                _digest(token),
            )
        return Identity(row["id"], row["username"], row["role"], "token") if row else None

    # Tokens

    async def create_token(self, identity: Identity, name: str, role: Role | None) -> tuple[asyncpg.Record, str]:
        """A new token's row, and the token itself, which is shown this once."""
        if role == "admin" and identity.role != "admin":
            raise ServiceError(ErrorCode.FORBIDDEN, "A token cannot have more rights than its account.")
        token = TOKEN_PREFIX + secrets.token_urlsafe(32)
        async with connection(self._pool, seconds=DATABASE_SECONDS) as db:
            row = await db.fetchrow(
                "INSERT INTO tokens (token_sha256, account_id, name, role) VALUES ($1, $2, $3, $4) RETURNING id, name, role, created_at",
                _digest(token), identity.id, name, role or identity.role,
            )  # fmt: skip
        assert row is not None
        return row, token

    async def tokens(self, identity: Identity) -> list[asyncpg.Record]:
        """The account's tokens, without the tokens themselves."""
        async with connection(self._pool, seconds=DATABASE_SECONDS) as db:
            return await db.fetch("SELECT id, name, role, created_at FROM tokens WHERE account_id = $1 ORDER BY created_at", identity.id)

    async def delete_token(self, identity: Identity, token_id: UUID) -> None:
        """Revoke one of the account's tokens."""
        async with connection(self._pool, seconds=DATABASE_SECONDS) as db:
            gone = await db.execute("DELETE FROM tokens WHERE id = $1 AND account_id = $2", token_id, identity.id)
        if gone == "DELETE 0":
            raise ServiceError(ErrorCode.TOKEN_NOT_FOUND, "There is no such token.")

    # Accounts

    async def create(self, username: str, password: str, role: Role) -> asyncpg.Record:
        """A new account's row.

        Raises:
            ServiceError: `username_taken`.
        """
        password_hash = await passwords.hashed(password)
        try:
            async with connection(self._pool, seconds=DATABASE_SECONDS) as db:
                row = await db.fetchrow(
                    "INSERT INTO accounts (username, password_hash, role) VALUES ($1, $2, $3) RETURNING *",
                    normal(username),
                    password_hash,
                    role,
                )
        except asyncpg.UniqueViolationError:
            raise ServiceError(ErrorCode.USERNAME_TAKEN, "An account has this user name already.") from None
        assert row is not None
        return row

    async def all(self) -> list[asyncpg.Record]:
        """Every account."""
        async with connection(self._pool, seconds=DATABASE_SECONDS) as db:
            return await db.fetch("SELECT * FROM accounts ORDER BY created_at, username")

    async def update(self, account_id: UUID, role: Role | None, password: str | None, disabled: bool | None) -> asyncpg.Record:
        """Change an account. A new password or disabling ends its sessions; the last admin stays one.

        Raises:
            ServiceError: `account_not_found`, `conflict`.
        """
        password_hash = await passwords.hashed(password) if password is not None else None
        async with transaction(self._pool, seconds=DATABASE_SECONDS) as db:
            await db.execute("LOCK TABLE accounts IN SHARE ROW EXCLUSIVE MODE")
            row = await db.fetchrow(
                """
                UPDATE accounts SET role = COALESCE($2, role), password_hash = COALESCE($3, password_hash),
                    disabled = COALESCE($4, disabled) WHERE id = $1 RETURNING *
                """,
                account_id, role, password_hash, disabled,
            )  # fmt: skip
            if row is None:
                raise ServiceError(ErrorCode.ACCOUNT_NOT_FOUND, "There is no such account.")
            if not await db.fetchval("SELECT true FROM accounts WHERE role = 'admin' AND NOT disabled LIMIT 1"):
                raise ServiceError(ErrorCode.CONFLICT, "This is the last admin; make another account an admin first.")
            if password is not None or disabled:
                await db.execute("DELETE FROM sessions WHERE account_id = $1", account_id)
        return row

    # Preferences

    async def preferences(self, account_id: UUID) -> dict[str, Any]:
        """What the account has set; empty where nothing."""
        async with connection(self._pool, seconds=DATABASE_SECONDS) as db:
            stored: dict[str, Any] = await db.fetchval("SELECT preferences FROM accounts WHERE id = $1", account_id)
        return stored

    async def set_preferences(self, account_id: UUID, preferences: dict[str, Any]) -> None:
        """Replace them."""
        async with connection(self._pool, seconds=DATABASE_SECONDS) as db:
            await db.execute("UPDATE accounts SET preferences = $2 WHERE id = $1", account_id, preferences)


def normal(username: str) -> str:
    """User names compare after NFC and without surrounding white space."""
    return unicodedata.normalize("NFC", username).strip()


def csrf_token(session_token: str) -> str:
    """The session's CSRF token: bound to it by construction, so nothing needs to be stored."""
    return hmac.new(session_token.encode(), b"csrf", hashlib.sha256).hexdigest()


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _keep_password(password: str, home: Path | None) -> None:
    if home is None:
        logger.warning("The account %r was made with the password %s; it is not kept anywhere", ADMIN, password)
        return
    path = home / PASSWORD_FILE
    path.touch(mode=0o600, exist_ok=True)
    path.write_text(password + "\n", "utf-8")
    logger.warning("The account %r was made; its password is in %s", ADMIN, path)
