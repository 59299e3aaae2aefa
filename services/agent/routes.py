"""Every subject that the agent serves."""

from services.agent.conversations import Conversations
from services.agent.prepared_request import PreparedRequests
from services.agent.providers import Providers
from services.agent.source_states import with_states
from services.agent.turn_control import TurnControl
from services.agent.turn_reader import TurnReader
from services.agent.turns import Turns, require_account
from services.agent.workspace_access import require_readable
from shared.contracts import chat, evidence
from shared.contracts.chat import (
    ConversationPage,
    ConversationPart,
    ConversationRef,
    ConversationSummary,
    DecideCall,
    ImportConversation,
    ListConversations,
    LogRequest,
    ProviderInfo,
    ProviderList,
    ReadConversation,
    RenameConversation,
    SelectVersion,
    StartTurn,
    TurnAccepted,
    TurnLog,
    TurnRef,
    TurnResult,
    TurnState,
)
from shared.contracts.evidence import Answer, ContextRef
from shared.contracts.subject import Empty
from shared.messaging.bus import Bus, Route
from shared.messaging.scope import Scope


class Handlers:
    """Thin: names the account, passes on."""

    def __init__(
        self,
        bus: Bus,
        conversations: Conversations,
        turns: Turns,
        reader: TurnReader,
        control: TurnControl,
        prepared: PreparedRequests,
        providers: Providers,
    ) -> None:
        self._bus = bus
        self._prepared = prepared
        self._control = control
        self._reader = reader
        self._conversations = conversations
        self._turns = turns
        self._providers = providers

    async def start(self, request: StartTurn, scope: Scope) -> TurnAccepted:
        return await self._turns.start(request, scope)

    async def state(self, request: TurnRef, scope: Scope) -> TurnState:
        return await self._reader.state(request.turn, require_account(scope).id)

    async def log(self, request: LogRequest, scope: Scope) -> TurnLog:
        return await self._reader.log(request, require_account(scope).id)

    async def result(self, request: TurnRef, scope: Scope) -> TurnResult:
        result = await self._reader.result(request.turn, require_account(scope).id)
        (message,) = await with_states(self._bus.client, [result.message], scope)
        return result.model_copy(update={"message": message})

    async def cancel(self, request: TurnRef, scope: Scope) -> Empty:
        await self._control.cancel(request.turn, require_account(scope))
        return Empty()

    async def decide(self, request: DecideCall, scope: Scope) -> Empty:
        await self._control.decide(request, require_account(scope), scope)
        return Empty()

    async def answer_prepared(self, request: ContextRef, scope: Scope) -> Answer:
        require_account(scope)
        return await self._prepared.answer(request, scope)

    async def page(self, request: ListConversations, scope: Scope) -> ConversationPage:
        return await self._conversations.page(require_account(scope).id, request.cursor, request.limit)

    async def get(self, request: ReadConversation, scope: Scope) -> ConversationPart:
        part = await self._conversations.part(request.conversation, require_account(scope).id, request.after)
        messages = await with_states(self._bus.client, part.conversation.messages, scope)
        return part.model_copy(update={"conversation": part.conversation.model_copy(update={"messages": messages})})

    async def import_(self, request: ImportConversation, scope: Scope) -> ConversationRef:
        await require_readable(self._bus.client, [request.workspace], scope)
        return ConversationRef(conversation=await self._conversations.import_(request, require_account(scope).id))

    async def rename(self, request: RenameConversation, scope: Scope) -> ConversationSummary:
        return await self._conversations.rename(request.conversation, require_account(scope).id, request.title)

    async def delete(self, request: ConversationRef, scope: Scope) -> Empty:
        for turn in await self._conversations.delete(request.conversation, require_account(scope).id):
            await self._bus.client.cancel(str(turn), "requested")
        return Empty()

    async def select(self, request: SelectVersion, scope: Scope) -> Empty:
        await self._conversations.select(request.conversation, require_account(scope).id, request.message)
        return Empty()

    async def providers(self, _: Empty, __: Scope) -> ProviderList:
        return ProviderList(
            items=[ProviderInfo(name=one.name, models=one.model_names, tool_calling=one.tool_calling) for one in self._providers.all]
        )

    def routes(self) -> list[Route]:  # type: ignore[type-arg]  # each line is typed by its query
        """The table."""
        return [
            Route(chat.TURN_START, self.start),
            Route(chat.TURN_GET, self.state),
            Route(chat.TURN_LOG, self.log),
            Route(chat.TURN_RESULT, self.result),
            Route(chat.TURN_CANCEL, self.cancel),
            Route(chat.TURN_DECIDE, self.decide),
            Route(evidence.CONTEXT_ANSWER, self.answer_prepared),
            Route(chat.CONVERSATION_LIST, self.page),
            Route(chat.CONVERSATION_GET, self.get),
            Route(chat.CONVERSATION_IMPORT, self.import_),
            Route(chat.CONVERSATION_RENAME, self.rename),
            Route(chat.CONVERSATION_DELETE, self.delete),
            Route(chat.CONVERSATION_SELECT, self.select),
            Route(chat.PROVIDER_LIST, self.providers),
        ]
