"""The tables of documents and chunks: what is to be found, whatever the index has seen of it.

One transaction makes a publication: who reads in a snapshot of the database sees one whole. A chunk that the index does not have yet is
marked as such, the point of one that has gone is remembered as a removal, in the same transaction. The index writer works both off, so
that tables and index agree again after any crash.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID, uuid5

from services.retrieval import held
from services.retrieval.passages import CUT_VERSION, CutNote, Passage
from shared.contracts.index import SparseVector
from shared.contracts.retrieval import SEARCH_SECONDS_MAX
from shared.database.pool import Connection, Pool, connection, transaction
from shared.database.publication_lock import hold_to_publish

NAMESPACE = UUID("5b1e3f0e-7d0a-4a53-9d2c-6f7f7f3c2b11")

# For all chunks of one note: one of 8 MB has some ten thousand.
LONG_NOTE_SECONDS = 120.0

# Longer than any search takes: what a publication had stays in the index for those who still read it.
READERS_SECONDS = 2 * SEARCH_SECONDS_MAX

_STORED = ("id", "content_hash", "title", "tags", "excluded", "source_url", "category")


@dataclass(frozen=True, slots=True)
class Known:
    """A note as the tables have it."""

    id: UUID
    path: str
    content_hash: str
    revision: int
    cut_version: int

    def is_of(self, content_hash: str) -> bool:
        """Whether it is what this version makes of that content."""
        return self.content_hash == content_hash and self.cut_version == CUT_VERSION


@dataclass(frozen=True, slots=True)
class Gone:
    """A note that was asked for and not found.

    `revision` is of the fact that said so; or `content_hash` is the one that was seen when the note was missed.
    """

    workspace: UUID
    path: str
    revision: int | None = None
    content_hash: str | None = None


@dataclass(frozen=True, slots=True)
class Moved:
    """A note's move, so that its document keeps its id."""

    workspace: UUID
    from_path: str
    path: str
    revision: int


type Change = CutNote | Gone | Moved


async def known(pool: Pool, workspace: UUID, paths: Sequence[str] | None = None) -> dict[str, Known]:
    """The workspace's documents by path; those of `paths`, or all."""
    async with connection(pool) as db:
        rows = await db.fetch(
            "SELECT id, path, content_hash, revision, cut_version FROM documents "
            "WHERE workspace = $1 AND ($2::text[] IS NULL OR path = ANY($2))",
            workspace, paths,
        )  # fmt: skip
    return {row["path"]: Known(*row.values()) for row in rows}


async def document_id(pool: Pool, workspace: UUID, path: str, moved_from: str | None = None, vacated: Collection[str] = ()) -> UUID:
    """The id that the note's document has, or will have.

    It is made of workspace and path, so that tables which are made anew give the same ids; a move takes it along, and a new
    note at the old path then gets the next one. `vacated`: paths that moves are about to leave.
    """
    paths = [path, moved_from] if moved_from else [path]
    async with connection(pool) as db:
        for attempt in range(1000):
            made = uuid5(NAMESPACE, f"{workspace}\0{path}\0{attempt}" if attempt else f"{workspace}\0{path}")
            rows = await db.fetch(
                "SELECT path, id FROM documents WHERE (workspace = $1 AND path = ANY($2)) OR id = $3", workspace, paths, made
            )
            present: dict[str, UUID] = {row["path"]: row["id"] for row in rows if row["path"] not in vacated}
            for candidate in paths:
                if candidate in present:
                    return present[candidate]
            if all(row["id"] != made for row in rows):
                return made
    raise RuntimeError("a thousand notes were moved away from one path")


async def commit(
    pool: Pool, changes: Iterable[tuple[Change, UUID | None]], written: Mapping[UUID, bool] | None = None, *, by_hand: UUID | None = None
) -> set[UUID]:
    """Publish changes of notes in order, one transaction; each `CutNote` with its document's id. Returns the workspaces that differ now.

    A state older than the stored one is passed over: revisions decide. What is of a workspace that is published by hand is held, unless
    it is `by_hand`. `written`: the points that the index has already, and whether with their dense vectors.
    """
    listed = list(changes)
    differing: dict[UUID, int] = {}
    async with transaction(pool) as db:
        await hold_to_publish(db, {change.workspace for change, _ in listed})
        manual = await held.manual(db, {change.workspace for change, _ in listed}) - {by_hand}
        for change, document in listed:
            if change.workspace in manual:
                await _hold(db, change)
            elif await _apply(db, change, document, written or {}):
                revision = change.revision or 0
                differing[change.workspace] = max(revision, differing.get(change.workspace, 0))
        published = [change for change, _ in listed if change.workspace not in manual]
        await held.released(db, [(change.workspace, change.path, change.revision) for change in published])
        points = [passage.point for change in published if isinstance(change, CutNote) for passage in change.passages]
        await db.execute("DELETE FROM removals r USING chunks c WHERE r.point = ANY($1) AND c.point = r.point", points)
        for workspace, revision in differing.items():
            await db.execute(
                "INSERT INTO publications AS p (workspace, generation, catalog_revision, vector_generation, vectors_at) "
                "VALUES ($1, 1, $2, 1, CASE WHEN EXISTS (SELECT FROM chunks WHERE workspace = $1 AND embedded) THEN now() END) "
                "ON CONFLICT (workspace) DO UPDATE SET generation = p.generation + 1, published_at = now(), "
                "vector_generation = p.vector_generation + 1, vectors_at = CASE WHEN p.vectors_at IS NOT NULL THEN now() "
                "ELSE excluded.vectors_at END, catalog_revision = greatest(p.catalog_revision, excluded.catalog_revision)",
                workspace, revision,
            )  # fmt: skip
    return set(differing)


async def _hold(db: Connection, change: Change) -> None:
    if isinstance(change, Moved):
        await held.move(db, change.workspace, change.from_path, change.path, change.revision)
    elif isinstance(change, Gone):
        await held.hold(db, change.workspace, change.path, None, change.revision)
    else:
        await held.hold(db, change.workspace, change.path, change.content_hash, change.revision)


async def _apply(db: Connection, change: Change, document: UUID | None, written: Mapping[UUID, bool]) -> bool:
    if isinstance(change, Moved):
        return await _move(db, change)
    if isinstance(change, Gone):
        return await _remove(db, change)
    assert document is not None
    return await _store(db, change, document, written)


async def _move(db: Connection, change: Moved) -> bool:
    done = await db.execute(
        "UPDATE documents d SET path = $3, revision = $4 WHERE workspace = $1 AND path = $2 AND revision < $4 "
        "AND NOT EXISTS (SELECT FROM documents o WHERE o.workspace = $1 AND o.path = $3)",
        change.workspace, change.from_path, change.path, change.revision,
    )  # fmt: skip
    return done != "UPDATE 0"


async def _remove(db: Connection, change: Gone) -> bool:
    document = await db.fetchval(
        "SELECT id FROM documents WHERE workspace = $1 AND path = $2 AND ($3::bigint IS NULL OR revision <= $3) "
        "AND ($4::text IS NULL OR content_hash = $4) FOR UPDATE",
        change.workspace, change.path, change.revision, change.content_hash,
    )  # fmt: skip
    if document is None:
        return False
    await _remove_chunks(db, [row["id"] for row in await db.fetch("SELECT id FROM chunks WHERE document = $1", document)])
    await db.execute("DELETE FROM documents WHERE id = $1", document)
    return True


async def _store(db: Connection, note: CutNote, document: UUID, written: Mapping[UUID, bool]) -> bool:
    row = await db.fetchrow(
        "SELECT id, revision, content_hash, title, tags, excluded, source_url, category FROM documents "
        "WHERE workspace = $1 AND path = $2 FOR UPDATE",
        note.workspace, note.path,
    )  # fmt: skip
    if row is not None and (row["revision"] > note.revision or row["id"] != document):
        return False
    stored = (document, note.content_hash, note.title, note.tags, note.excluded, note.source_url, note.category)
    same = row is not None and tuple(row[name] for name in _STORED) == stored
    differs = await _store_document(db, note, document) if row is None else not same
    differs = await _store_chunks(db, note, document, written) or differs
    if row is not None:
        await db.execute(
            "UPDATE documents SET title = $2, tags = $3, content_hash = $4, revision = $5, excluded = $6, modified_at = $7, "
            "source_url = $8, category = $9, cut_version = $10, published = published + $11 WHERE id = $1",
            document, note.title, note.tags, note.content_hash, note.revision, note.excluded, note.modified_at,
            note.source_url, note.category, CUT_VERSION, int(differs),
        )  # fmt: skip
    return differs


async def _store_document(db: Connection, note: CutNote, document: UUID) -> bool:
    await db.execute(
        "INSERT INTO documents (id, workspace, path, title, tags, content_hash, revision, excluded, modified_at, source_url, category, "
        "cut_version) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
        document, note.workspace, note.path, note.title, note.tags, note.content_hash, note.revision, note.excluded, note.modified_at,
        note.source_url, note.category, CUT_VERSION,
    )  # fmt: skip
    return True


async def _store_chunks(db: Connection, note: CutNote, document: UUID, written: Mapping[UUID, bool]) -> bool:
    rows = await db.fetch("SELECT id, ordinal, start_at, end_at, point FROM chunks WHERE document = $1", document)
    before = {row["id"]: row for row in rows}
    now = {passage.chunk.block_id: passage for passage in note.passages}
    gone = [one for one in before if one not in now]
    added = [passage for one, passage in now.items() if one not in before]
    kept = [(before[one], passage) for one, passage in now.items() if one in before]
    rewritten = [passage for row, passage in kept if row["point"] != passage.point]
    shifted = [passage.chunk for row, passage in kept if (row["ordinal"], row["start_at"], row["end_at"]) != _place(passage)]
    await _remove_chunks(db, gone)
    if added:
        await db.executemany(
            "INSERT INTO chunks (id, document, workspace, ordinal, heading_path, start_at, end_at, text, sha256, passage_sha, tokens, "
            "weights, exchange, point, in_index, dense, embedded) "
            "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $16)",
            [_row(passage, note.workspace, document, written) for passage in added],
            timeout=LONG_NOTE_SECONDS,
        )
    if rewritten:
        await _remember_removals(db, [one.chunk.block_id for one in rewritten])
        await db.executemany(
            "UPDATE chunks SET tokens = $2, weights = $3, exchange = $4, point = $5, in_index = $6, dense = $7 WHERE id = $1",
            [
                (one.chunk.block_id, signed(one.words.indices), one.words.values, one.chunk.exchange, *_in_index(one, written))
                for one in rewritten
            ],
            timeout=LONG_NOTE_SECONDS,
        )
    if shifted:
        await db.executemany(
            "UPDATE chunks SET ordinal = $2, start_at = $3, end_at = $4 WHERE id = $1",
            [(chunk.block_id, chunk.ordinal, chunk.start, chunk.end) for chunk in shifted],
            timeout=LONG_NOTE_SECONDS,
        )
    return bool(gone or added or rewritten or shifted)


async def _remove_chunks(db: Connection, ids: Sequence[UUID]) -> None:
    if ids:
        await _remember_removals(db, ids)
        await db.execute("DELETE FROM chunks WHERE id = ANY($1)", ids)


async def _remember_removals(db: Connection, ids: Sequence[UUID]) -> None:
    """The points of these chunks go, once no search can still be reading the publication that has them."""
    await db.execute(
        "INSERT INTO removals (point, due_at, certain) SELECT point, now() + $2::float * interval '1 second', in_index FROM chunks "
        "WHERE id = ANY($1) ON CONFLICT (point) DO UPDATE SET due_at = excluded.due_at, certain = excluded.certain",
        ids, READERS_SECONDS,
    )  # fmt: skip


def _in_index(passage: Passage, written: Mapping[UUID, bool]) -> tuple[UUID, bool, bool]:
    """The point, whether the index has it, and whether with its dense vector."""
    return passage.point, passage.point in written, written.get(passage.point, False)


def _place(passage: Passage) -> tuple[int, int, int]:
    return passage.chunk.ordinal, passage.chunk.start, passage.chunk.end


def _row(passage: Passage, workspace: UUID, document: UUID, written: Mapping[UUID, bool]) -> tuple[object, ...]:
    chunk = passage.chunk
    return (
        *(chunk.block_id, document, workspace, chunk.ordinal, list(chunk.heading_path), chunk.start, chunk.end, chunk.text),
        *(passage.sha256, passage.passage_sha, signed(passage.words.indices), passage.words.values, chunk.exchange),
        *_in_index(passage, written),
    )


def signed(indices: Sequence[int]) -> list[int]:
    """Word ids as PostgreSQL's signed integers."""
    return [index - 2**32 if index >= 2**31 else index for index in indices]


def sparse(tokens: Sequence[int], weights: Sequence[float]) -> SparseVector:
    """The stored sparse vector."""
    return SparseVector(indices=[token % 2**32 for token in tokens], values=list(weights))
