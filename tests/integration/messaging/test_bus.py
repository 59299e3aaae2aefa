"""The road between services on a real server: every request is answered, in time, whatever happens to its handler or to NATS."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import nats
import pytest
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from opentelemetry.sdk.trace import TracerProvider

from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.subject import Message, Query
from shared.messaging.bus import Bus, Route
from shared.messaging.scope import Scope
from tests.support.nats_server import RunningNats
from tests.support.polling import eventually


class Question(Message):
    text: str


class Reply(Message):
    text: str


ECHO = Query("test.echo", Question, Reply, owner="test", timeout_seconds=5)
ONCE = Query("test.once", Question, Reply, owner="test", timeout_seconds=5, idempotent=False)
# These are of the tests alone: what the services declare is checked elsewhere.
Query.registry.remove(ECHO)  # type: ignore[arg-type]
Query.registry.remove(ONCE)  # type: ignore[arg-type]


@asynccontextmanager
async def served(url: str, handler, name: str = "test", query=ECHO) -> AsyncIterator[Bus]:  # type: ignore[no-untyped-def]
    bus = Bus(name, url)
    await bus.connect()
    await bus.serve([Route(query, handler)])
    try:
        yield bus
    finally:
        await bus.stop()


@pytest.fixture
async def asker(nats_url: str) -> AsyncIterator[Bus]:
    bus = Bus("asker", nats_url)
    await bus.connect()
    yield bus
    await bus.stop()


async def raw_reply(bus: Bus, headers: dict[str, str]) -> Msg | None:
    """As it comes over NATS; None while the server has not heard of the subscription."""
    try:
        return await bus.nats.request(ECHO.subject, b'{"text":"x"}', timeout=3, headers=headers)
    except NoRespondersError:
        return None


async def echo(request: Question, _: Scope) -> Reply:
    return Reply(text=request.text)


async def ask(bus: Bus, text: str = "hello", seconds: float = 5.0, query=ECHO) -> str:  # type: ignore[no-untyped-def]
    return (await bus.client.ask(query, Question(text=text), Scope.root(seconds))).text


async def refusal(bus: Bus, text: str = "hello", seconds: float = 5.0, query=ECHO) -> ServiceError:  # type: ignore[no-untyped-def]
    with pytest.raises(ServiceError) as caught:
        await ask(bus, text, seconds, query)
    return caught.value


async def test_a_failing_invalid_or_cancelled_request_is_always_answered_and_the_handler_lives_on(nats_url: str, asker: Bus) -> None:
    async def handler(request: Question, _: Scope) -> Reply:
        match request.text:
            case "raise":
                raise RuntimeError("a secret in a message")
            case "refuse":
                raise ServiceError(ErrorCode.NOTE_NOT_FOUND, "There is no such note.", hint="x")
            case "stray":
                raise asyncio.CancelledError
            case _:
                return Reply(text=request.text)

    async with served(nats_url, handler):
        for _ in range(100):  # more than there are workers: a lost one would show
            failed = await refusal(asker, "raise")
            assert (failed.code, "secret" in failed.detail) == (ErrorCode.INTERNAL, False)
            assert (await refusal(asker, "stray")).code is ErrorCode.CANCELLED
        refused = await refusal(asker, "refuse")
        assert (refused.code, refused.detail, refused.extra) == (ErrorCode.NOTE_NOT_FOUND, "There is no such note.", {"hint": "x"})
        raw = await asker.nats.request(ECHO.subject, b"{not json", timeout=2)
        assert raw.headers["Error-Code"] == "invalid"
        raw = await asker.nats.request(ECHO.subject, b'{"text":"x"}', timeout=2, headers={"Timeout-Ms": "soon"})
        assert raw.headers["Error-Code"] == "invalid"
        assert await ask(asker) == "hello"


async def test_nobody_listening_is_said_soon(asker: Bus) -> None:
    async with asyncio.timeout(4):
        assert (await refusal(asker)).code is ErrorCode.UNAVAILABLE
        assert (await refusal(asker, query=ONCE)).code is ErrorCode.UNAVAILABLE


async def test_an_idempotent_question_waits_for_a_service_that_restarts(nats_url: str, asker: Bus) -> None:
    asking = asyncio.create_task(ask(asker))
    await asyncio.sleep(0)
    async with served(nats_url, echo):
        assert await asking == "hello"


async def test_a_caller_that_gives_up_stops_the_work_and_only_that(nats_url: str, asker: Bus) -> None:
    began, interrupted = asyncio.Event(), []

    async def handler(request: Question, scope: Scope) -> Reply:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            interrupted.append((request.text, scope.id))
        raise AssertionError

    async with served(nats_url, handler):
        scope = Scope.root(5, scope_id="turn")
        impatient = asyncio.create_task(asker.client.ask(ECHO, Question(text="first"), scope, timeout=0.3))
        patient = asyncio.create_task(asker.client.ask(ECHO, Question(text="second"), scope))
        with pytest.raises(ServiceError) as gave_up:
            await impatient
        assert gave_up.value.code is ErrorCode.DEADLINE_EXCEEDED
        await eventually(lambda: _true(bool(interrupted)))
        assert interrupted == [("first", "turn.1")]
        assert not patient.done()
        patient.cancel()
        with pytest.raises(asyncio.CancelledError):
            await patient
        await eventually(lambda: _true(len(interrupted) == 2))
        assert began.is_set()


async def _true(value: bool) -> bool:
    return value


async def test_cancelling_a_scope_reaches_everything_below_it(nats_url: str, asker: Bus) -> None:
    began: list[str] = []

    async def handler(_: Question, scope: Scope) -> Reply:
        began.append(scope.id)
        await asyncio.Event().wait()
        raise AssertionError

    async with served(nats_url, handler):
        scope, other = Scope.root(5, scope_id="t1"), Scope.root(5, scope_id="t10")
        below = [asyncio.create_task(asker.client.ask(ECHO, Question(text="x"), scope)) for _ in range(3)]
        beside = asyncio.create_task(asker.client.ask(ECHO, Question(text="x"), other))
        await eventually(lambda: _true(len(began) == 4))
        await asker.client.cancel("t1", "requested")
        async with asyncio.timeout(2):
            for task in below:
                with pytest.raises(ServiceError) as cancelled:
                    await task
                assert cancelled.value.code is ErrorCode.CANCELLED
        assert not beside.done()
        # A later request under a cancelled scope is refused on arrival.
        with pytest.raises(ServiceError) as refused:
            await asker.client.ask(ECHO, Question(text="late"), scope)
        assert refused.value.code is ErrorCode.CANCELLED
        assert len(began) == 4
        beside.cancel()


async def test_a_handler_has_the_time_that_is_left_and_no_more(nats_url: str, asker: Bus) -> None:
    seen: list[float] = []

    async def handler(_: Question, scope: Scope) -> Reply:
        seen.append(scope.remaining)
        await asyncio.Event().wait()
        raise AssertionError

    async with served(nats_url, handler):
        raw = await eventually(lambda: raw_reply(asker, {"Timeout-Ms": "200"}))
        assert raw is not None
        assert raw.headers["Error-Code"] == "deadline_exceeded"
        assert 0 < seen[0] <= 0.2
        expired = await asker.nats.request(ECHO.subject, b'{"text":"x"}', timeout=3, headers={"Timeout-Ms": "0"})
        assert expired.headers["Error-Code"] == "deadline_exceeded"
        assert len(seen) == 1  # what has expired is not begun


async def test_too_large_a_message_is_refused_and_the_connection_lives(nats_url: str, asker: Bus) -> None:
    limit = asker.nats.max_payload

    async def handler(request: Question, _: Scope) -> Reply:
        return Reply(text="x" * (limit if request.text == "much" else 1))

    async with served(nats_url, handler):
        for size in (limit - 5000, limit - 20, limit, limit + 1, limit * 2):
            try:
                assert await ask(asker, "x" * size) == "x"
            except ServiceError as error:
                assert error.code is ErrorCode.TOO_LARGE
        assert (await refusal(asker, "much")).code is ErrorCode.TOO_LARGE
        assert await ask(asker) == "x"


async def test_stopping_one_of_two_loses_no_request(nats_url: str, asker: Bus) -> None:
    async def slow(request: Question, _: Scope) -> Reply:
        await asyncio.sleep(0.01)
        return Reply(text=request.text)

    async with served(nats_url, slow), served(nats_url, slow) as second:
        asking = [asyncio.create_task(ask(asker, str(number), query=ECHO)) for number in range(100)]
        await asyncio.sleep(0)
        stopping = asyncio.create_task(second.stop())
        asking += [asyncio.create_task(ask(asker, str(number))) for number in range(100, 200)]
        assert await asyncio.gather(*asking) == [str(number) for number in range(200)]
        await stopping


async def test_a_question_that_a_stopping_process_could_not_finish_may_be_asked_again(nats_url: str, asker: Bus) -> None:
    begun = asyncio.Event()

    async def hang(request: Question, _: Scope) -> Reply:
        begun.set()
        await asyncio.Event().wait()
        return Reply(text=request.text)

    async with served(nats_url, hang) as server:
        asking = asyncio.create_task(refusal(asker))
        async with asyncio.timeout(5):
            await begun.wait()
        await server.cancellations.stop(0)
        refused = await asking
    assert (refused.code, refused.passing) == (ErrorCode.UNAVAILABLE, True)


async def test_a_restarted_server_is_found_again_and_questions_in_flight_do_not_wait_for_it(own_nats: RunningNats) -> None:
    async def handler(request: Question, _: Scope) -> Reply:
        if request.text == "hang":
            await asyncio.Event().wait()
        return Reply(text=request.text)

    bus = Bus("asker", own_nats.url)
    await bus.connect()
    try:
        async with served(own_nats.url, handler) as server:
            hanging = asyncio.create_task(refusal(bus, "hang", 30))
            once = asyncio.create_task(ask(bus))
            assert await once == "hello"
            await own_nats.stop()
            await eventually(lambda: _true(not bus.connected))
            assert (await refusal(bus, query=ONCE)).code is ErrorCode.UNAVAILABLE
            async with asyncio.timeout(5):
                assert (await hanging).code is ErrorCode.UNAVAILABLE
            await own_nats.start()
            await eventually(lambda: _true(bus.connected and server.connected), 10)
            assert await ask(bus, seconds=10) == "hello"
    finally:
        await bus.stop()


async def test_a_frozen_server_is_noticed_within_fifteen_seconds(own_nats: RunningNats) -> None:
    lost = asyncio.Event()
    bus = Bus("watcher", own_nats.url)
    await bus.connect()
    bus.on_lost(lost.set)
    pid = int((own_nats.home.path / "run" / "nats.pid").read_text())
    os.kill(pid, signal.SIGSTOP)
    try:
        async with asyncio.timeout(16):
            await lost.wait()
    finally:
        os.kill(pid, signal.SIGCONT)
    await eventually(lambda: _true(bus.connected), 10)
    await bus.stop()


async def test_a_service_that_hears_nothing_is_given_up_long_before_the_timeout(nats_url: str, asker: Bus) -> None:
    """A frozen process, or one that died with the question in hand, is still subscribed or was: only silence tells."""
    silent = Query("contexts.silent", Question, Reply, owner="contexts", timeout_seconds=30)
    Query.registry.remove(silent)  # type: ignore[arg-type]
    client = await nats.connect(nats_url)
    for subject in (silent.subject, "contexts.ping"):
        await client.subscribe(subject, cb=_say_nothing)
    await client.flush()
    async with asyncio.timeout(2):  # the bar
        assert (await refusal(asker, seconds=30, query=silent)).code is ErrorCode.UNAVAILABLE
    await client.close()


async def _say_nothing(_: object) -> None:
    return


async def test_a_slow_answer_of_a_service_that_hears_is_waited_for(nats_url: str, asker: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.messaging.client.PING_AFTER_SECONDS", 0.05)

    async def slow(request: Question, _: Scope) -> Reply:
        await asyncio.sleep(0.5)
        return Reply(text=request.text)

    query = Query("contexts.slow", Question, Reply, owner="contexts", timeout_seconds=5)
    Query.registry.remove(query)  # type: ignore[arg-type]
    bus = Bus("contexts", nats_url)
    await bus.connect()
    await bus.serve([Route(query, slow)])
    try:
        assert await ask(asker, query=query) == "hello"
    finally:
        await bus.stop()


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_question_that_died_with_its_process_is_asked_again_of_the_one_in_its_place(
    nats_url: str, asker: Bus, monkeypatch: pytest.MonkeyPatch, idempotent: bool
) -> None:
    """The new process answers pings, but holds no question: it must not keep the asker waiting."""
    monkeypatch.setattr("shared.messaging.client.PING_AFTER_SECONDS", 0.05)
    query = Query("contexts.lost", Question, Reply, owner="contexts", timeout_seconds=30, idempotent=idempotent)
    Query.registry.remove(query)  # type: ignore[arg-type]
    dying = await nats.connect(nats_url)
    heard = asyncio.Event()

    async def die(_: object) -> None:
        heard.set()

    await dying.subscribe(query.subject, queue="contexts", cb=die)
    await dying.flush()
    asking = asyncio.create_task(ask(asker, query=query, seconds=30))
    async with asyncio.timeout(5):
        await heard.wait()
    await dying.close()

    async def answer(request: Question, _: Scope) -> Reply:
        return Reply(text=request.text)

    bus = Bus("contexts", nats_url)
    await bus.connect()
    await bus.serve([Route(query, answer)])
    try:
        async with asyncio.timeout(5):
            if idempotent:
                assert await asking == "hello"
            else:
                with pytest.raises(ServiceError) as refused:
                    await asking
                assert refused.value.code is ErrorCode.UNAVAILABLE
    finally:
        await bus.stop()


async def test_a_question_that_waits_for_its_turn_counts_as_held(nats_url: str, asker: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.messaging.client.PING_AFTER_SECONDS", 0.05)
    monkeypatch.setattr("shared.messaging.bus.AT_ONCE_PER_SUBJECT", 1)

    async def slow(request: Question, _: Scope) -> Reply:
        await asyncio.sleep(1.0)
        return Reply(text=request.text)

    query = Query("contexts.queued", Question, Reply, owner="contexts", timeout_seconds=10)
    Query.registry.remove(query)  # type: ignore[arg-type]
    bus = Bus("contexts", nats_url)
    await bus.connect()
    await bus.serve([Route(query, slow)])
    try:
        assert await asyncio.gather(*(ask(asker, query=query, seconds=10) for _ in range(3))) == ["hello"] * 3
    finally:
        await bus.stop()


async def test_trace_context_reaches_the_handler(nats_url: str, asker: Bus) -> None:
    client = await nats.connect(nats_url)
    headers: list[dict[str, str]] = []

    async def answer(message) -> None:  # type: ignore[no-untyped-def]
        headers.append(message.headers)
        await message.respond(b'{"text":"ok"}')

    await client.subscribe(ECHO.subject, cb=answer)
    await client.flush()
    tracer = TracerProvider().get_tracer("test")
    with tracer.start_as_current_span("outer") as span:
        trace_id = format(span.get_span_context().trace_id, "032x")
        assert await ask(asker) == "ok"
    await client.close()
    assert headers[0]["traceparent"].split("-")[1] == trace_id
    assert {"Cancel-Scope", "Timeout-Ms"} <= set(headers[0])
