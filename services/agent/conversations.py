"""Conversations as clients see them: listed, read along their active path, renamed, deleted, another version chosen."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import asyncpg

from services.agent import tree
from services.agent.citations import cited_sources
from services.agent.history import open_conversation
from services.agent.mentioned_notes import with_cited
from shared.contracts.chat import (
    ChatMessage,
    Conversation,
    ConversationPage,
    ConversationPart,
    ConversationSummary,
    ImportConversation,
    ToolCall,
)
from shared.contracts.errors import ErrorCode, ServiceError
from shared.database import cursor as cursors
from shared.database.pool import Pool, connection, transaction

# What a message contributes to a conversation's page; `versions` are the siblings of its role.
MESSAGE_COLUMNS = """
    m.id, m.turn_id, m.parent_message_id, m.role, m.content, m.status, m.thinking, m.activity_json, m.injected, m.tool_calls, m.sources,
    m.left_out, m.usage, m.rounds, m.created_at,
    ARRAY(SELECT s.id FROM messages s WHERE s.conversation_id = m.conversation_id AND s.role = m.role
          AND s.parent_message_id IS NOT DISTINCT FROM m.parent_message_id ORDER BY s.position) AS versions
"""


PART_BYTES_MAX = 8 * 1024 * 1024
# Reading this much Markdown takes about 10 ms.
LONG_CHARACTERS = 100_000


class Conversations:
    """Each method acts for the account it is given; what is another's is not found."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def message(self, message_id: UUID) -> ChatMessage:
        """One message as clients see it."""
        async with connection(self._pool) as db:
            row = await db.fetchrow(f"SELECT {MESSAGE_COLUMNS} FROM messages m WHERE m.id = $1", message_id)
        if row is None:
            raise ServiceError(ErrorCode.MESSAGE_NOT_FOUND, "There is no such message.")
        return (await _messages([row]))[0]

    async def page(self, account: UUID, cursor: str | None, limit: int) -> ConversationPage:
        """The account's conversations, latest activity first."""
        moment, identifier = _position(cursor) if cursor is not None else (None, None)
        async with connection(self._pool) as db:
            rows = await db.fetch(
                """
                SELECT id, title, workspace, created_at, updated_at FROM conversations
                WHERE account_id = $1 AND NOT transient AND ($2::timestamptz IS NULL OR (updated_at, id) < ($2, $3::uuid))
                ORDER BY updated_at DESC, id DESC LIMIT $4
                """,
                account, moment, identifier, limit + 1,
            )  # fmt: skip
        items = [_summary(row) for row in rows[:limit]]
        return ConversationPage(items=items, next_cursor=_after(items[-1]) if len(rows) > limit else None)

    async def part(self, conversation_id: UUID, account: UUID, after: UUID | None) -> ConversationPart:
        """A conversation with its active path, or what of it comes after a message; as much as fits.

        Raises:
            ServiceError: `conversation_not_found`; `message_not_found` where `after` is not on the path any more.
        """
        async with transaction(self._pool) as db:
            row = await db.fetchrow("SELECT * FROM conversations WHERE id = $1 AND account_id = $2", conversation_id, account)
            if row is None:
                raise tree.no_conversation()
            rows = await db.fetch(
                tree.PATH + f"SELECT {MESSAGE_COLUMNS} FROM path JOIN messages m USING (id) ORDER BY depth DESC", row["active_leaf"]
            )  # fmt: skip
        rows = _after_message(rows, after)
        fitting = _fitting(rows)
        conversation = Conversation(
            **_summary(row).model_dump(),
            active_leaf=row["active_leaf"],
            active_response_id=row["active_response_id"],
            messages=await _messages(fitting, rows[len(fitting)]["content"] if len(fitting) < len(rows) else ""),
        )
        return ConversationPart(conversation=conversation, more=len(fitting) < len(rows))

    async def import_(self, request: ImportConversation, account: UUID) -> UUID:
        """A history from elsewhere as a conversation, all or nothing (VT-5)."""
        async with transaction(self._pool) as db:
            return await open_conversation(db, account, request.title, request.workspace, request.messages)

    async def rename(self, conversation_id: UUID, account: UUID, title: str) -> ConversationSummary:
        """Give it a title; a transient one is kept from then on."""
        async with connection(self._pool) as db:
            row = await db.fetchrow(
                "UPDATE conversations SET title = $3, transient = false WHERE id = $1 AND account_id = $2 RETURNING *",
                conversation_id, account, title,
            )  # fmt: skip
        if row is None:
            raise tree.no_conversation()
        return _summary(row)

    async def delete(self, conversation_id: UUID, account: UUID) -> list[UUID]:
        """Remove it and all it holds; the turns that were running in it, to be cancelled (one that waited is gone with it)."""
        async with transaction(self._pool) as db:
            row = await db.fetchrow("SELECT 1 FROM conversations WHERE id = $1 AND account_id = $2 FOR UPDATE", conversation_id, account)
            if row is None:
                raise tree.no_conversation()
            running = await db.fetch("SELECT id FROM turns WHERE conversation_id = $1 AND status = 'running'", conversation_id)
            await db.execute("DELETE FROM conversations WHERE id = $1", conversation_id)
        return [turn["id"] for turn in running]

    async def select(self, conversation_id: UUID, account: UUID, message_id: UUID) -> None:
        """Make a version active and restore the path last active below it, the newest where none was (VT-3)."""
        async with transaction(self._pool) as db:
            row = await db.fetchrow("SELECT 1 FROM conversations WHERE id = $1 AND account_id = $2 FOR UPDATE", conversation_id, account)
            if row is None:
                raise tree.no_conversation()
            await tree.message(db, conversation_id, message_id)
            leaf = await db.fetchrow(
                """
                WITH RECURSIVE below AS (
                    SELECT id, role, 0 AS depth, COALESCE(active_child, (SELECT c.id FROM messages c WHERE c.parent_message_id = m.id
                        ORDER BY c.position DESC LIMIT 1)) AS next FROM messages m WHERE id = $1
                    UNION ALL
                    SELECT m.id, m.role, below.depth + 1, COALESCE(m.active_child, (SELECT c.id FROM messages c
                        WHERE c.parent_message_id = m.id ORDER BY c.position DESC LIMIT 1))
                    FROM messages m JOIN below ON m.id = below.next
                )
                SELECT id, role FROM below ORDER BY depth DESC LIMIT 1
                """,
                message_id,
            )
            assert leaf is not None
            await db.execute(
                "UPDATE conversations SET active_leaf = $2, active_response_id = $3 WHERE id = $1",
                conversation_id, leaf["id"], leaf["id"] if leaf["role"] == "assistant" else None,
            )  # fmt: skip
            await tree.mark_path(db, leaf["id"])


def _summary(row: asyncpg.Record) -> ConversationSummary:
    return ConversationSummary(
        id=row["id"], title=row["title"], workspace=row["workspace"], created_at=row["created_at"], updated_at=row["updated_at"]
    )


def _after_message(rows: list[asyncpg.Record], after: UUID | None) -> list[asyncpg.Record]:
    if after is None:
        return rows
    position = next((position for position, row in enumerate(rows) if row["id"] == after), None)
    if position is None:
        raise ServiceError(ErrorCode.MESSAGE_NOT_FOUND, "The conversation has another path now.")
    return rows[position + 1 :]


def _fitting(rows: list[asyncpg.Record]) -> list[asyncpg.Record]:
    """The first of these messages, as many as one message of NATS holds, at least one."""
    size, count = 0, 0
    for row in rows:
        # A character has up to four bytes; thinking is there twice, once in the activity.
        size += 4 * (len(row["content"]) + 2 * len(row["thinking"])) + len(str(row["tool_calls"]))
        if count and size > PART_BYTES_MAX:
            break
        count += 1
    return rows[:count]


async def _messages(rows: Sequence[asyncpg.Record], following: str = "") -> list[ChatMessage]:
    """The messages of these rows of a path, behind which comes a message with the text `following`; much text is read in a thread, so that
    no turn waits for it.
    """
    replies = [*(row["content"] for row in rows[1:]), following]
    if sum(len(row["content"]) for row in rows) + len(following) < LONG_CHARACTERS:
        return list(map(_message, rows, replies))
    return await asyncio.to_thread(lambda: list(map(_message, rows, replies)))


def _message(row: asyncpg.Record, reply: str) -> ChatMessage:
    return ChatMessage(
        id=row["id"],
        turn_id=row["turn_id"],
        parent_message_id=row["parent_message_id"],
        role=row["role"],
        content=row["content"],
        status=row["status"],
        thinking=row["thinking"],
        activity=row["activity_json"],
        injected=with_cited(row["injected"], reply),
        tool_calls=[ToolCall(**call) for call in row["tool_calls"]],
        sources=row["sources"],
        left_out=row["left_out"],
        cited=cited_sources(row["content"], row["sources"]),
        versions=row["versions"],
        usage=row["usage"],
        created_at=row["created_at"],
    )


def _after(item: ConversationSummary) -> str:
    return cursors.encode(item.updated_at.isoformat(), str(item.id))


def _position(encoded: str) -> tuple[datetime, UUID]:
    moment, identifier = cursors.decode(encoded, 2)
    try:
        return datetime.fromisoformat(moment), UUID(identifier)
    except ValueError:
        raise cursors.unknown_cursor() from None
