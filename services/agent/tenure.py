"""Whether this process may go on writing the logs of its turns.

Another agent takes over when this one seems gone. One that was only stopped for a while, or cut off, does not know that: before it writes
another event it must have seen in the database that its turns are still its own. So doubt begins where it could have been given up
(its own clock jumped, the connection was away), and ends with the next beat (see `lease`).
"""

import time

# Shorter than the time after which others may take over (`lease.GONE_AFTER_SECONDS`).
PAUSE_SECONDS_MAX = 2.5


class Tenure:
    """In doubt or not. Asking costs one look at the clock."""

    def __init__(self) -> None:
        self._ticked = time.monotonic()
        self._doubted = False

    @property
    def certain(self) -> bool:
        """Whether an event may be published now."""
        self._notice_pause()
        return not self._doubted

    def tick(self) -> None:
        """This process runs; called all the time."""
        self._notice_pause()
        self._ticked = time.monotonic()

    def doubt(self) -> None:
        """Others may have seen us gone."""
        self._doubted = True

    def confirm(self, asked_at: float) -> None:
        """The database, asked at that moment (monotonic), has said which turns are ours; those that are not have been fenced.

        An answer that a pause has made old confirms nothing.
        """
        now = time.monotonic()
        if now - asked_at <= PAUSE_SECONDS_MAX:
            self._ticked, self._doubted = now, False

    def _notice_pause(self) -> None:
        if time.monotonic() - self._ticked > PAUSE_SECONDS_MAX:
            self._doubted = True
