"""A sign of life for whoever can see nothing but files: a container's health check. Its age says whether the process is well."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

BEAT_SECONDS = 5.0


async def beat(path: Path, is_well: Callable[[], Awaitable[bool]]) -> None:
    """Touch the file now and every `BEAT_SECONDS`, as long as `is_well` says so."""
    while True:
        if await is_well():
            await asyncio.to_thread(path.touch, 0o600)
        await asyncio.sleep(BEAT_SECONDS)
