"""Sending a prepared request to a provider, once: nothing is probed, changed, cut or tried again (RC-20)."""

import asyncio
import base64
import time
from typing import Any
from uuid import uuid4

from services.agent.chat_model import ChatModel
from services.agent.provider_failure import ProviderFailure
from services.agent.providers import Provider, Providers
from shared.contracts import evidence
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.evidence import Answer, ContextRef, KeepAnswer
from shared.messaging.cancellation import shielded
from shared.messaging.client import Client
from shared.messaging.scope import Scope

KEEP_SECONDS = 20.0
KEEP_PAUSE_SECONDS = 0.3


class PreparedRequests:
    """See the module."""

    def __init__(self, client: Client, model: ChatModel, providers: Providers) -> None:
        self._client = client
        self._model = model
        self._providers = providers

    async def answer(self, context: ContextRef, scope: Scope) -> Answer:
        """The answer, judged and stored.

        Raises:
            ServiceError: why the request may not be sent (`evidence_stale`, `invalid`, …); what the provider failed with
                (`provider_unreachable`, …), after which nothing is stored.
        """
        sendable = await self._client.ask(evidence.CONTEXT_SENDABLE, context, scope)
        body, characters = sendable.snapshot["request_body"], sendable.snapshot["input_characters"]
        provider = self._provider(body["model"])
        _require_within_limits(provider, body, characters)
        began = time.monotonic()
        try:
            response = await self._model.respond(provider, body)
        except ProviderFailure as failure:
            raise ServiceError(ErrorCode(failure.code), failure.message, retriable=failure.retriable) from None
        keep = KeepAnswer(
            id=uuid4(),
            context=context.context,
            provider=provider.name,
            body=base64.b64encode(response).decode(),
            took_ms=round((time.monotonic() - began) * 1000),
        )
        # It has been paid for: whoever gives up waiting does not lose it.
        return await shielded(self._kept(keep, Scope.root(KEEP_SECONDS, account=scope.account)), KEEP_SECONDS)

    async def _kept(self, keep: KeepAnswer, scope: Scope) -> Answer:
        while True:
            try:
                return await self._client.ask(evidence.ANSWER_KEEP, keep, scope)
            except ServiceError as error:
                if not error.passing or scope.remaining <= KEEP_PAUSE_SECONDS:
                    raise
            await asyncio.sleep(KEEP_PAUSE_SECONDS)

    def _provider(self, model: str) -> Provider:
        """Whoever has the model; the default provider is asked for one that nobody names, and says itself whether it knows it."""
        return next((provider for provider in self._providers.all if model in provider.model_names), self._providers.all[0])


def _require_within_limits(provider: Provider, body: dict[str, Any], characters: int) -> None:
    """Refuse what the model is configured not to take, before anything is paid for."""
    limits = provider.limits(body["model"])
    for what, asked, most in (
        ("input characters", characters, limits.max_input_characters),
        ("output tokens", body["max_output_tokens"], limits.max_output_tokens),
    ):
        if most is not None and asked > most:
            raise ServiceError(
                ErrorCode.INVALID, f"{body['model']} takes at most {most} {what}; this request has {asked}. Prepare a smaller one."
            )
