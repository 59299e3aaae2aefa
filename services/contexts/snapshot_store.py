"""Snapshots in PostgreSQL: inserted and read. There is no way to change or remove one (RC-10, RC-19)."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, LiteralString
from uuid import UUID

import asyncpg

from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.evidence import PAGE_SIZE_MAX, ContextPage, ListContexts
from shared.database.pool import Connection, Pool, connection, transaction

# Positions are given in the order of commits, so that whoever reads up to one has read all before it.
_ORDER = "SELECT pg_advisory_xact_lock(hashtext('contexts.snapshots.position'))"
# A part of an export or of a page, which travels in one message; a record has some 200 kB at most.
PART_BYTES_MAX = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Part:
    """Lines after a position; `last` is the position of the last one."""

    lines: list[str]
    last: int


def _fitting(wanted: LiteralString) -> str:
    """A query for the first rows of another one, in its order: as many as fit into a message, at least one where there is one."""
    return f"""
        SELECT position, line FROM (
            SELECT *, sum(octet_length(line)) OVER (ORDER BY place) - octet_length(line) AS before
            FROM (SELECT *, row_number() OVER () AS place FROM ({wanted}) AS wanted) AS placed
        ) AS summed WHERE before < {PART_BYTES_MAX} ORDER BY place
    """  # noqa: S608 - of literals


async def insert(db: Connection, line: str) -> None:
    """Store a record's line; to be called last in its transaction, which others wait for.

    Raises:
        ServiceError: `service_unavailable`, where many are being imported for longer than the transaction waits for locks.
    """
    await _take_turn(db)
    await _add(db, UUID(json.loads(line)["id"]), line)


async def _add(db: Connection, identifier: UUID, line: str) -> None:
    await db.execute("INSERT INTO snapshots (id, line) VALUES ($1, $2)", identifier, line)


async def _take_turn(db: Connection) -> None:
    try:
        await db.execute(_ORDER)
    except asyncpg.LockNotAvailableError:
        raise ServiceError(ErrorCode.UNAVAILABLE, "Contexts are being imported just now; try again shortly.", retry_after=5) from None


class SnapshotStore:
    """Reading, and bringing back what was exported."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def get(self, context: UUID) -> dict[str, Any]:
        """One snapshot.

        Raises:
            ServiceError: `context_not_found`.
        """
        async with connection(self._pool) as db:
            line = await db.fetchval("SELECT line FROM snapshots WHERE id = $1", context)
        if line is None:
            raise ServiceError(ErrorCode.CONTEXT_NOT_FOUND, "There is no such prepared context.")
        snapshot: dict[str, Any] = json.loads(line)
        return snapshot

    async def page(self, asked: ListContexts) -> ContextPage:
        """Newest first, as many as fit into a message.

        Raises:
            ServiceError: `invalid`.
        """
        page, size = asked.page, asked.page_size
        if not (1 <= page <= 1_000_000 and 1 <= size <= PAGE_SIZE_MAX and 0 <= asked.skip < size):
            raise ServiceError(ErrorCode.INVALID, f"Pages count from 1 and have 1 to {PAGE_SIZE_MAX} items.")
        until = await self.last_position() if asked.until is None else asked.until
        async with connection(self._pool) as db:
            total = await db.fetchval("SELECT count(*) FROM snapshots WHERE position <= $1", until)
            rows = await db.fetch(
                _fitting("SELECT position, line FROM snapshots WHERE position <= $1 ORDER BY position DESC OFFSET $2 LIMIT $3"),
                until, (page - 1) * size + asked.skip, size - asked.skip,
            )  # fmt: skip
        return ContextPage(items=[json.loads(row["line"]) for row in rows], page=page, page_size=size, total=total, until=until)

    async def last_position(self) -> int:
        """Up to where there are snapshots now."""
        async with connection(self._pool) as db:
            return int(await db.fetchval("SELECT COALESCE(max(position), 0) FROM snapshots"))

    async def part(self, after: int, until: int) -> Part:
        """The next lines, oldest first, as many as fit into a message, at least one where there is one."""
        async with connection(self._pool) as db:
            rows = await db.fetch(
                _fitting("SELECT position, line FROM snapshots WHERE position > $1 AND position <= $2 ORDER BY position LIMIT 1000"),
                after, until,
            )  # fmt: skip
        return Part([row["line"] for row in rows], rows[-1]["position"] if rows else until)

    async def restore(self, lines: Sequence[str]) -> int:
        """Bring back records, all or none, in their order; how many were not there. One that is there already must be the same.

        Raises:
            ServiceError: `conflict`, where another record has the id; `service_unavailable` during another import.
        """
        added = 0
        async with transaction(self._pool) as db:
            await _take_turn(db)
            for line in lines:
                identifier = UUID(json.loads(line)["id"])
                present = await db.fetchval("SELECT line FROM snapshots WHERE id = $1", identifier)
                if present is None:
                    await _add(db, identifier, line)
                    added += 1
                elif present != line:
                    raise ServiceError(ErrorCode.CONFLICT, f"Another record has the id {identifier}; nothing was imported.")
        return added
