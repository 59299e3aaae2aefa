"""The tables of documents and chunks: what is to be found, whatever the index has seen of it.

One transaction makes a publication: who reads in a snapshot of the database sees one whole. A chunk that the index does not have yet is
marked as such, the point of one that has gone is remembered as a removal, in the same transaction. The index writer works both off, so
that tables and index agree again after any crash.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import batched
from uuid import UUID, uuid5

import asyncpg

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

# PostgreSQL bounds each statement's time.
CHUNKS_PER_COPY = 1000

_DOCUMENT_COLUMNS = (
    *("id", "workspace", "path", "title", "tags", "content_hash", "revision", "excluded", "modified_at", "source_url", "category"),
    "cut_version",
)
_CHUNK_COLUMNS = (
    *("id", "document", "workspace", "ordinal", "heading_path", "start_at", "end_at", "text", "sha256", "passage_sha", "exchange"),
    *("point", "in_index", "dense", "embedded"),
)
_WORDS_COLUMNS = ("chunk", "point", "exchange", "tokens", "weights", "workspace", "document")
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


async def new_ids(pool: Pool, notes: Collection[tuple[UUID, str]]) -> dict[tuple[UUID, str], UUID]:
    """The ids of documents that are to be made for notes at these paths; none where `document_id` has to look closer."""
    made = {_made_id(workspace, path): (workspace, path) for workspace, path in notes}
    async with connection(pool) as db:
        taken = {row["id"] for row in await db.fetch("SELECT id FROM documents WHERE id = ANY($1)", list(made))}
    return {note: one for one, note in made.items() if one not in taken}


async def document_id(pool: Pool, workspace: UUID, path: str, vacated: Collection[str] = ()) -> UUID:
    """The id that the note's document has, or will have.

    It is made of workspace and path, so that tables which are made anew give the same ids; a move takes it along, and a new
    note at the old path then gets the next one. `vacated`: paths that moves are about to leave.
    """
    async with connection(pool) as db:
        for attempt in range(1000):
            made = _made_id(workspace, path, attempt)
            rows = await db.fetch("SELECT path, id FROM documents WHERE (workspace = $1 AND path = $2) OR id = $3", workspace, path, made)
            for row in rows:
                if row["path"] == path and path not in vacated:
                    present: UUID = row["id"]
                    return present
            if all(row["id"] != made for row in rows):
                return made
    raise RuntimeError("a thousand notes were moved away from one path")


def _made_id(workspace: UUID, path: str, attempt: int = 0) -> UUID:
    return uuid5(NAMESPACE, f"{workspace}\0{path}\0{attempt}" if attempt else f"{workspace}\0{path}")


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
        for change, _ in listed:
            if change.workspace in manual:
                await _hold(db, change)
        for changed in await _apply_all(db, [one for one in listed if one[0].workspace not in manual], written or {}):
            differing[changed.workspace] = max(changed.revision or 0, differing.get(changed.workspace, 0))
        published = [change for change, _ in listed if change.workspace not in manual]
        await held.released(db, [(change.workspace, change.path, change.revision) for change in published])
        points = [passage.point for change in published if isinstance(change, CutNote) for passage in change.passages]
        await db.execute("DELETE FROM removals r USING chunks c WHERE r.point = ANY($1) AND c.point = r.point", points)
        with_vectors = {
            change.workspace
            for change in published
            if isinstance(change, CutNote) and written and any(written.get(passage.point) for passage in change.passages)
        }
        for workspace, revision in differing.items():
            await db.execute(
                "INSERT INTO publications AS p (workspace, generation, catalog_revision, vector_generation, vectors_at) "
                "VALUES ($1, 1, $2, 1, CASE WHEN $3 THEN now() END) "
                "ON CONFLICT (workspace) DO UPDATE SET generation = p.generation + 1, published_at = now(), "
                "vector_generation = p.vector_generation + 1, vectors_at = CASE WHEN p.vectors_at IS NOT NULL THEN now() "
                "ELSE excluded.vectors_at END, catalog_revision = greatest(p.catalog_revision, excluded.catalog_revision)",
                workspace, revision, workspace in with_vectors,
            )  # fmt: skip
    return set(differing)


async def _hold(db: Connection, change: Change) -> None:
    if isinstance(change, Moved):
        await held.move(db, change.workspace, change.from_path, change.path, change.revision)
    elif isinstance(change, Gone):
        await held.hold(db, change.workspace, change.path, None, change.revision)
    else:
        await held.hold(db, change.workspace, change.path, change.content_hash, change.revision)


async def _apply_all(db: Connection, changes: Sequence[tuple[Change, UUID | None]], written: Mapping[UUID, bool]) -> list[Change]:
    """In order; those that made a difference. Notes that do not touch each other are stored together."""
    differing: list[Change] = []
    together: dict[tuple[UUID, str], tuple[CutNote, UUID]] = {}
    for change, document in changes:
        if isinstance(change, CutNote) and (change.workspace, change.path) not in together:
            assert document is not None
            together[change.workspace, change.path] = change, document
            continue
        differing += await _store_all(db, list(together.values()), written)
        together.clear()
        if isinstance(change, CutNote):
            assert document is not None
            together[change.workspace, change.path] = change, document
        elif await (_move(db, change) if isinstance(change, Moved) else _remove(db, change)):
            differing.append(change)
    return differing + await _store_all(db, list(together.values()), written)


async def _move(db: Connection, change: Moved) -> bool:
    done = await db.execute(
        "UPDATE documents d SET path = $3, revision = $4, published = published + 1 WHERE workspace = $1 AND path = $2 AND revision < $4 "
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
    await db.execute(
        "WITH gone AS (DELETE FROM documents WHERE id = $1 RETURNING id, published) INSERT INTO former_documents SELECT * FROM gone "
        "ON CONFLICT (id) DO UPDATE SET published = excluded.published",
        document,
    )
    return True


async def _store_all(db: Connection, notes: Sequence[tuple[CutNote, UUID]], written: Mapping[UUID, bool]) -> list[Change]:
    """Notes of different paths, those that differ from what is stored are returned."""
    if not notes:
        return []
    rows = await db.fetch(
        "SELECT id, workspace, path, revision, content_hash, title, tags, excluded, source_url, category FROM documents "
        "WHERE (workspace, path) IN (SELECT * FROM unnest($1::uuid[], $2::text[])) ORDER BY id FOR UPDATE",
        [note.workspace for note, _ in notes], [note.path for note, _ in notes],
    )  # fmt: skip
    stored = {(row["workspace"], row["path"]): row for row in rows}
    added: list[tuple[CutNote, UUID]] = []
    kept: list[tuple[CutNote, UUID]] = []
    for note, document in notes:
        row = stored.get((note.workspace, note.path))
        if row is None:
            added.append((note, document))
        elif row["revision"] <= note.revision and row["id"] == document:
            kept.append((note, document))
    await _add_documents(db, added)
    changed = await _store_chunks(db, added, kept, written)
    differing: list[CutNote] = [note for note, _ in added]
    updates = []
    for note, document in kept:
        row = stored[note.workspace, note.path]
        same = tuple(row[name] for name in _STORED) == (
            *(document, note.content_hash, note.title, note.tags, note.excluded, note.source_url, note.category),
        )
        if differs := document in changed or not same:
            differing.append(note)
        updates.append((*_document(note, document), int(differs)))
    if updates:
        await db.executemany(
            "UPDATE documents SET workspace = $2, path = $3, title = $4, tags = $5, content_hash = $6, revision = $7, excluded = $8, "
            "modified_at = $9, source_url = $10, category = $11, cut_version = $12, published = published + $13 WHERE id = $1",
            updates,
        )
    return list(differing)


async def _add_documents(db: Connection, added: Sequence[tuple[CutNote, UUID]]) -> None:
    if added:
        records = [_document(note, document) for note, document in added]
        await db.copy_records_to_table("documents", records=records, columns=_DOCUMENT_COLUMNS)
        # A version that evidence has named is never another one's (RC-5).
        await db.execute(
            "UPDATE documents d SET published = f.published + 1 FROM former_documents f WHERE f.id = d.id AND d.id = ANY($1)",
            [document for _, document in added],
        )


def _document(note: CutNote, document: UUID) -> tuple[object, ...]:
    return (
        *(document, note.workspace, note.path, note.title, note.tags, note.content_hash, note.revision, note.excluded, note.modified_at),
        *(note.source_url, note.category, CUT_VERSION),
    )


async def _store_chunks(
    db: Connection, added: Sequence[tuple[CutNote, UUID]], kept: Sequence[tuple[CutNote, UUID]], written: Mapping[UUID, bool]
) -> set[UUID]:
    """The chunks of `added` documents, and what differs in those of `kept` ones; which of these differ."""
    before: dict[UUID, dict[UUID, asyncpg.Record]] = {document: {} for _, document in kept}
    if kept:
        for row in await db.fetch(
            "SELECT document, id, ordinal, start_at, end_at, point FROM chunks WHERE document = ANY($1)", list(before)
        ):
            before[row["document"]][row["id"]] = row
    new = [(note, document, passage) for note, document in added for passage in note.passages]
    gone: list[UUID] = []
    rewritten: list[Passage] = []
    shifted: list[Passage] = []
    changed: set[UUID] = set()
    for note, document in kept:
        old, now = before[document], {passage.chunk.block_id: passage for passage in note.passages}
        left = [one for one in old if one not in now]
        fresh = [(note, document, passage) for one, passage in now.items() if one not in old]
        both = [(old[one], passage) for one, passage in now.items() if one in old]
        other = [passage for row, passage in both if row["point"] != passage.point]
        moved = [passage for row, passage in both if (row["ordinal"], row["start_at"], row["end_at"]) != _place(passage)]
        if left or fresh or other or moved:
            changed.add(document)
        gone += left
        new += fresh
        rewritten += other
        shifted += moved
    await _remove_chunks(db, gone)
    await _add_chunks(db, new, written)
    await _rewrite_chunks(db, rewritten, written)
    if shifted:
        await db.executemany(
            "UPDATE chunks SET ordinal = $2, start_at = $3, end_at = $4 WHERE id = $1",
            [(passage.chunk.block_id, *_place(passage)) for passage in shifted],
            timeout=LONG_NOTE_SECONDS,
        )
    return changed


async def _add_chunks(db: Connection, new: Sequence[tuple[CutNote, UUID, Passage]], written: Mapping[UUID, bool]) -> None:
    for some in batched(new, CHUNKS_PER_COPY):
        records = [_row(passage, note.workspace, document, written) for note, document, passage in some]
        await db.copy_records_to_table("chunks", records=records, columns=_CHUNK_COLUMNS)
        words = [(*_words(passage), note.workspace, document) for note, document, passage in some]
        await db.copy_records_to_table("words", records=words, columns=_WORDS_COLUMNS)


async def _rewrite_chunks(db: Connection, rewritten: Sequence[Passage], written: Mapping[UUID, bool]) -> None:
    if not rewritten:
        return
    await _remember_removals(db, [one.chunk.block_id for one in rewritten])
    await db.executemany(
        "UPDATE chunks SET exchange = $2, point = $3, in_index = $4, dense = $5 WHERE id = $1",
        [(one.chunk.block_id, one.chunk.exchange, *_in_index(one, written)) for one in rewritten],
        timeout=LONG_NOTE_SECONDS,
    )
    await db.executemany(
        "UPDATE words SET point = $2, exchange = $3, tokens = $4, weights = $5 WHERE chunk = $1",
        [_words(one) for one in rewritten],
        timeout=LONG_NOTE_SECONDS,
    )


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
    point, in_index, dense = _in_index(passage, written)
    return (
        *(chunk.block_id, document, workspace, chunk.ordinal, list(chunk.heading_path), chunk.start, chunk.end, chunk.text),
        *(passage.sha256, passage.passage_sha, chunk.exchange, point, in_index, dense, dense),
    )


def _words(passage: Passage) -> tuple[UUID, UUID, bool, list[int], list[float]]:
    return passage.chunk.block_id, passage.point, passage.chunk.exchange, signed(passage.words.indices), passage.words.values


def signed(indices: Sequence[int]) -> list[int]:
    """Word ids as PostgreSQL's signed integers."""
    return [index - 2**32 if index >= 2**31 else index for index in indices]


def sparse(tokens: Sequence[int], weights: Sequence[float]) -> SparseVector:
    """The stored sparse vector."""
    return SparseVector(indices=[token % 2**32 for token in tokens], values=list(weights))
