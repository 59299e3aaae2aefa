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
    """One workspace's publication, as a search saw it. `vector` None: there are passages, and none has a vector. `in_index`: the index has
    all passages.
    """

    workspace: UUID
    publish: PublishMode
    text: PublishedText
    vector: PublishedVectors | None
    catalog_revision: int
    corpus_fingerprint: str
    in_index: bool


class Publications:
    """Reads publications; remembers the fingerprints of the present ones."""

    def __init__(self, writer: IndexWriter) -> None:
        self._writer = writer
        self._fingerprints: dict[UUID, tuple[int, str]] = {}

    async def seen(self, db: Connection, workspaces: Sequence[UUID]) -> list[Seen]:
        """Those of these workspaces, by id. One that was never indexed is seen, too: its publication is the empty one, so that whoever
        saw it notices the first note. `db`: in a snapshot.
        """
        rows = await db.fetch(
            "SELECT workspace, coalesce(publish, 'auto') AS publish, coalesce(generation, 0) AS generation, "
            "published_at, coalesce(vector_generation, 0) AS vector_generation, vectors_at, "
            "coalesce(catalog_revision, 0) AS catalog_revision, "
            "EXISTS (SELECT FROM chunks c WHERE c.workspace = asked.workspace AND NOT c.embedded) AS incomplete, "
            "EXISTS (SELECT FROM chunks c WHERE c.workspace = asked.workspace AND NOT c.in_index) AS unwritten "
            "FROM (SELECT DISTINCT unnest($1::uuid[]) AS workspace) AS asked "
            "LEFT JOIN publications USING (workspace) ORDER BY workspace",
            workspaces,
        )
        return [await self._seen(db, row) for row in rows]

    async def all(self, db: Connection, served: Sequence[UUID]) -> list[Publication]:
        """Those of the workspaces that are served now, and of all that ever were indexed. `db`: in a snapshot."""
        indexed = await db.fetch("SELECT workspace FROM publications")
        return await self.listed(db, [*served, *(row["workspace"] for row in indexed)])

    async def listed(self, db: Connection, workspaces: Sequence[UUID]) -> list[Publication]:
        """Those of these workspaces, with how much they hold. `db`: in a snapshot."""
        counted = {
            row["workspace"]: row
            for row in await db.fetch(
                "SELECT workspace, (SELECT count(*) FROM documents d WHERE d.workspace = asked.workspace AND NOT excluded) AS documents, "
                "(SELECT count(*) FROM chunks c WHERE c.workspace = asked.workspace) AS chunks FROM unnest($1::uuid[]) AS asked(workspace)",
                workspaces,
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
            for one in await self.seen(db, workspaces)
        ]

    async def _seen(self, db: Connection, row: asyncpg.Record) -> Seen:
        workspace, space, generation = row["workspace"], self._writer.space, row["generation"]
        # A choice of how to publish makes a row, too, with no publication to date.
        published_at = row["published_at"] if generation else None
        text = PublishedText(id=_id(workspace, "text", generation), generation=generation, created_at=published_at)
        vector = None
        # Where there is no passage, the vectors of all of them are known.
        if space is not None and (row["vectors_at"] is not None or not row["incomplete"]):
            vector = PublishedVectors(
                id=_id(workspace, f"vector\0{space}", row["vector_generation"]),
                generation=row["vector_generation"],
                text_publication=text.id,
                embedding_space=space,
                complete=not row["incomplete"],
                created_at=row["vectors_at"] or published_at,
            )
        fingerprint = await self._fingerprint(db, workspace, generation)
        return Seen(workspace, row["publish"], text, vector, row["catalog_revision"], fingerprint, not row["unwritten"])

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
