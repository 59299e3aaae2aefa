"""Turns in PostgreSQL: begun with the user's message and a reserved place for the reply, ended with what came of them.

Every change of the active path happens under the conversation's row lock. A turn reserves its response as `active_response_id`; only the
turn whose response is still named there may move the path when it ends (VT-4).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from uuid import UUID, uuid4

import asyncpg

from services.agent import tree
from services.agent.fold import STATUS_OF_MESSAGE, Fold
from services.agent.history import open_conversation
from services.agent.prompt import Past, Round
from shared.contracts.chat import StartTurn
from shared.contracts.errors import ErrorCode, ServiceError
from shared.database.pool import Connection, Pool, connection, transaction

TITLE_CHARACTERS_MAX = 60
# Owns the turns that an agent which stops has left to the others.
NOBODY = UUID(int=0)


class Ended(Enum):
    """What became of the wish to store a turn's end."""

    STORED = "stored"
    SUPERSEDED = "superseded"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn's row."""

    id: UUID
    conversation_id: UUID
    account_id: UUID
    user_message_id: UUID
    response_id: UUID
    status: str
    attempt: int
    last_seq: int


@dataclass(frozen=True, slots=True)
class Begun:
    """A turn that was just stored, with the branch that its model will see; or, with `replayed`, one that was there already.

    `workspace` is the conversation's.
    """

    turn: Turn
    past: list[Past]
    workspace: UUID | None = None
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where the last whole round of a turn ended: the rounds so far, and how much text, activity and left-out passages they made."""

    rounds: list[Round] = field(default_factory=list)
    content_characters: int = 0
    activity_entries: int = 0
    left_out: int = 0

    @classmethod
    def at(cls, rounds: list[Round], fold: Fold) -> "Checkpoint":
        """The present end of a round."""
        return cls(list(rounds), len(fold.content), fold.activity_entries, len(fold.left_out))

    def stored(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "rounds": [round_.stored() for round_ in self.rounds],
            "content_characters": self.content_characters,
            "activity_entries": self.activity_entries,
            "left_out": self.left_out,
        }

    @classmethod
    def restored(cls, stored: dict[str, Any]) -> "Checkpoint":
        """From JSON."""
        rounds = [Round.restored(round_) for round_ in stored["rounds"]]
        return cls(rounds, stored["content_characters"], stored["activity_entries"], stored["left_out"])


@dataclass(frozen=True, slots=True)
class TakenOver:
    """A turn whose agent is gone, ours from now on, with all that the database knows of it.

    `log` are the events up to the checkpoint, packed; `age` the seconds since the turn began, on the database's clock.
    """

    begun: Begun
    assignment: dict[str, Any] | None
    checkpoint: Checkpoint
    log: bytes | None
    cancel_requested: bool
    age: float


class TurnStore:
    """The turns of all agents; `owner` is this process's id, which it gives to the turns that it begins or takes over."""

    def __init__(self, pool: Pool, owner: UUID) -> None:
        self._pool = pool
        self.owner = owner

    # Beginning a turn

    async def begin(self, start: StartTurn, account: UUID, assignment: dict[str, Any]) -> Begun:
        """Store the user's message and reserve the reply's place; all or nothing. `assignment` is for an agent that takes over.

        Raises:
            ServiceError: `conversation_not_found`, `message_not_found`, `client_message_id_reused`, `invalid`.
        """
        try:
            if start.conversation_id is None and not start.transient:
                async with connection(self._pool) as db:
                    return await self._begin_conversation(db, start, account, assignment)
            async with transaction(self._pool) as db:
                if (seen := await self._seen_before(db, start, account)) is not None:
                    return Begun(seen, [], replayed=True)
                conversation_id = start.conversation_id
                if conversation_id is None:
                    title = title_from(_required(start.message))
                    conversation_id = await open_conversation(db, account, title, start.workspace, start.history, transient=True)
                return await self._begin(db, start, conversation_id, account, assignment)
        except asyncpg.UniqueViolationError as error:
            return await self._lost_the_race(start, account, error)

    async def _begin_conversation(self, db: Connection, start: StartTurn, account: UUID, assignment: dict[str, Any]) -> Begun:
        """A new conversation with its first turn: one statement, one round trip."""
        if start.parent_message_id is not None or start.retry_message_id is not None:
            raise ServiceError(ErrorCode.INVALID, "A message to go on from needs the conversation_id that it stands in.")
        message, message_id = _required(start.message), uuid4()
        row = await db.fetchrow(
            """
            WITH conversation AS (
                INSERT INTO conversations (id, account_id, title, workspace, active_leaf, active_response_id)
                VALUES ($1, $5, $6, $7, $3, $3)
            ), messages AS (
                INSERT INTO messages (id, conversation_id, parent_message_id, active_child, turn_id, role, content, status)
                VALUES ($2, $1, NULL, $3, NULL, 'user', $8, 'completed'), ($3, $1, $2, NULL, $4, 'assistant', '', 'running')
            )
            INSERT INTO turns (id, conversation_id, account_id, user_message_id, response_id, owner, client_message_id, request_digest,
                               assignment)
            VALUES ($4, $1, $5, $2, $3, $9, $10, $11, $12) RETURNING *
            """,
            uuid4(), message_id, uuid4(), start.turn_id, account, title_from(message), start.workspace, message, self.owner,
            start.client_message_id, start.request_digest, assignment,
        )  # fmt: skip
        assert row is not None
        return Begun(_turn(row), [Past("user", message, [], [], [], message_id)], start.workspace)

    async def _lost_the_race(self, start: StartTurn, account: UUID, error: asyncpg.UniqueViolationError) -> Begun:
        async with connection(self._pool) as db:
            seen = await self._seen_before(db, start, account)
        if seen is None:
            raise ServiceError(ErrorCode.CONFLICT, "This turn id is in use.") from error
        return Begun(seen, [], replayed=True)

    async def _seen_before(self, db: Connection, start: StartTurn, account: UUID) -> Turn | None:
        if start.client_message_id is None:
            return None
        row = await db.fetchrow(
            "SELECT * FROM turns WHERE account_id = $1 AND client_message_id = $2", account, start.client_message_id
        )  # fmt: skip
        if row is None:
            return None
        if row["request_digest"] != start.request_digest:
            raise ServiceError(
                ErrorCode.CLIENT_MESSAGE_ID_REUSED, "This client_message_id was used before, with another body.", turn_id=str(row["id"])
            )
        return _turn(row)

    async def _begin(
        self,
        db: Connection,
        start: StartTurn,
        conversation_id: UUID,
        account: UUID,
        assignment: dict[str, Any],
    ) -> Begun:
        conversation = await db.fetchrow(
            "SELECT active_leaf, workspace FROM conversations WHERE id = $1 AND account_id = $2 FOR UPDATE", conversation_id, account
        )
        if conversation is None:
            raise tree.no_conversation()
        leaf = conversation["active_leaf"]
        user_message_id, past = await self._user_message(db, start, conversation_id, leaf)
        response_id = uuid4()
        row = await db.fetchrow(
            """
            WITH response AS (
                INSERT INTO messages (id, conversation_id, parent_message_id, turn_id, role, status)
                VALUES ($1, $2, $3, $4, 'assistant', 'running')
            ), chosen AS (
                UPDATE messages SET active_child = $1 WHERE id = $3
            ), reserved AS (
                UPDATE conversations SET active_leaf = $1, active_response_id = $1, updated_at = now(), transient = transient AND $10
                WHERE id = $2
            )
            INSERT INTO turns (id, conversation_id, account_id, user_message_id, response_id, previous_leaf, owner, client_message_id,
                               request_digest, assignment)
            VALUES ($4, $2, $5, $3, $1, $6, $7, $8, $9, $11) RETURNING *
            """,
            response_id, conversation_id, user_message_id, start.turn_id, account, leaf, self.owner, start.client_message_id,
            start.request_digest, start.transient, assignment,
        )  # fmt: skip
        assert row is not None
        return Begun(_turn(row), past, conversation["workspace"])

    async def _user_message(self, db: Connection, start: StartTurn, conversation_id: UUID, leaf: UUID | None) -> tuple[UUID, list[Past]]:
        """The user message that is answered: a new one, or for a regenerated reply the one it answers; and the branch down to it."""
        parent = start.parent_message_id or leaf
        if start.parent_message_id is not None:
            chosen = await tree.message(db, conversation_id, start.parent_message_id)
            if chosen["role"] != "assistant":
                raise ServiceError(ErrorCode.INVALID, "parent_message_id must name a reply; use retry_message_id to edit a user's message.")
        if start.retry_message_id is not None:
            retried = await tree.message(db, conversation_id, start.retry_message_id)
            if retried["role"] == "assistant":
                if start.message is not None:
                    raise ServiceError(ErrorCode.INVALID, "Regenerating a reply takes no message; edit the user's message instead.")
                question = await tree.question(db, conversation_id, retried)
                return question, await tree.branch(db, question)
            parent = retried["parent_message_id"]
        message = _required(start.message)
        past = await tree.branch(db, parent) if parent is not None else []
        message_id = uuid4()
        await db.execute(
            """
            WITH chosen AS (UPDATE messages SET active_child = $1 WHERE id = $3)
            INSERT INTO messages (id, conversation_id, parent_message_id, role, content, status)
            VALUES ($1, $2, $3, 'user', $4, 'completed')
            """,
            message_id, conversation_id, parent, message,
        )  # fmt: skip
        return message_id, [*past, Past("user", message, [], [], [], message_id)]

    async def replayed(self, start: StartTurn, account: UUID) -> Turn | None:
        """The turn that was begun before by the same client message.

        Raises:
            ServiceError: `client_message_id_reused`.
        """
        async with connection(self._pool) as db:
            return await self._seen_before(db, start, account)

    async def keep_injected(self, prepared: Mapping[UUID, tuple[list[dict[str, Any]], bool]]) -> dict[UUID, list[dict[str, Any]]]:
        """Store what messages mention, and whether that is all of it; once per message, whichever turn is first (MN-6). What is stored."""
        kept: dict[UUID, list[dict[str, Any]]] = {}
        async with transaction(self._pool) as db:
            rows = await db.fetch(
                "SELECT id, injected, prepared FROM messages WHERE id = ANY($1) ORDER BY id FOR UPDATE", list(prepared)
            )  # fmt: skip
            for row in rows:
                items, is_all = prepared[row["id"]]
                kept[row["id"]] = row["injected"] if row["prepared"] else row["injected"] + _others(items, row["injected"])
                if not row["prepared"]:
                    await db.execute(
                        "UPDATE messages SET injected = $2, prepared = $3 WHERE id = $1", row["id"], kept[row["id"]], is_all
                    )  # fmt: skip
        return kept

    async def workspace_of(self, conversation_id: UUID, account: UUID) -> UUID | None:
        """Where the references of a conversation start, if it has such a workspace."""
        async with connection(self._pool) as db:
            workspace: UUID | None = await db.fetchval(
                "SELECT workspace FROM conversations WHERE id = $1 AND account_id = $2", conversation_id, account
            )
        return workspace

    # Between beginning and end

    async def checkpoint(self, turn: Turn, checkpoint: Checkpoint, last_seq: int, log: bytes) -> None:
        """Store that a round is whole, for an agent that takes over; nothing is stored where one has."""
        async with connection(self._pool) as db:
            await db.execute(
                "UPDATE turns SET checkpoint = $3, last_seq = $4, log = $5 WHERE id = $1 AND attempt = $2 AND status = 'running'",
                turn.id, turn.attempt, checkpoint.stored(), last_seq, log,
            )  # fmt: skip

    async def release(self, turn_id: UUID, attempt: int) -> bool:
        """Leave a turn to whichever agent finds it first; False where it is not ours any more."""
        async with connection(self._pool) as db:
            released = await db.execute(
                "UPDATE turns SET owner = $3 WHERE id = $1 AND attempt = $2 AND status = 'running'", turn_id, attempt, NOBODY
            )
        return released != "UPDATE 0"

    async def take_over(self, turn_id: UUID, former: UUID) -> TakenOver | None:
        """Own a turn from now on; None where another agent was quicker, or it has ended."""
        async with transaction(self._pool) as db:
            row = await db.fetchrow(
                """
                UPDATE turns SET owner = $2, attempt = attempt + 1 WHERE id = $1 AND owner = $3 AND status = 'running'
                RETURNING *, extract(epoch FROM now() - created_at)::float8 AS age,
                    (SELECT workspace FROM conversations c WHERE c.id = turns.conversation_id) AS workspace
                """,
                turn_id, self.owner, former,
            )  # fmt: skip
            if row is None:
                return None
            past = await tree.branch(db, row["user_message_id"])
        checkpoint = Checkpoint.restored(row["checkpoint"]) if row["checkpoint"] else Checkpoint()
        begun = Begun(_turn(row), past, row["workspace"])
        return TakenOver(begun, row["assignment"], checkpoint, row["log"], row["cancel_requested"], row["age"])

    # Ending a turn

    async def end(self, turn: Turn, fold: Fold, rounds: list[Round], log: bytes) -> Ended:
        """Store what the turn came to; nothing is stored where the turn is another attempt's now, or was deleted meanwhile."""
        if not _gives_the_path_back(fold):
            async with connection(self._pool) as db:
                ended = await self._store_end(db, turn, fold, rounds, log)
                return Ended.STORED if ended is not None else await self._why_not(db, turn)
        async with transaction(self._pool) as db:
            ended = await self._store_end(db, turn, fold, rounds, log)
            if ended is None:
                return await self._why_not(db, turn)
            await self._give_back(db, turn, ended["previous_leaf"])
            return Ended.STORED

    async def end_without_content(self, turn: Turn, last_seq: int, log: bytes) -> Ended:
        """Store that a turn has failed, and its log, where what it came to cannot be put into columns."""
        async with transaction(self._pool) as db:
            await db.execute("SELECT 1 FROM conversations WHERE id = $1 FOR UPDATE", turn.conversation_id)
            previous = await db.fetchrow(
                """
                UPDATE turns SET status = 'failed', last_seq = $3, log = $4, ended_at = now()
                WHERE id = $1 AND attempt = $2 AND status = 'running' RETURNING previous_leaf
                """,
                turn.id, turn.attempt, last_seq, log,
            )  # fmt: skip
            if previous is None:
                return await self._why_not(db, turn)
            await db.execute("UPDATE messages SET status = 'failed' WHERE id = $1", turn.response_id)
            await self._give_back(db, turn, previous["previous_leaf"])
            return Ended.STORED

    async def _why_not(self, db: Connection, turn: Turn) -> Ended:
        there = await db.fetchval("SELECT true FROM turns WHERE id = $1", turn.id)
        return Ended.SUPERSEDED if there else Ended.DELETED

    async def _store_end(self, db: Connection, turn: Turn, fold: Fold, rounds: list[Round], log: bytes) -> asyncpg.Record | None:
        """One statement. The conversation is locked first, as everywhere, so that two endings cannot wait for each other."""
        return await db.fetchrow(
            """
            WITH locked AS MATERIALIZED (
                SELECT id FROM conversations WHERE id = $1 FOR UPDATE
            ), ended AS (
                UPDATE turns SET status = $4, last_seq = $5, log = $6, ended_at = now() FROM locked
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
            fold.usage, [round_.stored() for round_ in rounds],
        )  # fmt: skip

    async def _give_back(self, db: Connection, turn: Turn, previous_leaf: UUID | None) -> None:
        """A turn that brought nothing leaves the good answer active, if there was one beside it (VT-4)."""
        previous_leaf = await self._last_that_brought_something(db, previous_leaf)
        sibling = await db.fetchval(
            tree.PATH + "SELECT id FROM path WHERE parent_message_id = $2", previous_leaf, turn.user_message_id
        )  # fmt: skip
        edited = sibling is None and await self._edited_sibling(db, turn, previous_leaf)
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

    async def _last_that_brought_something(self, db: Connection, leaf: UUID | None) -> UUID | None:
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

    async def _edited_sibling(self, db: Connection, turn: Turn, previous_leaf: UUID | None) -> bool:
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

    # Reading

    async def turn(self, turn_id: UUID, account: UUID) -> Turn:
        """The account's turn.

        Raises:
            ServiceError: `turn_not_found`.
        """
        async with connection(self._pool) as db:
            row = await db.fetchrow("SELECT * FROM turns WHERE id = $1 AND account_id = $2", turn_id, account)
        if row is None:
            raise ServiceError(ErrorCode.TURN_NOT_FOUND, "There is no such turn.")
        return _turn(row)

    async def packed_log(self, turn_id: UUID) -> bytes | None:
        """The stored log of a turn that has ended."""
        async with connection(self._pool) as db:
            packed: bytes | None = await db.fetchval("SELECT log FROM turns WHERE id = $1", turn_id)
        return packed

    async def request_cancel(self, turn_id: UUID) -> None:
        """Note the wish to cancel, so that the owner meets it even if it misses the message."""
        async with connection(self._pool) as db:
            await db.execute("UPDATE turns SET cancel_requested = true WHERE id = $1 AND status = 'running'", turn_id)


def _required(message: str | None) -> str:
    if message is None:
        raise ServiceError(ErrorCode.INVALID, "A message is needed, unless a reply is regenerated.")
    return message


def _others(items: list[dict[str, Any]], present: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what another turn has stored meanwhile."""
    known = {(item["workspace"], item["path"], item["content_hash"], item["section"]) for item in present}
    return [item for item in items if (item["workspace"], item["path"], item["content_hash"], item["section"]) not in known]


def _gives_the_path_back(fold: Fold) -> bool:
    return fold.status == "failed" or (fold.status == "cancelled" and not fold.content)


def title_from(message: str) -> str:
    """A new conversation's title: the first line of its first message."""
    line = next((line.strip() for line in message.splitlines() if line.strip()), "")
    return line if len(line) <= TITLE_CHARACTERS_MAX else line[:TITLE_CHARACTERS_MAX].rstrip() + "…"


def _turn(row: asyncpg.Record) -> Turn:
    return Turn(**{name: row[name] for name in Turn.__dataclass_fields__})
