"""Changes that wait for a publication by hand: which notes differ from what is published, by path.

A note that comes back to its published state waits no longer. Whoever calls holds the lock to publish.
"""

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from shared.database.pool import Connection


@dataclass(frozen=True, slots=True)
class Held:
    """A note that differs. `content_hash` None: it has gone; `moved_from`: where the publication has it, if elsewhere."""

    path: str
    content_hash: str | None
    revision: int
    moved_from: str | None


async def manual(db: Connection, workspaces: Collection[UUID]) -> set[UUID | None]:
    """Those of the workspaces that are published by hand."""
    rows = await db.fetch("SELECT workspace FROM publications WHERE publish = 'manual' AND workspace = ANY($1)", list(workspaces))
    return {row["workspace"] for row in rows}


async def of(db: Connection, workspace: UUID) -> list[Held]:
    """All that waits in a workspace, in the order of the changes."""
    rows = await db.fetch(
        "SELECT path, content_hash, revision, moved_from FROM held WHERE workspace = $1 ORDER BY revision, path", workspace
    )
    return [Held(*row.values()) for row in rows]


async def among(db: Connection, workspace: UUID, paths: Collection[str]) -> set[str]:
    """Those of the paths whose notes wait."""
    rows = await db.fetch("SELECT path FROM held WHERE workspace = $1 AND path = ANY($2)", workspace, list(paths))
    return {row["path"] for row in rows}


async def hold(db: Connection, workspace: UUID, path: str, content_hash: str | None, revision: int | None) -> None:
    """The note is now of that content. An older state than the known one is passed over; `revision` None: it was seen to be so."""
    await db.execute(
        "INSERT INTO held AS h (workspace, path, content_hash, revision) VALUES ($1, $2, $3, coalesce($4, 0)) "
        "ON CONFLICT (workspace, path) DO UPDATE SET content_hash = $3, revision = coalesce($4, h.revision), "
        "moved_from = CASE WHEN $3::text IS NOT NULL THEN h.moved_from END WHERE h.revision <= coalesce($4, h.revision)",
        workspace, path, content_hash, revision,
    )  # fmt: skip
    await db.execute(
        "DELETE FROM held h WHERE workspace = $1 AND path = $2 AND moved_from IS NULL AND content_hash IS NOT DISTINCT FROM "
        "(SELECT d.content_hash FROM documents d WHERE d.workspace = $1 AND d.path = $2)",
        workspace, path,
    )  # fmt: skip


async def move(db: Connection, workspace: UUID, from_path: str, path: str, revision: int) -> None:
    """The note that stood at `from_path` stands at `path`; its content is told by `hold`."""
    origin = await db.fetchval(
        "SELECT coalesce((SELECT moved_from FROM held WHERE workspace = $1 AND path = $2), "
        "(SELECT path FROM documents WHERE workspace = $1 AND path = $2))",
        workspace, from_path,
    )  # fmt: skip
    if origin == path:
        origin = None
    await db.execute(
        "INSERT INTO held AS h (workspace, path, revision, moved_from) VALUES ($1, $2, $3, $4) "
        "ON CONFLICT (workspace, path) DO UPDATE SET moved_from = $4, revision = $3 WHERE h.revision <= $3",
        workspace, path, revision, origin,
    )  # fmt: skip


async def released(db: Connection, published: Collection[tuple[UUID, str, int | None]]) -> None:
    """Workspaces, paths and revisions (None: whatever was known) of changes that are published."""
    await db.execute(
        "DELETE FROM held h USING unnest($1::uuid[], $2::text[], $3::bigint[]) AS p(workspace, path, revision) "
        "WHERE h.workspace = p.workspace AND h.path = p.path AND (p.revision IS NULL OR h.revision <= p.revision)",
        *([one[column] for one in published] for column in range(3)),
    )


async def count(db: Connection, workspaces: Collection[UUID], without: Collection[tuple[UUID, str]]) -> int:
    """How many notes wait, `without` those of these workspaces and paths; one that moved is one, not two."""
    found: int = await db.fetchval(
        "SELECT count(*) FROM held h WHERE workspace = ANY($1) AND NOT (content_hash IS NULL AND EXISTS "
        "(SELECT FROM held o WHERE o.workspace = h.workspace AND o.moved_from = h.path)) "
        "AND (h.workspace, h.path) NOT IN (SELECT * FROM unnest($2::uuid[], $3::text[]))",
        list(workspaces),
        [workspace for workspace, _ in without],
        [path for _, path in without],
    )
    return found
