"""Reading a conversation whole, in as many parts as it takes."""

from uuid import UUID

from services.gateway.access import Caller
from shared.contracts import chat
from shared.contracts.chat import Conversation, ReadConversation
from shared.contracts.errors import ErrorCode, ServiceError

TRIES = 3


async def read_conversation(caller: Caller, conversation_id: UUID) -> Conversation:
    """The caller's conversation with its active path. One whose path changes between two parts is read anew.

    Raises:
        ServiceError: `conversation_not_found`, `conflict` where it would not keep still.
    """
    for _ in range(TRIES):
        if (conversation := await _read(caller, conversation_id)) is not None:
            return conversation
    raise ServiceError(ErrorCode.CONFLICT, "The conversation changes while it is read; try again.")


async def _read(caller: Caller, conversation_id: UUID) -> Conversation | None:
    part = await caller.ask(chat.CONVERSATION_GET, ReadConversation(conversation=conversation_id))
    conversation, messages = part.conversation, list(part.conversation.messages)
    while part.more:
        try:
            part = await caller.ask(chat.CONVERSATION_GET, ReadConversation(conversation=conversation_id, after=messages[-1].id))
        except ServiceError as error:
            if error.code is ErrorCode.MESSAGE_NOT_FOUND:
                return None
            raise
        if part.conversation.active_leaf != conversation.active_leaf:
            return None
        messages += part.conversation.messages
    return conversation.model_copy(update={"messages": messages})
