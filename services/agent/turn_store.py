"""Turns in PostgreSQL: begun with the user's message and a reserved place for the reply, ended with what came of them.

Every change of the active path happens under the conversation's row lock. A turn reserves its response as `active_response_id`; only the
turn whose response is still named there may move the path when it ends (VT-4).
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid4

import asyncpg

from services.agent import tree, turn_outcome
from services.agent.approval import Decisions, Proposal
from services.agent.fold import Fold
from services.agent.history import open_conversation
from services.agent.prompt import Past, Round
from services.agent.turn_rows import Begun, Checkpoint, Ended, TakenOver, Turn
from shared.contracts.chat import Decision, StartTurn
from shared.contracts.errors import ErrorCode, ServiceError
from shared.database.pool import Connection, Pool, connection, transaction

TITLE_CHARACTERS_MAX = 60
# Owns the turns that an agent which stops has left to the others.
NOBODY = UUID(int=0)


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
        """Where the references of a conversation start, if it has such a workspace.

        Raises:
            ServiceError: `conversation_not_found`.
        """
        async with connection(self._pool) as db:
            row = await db.fetchrow("SELECT workspace FROM conversations WHERE id = $1 AND account_id = $2", conversation_id, account)
        if row is None:
            raise tree.no_conversation()
        return row["workspace"]  # type: ignore[no-any-return]

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
                "UPDATE turns SET owner = $3, handed_over = handed_over + 1 WHERE id = $1 AND attempt = $2 AND status = 'running'",
                turn_id, attempt, NOBODY,
            )  # fmt: skip
        return released != "UPDATE 0"

    async def take_over(self, turn_id: UUID, former: UUID) -> TakenOver | None:
        """Own a turn from now on; None where another agent was quicker, or it has ended."""
        async with transaction(self._pool) as db:
            row = await db.fetchrow(
                """
                UPDATE turns SET owner = $2, attempt = attempt + 1 WHERE id = $1 AND owner = $3 AND status = 'running'
                RETURNING *, extract(epoch FROM now() - active_since)::float8 AS age,
                    (SELECT workspace FROM conversations c WHERE c.id = turns.conversation_id) AS workspace
                """,
                turn_id, self.owner, former,
            )  # fmt: skip
            if row is None:
                return None
            past = await tree.branch(db, row["user_message_id"])
            decisions = await _decisions(db, turn_id)
        checkpoint = Checkpoint.restored(row["checkpoint"]) if row["checkpoint"] else Checkpoint()
        begun = Begun(_turn(row), past, row["workspace"])
        return TakenOver(begun, row["assignment"], checkpoint, row["log"], row["cancel_requested"], row["age"], decisions)

    # Ending a turn

    async def end(self, turn: Turn, fold: Fold, rounds: list[Round], log: bytes) -> Ended:
        """Store what the turn came to; nothing is stored where the turn is another attempt's now, or was deleted meanwhile."""
        if not turn_outcome.gives_the_path_back(fold):
            async with connection(self._pool) as db:
                ended = await turn_outcome.store_end(db, turn, fold, rounds, log)
                return Ended.STORED if ended is not None else await self._why_not(db, turn)
        async with transaction(self._pool) as db:
            ended = await turn_outcome.store_end(db, turn, fold, rounds, log)
            if ended is None:
                return await self._why_not(db, turn)
            await turn_outcome.give_back(db, turn, ended["previous_leaf"])
            return Ended.STORED

    async def suspend(self, turn: Turn, fold: Fold, checkpoint: Checkpoint, log: bytes) -> Ended | Decisions:
        """Store that the turn waits for the user; or, where the user has decided about a proposal by now, answer with what was decided."""
        async with transaction(self._pool) as db:
            await db.execute("SELECT 1 FROM conversations WHERE id = $1 FOR UPDATE", turn.conversation_id)
            present = await db.fetchrow("SELECT * FROM turns WHERE id = $1 FOR UPDATE", turn.id)
            if present is None:
                return Ended.DELETED
            if present["attempt"] != turn.attempt or present["status"] != "running":
                return Ended.SUPERSEDED
            if present["cancel_requested"]:
                return Ended.CANCELLED
            decisions = await _decisions(db, turn.id)
            if any(proposal.call in decisions for proposal in checkpoint.proposals):
                return decisions
            await turn_outcome.store_end(db, turn, fold, checkpoint.said, log, checkpoint)
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
            await turn_outcome.give_back(db, turn, previous["previous_leaf"])
            return Ended.STORED

    async def _why_not(self, db: Connection, turn: Turn) -> Ended:
        there = await db.fetchval("SELECT true FROM turns WHERE id = $1", turn.id)
        return Ended.SUPERSEDED if there else Ended.DELETED

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
        """The stored log: whole where the turn has ended or waits, else up to its last checkpoint."""
        async with connection(self._pool) as db:
            packed: bytes | None = await db.fetchval("SELECT log FROM turns WHERE id = $1", turn_id)
        return packed

    # What the user wishes of a turn

    async def request_cancel(self, turn_id: UUID) -> bool:
        """Note the wish to cancel, so that the owner meets it even if it misses the message. A turn that waits is nobody's: it is left to
        whichever agent finds it first, to be ended; whether it was one.
        """
        async with connection(self._pool) as db:
            before = await db.fetchval(
                """
                WITH before AS (SELECT id, status FROM turns WHERE id = $1 AND status IN ('running', 'suspended') FOR UPDATE)
                UPDATE turns SET cancel_requested = true, status = 'running',
                    owner = CASE before.status WHEN 'running' THEN owner ELSE $2 END,
                    active_since = CASE before.status WHEN 'running' THEN active_since ELSE now() END
                FROM before WHERE turns.id = before.id RETURNING before.status
                """,
                turn_id, NOBODY,
            )  # fmt: skip
        return bool(before == "suspended")

    async def waiting(self, turn_id: UUID) -> list[Proposal]:
        """The changes that wait for the user, decided or not, as the last checkpoint has them."""
        async with connection(self._pool) as db:
            checkpoint = await db.fetchval("SELECT checkpoint FROM turns WHERE id = $1", turn_id)
        return Checkpoint.restored(checkpoint).proposals if checkpoint else []

    async def decision(self, turn_id: UUID, call: str) -> Decision | None:
        """What was decided about a call."""
        async with connection(self._pool) as db:
            return (await _decisions(db, turn_id)).get(call)

    async def decide(self, turn: Turn, call: str, decision: Decision, role: str) -> Decision:
        """Store what the user has decided about a call that waits, and leave a suspended turn to whichever agent finds it first. The role
        that the account has now is the one under which it goes on. What is in force: an earlier decision stays.

        Raises:
            ServiceError: `approval_not_pending`, where the turn has ended, or is to be.
        """
        async with transaction(self._pool) as db:
            await db.execute("SELECT 1 FROM conversations WHERE id = $1 FOR UPDATE", turn.conversation_id)
            present = await db.fetchrow("SELECT status, cancel_requested FROM turns WHERE id = $1 FOR UPDATE", turn.id)
            if (known := (await _decisions(db, turn.id)).get(call)) is not None:
                return known
            if present is None or present["cancel_requested"] or present["status"] not in ("running", "suspended"):
                raise not_pending()
            await db.execute("INSERT INTO approvals (turn_id, tool_call_id, decision) VALUES ($1, $2, $3)", turn.id, call, decision)
            if present["status"] == "suspended":
                await db.execute(
                    """
                    WITH shown AS (UPDATE messages SET status = 'running' WHERE id = $4)
                    UPDATE turns SET status = 'running', owner = $2, active_since = now(),
                        assignment = jsonb_set(assignment, '{role}', to_jsonb($3::text))
                    WHERE id = $1
                    """,
                    turn.id, NOBODY, role, turn.response_id,
                )  # fmt: skip
            return decision


async def _decisions(db: Connection, turn_id: UUID) -> Decisions:
    rows = await db.fetch("SELECT tool_call_id, decision FROM approvals WHERE turn_id = $1", turn_id)
    return {row["tool_call_id"]: row["decision"] for row in rows}


def not_pending() -> ServiceError:
    """A call that nobody needs to decide about (any more)."""
    return ServiceError(ErrorCode.APPROVAL_NOT_PENDING, "This call does not wait for a decision.")


def _required(message: str | None) -> str:
    if message is None:
        raise ServiceError(ErrorCode.INVALID, "A message is needed, unless a reply is regenerated.")
    return message


def _others(items: list[dict[str, Any]], present: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what another turn has stored meanwhile."""
    known = {(item["workspace"], item["path"], item["content_hash"], item["section"]) for item in present}
    return [item for item in items if (item["workspace"], item["path"], item["content_hash"], item["section"]) not in known]


def title_from(message: str) -> str:
    """A new conversation's title: the first line of its first message."""
    line = next((line.strip() for line in message.splitlines() if line.strip()), "")
    return line if len(line) <= TITLE_CHARACTERS_MAX else line[:TITLE_CHARACTERS_MAX].rstrip() + "…"


def _turn(row: asyncpg.Record) -> Turn:
    return Turn(**{name: row[name] for name in Turn.__dataclass_fields__})
