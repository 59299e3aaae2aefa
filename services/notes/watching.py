"""Hints that something under a directory was touched, by whatever program. Hints only: nothing relies on one to come.

The watching itself runs in a thread of its own: setting up many watches, or doing so on a mount that does not answer, takes its time.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import watchfiles

from services.notes.note_path import nfc

logger = logging.getLogger(__name__)

# A group of changes is passed on after so many milliseconds without another, or at the latest after the second number.
STEP_MS = 50
DEBOUNCE_MS = 400
TIMEOUT_MS = 500
# A watch that ended begins again after so long, twice as long each time that it does not last.
RESTART_SECONDS = 1.0
RESTART_SECONDS_MAX = 300.0
# With more hints than this, looking at everything is cheaper.
HINTS_MAX = 2000


class Hints:
    """Touched paths, gathered until they are taken; relative to the watched directory."""

    def __init__(self) -> None:
        self._paths: set[str] = set()
        self._everything = False
        self._added = asyncio.Event()
        self.watching = True

    def add(self, *paths: str) -> None:
        """These were touched."""
        self._paths.update(paths)
        self._added.set()

    def add_everything(self) -> None:
        """Anything may have been touched."""
        self._everything = True
        self._added.set()

    def set_watching(self, watching: bool) -> None:
        """Whether touched paths are being gathered from now on; until now some may have been missed."""
        self.watching = watching
        self.add_everything()

    def add_later(self, paths: list[str], seconds: float) -> None:
        """Look at these once more after a while."""
        if paths:
            asyncio.get_running_loop().call_later(seconds, self.add, *paths)

    async def take(self, seconds: float) -> set[str] | None:
        """What was touched, None standing for everything; waits up to `seconds`, then an empty set."""
        try:
            async with asyncio.timeout(seconds):
                await self._added.wait()
        except TimeoutError:
            return set()
        paths, everything = self._paths, self._everything or len(self._paths) > HINTS_MAX
        self._paths, self._everything = set(), False
        self._added.clear()
        return None if everything else _topmost(paths)

    def touched(self) -> set[str]:
        """What has been touched since, and stays to be taken; empty where it is too much to be told."""
        return set() if self._everything or len(self._paths) > HINTS_MAX else _topmost(self._paths)


@contextmanager
def watched(directory: Path) -> Iterator[Hints]:
    """Hints about what lies below a directory while the body runs. Once the watch stands, everything counts as touched."""
    hints = Hints()
    stop = threading.Event()
    loop = asyncio.get_running_loop()

    def tell(action: Callable[[], None]) -> None:
        if not stop.is_set():
            loop.call_soon_threadsafe(action)

    thread = threading.Thread(target=_watch, args=(directory, stop, hints, tell), name=f"watch {directory.name}", daemon=True)
    thread.start()
    try:
        yield hints
    finally:
        stop.set()


def _watch(directory: Path, stop: threading.Event, hints: Hints, tell: Callable[[Callable[[], None]], None]) -> None:
    """Until `stop`: a watch ends at a name that is not UTF-8, where there are too many watches, or where the directory has gone."""
    pause = RESTART_SECONDS
    while not stop.is_set():
        began = time.monotonic()
        try:
            _watch_once(directory, stop, hints, tell)
        except (OSError, RuntimeError) as error:
            logger.warning("%s cannot be watched just now: %s", directory, error)
        # Looking at everything more often has to do.
        tell(lambda: hints.set_watching(False))
        if time.monotonic() - began > RESTART_SECONDS_MAX:
            pause = RESTART_SECONDS
        stop.wait(pause)
        pause = min(2 * pause, RESTART_SECONDS_MAX)


def _watch_once(directory: Path, stop: threading.Event, hints: Hints, tell: Callable[[Callable[[], None]], None]) -> None:
    root = os.path.realpath(directory)
    established = False
    for batch in watchfiles.watch(
        root, watch_filter=None, debounce=DEBOUNCE_MS, step=STEP_MS, rust_timeout=TIMEOUT_MS, yield_on_timeout=True,
        stop_event=stop, raise_interrupt=False, ignore_permission_denied=True,
    ):  # fmt: skip
        if not established:
            established = True
            tell(lambda: hints.set_watching(True))
        if batch:
            paths = {os.path.relpath(path, root) for _, path in batch}
            touched = paths | set(map(nfc, paths))  # it may be either in the index
            tell(lambda touched=touched: hints.add(*touched))  # type: ignore[misc]


def _topmost(paths: set[str]) -> set[str]:
    """Without the paths below another of them."""
    if "." in paths:
        return {path for path in paths if path != "."}
    return {path for path in paths if not any(parent in paths for parent in _parents(path))}


def _parents(path: str) -> Iterator[str]:
    position = path.rfind("/")
    while position > 0:
        yield path[:position]
        position = path.rfind("/", 0, position)
