"""What the tools of a turn do: a call by its name and arguments to its outcome. Nothing here touches the turn's log."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from services.agent.approval import Proposal
from services.agent.note_tools import NoteTools
from services.agent.rag_search import Searches
from services.agent.tool_calls import Call, arguments_of
from services.agent.tools import offered, our_name, wire_name
from shared.contracts import markdown
from shared.contracts.errors import ServiceError
from shared.contracts.markdown import CatalogRequest, Compose, Document, Preset
from shared.contracts.retrieval import Hit
from shared.contracts.tools import (
    TOOLS,
    AppendArguments,
    CreateArguments,
    FindArguments,
    PatchArguments,
    ReadArguments,
    SearchArguments,
    Tool,
)
from shared.messaging.client import Client
from shared.messaging.scope import Scope

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Passages:
    """What a search of the notes found, to be numbered."""

    hits: list[Hit]


@dataclass(frozen=True, slots=True)
class Result:
    """What the model gets to read. `hits` where something was counted."""

    value: dict[str, Any]
    hits: int | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no result; `code` for what counts refusals."""

    why: str
    code: str = "invalid_call"


type Outcome = Passages | Result | Refusal | Proposal


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools that one turn offers."""

    tools: Sequence[Tool]
    client: Client
    searches: Searches
    notes: NoteTools
    preset: Preset

    @property
    def offered(self) -> list[dict[str, Any]]:
        """As a request to the model says them."""
        return [offered(tool) for tool in self.tools]

    @property
    def names(self) -> frozenset[str]:
        """The names of the tools."""
        return frozenset(tool.name for tool in self.tools)

    async def run(self, call: Call, scope: Scope, *, whole: bool) -> Outcome:
        """What a call comes to. `whole` is false where the answer that made it was cut off (ON-4)."""
        name = our_name(call.name)
        if name not in self.names:
            available = ", ".join(wire_name(tool) for tool in self.tools) or "none"
            return Refusal(f"There is no tool {call.name!r} here; these can be called: {available}.")
        given = arguments_of(call) if whole else None
        if given is None:
            return Refusal("The arguments are not a whole JSON object; nothing was executed.")
        try:
            arguments = TOOLS[name].arguments.model_validate({key: value for key, value in given.items() if value is not None})
        except ValidationError as error:
            return Refusal(f"{_problems(error)}; nothing was executed.")
        try:
            return await self._outcome(call, name, arguments, scope)
        except ServiceError as error:
            logger.warning("A call of %s failed: %s", name, error.code)
            return Refusal(_said(error), error.code.value)

    async def _outcome(self, call: Call, name: str, arguments: BaseModel, scope: Scope) -> Outcome:
        match arguments:
            case SearchArguments():
                return Passages(await self.searches.search(arguments.query, scope))
            case FindArguments():
                found, notice = await self.notes.search(arguments, scope)
                return Result({"notes": found, **({"notice": notice} if notice is not None else {})}, len(found))
            case ReadArguments():
                return Result(await self.notes.read(arguments, scope))
            case Document():
                composed = await self.client.ask(markdown.COMPOSE, Compose(document=arguments, preset=self.preset), scope)
                return Result({"markdown": composed.markdown})
            case CreateArguments() | PatchArguments() | AppendArguments():
                return await self.notes.propose(call.id, name, arguments, scope)
            case _:
                catalog = await self.client.ask(markdown.CATALOG, CatalogRequest(preset=self.preset), scope)
                return Result(catalog.model_dump(mode="json"))


def _problems(error: ValidationError) -> str:
    """What is wrong with the arguments, as whoever wrote them would say it."""
    return "; ".join(
        f"{'.'.join(map(str, item['loc'])) or 'arguments'}: {item['msg']}"
        for item in error.errors(include_url=False, include_input=False, include_context=False)[:10]
    )


def _said(error: ServiceError) -> str:
    """A refusal with the facts that let the model do better."""
    facts = {name: value for name, value in error.extra.items() if name in ("current_hash", "matches")}
    return " ".join([f"{error.code}: {error.detail}", *(f"{name}: {value}." for name, value in facts.items())])
