"""Waiting for a condition, never for a time."""

import asyncio
from collections.abc import Awaitable, Callable


async def eventually[T](check: Callable[[], Awaitable[T]], within: float = 5.0, *, every: float = 0.02) -> T:
    """What `check` returns once that is truthy. Raises AssertionError with the last value after `within` seconds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while not (value := await check()):
        assert loop.time() < deadline, f"not within {within} s; last: {value!r}"
        await asyncio.sleep(every)
    return value
