"""One change of a workspace at a time, in whatever process: a file and its row in the index change together.

The lock is PostgreSQL's, held by the transaction that brings the change into the index: whatever ends that, kill -9 included, ends the
lock, and services on several machines share it. Those of one process wait in line before they take a connection.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import asyncpg

from shared.contracts.errors import ErrorCode, ServiceError
from shared.database.pool import Connection, Pool, transaction


class WriteLocks:
    """The locks of this process's workspaces."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._lines: dict[UUID, asyncio.Lock] = {}

    @asynccontextmanager
    async def held(self, workspace: UUID) -> AsyncIterator[Connection]:
        """The workspace's lock, and the transaction that holds it; committed at the end, rolled back by any exception.

        Raises:
            ServiceError: `service_unavailable`, where the database is away or another process holds the lock for long.
        """
        line = self._lines.setdefault(workspace, asyncio.Lock())
        async with line, transaction(self._pool) as connected:
            try:
                await connected.execute("SELECT pg_advisory_xact_lock(hashtextextended('notes write ' || $1, 0))", str(workspace))
            except asyncpg.LockNotAvailableError:
                raise ServiceError(
                    ErrorCode.UNAVAILABLE, "Another process is changing this workspace; try again shortly.", retry_after=2
                ) from None
            yield connected
