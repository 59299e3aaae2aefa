"""Threads for file work: a few per workspace, so that a mount that does not answer holds up no other vault and never the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

THREADS_PER_WORKSPACE = 4


class FileThreads:
    """The threads of this process, by workspace; made when first needed."""

    def __init__(self) -> None:
        self._pools: dict[UUID, ThreadPoolExecutor] = {}

    def of(self, workspace: UUID) -> ThreadPoolExecutor:
        """One workspace's."""
        pool = self._pools.get(workspace)
        if pool is None:
            pool = self._pools[workspace] = ThreadPoolExecutor(THREADS_PER_WORKSPACE, thread_name_prefix=f"vault-{workspace}")
        return pool

    async def run[*Arguments, T](self, workspace: UUID, work: Callable[[*Arguments], T], *arguments: *Arguments) -> T:
        """What `work(*arguments)` returns, from one of the workspace's threads."""
        return await asyncio.get_running_loop().run_in_executor(self.of(workspace), work, *arguments)

    def close(self) -> None:
        """Give up: what waits is dropped, what runs is not waited for."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
