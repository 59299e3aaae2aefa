"""The lock between publishing and checking what is published (RC-4), held to the end of its transaction.

Retrieval publishes a workspace under the exclusive side. Who verifies evidence and stores what depends on it takes the shared side first,
in the transaction that stores: no publication slips in between.
"""

from collections.abc import Iterable
from uuid import UUID

from shared.database.pool import Connection

_KEY = "hashtextextended('publish ' || $1::text, 0)"


async def hold_to_publish(db: Connection, workspaces: Iterable[UUID]) -> None:
    """Be the only one, once nobody checks any of these. They are taken in one order, so that nobody waits for each other.

    Raises:
        asyncpg.LockNotAvailableError: somebody has held one for too long.
    """
    for workspace in sorted(set(workspaces)):
        await db.execute(f"SELECT pg_advisory_xact_lock({_KEY})", str(workspace))


async def hold_to_verify(db: Connection, workspaces: Iterable[UUID]) -> None:
    """Keep the publications of these as they are. Any number may, at once.

    Raises:
        asyncpg.LockNotAvailableError: one is being published, for too long.
    """
    for workspace in sorted(set(workspaces)):
        await db.execute(f"SELECT pg_advisory_xact_lock_shared({_KEY})", str(workspace))
