"""What readers of a workspace see: generations of its text and its vectors, catalog revision, corpus fingerprint."""

from collections.abc import Sequence
from uuid import UUID, uuid5

from services.retrieval.documents import NAMESPACE, fingerprint
from shared.contracts.retrieval import Publication, PublishedText, PublishedVectors
from shared.database.pool import Connection


async def of(db: Connection, workspaces: Sequence[UUID] | None, space: str | None) -> list[Publication]:
    """The present publications of these workspaces (None: all), by id; none for one that was never indexed."""
    rows = await db.fetch("SELECT * FROM publications WHERE $1::uuid[] IS NULL OR workspace = ANY($1) ORDER BY workspace", workspaces)
    found = []
    for row in rows:
        workspace = row["workspace"]
        documents = await db.fetchval("SELECT count(*) FROM documents WHERE workspace = $1 AND NOT excluded", workspace)
        chunks = await db.fetchval("SELECT count(*) FROM chunks WHERE workspace = $1", workspace)
        complete = not await db.fetchval("SELECT EXISTS (SELECT FROM chunks WHERE workspace = $1 AND NOT dense)", workspace)
        text = PublishedText(id=_id(workspace, "text", row["generation"]), generation=row["generation"], created_at=row["published_at"])
        vector = None
        if space is not None and row["vectors_at"] is not None:
            vector = PublishedVectors(
                id=_id(workspace, f"vector\0{space}", row["vector_generation"]),
                generation=row["vector_generation"],
                text_publication=text.id,
                embedding_space=space,
                complete=complete,
                created_at=row["vectors_at"],
            )
        found.append(
            Publication(
                workspace=workspace,
                publish=row["publish"],
                text=text,
                vector=vector,
                catalog_revision=row["catalog_revision"],
                corpus_fingerprint=await fingerprint(db, workspace),
                documents=documents,
                chunks=chunks,
            )
        )
    return found


def _id(workspace: UUID, kind: str, generation: int) -> UUID:
    return uuid5(NAMESPACE, f"{workspace}\0{kind}\0{generation}")
