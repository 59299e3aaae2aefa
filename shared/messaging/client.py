"""Asking other services: every question carries its scope, ends in time, and is called off when the asker gives up."""

import asyncio
import logging
import random

from nats.aio.client import Client as Nats
from nats.errors import ConnectionClosedError, ConnectionDrainingError, NoRespondersError, OutboundBufferLimitError
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeoutError
from pydantic import ValidationError

from shared.contracts.control import CANCEL, PING, Cancel, Ping
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.subject import Message, Query
from shared.messaging import errors
from shared.messaging.scope import Scope
from shared.telemetry import tracing
from shared.telemetry import vocabulary as words

logger = logging.getLogger(__name__)

# A service that restarts is away for a moment: how long an idempotent question is asked again while nobody listens.
ABSENT_SECONDS = 1.5
# What NATS itself puts around a message; its limit counts headers too, and passing it closes the connection for good.
OVERHEAD_BYTES = 4096


# After this long without an answer the asked service is pinged: a question that nobody holds is given up then, not at the timeout.
PING_AFTER_SECONDS = 0.9


class _Absent(Exception):
    """Nobody was listening, or the connection was down or went down: the question may not have been heard."""


class _Lost(Exception):
    """Whoever had the question is gone, and another process has taken its place, which knows nothing of it."""


class Client:
    """Asks over one NATS connection."""

    def __init__(self, nats: Nats) -> None:
        self._nats = nats
        self._waiting: set[asyncio.Timeout] = set()
        self._connection_losses = 0

    def connection_lost(self) -> None:
        """Let every question in flight fail now: nats-py would let each wait for its whole timeout."""
        self._connection_losses += 1
        now = asyncio.get_running_loop().time()
        for waiting in self._waiting:
            waiting.reschedule(now)

    def check_size(self, headers: dict[str, str], body: bytes) -> None:
        """Refuse what NATS would close the connection for.

        Raises:
            ServiceError: `too_large`.
        """
        size = len(body) + sum(len(name) + len(value) + 4 for name, value in headers.items()) + OVERHEAD_BYTES
        if size > self._nats.max_payload:
            raise ServiceError(
                ErrorCode.TOO_LARGE,
                f"The message has {len(body)} bytes; at most {self._nats.max_payload - OVERHEAD_BYTES} can be carried.",
            )

    async def ask[Q: Message, R: Message](self, query: Query[Q, R], request: Q, scope: Scope, *, timeout: float | None = None) -> R:
        """The reply to `request`, in at most `timeout` seconds (the query's own otherwise) or what the scope has left.

        An idempotent question is asked again while nobody listens (for a moment), after a broken connection, and once where its
        answerer died with it and another is there. Whoever answers is told when the asker gives up.

        Raises:
            ServiceError: what the other side answered; `service_unavailable` where nobody answers; `deadline_exceeded`; `too_large`.
        """
        child = scope.child(timeout if timeout is not None else query.timeout_seconds)
        body = request.model_dump_json().encode()
        loop, patience, pause, lost = asyncio.get_running_loop(), None, 0.02, False
        while True:
            try:
                return await self._ask_once(query, body, child)
            except _Lost:
                if not query.idempotent or lost:
                    raise _unavailable(query) from None
                lost, child = True, scope.child(child.remaining)
            except _Absent:
                patience = patience or loop.time() + min(ABSENT_SECONDS, max(0.0, child.remaining))
                if not query.idempotent or loop.time() + pause > patience:
                    raise _unavailable(query) from None
                await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311 - spreads retries, guards nothing
                pause = min(pause * 2, 0.3)

    async def _ask_once[Q: Message, R: Message](self, query: Query[Q, R], body: bytes, scope: Scope) -> R:
        seconds = scope.remaining
        if seconds <= 0:
            raise ServiceError(ErrorCode.DEADLINE_EXCEEDED, f"No time was left to ask {query.owner}.")
        with tracing.span(words.SEND, _described(query.subject, body), subject=query.subject):
            headers = scope.to_headers()
            tracing.inject(headers)
            self.check_size(headers, body)
            losses = self._connection_losses
            wait = _Wait(self, query.owner, scope.id)
            try:
                async with asyncio.timeout(seconds) as wait.timer:
                    self._waiting.add(wait.timer)
                    wait.watch()
                    reply = await self._nats.request(query.subject, body, timeout=seconds + 1, headers=headers)
            except (TimeoutError, NatsTimeoutError):
                if losses != self._connection_losses:
                    raise _Absent from None
                if wait.unheard:
                    await self.cancel(scope.id, "caller_gone")
                    raise (_Lost() if wait.replaced else _unavailable(query)) from None
                await self.cancel(scope.id, "deadline")
                raise ServiceError(ErrorCode.DEADLINE_EXCEEDED, f"The {query.owner} service did not answer in time.") from None
            except (NoRespondersError, OutboundBufferLimitError, ConnectionClosedError, ConnectionDrainingError):
                raise _Absent from None
            except asyncio.CancelledError:
                await self.cancel(scope.id, "caller_gone")
                raise
            finally:
                wait.stop()
                self._waiting.discard(wait.timer)
            if (error := errors.decode(reply.headers, reply.data)) is not None:
                raise error
        try:
            return query.reply.model_validate_json(reply.data)
        except ValidationError:
            logger.exception("The reply on %s is not of its model", query.subject)
            raise ServiceError(ErrorCode.INTERNAL, f"The {query.owner} service answered in an unknown form.") from None

    async def hears(self, owner: str, scope_id: str | None = None) -> bool:
        """Whether any process of a service works on the question of that scope; without one, whether it hears at all."""
        ping = PING[owner]
        try:
            async with asyncio.timeout(ping.timeout_seconds):
                await self._nats.request(ping.subject, Ping(scope=scope_id).model_dump_json().encode(), timeout=ping.timeout_seconds + 1)
        except (TimeoutError, NatsError):
            return False
        return True

    async def cancel(self, scope_id: str, reason: str) -> None:
        """Tell every process to stop what it does under `scope_id`. Nothing is waited for; while disconnected nothing is sent."""
        try:
            await self._nats.publish(CANCEL.subject(scope_id), Cancel(reason=reason).model_dump_json().encode())
        except (OutboundBufferLimitError, ConnectionClosedError, ConnectionDrainingError):
            logger.warning("Could not send the cancel of %s: not connected", scope_id)


class _Wait:
    """The wait for one answer, watched: a process that was frozen, or has died with the question in hand, will not say so; and one that
    was started in its place knows nothing of it.
    """

    def __init__(self, client: Client, owner: str, scope_id: str) -> None:
        self.timer = asyncio.timeout(None)
        self.unheard = False
        self.replaced = False
        self._client = client
        self._owner = owner
        self._scope_id = scope_id
        self._handle: asyncio.TimerHandle | None = None
        self._ping: asyncio.Task[None] | None = None

    def watch(self) -> None:
        """Begin to watch; costs nothing while answers are quick."""
        if self._owner in PING:
            self._handle = asyncio.get_running_loop().call_later(PING_AFTER_SECONDS, self._start)

    def stop(self) -> None:
        """The wait is over."""
        if self._handle is not None:
            self._handle.cancel()
        if self._ping is not None:
            self._ping.cancel()

    def _start(self) -> None:
        self._ping = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            held, self.replaced = await asyncio.gather(
                self._client.hears(self._owner, self._scope_id), self._client.hears(self._owner)
            )  # fmt: skip
            if not held:
                break
            await asyncio.sleep(PING_AFTER_SECONDS)
        self.unheard = True
        self.timer.reschedule(asyncio.get_running_loop().time())


def _described(subject: str, body: bytes) -> dict[str, str | int]:
    return {
        words.MESSAGING_SYSTEM: "nats",
        words.MESSAGING_DESTINATION: subject,
        words.MESSAGING_OPERATION_NAME: "send",
        words.MESSAGING_OPERATION_TYPE: "send",
        words.MESSAGING_BODY_SIZE: len(body),
    }


def _unavailable(query: Query[Message, Message] | Query) -> ServiceError:  # type: ignore[type-arg]
    return ServiceError(ErrorCode.UNAVAILABLE, f"The {query.owner} service is not available; try again shortly.", retry_after=2)
