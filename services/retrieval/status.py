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
from shared.database.pool import Pool, connection
from shared.messaging.client import Client
from shared.messaging.scope import Scope


async def status(
    pool: Pool, client: Client, backlog: Backlog, indexer: Indexer, vectors: Vectors | None, workspace: UUID | None, scope: Scope
) -> Status:
    """Of one workspace, or of all that the account may read. A changed note that is still found by its old text is pending
    alone, or held alone.

    Raises:
        ServiceError: `workspace_not_found`.
    """
    readable = [one.id for one in (await client.ask(notes.WORKSPACE_LIST, Empty(), scope)).items]
    if workspace is not None and workspace not in readable:
        raise ServiceError(ErrorCode.WORKSPACE_NOT_FOUND, "There is no such workspace.")
    chosen = [workspace] if workspace is not None else readable
    due = backlog.paths(chosen)
    async with connection(pool) as db:
        row = await db.fetchrow(
            """
            SELECT count(*) FILTER (WHERE to_write) AS unwritten,
                   count(*) FILTER (WHERE NOT to_write AND to_embed) AS unembedded,
                   count(*) FILTER (WHERE NOT to_write AND NOT to_embed) AS indexed
            FROM (
                SELECT EXISTS (SELECT FROM chunks c WHERE c.document = d.id AND NOT c.in_index) AS to_write,
                       EXISTS (SELECT FROM chunks c WHERE c.document = d.id AND NOT c.dense) AS to_embed
                FROM documents d
                WHERE d.workspace = ANY($1) AND NOT d.excluded
                  AND NOT EXISTS (SELECT FROM unnest($2::uuid[], $3::text[]) AS due(w, p) WHERE due.w = d.workspace AND due.p = d.path)
                  AND NOT EXISTS (SELECT FROM held h WHERE h.workspace = d.workspace AND d.path IN (h.path, h.moved_from))
            ) AS states
            """,
            chosen, [one for one, _ in due], [path for _, path in due],
        )  # fmt: skip
        waiting = await held.count(db, chosen, due)
    assert row is not None
    return Status(
        indexed=row["indexed"],
        pending=len(due) + row["unwritten"],
        held=waiting,
        unembedded=row["unembedded"],
        oldest_pending_seconds=round(backlog.oldest_seconds(chosen), 1),
        last_error=indexer.last_error or (vectors.last_error if vectors else None),
    )
