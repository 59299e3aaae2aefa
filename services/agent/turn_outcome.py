"""What a turn comes to in its conversation: the reply is stored, and the active path is kept, or given back (VT-4).

To be called in the transaction that ends or suspends the turn, the conversation locked first, as everywhere.
"""

from uuid import UUID

import asyncpg

from services.agent import tree
from services.agent.fold import STATUS_OF_MESSAGE, Fold
from services.agent.prompt import Round
from services.agent.turn_rows import Checkpoint, Turn
from shared.database.pool import Connection


def gives_the_path_back(fold: Fold) -> bool:
    """Whether the turn brought nothing that should be shown in the place of an earlier answer."""
    return fold.status == "failed" or (fold.status == "cancelled" and not fold.content)


async def store_end(
    db: Connection, turn: Turn, fold: Fold, rounds: list[Round], log: bytes, checkpoint: Checkpoint | None = None
) -> asyncpg.Record | None:
    """Store what the turn comes to, for good, or with a `checkpoint` while it waits. One statement; the conversation is locked first, as
    everywhere, so that two endings cannot wait for each other. None where the turn is another attempt's now.
    """
    return await db.fetchrow(
        """
        WITH locked AS MATERIALIZED (
            SELECT id FROM conversations WHERE id = $1 FOR UPDATE
        ), ended AS (
            UPDATE turns SET status = $4, last_seq = $5, log = $6, checkpoint = COALESCE($17, checkpoint),
                ended_at = CASE WHEN $17::jsonb IS NULL THEN now() END, suspensions = suspensions + ($17::jsonb IS NOT NULL)::int
            FROM locked
            WHERE turns.id = $2 AND attempt = $3 AND status = 'running' RETURNING previous_leaf
        ), stored AS (
            UPDATE messages SET content = $8, status = $9, thinking = $10, activity_json = $11, tool_calls = $12, sources = $13,
                left_out = $14, usage = $15, rounds = $16
            FROM ended WHERE messages.id = $7
        ), touched AS (
            UPDATE conversations SET updated_at = now() FROM ended WHERE conversations.id = $1
        )
        SELECT previous_leaf FROM ended
        """,
        turn.conversation_id, turn.id, turn.attempt, fold.status, fold.last_seq, log, turn.response_id, fold.content,
        STATUS_OF_MESSAGE[fold.status], fold.thinking, fold.activity, list(fold.tool_calls.values()), fold.sources, fold.left_out,
        fold.usage, [round_.stored() for round_ in rounds], checkpoint.stored() if checkpoint is not None else None,
    )  # fmt: skip


async def give_back(db: Connection, turn: Turn, previous_leaf: UUID | None) -> None:
    """A turn that brought nothing leaves the good answer active, if there was one beside it (VT-4)."""
    previous_leaf = await _last_that_brought_something(db, previous_leaf)
    sibling = await db.fetchval(
        tree.PATH + "SELECT id FROM path WHERE parent_message_id = $2", previous_leaf, turn.user_message_id
    )  # fmt: skip
    edited = sibling is None and await _edited_sibling(db, turn, previous_leaf)
    if sibling is None and not edited:
        return
    # A turn that still runs there has the path again, to keep or to give back in its turn.
    moved = await db.execute(
        """
        UPDATE conversations SET active_leaf = $2, active_response_id = (SELECT id FROM messages WHERE id = $2 AND role = 'assistant')
        WHERE id = $1 AND active_response_id = $3
        """,
        turn.conversation_id, previous_leaf, turn.response_id,
    )  # fmt: skip
    if moved != "UPDATE 0":
        await tree.mark_path(db, previous_leaf)


async def _last_that_brought_something(db: Connection, leaf: UUID | None) -> UUID | None:
    """The path's end before all turns that have ended with nothing: several may have been begun one over the other."""
    while leaf is not None:
        nothing = await db.fetchrow(
            """
            SELECT previous_leaf FROM turns JOIN messages ON messages.id = response_id
            WHERE response_id = $1 AND (turns.status = 'failed' OR (turns.status = 'cancelled' AND content = ''))
            """,
            leaf,
        )
        if nothing is None:
            return leaf
        leaf = nothing["previous_leaf"]
    return None


async def _edited_sibling(db: Connection, turn: Turn, previous_leaf: UUID | None) -> bool:
    """Whether the turn answered an edited message whose other version the old path goes through."""
    return bool(
        await db.fetchval(
            tree.PATH
            + """
            SELECT true FROM path JOIN messages m USING (id) WHERE m.role = 'user' AND m.id <> $2
            AND m.parent_message_id IS NOT DISTINCT FROM (SELECT parent_message_id FROM messages WHERE id = $2)
            """,
            previous_leaf,
            turn.user_message_id,
        )
    )
