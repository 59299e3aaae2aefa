"""What is searchable and what is still to come, in notes."""

from uuid import UUID

from services.retrieval import held
from services.retrieval.backlog import Backlog
from services.retrieval.indexer import Indexer
from services.retrieval.vectors import Vectors
from shared.contracts import notes
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.retrieval import Status
from shared.contracts.subject import Empty
from shared.database.pool import Connection, Pool, connection
from shared.messaging.client import Client
from shared.messaging.scope import Scope


async def status(
    pool: Pool, client: Client, backlog: Backlog, indexer: Indexer, vectors: Vectors | None, workspace: UUID | None, scope: Scope
) -> Status:
    """Of one workspace, or of all that the account may read. A changed note that is still found by its old text is pending
    alone, or held alone; so are, by their number, the notes of a workspace that was not looked through since this process began.

    Raises:
        ServiceError: `workspace_not_found`.
    """
    readable = {one.id: one for one in (await client.ask(notes.WORKSPACE_LIST, Empty(), scope)).items}
    if workspace is not None and workspace not in readable:
        raise ServiceError(ErrorCode.WORKSPACE_NOT_FOUND, "There is no such workspace.")
    chosen = [workspace] if workspace is not None else list(readable)
    due = backlog.paths(chosen)
    counted = [*due, *backlog.former_paths(chosen)]
    uncompared = {one: readable[one].notes for one in chosen if readable[one].available and not backlog.is_compared(one)}
    async with connection(pool) as db:
        row = await db.fetchrow(
            """
            SELECT count(*) FILTER (WHERE by_words) AS unembedded, count(*) FILTER (WHERE NOT by_words) AS indexed
            FROM (
                -- What the index does not have yet is found by words in the tables.
                SELECT EXISTS (SELECT FROM chunks c WHERE c.document = d.id AND NOT c.in_index)
                    OR EXISTS (SELECT FROM chunks c WHERE c.document = d.id AND NOT c.dense) AS by_words
                FROM documents d
                WHERE d.workspace = ANY($1) AND NOT d.excluded
                  AND NOT EXISTS (SELECT FROM unnest($2::uuid[], $3::text[]) AS due(w, p) WHERE due.w = d.workspace AND due.p = d.path)
                  AND NOT EXISTS (SELECT FROM held h WHERE h.workspace = d.workspace AND d.path IN (h.path, h.moved_from))
            ) AS states
            """,
            chosen, [one for one, _ in counted], [path for _, path in counted],
        )  # fmt: skip
        waiting = await held.count(db, chosen, counted)
        unseen = await _unseen(db, uncompared, due)
    assert row is not None
    return Status(
        indexed=row["indexed"],
        pending=len(due) + unseen,
        held=waiting,
        unembedded=row["unembedded"],
        oldest_pending_seconds=round(backlog.oldest_seconds(chosen), 1),
        last_error=indexer.last_error or (vectors.last_error if vectors else None),
    )


async def _unseen(db: Connection, uncompared: dict[UUID, int], due: list[tuple[UUID, str]]) -> int:
    """How many notes there are of which nothing is stored or known, in these workspaces with so many notes."""
    if not uncompared:
        return 0
    rows = await db.fetch(
        """
        SELECT workspace, count(*) AS known FROM (
            SELECT workspace, path FROM documents WHERE workspace = ANY($1)
            UNION SELECT workspace, path FROM held WHERE workspace = ANY($1)
            UNION SELECT * FROM unnest($2::uuid[], $3::text[])
        ) AS seen GROUP BY workspace
        """,
        list(uncompared), [one for one, _ in due], [path for _, path in due],
    )  # fmt: skip
    known = {row["workspace"]: row["known"] for row in rows}
    return sum(max(0, notes - known.get(workspace, 0)) for workspace, notes in uncompared.items())
