"""Asking a provider for one completion, streamed or whole.

The one place that talks to a provider. A cancelled task closes the socket at once; nothing of a request stays behind. Redirects are not
followed, environment proxies are not used, answers are not decompressed (a small answer must not become a large one), and no failure
that leaves here holds the provider's key.
"""

import asyncio
import email.utils
import json
import logging
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import httpx
import orjson
from httpx_aiohttp import AiohttpTransport
from opentelemetry.trace import Span

from services.agent import usage
from services.agent.completion import CUT_OFF_REASONS, FAILED_REASONS, Completion, Delta, ProviderSaidError
from services.agent.payloads import LINE_CHARACTERS_MAX, MalformedStream, PayloadReader
from services.agent.provider_failure import ProviderFailure, broken_off, failure_of, refusal, said_error, without_key
from services.agent.providers import Model, Provider
from shared.telemetry import tracing
from shared.telemetry import vocabulary as words

logger = logging.getLogger(__name__)

type Deliver = Callable[[list[Delta]], Awaitable[None]]
type OnRetry = Callable[[str], Awaitable[None]]

REQUESTS_MAX = 3
BACK_OFF_SECONDS = 0.5
# A provider that asks for a longer pause is not asked again: nobody waits that long in front of an empty answer.
RETRY_AFTER_SECONDS_MAX = 20.0
# After its finish reason a provider has this long for usage and the end of the stream; some never send the latter.
AFTER_FINISH_SECONDS = 2.0
EVENT_STREAM, JSON = "text/event-stream", "application/json"
PIECE_BYTES = 256 * 1024
# The answer to a prepared request is kept whole, and travels in one message, in base64.
RESPONSE_BYTES_MAX = 8 * 1024 * 1024
ERROR_BODY_BYTES_MAX = 64 * 1024
STREAM_BYTES_MAX = 512 * 1024 * 1024
# What a trace says of an answer's end and its tokens.
FINISH_REASONS = frozenset({"stop", "tool_calls", "function_call", "content_filter"}) | CUT_OFF_REASONS | FAILED_REASONS
TOKENS = {
    "input_tokens": words.GEN_AI_INPUT_TOKENS,
    "output_tokens": words.GEN_AI_OUTPUT_TOKENS,
    "cached_tokens": words.GEN_AI_CACHED_TOKENS,
    "reasoning_tokens": words.GEN_AI_REASONING_TOKENS,
}
# OpenAI refuses these beside a request without tools.
FIELDS_WITH_TOOLS = frozenset({"tool_choice", "parallel_tool_calls"})


# The transport lets some of aiohttp's through as they are: an answer that is no HTTP, headers too large.
TRANSPORT_ERRORS = (httpx.HTTPError, httpx.InvalidURL, aiohttp.ClientError, OSError)


class _TryAgain(Exception):
    """Failed before the first token in a way that may pass."""

    def __init__(self, failure: ProviderFailure, after: float | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.after = after


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """What to ask: wire messages, wire tools (empty: none offered), and how to choose words, in the provider's own fields."""

    model: Model
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    sampling: dict[str, Any] = field(default_factory=dict)

    def body(self) -> bytes:
        """The request body as it goes out."""
        body: dict[str, Any] = {**self.sampling, "model": self.model.name, "messages": self.messages, "stream": self.model.stream}
        if self.model.stream and self.model.stream_usage:  # DeepSeek refuses it beside stream: false
            body["stream_options"] = {"include_usage": True}
        if self.tools:
            body["tools"] = self.tools
        body |= {name: value for name, value in self.model.extra_body.items() if self.tools or name not in FIELDS_WITH_TOOLS}
        return orjson.dumps(body)


class _Pieces(httpx.AsyncByteStream):
    """A long body in pieces, so that sending it lets others have their turn."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._body), PIECE_BYTES):
            yield self._body[start : start + PIECE_BYTES]


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
        """Read one completion into `completion`, handing the deltas of each read from the socket to `deliver` together.

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
                    completion.restart()

    async def respond(self, provider: Provider, body: dict[str, Any]) -> bytes:
        """The bytes of the answer to one request to `/responses`. It is made once, whatever comes of it.

        Raises:
            ProviderFailure: as `complete`.
        """
        encoded = orjson.dumps(body)
        try:
            async with (
                _timed(provider.timeouts.total, "The provider took too long to answer in full."),
                self._open(provider, "/responses", JSON, encoded) as response,
            ):
                answer = await _bounded_body(response, RESPONSE_BYTES_MAX)
        except _TryAgain as again:
            raise again.failure.quotable(_key(provider)) from None
        except ProviderFailure as failure:
            raise failure.quotable(_key(provider)) from None
        if len(answer) > RESPONSE_BYTES_MAX:
            raise _malformed(MalformedStream("the answer is too large"))
        return answer

    async def _attempt(self, provider: Provider, model: Model, body: bytes, completion: Completion, deliver: Deliver) -> None:
        span = tracing.begin(words.CHAT, _asked(provider, model.name, stream=model.stream), model=model.name)
        whole = False
        try:
            await self._answer(provider, model, body, completion, deliver, span)
            whole = True
        except ProviderFailure as failure:
            tracing.note_error(span, failure.code)
            raise failure.quotable(_key(provider)) from None
        except _TryAgain as again:
            tracing.note_error(span, again.failure.code)
            raise _TryAgain(again.failure.quotable(_key(provider)), again.after) from None
        except BaseException as error:
            tracing.note_failure(span, error)
            raise
        finally:
            _describe(span, completion, whole=whole)
            span.end()

    async def _answer(self, provider: Provider, model: Model, body: bytes, completion: Completion, deliver: Deliver, span: Span) -> None:
        """The completion to its end, or why it has none."""
        try:
            await self._read(provider, model, body, completion, deliver, span)
            if not completion.ended_properly:
                raise broken_off()
        except ProviderFailure as failure:
            # The model has said that it was done: the answer is whole, though nobody closed it.
            if completion.finish_reason is None or failure.code not in ("provider_timeout", "provider_stream_broken"):
                raise _again_if_nothing_came(failure, completion) from failure
        if (unfinished := _unfinished(completion)) is not None:
            raise _again_if_nothing_came(unfinished, completion)

    async def _read(self, provider: Provider, model: Model, body: bytes, completion: Completion, deliver: Deliver, span: Span) -> None:
        started, timeouts = time.monotonic(), provider.timeouts
        loop = asyncio.get_running_loop()
        first_payload = timeouts.first_payload if model.stream else timeouts.total
        begun = False
        async with (
            _timed(first_payload, "The provider sent nothing in time.") as timer,
            self._open(provider, "/chat/completions", EVENT_STREAM if model.stream else JSON, body) as response,
        ):
            async for payloads in _payloads(response):
                deltas, failure = _feed(completion, payloads)
                finishing = completion.finish_reason is not None
                timer.reschedule(loop.time() + (min(AFTER_FINISH_SECONDS, timeouts.idle) if finishing else timeouts.idle))
                if deltas and not begun:
                    span.set_attribute(words.GEN_AI_FIRST_CHUNK, time.monotonic() - started)
                    begun = True
                if deltas:
                    await deliver(deltas)
                if failure is not None:
                    raise failure
                if completion.finished:
                    break

    @asynccontextmanager
    async def _open(self, provider: Provider, path: str, accept: str, body: bytes) -> AsyncIterator[httpx.Response]:
        headers = {"content-type": JSON, "accept": accept, "accept-encoding": "identity", "content-length": str(len(body))}
        if (key := _key(provider)) is not None:
            headers["authorization"] = f"Bearer {key}"
        try:
            request = httpx.Request(
                "POST",
                f"{provider.base_url}{path}",
                headers=headers,
                content=body if len(body) < PIECE_BYTES else _Pieces(body),
                extensions={"timeout": {"connect": provider.timeouts.connect}},
            )
            response = await self._transport.handle_async_request(request)
        except TRANSPORT_ERRORS as error:
            raise _TryAgain(_unreachable(provider, error)) from error
        try:
            if response.status_code != 200:
                raise await _refused(response)
            yield response
        except TRANSPORT_ERRORS as error:
            raise broken_off() from error
        finally:
            await response.aclose()


def _key(provider: Provider) -> str | None:
    return None if provider.api_key is None else provider.api_key.get_secret_value() or None


async def _payloads(response: httpx.Response) -> AsyncIterator[list[str]]:
    """The payloads of each read; reads that hold none (comments) are passed over and feed no timer."""
    if response.headers.get("content-encoding", "") not in ("", "identity"):
        raise ProviderFailure("provider_malformed", "The provider compressed its answer, which was not asked for.", retriable=False)
    try:
        if EVENT_STREAM not in response.headers.get("content-type", EVENT_STREAM):
            yield [await _whole_answer(response)]
            return
        reader, size = PayloadReader(), 0
        async for data in response.aiter_raw():
            size += len(data)
            if size > STREAM_BYTES_MAX:
                raise MalformedStream("the answer is too large")
            if payloads := reader.feed(data):
                yield payloads
        # A last line without an end may be one that broke off.
        if payloads := [rest for rest in reader.close() if rest.startswith("[DONE]") or _json(rest.encode()) is not None]:
            yield payloads
    except MalformedStream as error:
        raise _malformed(error) from None


async def _whole_answer(response: httpx.Response) -> str:
    """An answer in one piece, asked for or not; an error in a 200 is left to who reads it.

    Raises:
        MalformedStream: too large, or no JSON (an HTML page).
    """
    body = await _bounded_body(response, LINE_CHARACTERS_MAX)
    if len(body) > LINE_CHARACTERS_MAX:
        raise MalformedStream("the answer is too large")
    value = _json(body)
    if not isinstance(value, dict | list) or ("choices" not in value and said_error(value) is None):
        raise MalformedStream("it is neither a stream nor a completion")
    return body.decode(errors="replace")


def _feed(completion: Completion, payloads: list[str]) -> tuple[list[Delta], ProviderFailure | None]:
    """The deltas of these payloads, and what ended them early: what came before a broken or failing payload is kept."""
    deltas: list[Delta] = []
    try:
        for payload in payloads:
            deltas += completion.feed(payload)
    except ProviderSaidError as error:
        return deltas, failure_of(error.said)
    except MalformedStream as error:
        return deltas, _malformed(error)
    return deltas, None


def _malformed(error: MalformedStream) -> ProviderFailure:
    return ProviderFailure("provider_malformed", f"The provider's answer cannot be read: {error}.", retriable=False)


def _again_if_nothing_came(failure: ProviderFailure, completion: Completion) -> ProviderFailure | _TryAgain:
    """Only before the first token, and not after a timeout, is a passing failure tried again."""
    passes = failure.retriable and failure.code != "provider_timeout"
    return _TryAgain(failure) if passes and not completion.begun else failure


def _unfinished(completion: Completion) -> ProviderFailure | None:
    """Why a completion that has ended is no answer, by its finish reason."""
    if completion.finish_reason in FAILED_REASONS:
        return ProviderFailure(
            "provider_stream_broken", f"The provider gave up in mid-answer ({completion.finish_reason}).", retriable=True
        )
    if completion.finish_reason == "content_filter":
        return ProviderFailure("provider_refused", "The provider's content filter stopped the answer.", retriable=False)
    return None


async def _refused(response: httpx.Response) -> ProviderFailure | _TryAgain:
    """What a status other than 200 means."""
    status = response.status_code
    if 300 <= status < 400:
        return ProviderFailure("provider_refused", "The provider redirects to another address, which is not followed.", retriable=False)
    said = refusal(status, _json(await _bounded_body(response, ERROR_BODY_BYTES_MAX)))
    failure = failure_of(said)
    if not said.passes or failure.code == "context_too_long":
        return failure
    if failure.code == "provider_refused":
        failure = ProviderFailure("provider_unreachable", said.message, retriable=True)
    return _TryAgain(failure, _retry_after(response))


async def _bounded_body(response: httpx.Response, bytes_max: int) -> bytes:
    """The body, or somewhat more than `bytes_max` of it."""
    body = bytearray()
    async for data in response.aiter_raw():
        body += data
        if len(body) > bytes_max:
            break
    return bytes(body)


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)  # takes half a surrogate pair, as error bodies may have it
    except (ValueError, RecursionError):
        return None


def _unreachable(provider: Provider, error: BaseException) -> ProviderFailure:
    logger.warning("%s cannot be reached: %s: %s", provider.name, type(error).__name__, without_key(str(error), _key(provider)))
    return ProviderFailure("provider_unreachable", "The provider cannot be reached.", retriable=True)


def _retry_after(response: httpx.Response) -> float | None:
    value = response.headers.get("retry-after", "")
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value):
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


def _asked(provider: Provider, model: str, *, stream: bool) -> dict[str, str | int | bool]:
    return {
        **tracing.server(provider.base_url),
        words.GEN_AI_OPERATION: "chat",
        words.GEN_AI_PROVIDER: provider.name,
        words.GEN_AI_MODEL: model,
        words.GEN_AI_STREAM: stream,
    }


def _describe(span: Span, completion: Completion, *, whole: bool) -> None:
    """How the request ended, and the tokens that the provider has counted; no provider can put a text of its own here."""
    reason = completion.finish_reason or ("stop" if whole else "error")
    span.set_attribute(words.GEN_AI_FINISH_REASONS, [reason if reason in FINISH_REASONS else "other"])
    for name, count in usage.counted(completion.usage or {}).items():
        if name in TOKENS:
            span.set_attribute(TOKENS[name], count)
