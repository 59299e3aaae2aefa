"""Asking a provider for one completion, streamed.

The one place that talks to a provider. A cancelled task closes the socket at once; nothing of a request stays behind. Redirects are not
followed, environment proxies are not used, answers are not decompressed (a small answer must not become a large one).
"""

import asyncio
import email.utils
import json
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson
from httpx_aiohttp import AiohttpTransport
from opentelemetry.trace import Span, SpanKind

from services.agent.completion import Completion, Delta, MalformedStream, PayloadReader, ProviderSaidError, error_message
from services.agent.providers import Provider
from shared.telemetry import tracing

logger = logging.getLogger(__name__)

type Deliver = Callable[[list[Delta]], Awaitable[None]]
type OnRetry = Callable[[str], Awaitable[None]]

REQUESTS_MAX = 3
RETRIED_STATUSES = frozenset({408, 429, 500, 502, 503, 504, 529})
BACK_OFF_SECONDS = 0.5
# A provider that asks for a longer pause is not asked again: nobody waits that long in front of an empty answer.
RETRY_AFTER_SECONDS_MAX = 20.0
# After its finish reason a provider has this long for usage and the end of the stream; some never send the latter.
AFTER_FINISH_SECONDS = 2.0
ERROR_BODY_BYTES_MAX = 64 * 1024
STREAM_BYTES_MAX = 512 * 1024 * 1024
QUOTED_CHARACTERS_MAX = 500


class ProviderFailure(Exception):
    """The provider did not give a whole answer. `code` as in the event `Error`; `message` may hold the provider's own words."""

    def __init__(self, code: str, message: str, *, retriable: bool) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retriable = retriable


class _TryAgain(Exception):
    """Failed before the first token in a way that may pass."""

    def __init__(self, failure: ProviderFailure, after: float | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.after = after


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """What to ask: wire messages, wire tools (empty: none offered), and how to choose words, in the provider's own fields."""

    model: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    sampling: dict[str, Any] = field(default_factory=dict)

    def body(self) -> bytes:
        """The request body as it goes out."""
        body: dict[str, Any] = {
            **self.sampling,
            "model": self.model,
            "messages": self.messages,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.tools:
            body["tools"] = self.tools
        return orjson.dumps(body)


class ChatModel:
    """A provider over HTTP. One instance serves all turns; `close` it at the end."""

    def __init__(self) -> None:
        # httpx's own transport costs several times the CPU per token, and loses pool slots to cancelled requests. Without a client
        # around it nothing follows redirects, keeps cookies or reads proxies from the environment.
        self._transport = AiohttpTransport(limits=httpx.Limits(max_connections=0), trust_env=False)

    async def close(self) -> None:
        """Close idle connections."""
        await self._transport.aclose()

    async def complete(
        self, provider: Provider, request: CompletionRequest, completion: Completion, deliver: Deliver, on_retry: OnRetry
    ) -> None:
        """Stream one completion into `completion`, handing the deltas of each read from the socket to `deliver` together.

        Before the first delta a passing failure is tried again, at most 3 requests in all, each announced to `on_retry`.

        Raises:
            ProviderFailure: the provider refused, failed, broke off or took too long.
        """
        body = request.body()
        async with _timed(provider.timeouts.total, "The provider took too long to answer in full."):
            for attempt in range(1, REQUESTS_MAX + 1):
                try:
                    await self._attempt(provider, request.model, body, completion, deliver)
                    return
                except _TryAgain as again:
                    if attempt == REQUESTS_MAX or (again.after or 0) > RETRY_AFTER_SECONDS_MAX:
                        raise again.failure from None
                    await on_retry(again.failure.message)
                    await asyncio.sleep(_pause(attempt, again.after))

    async def _attempt(self, provider: Provider, model: str, body: bytes, completion: Completion, deliver: Deliver) -> None:
        span = tracing.tracer().start_span(
            f"chat {model}",
            kind=SpanKind.CLIENT,
            attributes={
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": provider.name,
                "gen_ai.request.model": model,
                "gen_ai.request.stream": True,
            },
        )
        try:
            with _without_key(provider):
                await self._stream(provider, body, completion, deliver, span)
            _describe(span, completion)
        except (ProviderFailure, _TryAgain) as error:
            span.set_attribute("error.type", error.code if isinstance(error, ProviderFailure) else error.failure.code)
            raise
        finally:
            span.end()

    async def _stream(self, provider: Provider, body: bytes, completion: Completion, deliver: Deliver, span: Span) -> None:
        started = time.monotonic()
        loop = asyncio.get_running_loop()
        begun = False
        try:
            async with (
                _timed(provider.timeouts.first_payload, "The provider sent nothing in time.") as timer,
                self._open(provider, body) as response,
            ):
                async for payloads in _payloads(response):
                    deltas, failure = _feed(completion, payloads)
                    finishing = completion.finish_reason is not None
                    timer.reschedule(
                        loop.time() + (min(AFTER_FINISH_SECONDS, provider.timeouts.idle) if finishing else provider.timeouts.idle)
                    )
                    if deltas and not begun:
                        span.set_attribute("gen_ai.response.time_to_first_chunk", time.monotonic() - started)
                        begun = True
                    if deltas:
                        await deliver(deltas)
                    if failure is not None:
                        raise failure
                    if completion.finished:
                        break
            if not completion.ended_properly:
                raise _broken_off()
        except ProviderFailure as failure:
            if failure.code == "provider_timeout" and completion.finish_reason is not None:
                return  # whole, though not closed
            if failure.code == "provider_stream_broken" and not begun:
                raise _TryAgain(failure) from failure
            raise

    @asynccontextmanager
    async def _open(self, provider: Provider, body: bytes) -> AsyncIterator[httpx.Response]:
        headers = {"content-type": "application/json", "accept": "text/event-stream", "accept-encoding": "identity"}
        if provider.api_key is not None:
            headers["authorization"] = f"Bearer {provider.api_key.get_secret_value()}"
        try:
            request = httpx.Request(
                "POST",
                f"{provider.base_url}/chat/completions",
                headers=headers,
                content=body,
                extensions={"timeout": {"connect": provider.timeouts.connect}},
            )
            response = await self._transport.handle_async_request(request)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise _TryAgain(_unreachable(error)) from error
        try:
            if response.status_code != 200:
                raise await _refusal(response)
            yield response
        except (httpx.HTTPError, OSError) as error:
            raise _broken_off() from error
        finally:
            await response.aclose()


async def _payloads(response: httpx.Response) -> AsyncIterator[list[str]]:
    """The payloads of each read; reads that hold none (comments) are passed over and feed no timer."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise ProviderFailure("provider_malformed", "The provider compressed its stream, which was not asked for.", retriable=False)
    if "text/event-stream" not in response.headers.get("content-type", "text/event-stream"):
        await _not_a_stream(response)
    reader, size = PayloadReader(), 0
    try:
        async for data in response.aiter_raw():
            size += len(data)
            if size > STREAM_BYTES_MAX:
                raise MalformedStream("the answer is too large")
            if payloads := reader.feed(data):
                yield payloads
        if payloads := reader.close():
            yield payloads
    except MalformedStream as error:
        raise ProviderFailure("provider_malformed", f"The provider's answer cannot be read: {error}.", retriable=False) from None


async def _not_a_stream(response: httpx.Response) -> None:
    """Whatever this is, it is not the stream that was asked for: an error in a 200, an HTML page."""
    said = error_message(_json(await _bounded_body(response)))
    if said is not None:
        raise ProviderFailure("provider_refused", _quoted(said), retriable=False)
    raise ProviderFailure("provider_malformed", "The provider answered with something that is not a stream.", retriable=False)


def _feed(completion: Completion, payloads: list[str]) -> tuple[list[Delta], ProviderFailure | None]:
    """The deltas of these payloads, and what ended them early: what came before a broken or failing payload is kept."""
    deltas: list[Delta] = []
    try:
        for payload in payloads:
            deltas += completion.feed(payload)
    except ProviderSaidError as error:
        return deltas, ProviderFailure("provider_refused", _quoted(str(error)), retriable=False)
    except MalformedStream as error:
        return deltas, ProviderFailure("provider_malformed", f"The provider's answer cannot be read: {error}.", retriable=False)
    return deltas, None


async def _refusal(response: httpx.Response) -> ProviderFailure | _TryAgain:
    """What a status other than 200 means."""
    status = response.status_code
    if 300 <= status < 400:
        return ProviderFailure("provider_refused", "The provider redirects to another address, which is not followed.", retriable=False)
    said = error_message(_json(await _bounded_body(response)))
    message = _quoted(said) if said else f"The provider answered with HTTP status {status}."
    if status == 429:
        return _TryAgain(ProviderFailure("provider_rate_limited", message, retriable=True), _retry_after(response))
    if status in RETRIED_STATUSES:
        return _TryAgain(ProviderFailure("provider_unreachable", message, retriable=True), _retry_after(response))
    if status == 413 or (said and _speaks_of_length(said)):
        return ProviderFailure("context_too_long", message, retriable=False)
    return ProviderFailure("provider_refused", message, retriable=False)


def _speaks_of_length(said: str) -> bool:
    words = said.lower()
    return "context length" in words or "context_length" in words or "maximum context" in words


async def _bounded_body(response: httpx.Response) -> bytes:
    body = b""
    async for data in response.aiter_raw():
        body += data
        if len(body) > ERROR_BODY_BYTES_MAX:
            break
    return body


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)  # takes half a surrogate pair, as error bodies may have it
    except (ValueError, RecursionError):
        return None


def _quoted(words: str) -> str:
    return words if len(words) <= QUOTED_CHARACTERS_MAX else words[:QUOTED_CHARACTERS_MAX] + "…"


@contextmanager
def _without_key(provider: Provider) -> Iterator[None]:
    """Some providers quote the key that they refuse: it goes no further."""
    try:
        yield
    except (ProviderFailure, _TryAgain) as error:
        failure = error.failure if isinstance(error, _TryAgain) else error
        if provider.api_key is not None and (key := provider.api_key.get_secret_value()):
            failure.message = failure.message.replace(key, "[key]")
        raise


def _broken_off() -> ProviderFailure:
    return ProviderFailure("provider_stream_broken", "The provider's answer broke off before its end.", retriable=True)


def _unreachable(error: BaseException) -> ProviderFailure:
    logger.warning("The provider cannot be reached: %s: %s", type(error).__name__, error)
    return ProviderFailure("provider_unreachable", "The provider cannot be reached.", retriable=True)


def _retry_after(response: httpx.Response) -> float | None:
    value = response.headers.get("retry-after", "")
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        moment = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, moment.timestamp() - time.time())


def _pause(attempt: int, after: float | None) -> float:
    if after is not None:
        return after
    return BACK_OFF_SECONDS * (1 << (attempt - 1)) * random.uniform(0.8, 1.2)  # noqa: S311 - spreads retries, guards nothing


@asynccontextmanager
async def _timed(seconds: float, message: str) -> AsyncIterator[asyncio.Timeout]:
    """Turn this timer's expiry, and no other, into a `ProviderFailure`."""
    timer = asyncio.timeout(seconds)
    try:
        async with timer:
            yield timer
    except TimeoutError:
        if not timer.expired():
            raise
        raise ProviderFailure("provider_timeout", message, retriable=True) from None


def _describe(span: Span, completion: Completion) -> None:
    span.set_attribute("gen_ai.response.finish_reasons", [completion.finish_reason or "stop"])
    usage = completion.usage or {}
    for ours, theirs in (("gen_ai.usage.input_tokens", "prompt_tokens"), ("gen_ai.usage.output_tokens", "completion_tokens")):
        if isinstance(count := usage.get(theirs), int):
            span.set_attribute(ours, count)
