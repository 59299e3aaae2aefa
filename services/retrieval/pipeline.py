"""Doing things ahead of whoever takes their results."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Coroutine, Iterable
from typing import Any


async def in_order[T](work: Iterable[Coroutine[Any, Any, T]], at_once: int) -> AsyncGenerator[T]:
    """The results in the order of the work, of which up to `at_once` are under way.

    Whoever may stop before the end closes it (`contextlib.aclosing`): what is under way is cancelled then.

    Raises:
        whatever one of them raised, in its turn; what is under way behind it is cancelled.
    """
    under_way: deque[asyncio.Task[T]] = deque()
    try:
        for one in work:
            under_way.append(asyncio.create_task(one))
            if len(under_way) == at_once:
                yield await under_way[0]
                under_way.popleft()
        while under_way:
            yield await under_way[0]
            under_way.popleft()
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
