"""The notes that a branch's messages mention, put into it before the first request to the model (MN-6).

A message is prepared once: what was injected for it is stored with it, and every later request on a branch with that message has the same
bytes. Messages that never were (of an imported history, or sent while the notes could not be reached) are with the next turn.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from services.agent.prompt import Past
from services.agent.turn_store import TurnStore
from shared.contracts import contexts
from shared.contracts.chat import Mode
from shared.contracts.contexts import InjectRequest, Present
from shared.contracts.errors import ServiceError
from shared.messaging.client import Client
from shared.messaging.scope import Scope


@dataclass(frozen=True, slots=True)
class PreparedBranch:
    """The branch with its notes. `injected`: those of the message that is answered; `problem`: why some are missing."""

    past: list[Past]
    injected: list[dict[str, Any]]
    problem: str | None = None


class Preparation:
    """Prepares one turn's branch; `workspace` is where its references start, `mode` decides how the rest of a long note can be had."""

    def __init__(self, client: Client, store: TurnStore, workspace: UUID | None, mode: Mode) -> None:
        self._client = client
        self._store = store
        self._workspace = workspace
        self._mode = mode

    async def prepare(self, past: Sequence[Past], scope: Scope) -> PreparedBranch:
        """Without a link in a message that is not prepared, nobody is asked."""
        waiting = {message.id: message for message in past if _may_mention(message) and message.id is not None}
        problem = None
        if waiting:
            try:
                past, problem = await self._inject(past, waiting, scope)
            except ServiceError as error:
                problem = error.detail
        return PreparedBranch(list(past), past[-1].injected, problem)

    async def _inject(self, past: Sequence[Past], waiting: dict[UUID, Past], scope: Scope) -> tuple[list[Past], str | None]:
        present = [Present.model_validate(item) for message in past for item in message.injected]
        texts = [message.content for message in waiting.values()]
        request = InjectRequest(messages=texts, workspace=self._workspace, present=present, mode=self._mode)
        reply = await self._client.ask(contexts.INJECT, request, scope)
        prepared = {
            identifier: ([item.model_dump(mode="json") for item in found.items], found.problem is None)
            for identifier, found in zip(waiting, reply.messages, strict=True)
        }
        kept = await self._store.keep_injected(prepared)
        problems = dict.fromkeys(found.problem for found in reply.messages if found.problem is not None)
        branch = [replace(message, injected=kept[message.id]) if message.id in kept else message for message in past]
        return branch, "; ".join(problems) or None


def _may_mention(message: Past) -> bool:
    return message.role == "user" and not message.prepared and "](" in message.content
