"""What has been paid for is kept, though contexts is away for a moment (RC-20)."""

from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from services.agent import prepared_request
from services.agent.chat_model import ChatModel
from services.agent.prepared_request import PreparedRequests
from services.agent.providers import Providers
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.evidence import CONTEXT_SENDABLE, ContextRef, KeepAnswer, SendableContext
from shared.messaging.client import Client
from shared.messaging.scope import Scope


class Contexts:
    """Fails to keep an answer as often as it is told to."""

    def __init__(self, *failures: ErrorCode) -> None:
        self.failures = list(failures)
        self.kept: list[UUID] = []

    async def ask(self, query: object, request: Any, _: Scope) -> Any:
        if query is CONTEXT_SENDABLE:
            return SendableContext(snapshot={"request_body": {"model": "m", "max_output_tokens": 16}, "input_characters": 1})
        assert isinstance(request, KeepAnswer)
        self.kept.append(request.id)
        if self.failures:
            raise ServiceError(self.failures.pop(0), "Away.")
        return request


class Model:
    def __init__(self) -> None:
        self.requests = 0

    async def respond(self, *_: object) -> bytes:
        self.requests += 1
        return b"{}"


class Provider:
    name = "p"
    model_names = ("m",)

    def limits(self, _: str) -> Any:
        return type("Limits", (), {"max_input_characters": None, "max_output_tokens": None})


async def answered(contexts: Contexts, model: Model) -> Any:
    providers = cast("Providers", type("All", (), {"all": [Provider()]}))
    requests = PreparedRequests(cast("Client", contexts), cast("ChatModel", model), providers)
    return await requests.answer(ContextRef(context=uuid4()), Scope.root(5))


async def test_the_same_answer_is_given_to_be_kept_until_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared_request, "KEEP_PAUSE_SECONDS", 0.01)
    contexts, model = Contexts(ErrorCode.UNAVAILABLE, ErrorCode.UNAVAILABLE), Model()
    kept = await answered(contexts, model)
    assert contexts.kept == [kept.id] * 3
    assert model.requests == 1


async def test_what_cannot_be_kept_is_told() -> None:
    contexts, model = Contexts(ErrorCode.CONTEXT_NOT_FOUND), Model()
    with pytest.raises(ServiceError):
        await answered(contexts, model)
    assert (len(contexts.kept), model.requests) == (1, 1)
