"""Other processes of this machine, as `/proc` shows them."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

_POLL_SECONDS = 0.02


def working_in(directory: Path) -> Iterator[int]:
    """Ids of the processes whose working directory it is."""
    for pid in _all():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cwd").readlink() == directory:
                yield pid


def started_with(pids: list[int], variable: str, value: str) -> Iterator[int]:
    """Those of `pids` that run with that environment variable: ids in a file may belong to strangers by now."""
    wanted = f"{variable}={value}".encode()
    for pid in pids:
        with contextlib.suppress(OSError):
            if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                yield pid


async def end(find: Callable[[], list[int]], first: signal.Signals, grace_seconds: float) -> None:
    """Sends `first` to what `find` finds, then SIGKILL to what is left after the grace; returns when nothing is."""
    _send(find(), first)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(grace_seconds):
            await _until_none(find)
            return
    _send(find(), signal.SIGKILL)
    await _until_none(find)


async def _until_none(find: Callable[[], list[int]]) -> None:
    while find():  # noqa: ASYNC110 - strangers' ends can only be polled
        await asyncio.sleep(_POLL_SECONDS)


def _send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _all() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
