"""How much of the machine the index's upkeep takes: a third of it while someone searches, in pieces that a search hardly waits for."""

import asyncio
import time

# After a search another one is to be expected for so long.
SEARCHING_SECONDS = 1.0


class Pace:
    """Set by searches, kept by whoever writes in the background."""

    def __init__(self) -> None:
        self._searched_at = -SEARCHING_SECONDS

    def searched(self) -> None:
        """There is a search now."""
        self._searched_at = time.monotonic()

    @property
    def searching(self) -> bool:
        """Whether there was one just now."""
        return time.monotonic() - self._searched_at < SEARCHING_SECONDS

    def piece(self, most: int, least: int) -> int:
        """How many to write at once."""
        return least if self.searching else most

    async def rest(self, worked: float) -> None:
        """After so many seconds of work, and without any lock."""
        if self.searching:
            await asyncio.sleep(2 * worked)
