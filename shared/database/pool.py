"""A connection pool on which nothing waits for ever."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import orjson
from asyncpg.pool import PoolConnectionProxy

from shared.contracts.errors import ErrorCode, ServiceError
from shared.database.statements import TracedConnection
from shared.telemetry.logs import said

logger = logging.getLogger(__name__)

type Pool = asyncpg.Pool[asyncpg.Record]
type Connection = PoolConnectionProxy[asyncpg.Record]

ACQUIRE_SECONDS = 5.0
RELEASE_SECONDS = 0.3
PING_SECONDS = 1.0
ROLE_SECONDS = 1.0
COMMAND_SECONDS = 10.0
SERVER_SETTINGS = {
    "statement_timeout": "10s",
    "lock_timeout": "2s",
    "idle_in_transaction_session_timeout": "30s",
    "timezone": "UTC",
    # Short-lived plans of small queries: compiling them costs more than running them.
    "jit": "off",
}

# What a database that is away, starting or short of something raises: passing, and not the request's fault.
UNAVAILABLE = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    # What asyncpg makes of a connection that broke while a statement was being prepared.
    asyncpg.InternalClientError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    # No connection, no memory, no room on its disk.
    asyncpg.InsufficientResourcesError,
    # Somebody else holds what is needed, for longer than is waited for it or in the opposite order; or it takes too long.
    asyncpg.LockNotAvailableError,
    asyncpg.TransactionRollbackError,
    asyncpg.QueryCanceledError,
)
# What tables raise that are not those this version was made for: taken back, migrated on, or changed under a transaction. It passes once
# somebody has brought them up to date; until then it is the database that is not what it should be, not the request.
TABLES_DIFFER = (
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedColumnError,
    asyncpg.InvalidSchemaNameError,
    asyncpg.InvalidCachedStatementError,
)
TABLES_DIFFER_DETAIL = "The database's tables are not those of this version; try again once they are up to date."


class _Session(TracedConnection):
    """A connection that is given back as it is: nothing here leaves session state behind, and a reset costs a round trip each time."""

    def get_reset_query(self) -> str:
        return ""


async def open_pool(url: str, schema: str, *, size: int = 8) -> Pool:
    """A pool whose connections see `schema`; waits until the database answers, and knows the role: it is made after the server began."""
    while True:
        try:
            return await asyncpg.create_pool(
                url,
                connection_class=_Session,
                # One now, to know that it can be had; no floor, whose loss the pool logs with a traceback when the database is away.
                min_size=0,
                init_size=1,
                max_size=size,
                max_inactive_connection_lifetime=300,
                timeout=5,
                command_timeout=COMMAND_SECONDS,
                server_settings={**SERVER_SETTINGS, "search_path": f"{schema}, public", "application_name": schema},
                init=_use_orjson,
            )
        except UNAVAILABLE as error:
            logger.warning("The database does not answer yet: %s", type(error).__name__)
            await asyncio.sleep(0.3)
        except asyncpg.InvalidAuthorizationSpecificationError as error:
            logger.warning("The database does not know this role and its password yet: %s", type(error).__name__)
            await asyncio.sleep(ROLE_SECONDS)


async def _use_orjson(connection: Any) -> None:
    await connection.set_type_codec("jsonb", encoder=_encode, decoder=orjson.loads, schema="pg_catalog")


def _encode(value: Any) -> str:
    return orjson.dumps(value).decode()


@asynccontextmanager
async def connection(pool: Pool, *, seconds: float | None = None) -> AsyncIterator[Connection]:
    """A pooled connection for one task; what is done with it may take `seconds` in all.

    Raises:
        ServiceError: `service_unavailable`, where the database is away, frozen, has none free, or other tables.
    """
    try:
        async with asyncio.timeout(seconds):
            acquired = await pool.acquire(timeout=ACQUIRE_SECONDS)
            try:
                yield acquired
            finally:
                await _give_back(pool, acquired)
    except (*UNAVAILABLE, *TABLES_DIFFER) as error:
        raise database_unavailable(error) from error


async def _give_back(pool: Pool, acquired: Connection) -> None:
    """A connection whose statement was interrupted waits for the server's word; one that does not come in time is closed."""
    try:
        await pool.release(acquired, timeout=RELEASE_SECONDS)
    except TimeoutError:
        logger.warning("A connection did not become free in time and was closed")


@asynccontextmanager
async def transaction(pool: Pool, *, seconds: float | None = None) -> AsyncIterator[Connection]:
    """A connection inside a transaction: committed at the end, rolled back by any exception."""
    async with connection(pool, seconds=seconds) as acquired, acquired.transaction():
        yield acquired


def database_unavailable(error: BaseException) -> ServiceError:
    """What a request is told while the database is away, or has other tables."""
    if isinstance(error, TABLES_DIFFER):
        logger.error("The database's tables are not those of this version: %s", said(error))
        return ServiceError(ErrorCode.UNAVAILABLE, TABLES_DIFFER_DETAIL, retry_after=2)
    logger.warning("The database is not available: %s", said(error))
    return ServiceError(ErrorCode.UNAVAILABLE, "The database is not available; try again shortly.", retry_after=2)


async def ping(pool: Pool) -> str | None:
    """What is wrong with the database, or None."""
    try:
        async with connection(pool, seconds=PING_SECONDS) as acquired:
            if not await acquired.fetchval("SELECT EXISTS (SELECT FROM migrations)"):  # they were taken back
                return TABLES_DIFFER_DETAIL
    except ServiceError as error:
        return error.detail
    return None
