"""How much of the machine the index's upkeep takes: a third of it while someone searches, in pieces that a search hardly waits for."""

import asyncio
import time

# After a search another one is to be expected for so long.
SEARCHING_SECONDS = 1.0
# Points of one write while someone searches: a search waits for as long as a message of them takes to be made.
PIECE = 32


class Pace:
    """Set by searches, kept by whoever writes in the background."""

    def __init__(self) -> None:
        self._searched_at = -SEARCHING_SECONDS

    def searched(self) -> None:
        """There is a search now."""
        self._searched_at = time.monotonic()

    def piece(self, most: int) -> int:
        """How many points to write at once, of `most` when nobody searches."""
        return PIECE if self._searching else most

    async def rest(self, worked: float) -> None:
        """After so many seconds of work, and without any lock."""
        if self._searching:
            await asyncio.sleep(2 * worked)

    @property
    def _searching(self) -> bool:
        return time.monotonic() - self._searched_at < SEARCHING_SECONDS
