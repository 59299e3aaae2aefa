"""Who runs what in this process, and how it is interrupted.

All work runs in a task of its own, held here under its scope's id. A handler of NATS or HTTP only waits for that task: nothing that
happens to the work, a stray `CancelledError` included, can end the handler's subscription (one that lets a cancellation out is deaf
for good, silently: nats-py and FastStream alike).
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any

from nats.aio.client import Client as Nats
from nats.aio.msg import Msg
from pydantic import ValidationError

from shared.contracts.control import CANCEL, Cancel
from shared.contracts.errors import ErrorCode, ServiceError
from shared.messaging.scope import Scope, is_within

logger = logging.getLogger(__name__)

# How long a cancel that came before its work is remembered, and how many of them.
REMEMBER_SECONDS = 60.0
REMEMBERED_MAX = 10_000
# How long interrupted work may take to clean up before its caller is answered without it.
CLEANUP_SECONDS = 5.0
# The reason of a cancel by a process that stops.
SHUTDOWN = "shutdown"


class Cancelled(ServiceError):
    """The work was cancelled; `reason` as in `contracts.control.Cancel`."""

    def __init__(self, reason: str) -> None:
        if reason == SHUTDOWN:  # nobody has called it off: it may be asked again, of another process
            super().__init__(ErrorCode.UNAVAILABLE, "The service was stopped; try again shortly.", reason=reason)
        else:
            super().__init__(ErrorCode.CANCELLED, f"The request was cancelled: {reason}.", reason=reason)
        self.reason = reason


class Cancellations:
    """The running work of this process by scope, and the cancels that came too early."""

    def __init__(self) -> None:
        self._running: dict[str, dict[asyncio.Task[Any], str]] = {}
        self._stopping = False
        self._remembered: OrderedDict[str, tuple[float, str]] = OrderedDict()

    async def listen(self, nats: Nats) -> None:
        """Hear every cancel. Its own subscription, so that it never queues behind the work it should stop."""

        async def heard(message: Msg) -> None:
            try:
                reason = Cancel.model_validate_json(message.data).reason
            except ValidationError:
                reason = "requested"
            self.cancel(message.subject.removeprefix(CANCEL.prefix), reason)

        await nats.subscribe(CANCEL.wildcard, cb=heard)

    def cancel(self, scope_id: str, reason: str) -> None:
        """Interrupt what runs under `scope_id` or below; remember it for what is still to come. Idempotent."""
        self._remember(scope_id, reason)
        for task, task_scope in list(self._running.get(_root(scope_id), {}).items()):
            if is_within(task_scope, scope_id):
                task.cancel(reason)

    def reason_against(self, scope_id: str) -> str | None:
        """Why work under `scope_id` must not start, or None."""
        horizon = time.monotonic() - REMEMBER_SECONDS
        parts = scope_id.split(".")
        for length in range(1, len(parts) + 1):
            known = self._remembered.get(".".join(parts[:length]))
            if known is not None and known[0] > horizon:
                return known[1]
        return None

    def start[T](self, scope: Scope, work: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Task[T]:
        """Run what `work` makes as a task that a cancel of its scope interrupts.

        Raises:
            Cancelled: the cancel was here first; the work is not begun.
        """
        if (reason := self.reason_against(scope.id)) is not None:
            raise Cancelled(reason)
        task = asyncio.create_task(work())
        group = self._running.setdefault(_root(scope.id), {})
        group[task] = scope.id
        task.add_done_callback(lambda done: self._ended(scope.id, done))
        return task

    async def run[T](self, scope: Scope, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run what `work` makes to its end, its deadline or its cancel, whichever is first.

        If the caller itself is cancelled, so is the work.

        Raises:
            Cancelled: it was cancelled.
            ServiceError: `deadline_exceeded`.
            Exception: whatever the work raises.
        """
        if scope.remaining <= 0:
            raise ServiceError(ErrorCode.DEADLINE_EXCEEDED, "The time for this request had passed when it arrived.")
        task = self.start(scope, work)
        try:
            await asyncio.wait({task}, timeout=scope.remaining)
            if not task.done():
                await interrupt(task, "deadline")
                raise ServiceError(ErrorCode.DEADLINE_EXCEEDED, "The request took longer than the time it had.")
        finally:
            # Reached undone only when the caller itself was cancelled.
            if not task.done():
                task.cancel("caller_gone")
        if task.cancelled():
            raise Cancelled(self.reason_against(scope.id) or (SHUTDOWN if self._stopping else "interrupted"))
        return task.result()

    async def stop(self, grace_seconds: float) -> None:
        """Let running work end for `grace_seconds`, then interrupt what is left."""
        tasks = self._tasks()
        if tasks and grace_seconds > 0:
            await asyncio.wait(tasks, timeout=grace_seconds)
        self._stopping = True
        await asyncio.gather(*(interrupt(task, SHUTDOWN) for task in self._tasks()))

    def _tasks(self) -> set[asyncio.Task[Any]]:
        return {task for group in self._running.values() for task in group}

    def _remember(self, scope_id: str, reason: str) -> None:
        now = time.monotonic()
        self._remembered[scope_id] = (now, reason)
        self._remembered.move_to_end(scope_id)
        while self._remembered:
            oldest, (seen, _) = next(iter(self._remembered.items()))
            if len(self._remembered) <= REMEMBERED_MAX and seen > now - REMEMBER_SECONDS:
                return
            del self._remembered[oldest]

    def _ended(self, scope_id: str, task: asyncio.Task[Any]) -> None:
        root = _root(scope_id)
        group = self._running.get(root, {})
        group.pop(task, None)
        if not group:
            self._running.pop(root, None)


def _root(scope_id: str) -> str:
    return scope_id.split(".", 1)[0]


async def interrupt(task: asyncio.Task[Any], reason: str) -> None:
    """Cancel a task and wait for its cleanup, for a bounded time. What the task raises stays in the task."""
    task.cancel(reason)
    done, _ = await asyncio.wait({task}, timeout=CLEANUP_SECONDS)
    if not done:
        logger.error("Work did not end %.0f s after it was cancelled (%s): %r", CLEANUP_SECONDS, reason, task)
    elif not task.cancelled():
        task.exception()  # seen; the caller answers for the interruption itself


async def shielded[T](work: Coroutine[Any, Any, T], seconds: float) -> T:
    """Run cleanup to its end, at most `seconds`, however often the caller is cancelled meanwhile; then pass that cancel on.

    Raises:
        TimeoutError: it took longer.
        asyncio.CancelledError: the caller was cancelled meanwhile (the work is done).
    """
    task = asyncio.create_task(work)
    deadline = asyncio.get_running_loop().time() + seconds
    interrupted: asyncio.CancelledError | None = None
    while not task.done():
        left = deadline - asyncio.get_running_loop().time()
        if left <= 0:
            task.cancel()
            raise TimeoutError(f"cleanup took longer than {seconds} s")
        try:
            await asyncio.wait({task}, timeout=left)
        except asyncio.CancelledError as error:
            interrupted = error
    if interrupted is not None:
        raise interrupted
    return task.result()
