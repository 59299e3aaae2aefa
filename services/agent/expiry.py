"""Removing transient conversations a day after their last turn; the stream keeps a turn's events no longer either."""

import asyncio
import logging

from shared.contracts.errors import ServiceError
from shared.database.pool import Pool, connection

logger = logging.getLogger(__name__)

KEPT_HOURS = 24
BATCH = 100
PAUSE_SECONDS = 60.0


class Expiry:
    """Each agent removes; rows that another is at are passed over."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def keep(self) -> None:
        """Remove what is over, for ever. A database that is away is asked again later."""
        while True:
            try:
                while await self.remove() == BATCH:
                    pass
            except ServiceError as error:
                logger.info("Transient conversations stay for now: %s", error.detail)
            await asyncio.sleep(PAUSE_SECONDS)

    async def remove(self) -> int:
        """Remove at most `BATCH` conversations that are over; how many there were."""
        async with connection(self._pool) as db:
            removed = await db.fetch(
                """
                DELETE FROM conversations WHERE id IN (
                    SELECT id FROM conversations WHERE transient AND updated_at < now() - make_interval(hours => $1)
                    ORDER BY updated_at LIMIT $2 FOR UPDATE SKIP LOCKED
                ) RETURNING id
                """,
                KEPT_HOURS, BATCH,
            )  # fmt: skip
        return len(removed)
