"""What readers of a workspace see: generations of its text and its vectors, catalog revision, corpus fingerprint.

All of it is read in a snapshot of the database, together with the documents and chunks that belong to it.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID, uuid5

import asyncpg

from services.retrieval.documents import NAMESPACE
from services.retrieval.index_writer import IndexWriter
from shared.contracts.retrieval import Publication, PublishedText, PublishedVectors, PublishMode
from shared.database.pool import Connection
from shared.database.publication_lock import hold_to_publish


@dataclass(frozen=True, slots=True)
class Seen:
    """One workspace's publication, as a search saw it. `vector` None: no passage has a vector."""

    workspace: UUID
    publish: PublishMode
    text: PublishedText
    vector: PublishedVectors | None
    catalog_revision: int
    corpus_fingerprint: str


class Publications:
    """Reads publications; remembers the fingerprints of the present ones."""

    def __init__(self, writer: IndexWriter) -> None:
        self._writer = writer
        self._fingerprints: dict[UUID, tuple[int, str]] = {}

    async def seen(self, db: Connection, workspaces: Sequence[UUID] | None) -> list[Seen]:
        """Those of these workspaces (None: all), by id; none for one that was never indexed. `db`: in a snapshot."""
        rows = await db.fetch(
            "SELECT p.*, EXISTS (SELECT FROM chunks c WHERE c.workspace = p.workspace AND NOT c.embedded) AS incomplete "
            "FROM publications p WHERE $1::uuid[] IS NULL OR workspace = ANY($1) ORDER BY workspace",
            workspaces,
        )
        return [await self._seen(db, row) for row in rows]

    async def listed(self, db: Connection) -> list[Publication]:
        """All of them, with how much they hold. `db`: in a snapshot."""
        counted = {
            row["workspace"]: row
            for row in await db.fetch(
                "SELECT workspace, (SELECT count(*) FROM documents d WHERE d.workspace = p.workspace AND NOT excluded) AS documents, "
                "(SELECT count(*) FROM chunks c WHERE c.workspace = p.workspace) AS chunks FROM publications p"
            )
        }
        return [
            Publication(
                workspace=one.workspace,
                publish=one.publish,
                text=one.text,
                vector=one.vector,
                catalog_revision=one.catalog_revision,
                corpus_fingerprint=one.corpus_fingerprint,
                documents=counted[one.workspace]["documents"],
                chunks=counted[one.workspace]["chunks"],
            )
            for one in await self.seen(db, None)
        ]

    async def _seen(self, db: Connection, row: asyncpg.Record) -> Seen:
        workspace, space = row["workspace"], self._writer.space
        text = PublishedText(id=_id(workspace, "text", row["generation"]), generation=row["generation"], created_at=row["published_at"])
        vector = None
        if space is not None and row["vectors_at"] is not None:
            vector = PublishedVectors(
                id=_id(workspace, f"vector\0{space}", row["vector_generation"]),
                generation=row["vector_generation"],
                text_publication=text.id,
                embedding_space=space,
                complete=not row["incomplete"],
                created_at=row["vectors_at"],
            )
        fingerprint = await self._fingerprint(db, workspace, row["generation"])
        return Seen(workspace, row["publish"], text, vector, row["catalog_revision"], fingerprint)

    async def _fingerprint(self, db: Connection, workspace: UUID, generation: int) -> str:
        """SHA-256 over the paths and hashes of the workspace's published documents: equal for equal corpora."""
        known = self._fingerprints.get(workspace)
        if known is not None and known[0] == generation:
            return known[1]
        digest = hashlib.sha256()
        for row in await db.fetch(
            "SELECT path, content_hash FROM documents WHERE workspace = $1 AND NOT excluded ORDER BY path", workspace
        ):
            digest.update(f"{row['path']}\0{row['content_hash']}\n".encode())
        self._fingerprints[workspace] = generation, digest.hexdigest()
        return digest.hexdigest()


async def begin(db: Connection, workspace: UUID) -> None:
    """Let there be a publication, if only an empty one."""
    await db.execute("INSERT INTO publications (workspace) VALUES ($1) ON CONFLICT DO NOTHING", workspace)


async def set_mode(db: Connection, workspace: UUID, publish: PublishMode) -> None:
    """From now on every change publishes, or only an admin does. `db`: in a transaction."""
    await hold_to_publish(db, [workspace])
    await db.execute(
        "INSERT INTO publications (workspace, publish) VALUES ($1, $2) ON CONFLICT (workspace) DO UPDATE SET publish = excluded.publish",
        workspace, publish,
    )  # fmt: skip


def _id(workspace: UUID, kind: str, generation: int) -> UUID:
    return uuid5(NAMESPACE, f"{workspace}\0{kind}\0{generation}")
