"""The tree of a conversation's messages: paths down to a message, as SQL and as what a model reads."""

from uuid import UUID

import asyncpg

from services.agent.prompt import Past, Round
from shared.contracts.errors import ErrorCode, ServiceError
from shared.database.pool import Connection

# The messages from `$1` up to the root, with their distance from it.
PATH = """
    WITH RECURSIVE path AS (
        SELECT id, parent_message_id, 0 AS depth FROM messages WHERE id = $1
        UNION ALL
        SELECT m.id, m.parent_message_id, path.depth + 1 FROM messages m JOIN path ON m.id = path.parent_message_id
    )
"""


async def message(db: Connection, conversation_id: UUID, message_id: UUID) -> asyncpg.Record:
    """A message's place in its conversation: `id`, `role`, `parent_message_id`.

    Raises:
        ServiceError: `message_not_found`.
    """
    row = await db.fetchrow(
        "SELECT id, role, parent_message_id FROM messages WHERE id = $1 AND conversation_id = $2", message_id, conversation_id
    )
    if row is None:
        raise ServiceError(ErrorCode.MESSAGE_NOT_FOUND, "There is no such message in this conversation.")
    return row


async def question(db: Connection, conversation_id: UUID, reply: asyncpg.Record) -> UUID:
    """The user's message that a reply answers. In a history from elsewhere a reply may follow another, or nothing.

    Raises:
        ServiceError: `invalid`.
    """
    parent: UUID | None = reply["parent_message_id"]
    if parent is None or (await message(db, conversation_id, parent))["role"] != "user":
        raise ServiceError(ErrorCode.INVALID, "This reply answers no message of the user's, so it cannot be made anew.")
    return parent


async def branch(db: Connection, leaf: UUID) -> list[Past]:
    """The branch that ends with `leaf`, root first."""
    rows = await db.fetch(
        PATH + "SELECT id, role, content, injected, prepared, rounds, sources FROM path JOIN messages USING (id) ORDER BY depth DESC",
        leaf,
    )
    return [
        Past(
            row["role"],
            row["content"],
            row["injected"],
            [Round.restored(stored) for stored in row["rounds"]],
            row["sources"],
            row["id"],
            row["prepared"],
        )
        for row in rows
    ]


async def mark_path(db: Connection, leaf: UUID | None) -> None:
    """Remember at each message of the path that it last went this way (VT-3)."""
    await db.execute(
        PATH + "UPDATE messages m SET active_child = path.id FROM path WHERE m.id = path.parent_message_id",
        leaf,
    )  # fmt: skip


def no_conversation() -> ServiceError:
    """A conversation that is not there, or another account's."""
    return ServiceError(ErrorCode.CONVERSATION_NOT_FOUND, "There is no such conversation.")
