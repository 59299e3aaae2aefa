"""This process's place on NATS: one connection, what it serves, whom it asks, what it cancels, and an orderly end.

FastStream carries the request-reply endpoints (subscriptions, queue groups, workers). Its known gaps are closed here, once: a handler
that fails still answers, a stray cancellation cannot end a subscription, and stopping drains before it closes.
"""

import asyncio
import contextlib
import logging
import os
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from faststream.nats import NatsBroker, NatsMessage
from faststream.nats.security import NatsSecurity, NatsUserPassword
from nats.aio.client import Client as Nats
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from pydantic import SecretStr, ValidationError

from shared.contracts.control import PING, Ping
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.subject import Message, Query
from shared.messaging import errors
from shared.messaging import headers as names
from shared.messaging.cancellation import Cancellations
from shared.messaging.client import Client
from shared.messaging.permissions import inbox_prefix
from shared.messaging.reply import answerable
from shared.messaging.scope import Scope
from shared.telemetry import tracing
from shared.telemetry import vocabulary as words

logger = logging.getLogger(__name__)

# How many requests of one subject a process works on at once; more wait in the subscription.
AT_ONCE_PER_SUBJECT = 32
# Requests in flight when a stop begins may take this long; then they are cancelled, and answered so.
DRAIN_SECONDS = 5.0
# A frozen server is noticed at the third ping without an answer: within 15 s.
PING_SECONDS = 4
RECONNECT_SECONDS = 0.25
# nats-py tries again by itself, but waits for ever on a connection whose certificate it has refused.
CONNECT_SECONDS = 5.0
EXIT_CONNECTION_LOST = 70


@dataclass(frozen=True, slots=True)
class Route[Q: Message, R: Message]:
    """One line of a service's table: the query, and the function that answers it for a scope."""

    query: Query[Q, R]
    handler: Callable[[Q, Scope], Coroutine[Any, Any, R]]


class Bus:
    """See the module. `name` is the service's: its queue group, how it shows in the server's connection list, and with a password its user.

    `url` may be several, separated by commas. With `tls` nothing is said before the server has shown its certificate.
    """

    def __init__(self, name: str, url: str, password: SecretStr | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.name = name
        self.cancellations = Cancellations()
        self._reconnected: list[Callable[[], Awaitable[None]]] = []
        self._lost: list[Callable[[], None]] = []
        self._stopping = False
        self._subscriptions: list[Any] = []
        self._held: Counter[str] = Counter()
        self._places: list[asyncio.Semaphore] = []
        self._responding: set[asyncio.Task[None]] = set()
        self._broker = NatsBroker(
            url.split(","),
            name=name,
            security=_security(name, password, tls),
            max_reconnect_attempts=-1,
            reconnect_time_wait=RECONNECT_SECONDS,  # type: ignore[arg-type]  # fractions work, the stub says int
            ping_interval=PING_SECONDS,
            max_outstanding_pings=2,
            pending_size=-1,  # publishing while disconnected fails at once: a late command is worse than none
            drain_timeout=int(DRAIN_SECONDS),
            graceful_timeout=DRAIN_SECONDS,
            inbox_prefix=inbox_prefix(name),
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnected,
            reconnected_cb=self._on_reconnected,
            closed_cb=self._on_closed,
            apply_types=False,
            decoder=_whole,
            logger=None,
        )

    @property
    def nats(self) -> Nats:
        """The connection, for streams and events."""
        return self._broker.connection

    @property
    def stopping(self) -> bool:
        """Whether this process takes no more."""
        return self._stopping

    @property
    def connected(self) -> bool:
        """Whether the server is there just now."""
        return bool(self.nats.is_connected)

    async def answers(self) -> bool:
        """Whether a message to ourselves comes through: a connection to a frozen server still looks connected."""
        return self.connected and await self.client.hears(self.name)

    def on_reconnected(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Call back each time the connection is there again: whatever was published meanwhile was missed."""
        self._reconnected.append(callback)

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Call back each time the connection is lost."""
        self._lost.append(callback)

    async def connect(self) -> None:
        """Connect, however long the server takes to appear, and listen for cancels."""
        while True:
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    await self._broker.connect()
                break
            except TimeoutError:
                logger.warning("NATS does not answer yet")
        self.client = Client(self.nats)
        await self.cancellations.listen(self.nats)

    async def serve(self, routes: Sequence[Route[Any, Any]]) -> None:
        """Begin to answer. The subscriptions stand at the server when this returns."""
        for route in routes:
            subscriber = self._broker.subscriber(route.query.subject, queue=self.name, no_reply=True, title=route.query.subject)
            subscriber(self._endpoint(route, subscriber))
            self._subscriptions.append(subscriber)
        for owner in sorted({route.query.owner for route in routes} & PING.keys()):
            await self.nats.subscribe(PING[owner].subject, cb=self._pinged)
        await self._broker.start()
        await self.nats.flush()

    async def stop(self) -> None:
        """Take no more, finish what runs (bounded), cancel and answer the rest, close. Stopping twice does nothing more."""
        if self._stopping:
            return
        self._stopping = True
        # FastStream alone would keep taking requests and drop them: drain the subscriptions first.
        drains = [subscriber.subscription.drain() for subscriber in self._subscriptions if subscriber.subscription]
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                await asyncio.gather(*drains)
        except (TimeoutError, NatsError):
            logger.warning("Some subscriptions did not drain in time")
        for subscriber in self._subscriptions:
            # Drained is unsubscribed; FastStream would do so again, fail, and leave the connection open.
            subscriber.subscription = None
        await self.cancellations.stop(DRAIN_SECONDS)
        if self._responding:  # what was answered last is still on its way out
            await asyncio.wait(self._responding, timeout=DRAIN_SECONDS)
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                await self._broker.stop()
        except (TimeoutError, NatsError):
            logger.warning("The connection did not close in time")

    def _endpoint(self, route: Route[Any, Any], subscriber: Any) -> Callable[[NatsMessage], Awaitable[None]]:
        """What FastStream calls, one message after the other: each is answered by a task of its own, a bounded number at once."""
        places = asyncio.Semaphore(AT_ONCE_PER_SUBJECT)
        self._places.append(places)

        async def respond(message: NatsMessage) -> None:
            waiting = subscriber.subscription.pending_msgs if subscriber.subscription is not None else 0
            try:
                await self._respond(route, message, waiting)
            finally:
                places.release()
                self._let_go(message)

        async def endpoint(message: NatsMessage) -> None:
            if not answerable(message.reply_to):
                return
            await places.acquire()
            self._held[_scope_of(message)] += 1
            task = asyncio.create_task(respond(message))
            self._responding.add(task)
            task.add_done_callback(self._responding.discard)

        return endpoint

    def _let_go(self, message: NatsMessage) -> None:
        scope = _scope_of(message)
        self._held[scope] -= 1
        if not self._held[scope]:
            del self._held[scope]

    async def _pinged(self, message: Msg) -> None:
        """Say that we work on a question, or may have it waiting; silence where it is not here (see `contracts.control.PING`)."""
        if not answerable(message.reply):
            return
        try:
            scope = Ping.model_validate_json(message.data).scope
        except ValidationError:
            return
        if scope is None or scope in self._held or any(places.locked() for places in self._places):
            with contextlib.suppress(NatsError):
                await message.respond(b"{}")

    async def _respond(self, route: Route[Any, Any], message: NatsMessage, waiting: int) -> None:
        subject = route.query.subject
        with tracing.span(
            words.PROCESS, self._described(subject, waiting), context=tracing.extract(message.headers), subject=subject
        ) as span:
            headers: dict[str, str] = {}
            try:
                body = await self._answer(route, message)
            except Exception as error:  # noqa: BLE001 - the one boundary: whatever happened, the asker is answered
                failure = errors.to_service_error(error)
                tracing.note_failure(span, failure)
                headers, body = errors.encode(failure)
            try:
                await self.nats.publish(message.reply_to, body, headers=headers or None)
            except NatsError as error:
                logger.warning("An answer on %s could not be sent: %r", subject, error)

    def _described(self, subject: str, waiting: int) -> dict[str, str | int]:
        return {
            words.MESSAGING_SYSTEM: "nats",
            words.MESSAGING_DESTINATION: subject,
            words.MESSAGING_OPERATION_NAME: "process",
            words.MESSAGING_OPERATION_TYPE: "process",
            words.MESSAGING_GROUP: self.name,
            words.QUEUE_DEPTH: waiting,
        }

    async def _answer(self, route: Route[Any, Any], message: NatsMessage) -> bytes:
        try:
            scope = Scope.from_headers(message.headers)
            request = route.query.request.model_validate_json(message.body)
        except ValidationError as error:
            raise errors.invalid_request(error, message.body) from None
        except ValueError as error:
            raise ServiceError(ErrorCode.INVALID, f"A header is malformed: {error}") from None
        reply: Message = await self.cancellations.run(scope, lambda: route.handler(request, scope))
        encoded = reply.model_dump_json().encode()
        self.client.check_size({}, encoded)
        return encoded

    async def _on_error(self, error: Exception) -> None:
        # Slow consumers and permission violations arrive nowhere else.
        logger.warning("NATS: %s", error)

    async def _on_disconnected(self) -> None:
        if not self._stopping:
            logger.warning("The connection to NATS is lost; reconnecting")
        self.client.connection_lost()
        for callback in self._lost:
            callback()

    async def _on_reconnected(self) -> None:
        logger.warning("Connected to NATS again")
        for callback in self._reconnected:
            await callback()

    async def _on_closed(self) -> None:
        if self._stopping:
            return
        # nats-py closes for good after some protocol errors. A process that hears nothing must not look alive.
        logger.critical("The connection to NATS was closed for good; leaving, to be started again")
        os._exit(EXIT_CONNECTION_LOST)


def _security(name: str, password: SecretStr | None, tls: ssl.SSLContext | None) -> NatsSecurity | None:
    """TLS comes first where it is wanted: nats-py would else say its password in the clear to a server that does not ask for TLS."""
    if password is not None:
        return NatsUserPassword(name, password.get_secret_value(), ssl_context=tls, tls_handshake_first=tls is not None)
    return None if tls is None else NatsSecurity(ssl_context=tls, tls_handshake_first=True)


def _scope_of(message: NatsMessage) -> str:
    return str(message.headers.get(names.CANCEL_SCOPE, ""))


async def _whole(message: NatsMessage) -> NatsMessage:
    """Handlers get the message itself: FastStream, which checks no types here, would pass them its decoded body."""
    return message
