"""Conversations that begin with messages from elsewhere: imported ones, and those of clients that send their whole history each time.

The messages become one path (VT-5). Nothing is guessed: without an order of thinking and calls `activity` stays null (VT-1), and a call
whose result is not known is shown, but not said to a model again.
"""

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

from services.agent.citations import cited_numbers, without_numbers
from services.agent.prompt import Round
from shared.contracts.chat import HistoryMessage, HistoryRound
from shared.database.pool import Connection

# What stands in an earlier answer for the number of a source that is not known any more.
EARLIER_SOURCE = "source of an earlier answer"
EARLIER_NUMBERS = frozenset(range(1, 1000))


async def open_conversation(
    db: Connection, account: UUID, title: str, workspace: UUID | None, history: list[HistoryMessage], *, transient: bool = False
) -> UUID:
    """Store a new conversation that consists of `history`; its id. To be called in a transaction."""
    conversation_id = uuid4()
    ids = [uuid4() for _ in history]
    await db.execute(
        """
        INSERT INTO conversations (id, account_id, title, workspace, transient, active_leaf, active_response_id)
        VALUES ($1, $2, $3, $4, $5, $6, $7)
        """,
        conversation_id, account, title, workspace, transient, ids[-1] if ids else None,
        ids[-1] if ids and history[-1].role == "assistant" else None,
    )  # fmt: skip
    await db.executemany(
        """
        INSERT INTO messages (id, conversation_id, parent_message_id, active_child, role, status, content, thinking, tool_calls, sources,
                              rounds, created_at)
        VALUES ($1, $2, $3, $4, $5, 'completed', $6, $7, $8, $9, $10, COALESCE($11, now()))
        """,
        list(_rows(conversation_id, ids, history)),
    )
    return conversation_id


def _rows(conversation_id: UUID, ids: list[UUID], history: list[HistoryMessage]) -> Iterator[tuple[Any, ...]]:
    for parent, own, child, message in zip([None, *ids], ids, [*ids[1:], None], history, strict=False):  # the last is nobody's parent
        calls = [call.model_dump(mode="json") for call in message.tool_calls]
        rounds = [round_.stored() for round_ in said_before(message)]
        yield (
            own, conversation_id, parent, child, message.role, message.content, message.thinking, calls, message.sources, rounds,
            message.created_at,
        )  # fmt: skip


def said_before(message: HistoryMessage) -> list[Round]:
    """How a message is said to a model again; a user's needs no rounds."""
    if message.role == "user":
        return []
    if message.rounds is None:
        return [Round(content=message.content, thinking=message.thinking)]
    return [_round(round_, known=bool(message.sources)) for round_ in message.rounds]


def _round(round_: HistoryRound, *, known: bool) -> Round:
    calls = [{"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}} for call in round_.calls]
    content = round_.content if known else _without_unknown_numbers(round_.content)
    return Round(content=content, thinking=round_.thinking, calls=calls, results={call.id: call.result for call in round_.calls})


def _without_unknown_numbers(text: str) -> str:
    """Our own earlier answers come back without their sources: a model that repeats their numbers would cite another note (ON-13)."""
    return without_numbers(text, dict.fromkeys(cited_numbers(text, EARLIER_NUMBERS), EARLIER_SOURCE))
