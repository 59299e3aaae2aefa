"""The lock between publishing and checking what is published (RC-4), held to the end of its transaction.

Retrieval publishes a workspace under the exclusive side. Who verifies evidence and stores what depends on it takes the shared side first,
in the transaction that stores: no publication slips in between.
"""

from collections.abc import Iterable
from uuid import UUID

import asyncpg

from shared.contracts.errors import ErrorCode, ServiceError
from shared.database.pool import Connection

_KEY = "hashtextextended('publish ' || $1::text, 0)"


async def hold_to_publish(db: Connection, workspaces: Iterable[UUID]) -> None:
    """Be the only one, once nobody checks any of these. They are taken in one order, so that nobody waits for each other.

    Raises:
        ServiceError: `service_unavailable`; somebody has held one for longer than the transaction waits for locks.
    """
    await _hold(db, "pg_advisory_xact_lock", workspaces, "Evidence of the workspace is being checked just now; try again shortly.")


async def hold_to_verify(db: Connection, workspaces: Iterable[UUID]) -> None:
    """Keep the publications of these as they are. Any number may, at once.

    Raises:
        ServiceError: `service_unavailable`; one is being published for longer than the transaction waits for locks.
    """
    await _hold(db, "pg_advisory_xact_lock_shared", workspaces, "The workspace is being published just now; try again shortly.")


async def _hold(db: Connection, side: str, workspaces: Iterable[UUID], busy: str) -> None:
    try:
        for workspace in sorted(set(workspaces)):
            await db.execute(f"SELECT {side}({_KEY})", str(workspace))
    except asyncpg.LockNotAvailableError:
        raise ServiceError(ErrorCode.UNAVAILABLE, busy, retry_after=2) from None
