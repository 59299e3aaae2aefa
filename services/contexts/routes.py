"""The table of what the contexts service answers."""

from typing import Any

from services.contexts import archive, snapshot
from services.contexts.answers import Answers
from services.contexts.injection import Injector
from services.contexts.preparation import Preparation, require_admin
from services.contexts.snapshot_store import SnapshotStore
from shared.contracts import contexts, evidence
from shared.contracts.evidence import (
    Answer,
    AnswerList,
    ContextLines,
    ContextPage,
    ContextRef,
    ExportContexts,
    KeepAnswer,
    ListContexts,
    ParsedResponse,
    ParseResponse,
    PrepareContext,
    SendableContext,
    StoredContext,
)
from shared.messaging.bus import Route
from shared.messaging.scope import Scope


class Handlers:
    """Thin: all but the injection is an admin's."""

    def __init__(self, injector: Injector, preparation: Preparation, store: SnapshotStore, answers: Answers) -> None:
        self._injector = injector
        self._answers = answers
        self._preparation = preparation
        self._store = store

    async def prepare(self, request: PrepareContext, scope: Scope) -> StoredContext:
        return StoredContext(snapshot=await self._preparation.prepare(request, scope))

    async def get(self, request: ContextRef, scope: Scope) -> StoredContext:
        require_admin(scope.account)
        return StoredContext(snapshot=await self._store.get(request.context))

    async def page(self, request: ListContexts, scope: Scope) -> ContextPage:
        require_admin(scope.account)
        return await self._store.page(request)

    async def export(self, request: ExportContexts, scope: Scope) -> ContextLines:
        require_admin(scope.account)
        if request.until is not None:
            part = await self._store.part(request.after, request.until)
            return ContextLines(lines=part.lines, after=part.last, until=request.until)
        until = await self._store.last_position()
        return ContextLines(lines=[await archive.manifest_of(self._store, until)], after=0, until=until)

    async def parse(self, request: ParseResponse, scope: Scope) -> ParsedResponse:
        require_admin(scope.account)
        return snapshot.parse(await self._store.get(request.context), request.response)

    async def sendable(self, request: ContextRef, scope: Scope) -> SendableContext:
        require_admin(scope.account)
        return SendableContext(snapshot=await self._answers.sendable(request.context, scope))

    async def keep_answer(self, request: KeepAnswer, scope: Scope) -> Answer:
        return await self._answers.keep(request, require_admin(scope.account))

    async def answers(self, request: ContextRef, scope: Scope) -> AnswerList:
        require_admin(scope.account)
        return AnswerList(items=await self._answers.of(request.context))

    def routes(self) -> list[Route[Any, Any]]:
        """The table, health apart."""
        return [
            Route(contexts.INJECT, self._injector.inject),
            Route(evidence.CONTEXT_PREPARE, self.prepare),
            Route(evidence.CONTEXT_GET, self.get),
            Route(evidence.CONTEXT_LIST, self.page),
            Route(evidence.CONTEXT_EXPORT, self.export),
            Route(evidence.CONTEXT_PARSE, self.parse),
            Route(evidence.CONTEXT_SENDABLE, self.sendable),
            Route(evidence.ANSWER_KEEP, self.keep_answer),
            Route(evidence.ANSWER_LIST, self.answers),
        ]
