"""Answers to prepared requests: sent once to the configured provider, judged, kept (RC-20)."""

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from services.agent.app import serve as serve_agent
from services.agent.settings import AgentSettings
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.evidence import ANSWER_KEEP, KeepAnswer
from shared.messaging.bus import Bus
from shared.messaging.scope import Account, Scope
from tests.integration.contexts.test_preparing import Surface, surface_of
from tests.support.chat_client import running
from tests.support.polling import eventually
from tests.support.scripted_provider import KEY, Break, Script, ScriptedProvider
from tests.unit.contexts.evidence import candidate, named, response, verified

LIMITED = """
[[provider]]
name = "small"
base_url = "{url}"
models = [{{ name = "small-model", max_input_characters = 2000, max_output_tokens = 100 }}]
"""


@dataclass
class Stack:
    """Contexts, gateway and agent, and a prepared context."""

    surface: Surface
    provider: ScriptedProvider

    async def prepared(self, **fields: Any) -> dict[str, Any]:
        answer = await self.surface.prepare(**fields)
        assert answer.status_code == 201, answer.text
        snapshot: dict[str, Any] = answer.json()
        return snapshot

    async def answer(self, snapshot: dict[str, Any]) -> Any:
        return await self.surface.http.post(f"/api/rag/contexts/{snapshot['id']}/answers")

    async def answers(self, snapshot: dict[str, Any]) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = (await self.surface.http.get(f"/api/rag/contexts/{snapshot['id']}/answers")).json()["items"]
        return items


@pytest.fixture
async def stack(nats_url: str, database_url: str, provider: ScriptedProvider, tmp_path: Path) -> AsyncIterator[Stack]:
    limited = tmp_path / "providers.toml"
    limited.write_text(LIMITED.format(url=provider.base_url))
    agent = AgentSettings(
        NATS_URL=nats_url,
        DATABASE_URL=database_url,
        MODEL_BASE_URL=provider.base_url,
        MODEL_NAME="m",
        MODEL_API_KEY=KEY,
        MARGINALIA_PROVIDERS=limited,
    )
    async with running(serve_agent, agent), surface_of(nats_url, database_url, tmp_path) as surface:

        async def answers() -> bool:
            return (await surface.http.get("/api/providers")).status_code == 200

        await eventually(answers, 15)
        yield Stack(surface, provider)


async def test_the_stored_body_is_sent_once_and_the_answer_kept_beside_it(stack: Stack) -> None:  # RC-20
    snapshot = await stack.prepared()
    usage = {"input_tokens": 30, "output_tokens": 20, "total_tokens": 50}
    stack.provider.next(Script(body=response("Ten minutes [E1].", usage=usage)))
    answered = await stack.answer(snapshot)
    assert answered.status_code == 201, answered.text
    answer = answered.json()
    (exchange,) = stack.provider.exchanges
    assert exchange.body == snapshot["request_body"]
    assert exchange.headers["Authorization"] == f"Bearer {KEY}"
    assert (answer["outcome"], answer["text"], answer["citations"]) == ("answer_candidate", "Ten minutes [E1].", ["E1"])
    assert (answer["usage"]["total_tokens"], answer["usage"]["cached_tokens"]) == (50, None)
    assert answer["response_sha256"] == hashlib.sha256(json.dumps(response("Ten minutes [E1].", usage=usage)).encode()).hexdigest()
    assert answer["context_id"] == snapshot["id"]
    stack.provider.next(Script(body=response("Nobody knows.")))
    rejected = (await stack.answer(snapshot)).json()
    assert (rejected["outcome"], rejected["reason"], rejected["text"]) == ("rejected", "no_citation", None)
    assert await stack.answers(snapshot) == [answer, rejected]
    assert (await stack.surface.http.get(f"/api/rag/contexts/{snapshot['id']}")).json() == snapshot


@pytest.mark.parametrize(
    ("script", "status", "code"),
    [
        (Script(status=429, body={"error": {"message": "Slow down"}}), 429, "provider_rate_limited"),
        (Script(status=500, body={"error": {"message": "Oops"}}), 502, "provider_unreachable"),
        (Script(status=400, body={"error": {"message": f"No such model for {KEY}"}}), 502, "provider_refused"),
        (Script([b'{"object": ', Break()]), 502, "provider_stream_broken"),
        (Script([b" " * 13_000_000]), 502, "provider_malformed"),
    ],
)
async def test_a_provider_that_fails_is_asked_no_second_time(stack: Stack, script: Script, status: int, code: str) -> None:  # RC-20
    snapshot = await stack.prepared()
    stack.provider.next(script)
    failed = await stack.answer(snapshot)
    assert (failed.status_code, failed.json()["code"]) == (status, code)
    assert KEY not in failed.text
    assert len(stack.provider.exchanges) == 1
    assert await stack.answers(snapshot) == []


async def test_what_is_no_response_is_kept_as_rejected(stack: Stack) -> None:  # RC-12, RC-20
    snapshot = await stack.prepared()
    stack.provider.next(Script([b"<html>"], content_type="text/html"))
    assert (await stack.answer(snapshot)).json()["reason"] == "not_a_response"


@pytest.mark.parametrize(
    ("hostile", "reason"),
    [
        (json.dumps(response("Ten [E1].\0")).encode(), "malformed"),
        (json.dumps(response("Ten [E1]. \ud83d")).encode(), "malformed"),
        (json.dumps(response(usage={"total_tokens": 10**30})).encode(), "not_a_response"),
        (json.dumps(response()).encode()[:-1] + b', "status": "failed", "error": {}}', "not_a_response"),
        (json.dumps(response()).encode("utf-16"), "not_a_response"),
        (json.dumps(response()).encode()[:-1] + b', "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not_a_response"),
    ],
)
async def test_a_response_that_cannot_be_stored_as_it_says_is_kept_as_rejected(stack: Stack, hostile: bytes, reason: str) -> None:
    # RC-12, RC-20: it was paid for
    snapshot = await stack.prepared()
    stack.provider.next(Script([hostile], content_type="application/json"))
    answered = await stack.answer(snapshot)
    assert (answered.status_code, answered.json().get("reason")) == (201, reason), answered.text
    assert answered.json()["response_sha256"] == hashlib.sha256(hostile).hexdigest()
    assert await stack.answers(snapshot) == [answered.json()]


async def test_an_answer_that_is_given_twice_is_kept_once(stack: Stack, nats_url: str) -> None:  # RC-20
    snapshot = await stack.prepared()
    keep = KeepAnswer(
        id=uuid4(), context=snapshot["id"], provider="p", body=base64.b64encode(json.dumps(response()).encode()).decode(), took_ms=1
    )
    bus = Bus("tester", nats_url)
    await bus.connect()
    try:
        scope = Scope.root(10, account=Account(uuid4(), "admin"))
        first, again = [await bus.client.ask(ANSWER_KEEP, keep, scope) for _ in range(2)]
    finally:
        await bus.stop()
    assert first == again
    assert await stack.answers(snapshot) == [first.model_dump(mode="json")]


async def test_a_request_whose_evidence_has_changed_is_not_sent(stack: Stack) -> None:  # RC-20
    snapshot = await stack.prepared()
    for changed, names in (
        (verified(candidate(1), candidate(2, note="b")).model_copy(update={"corpus_fingerprint": "d" * 64}), ["corpus_fingerprint"]),
        (verified(candidate(1, "Knead for two minutes."), candidate(2, note="b")), ["chunk"]),
        (ServiceError(ErrorCode.EVIDENCE_STALE, "Changed.", changed=["document"]), ["document"]),
        (ServiceError(ErrorCode.RUN_NOT_FOUND, "No run."), ["run"]),
    ):
        stack.surface.verified = changed
        stale = await stack.answer(snapshot)
        assert (stale.status_code, stale.json()["code"], stale.json()["changed"]) == (409, "evidence_stale", names)
    assert stack.provider.exchanges == []


async def test_without_a_body_or_beyond_the_models_limits_nothing_is_sent(stack: Stack) -> None:  # RC-20
    stack.surface.verified = verified()
    empty = await stack.answer(await stack.prepared())
    assert (empty.status_code, empty.json()["code"]) == (422, "invalid")
    stack.surface.verified = verified(candidate(1, "word " * 400))
    for completion, most in (({"output_tokens": 64}, "2000 input characters"), ({"output_tokens": 512}, "input characters")):
        refused = await stack.answer(await stack.prepared(completion={"model": "small-model", **completion}))
        assert (refused.status_code, most in refused.json()["detail"]) == (422, True)
    stack.surface.verified = verified(candidate(1, "A word."))
    refused = await stack.answer(await stack.prepared(completion={"model": "small-model", "output_tokens": 101}))
    assert (refused.status_code, "100 output tokens" in refused.json()["detail"]) == (422, True)
    stack.provider.next(Script(body=response("A word [E1].")))
    fits = await stack.answer(await stack.prepared(completion={"model": "small-model", "output_tokens": 100}))
    assert (fits.status_code, fits.json()["provider"]) == (201, "small")
    missing = await stack.answer({"id": str(named("nothing"))})
    assert (missing.status_code, missing.json()["code"]) == (404, "context_not_found")


async def test_a_client_that_leaves_does_not_lose_the_answer(stack: Stack) -> None:
    snapshot = await stack.prepared()
    stack.provider.next(Script(body=response()))
    asking = asyncio.create_task(stack.answer(snapshot))

    async def asked() -> bool:
        return bool(stack.provider.exchanges)

    await eventually(asked, 10)
    asking.cancel()

    async def kept() -> bool:
        return len(await stack.answers(snapshot)) == 1

    await eventually(kept, 15)
