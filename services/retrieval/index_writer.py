"""Brings the index to what the tables say, and notices when it is not.

What is published is in the index before: searches find it there from the moment the transaction is committed, and what it replaces a
while longer, for those that still read the publication before. `run` writes what a failure left over and removes what is due. An index that
lost its points (wiped, damaged, another one) is filled again from the tables: words and dense vectors are kept there, nothing is cut or
embedded anew.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg

from services.retrieval import documents, held, spot_check
from services.retrieval.documents import Change, sparse
from services.retrieval.pace import Pace
from services.retrieval.passages import CutNote, ancestors, searchable_tags
from services.retrieval.vector_index import VectorIndex
from shared.contracts.errors import ServiceError
from shared.contracts.index import DenseVector, Point, encoded
from shared.database.pool import UNAVAILABLE, Connection, Pool, connection, transaction
from shared.database.publication_lock import hold_to_publish
from shared.telemetry.logs import said

logger = logging.getLogger(__name__)

POINTS_PER_WRITE = 512
# Those that are read back from the tables, with their vectors.
FILLED_PER_WRITE = 128
# Of one message; far below what NATS carries.
BYTES_PER_WRITE = 4 * 1024 * 1024
REMOVALS_PER_WRITE = 512
# A point that was written and never published goes after this.
STAGED_SECONDS = 120.0
RETRY_SECONDS = 2.0
CHECK_SECONDS = 15.0
LONG_SECONDS = 120.0
CONFIRM_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Difference:
    """How the index is not as the tables say: its points, and the least and the most that there should be; or what it does not find."""

    counted: tuple[int, int, int] | None
    lost: frozenset[UUID] = frozenset()


class IndexWriter:
    """The index's one writer in this process."""

    def __init__(self, pool: Pool, index: VectorIndex) -> None:
        self._pool = pool
        self._index = index
        self._lock = asyncio.Lock()
        # Points of the next publication are written while those before are published; the engine and the database then work at once.
        self._staging = asyncio.Lock()
        # How often the index lost points or vectors that it had: what was staged before may not be there any more.
        self._losses = 0
        self._complete = False
        self._check_due = asyncio.Event()
        # Points that a search found in the tables, and not in the index.
        self._missed: set[UUID] = set()
        self.space: str | None = None
        # Grows whenever there may be passages without a vector that were not there before.
        self.published = 0
        self.pace = Pace()

    @property
    def complete(self) -> bool:
        """Whether the index is known to hold all that the tables gave it; while not, words are looked up in the tables."""
        return self._complete

    def suspect(self, missed: UUID | None = None) -> None:
        """The index did not answer a search, did not take a write, or did not find a point that the tables have (`missed`): have searches
        look in the tables, until it is known to hold all.
        """
        self._complete = False
        if missed is not None:
            self._missed.add(missed)
        self._check_due.set()

    async def load(self) -> None:
        """Learn which embedding space the index's vectors are of."""
        async with connection(self._pool) as db:
            self.space = await db.fetchval("SELECT space FROM embedding_space")

    async def publish(self, changes: Sequence[tuple[Change, UUID | None]], *, by_hand: UUID | None = None) -> set[UUID]:
        """Store changes as `documents.commit` does, the index first: what is published is in it, or said not to be.

        Raises:
            ServiceError: the database is away; nothing is published.
        """
        async with self._staging:
            losses = self._losses
            written: dict[UUID, bool] = {}
            if staged := self._complete:
                try:
                    written = await self._stage(changes, by_hand)
                except ServiceError as error:
                    # Published all the same: found by words in the tables until it is in the index.
                    logger.warning("The index could not be written: %s", error.detail)
                    staged = False
                    self.suspect()
        async with self._lock:
            if self._losses != losses:
                written, staged = {}, False
                self.suspect()
            try:
                return await documents.commit(self._pool, changes, written, by_hand=by_hand)
            finally:
                self.published += 1
                if not (staged and self._complete):
                    # The check that is under way, or was, may have looked for what is unwritten before this was.
                    self._check_due.set()

    async def _stage(self, changes: Sequence[tuple[Change, UUID | None]], by_hand: UUID | None) -> dict[UUID, bool]:
        """Have the points in the index that these changes will need; nobody finds them before they are published."""
        async with connection(self._pool) as db:
            manual = await held.manual(db, {change.workspace for change, _ in changes}) - {by_hand}
            cut = [change for change, _ in changes if isinstance(change, CutNote) and change.workspace not in manual]
            passages = {passage.point: (note, passage) for note in cut for passage in note.passages}
            there = await db.fetch("SELECT point FROM chunks WHERE point = ANY($1) AND in_index", list(passages))
            for row in there:
                del passages[row["point"]]
            if not passages:
                return {}
            await db.execute(
                "INSERT INTO removals (point, due_at) SELECT unnest($1::uuid[]), now() + $2::float * interval '1 second' "
                "ON CONFLICT (point) DO UPDATE SET due_at = excluded.due_at, certain = false",
                list(passages), STAGED_SECONDS,
            )  # fmt: skip
            known = await db.fetch(
                "SELECT passage_sha, vector FROM vectors WHERE space = $1 AND passage_sha = ANY($2)",
                self.space, [passage.passage_sha for _, passage in passages.values()],
            )  # fmt: skip
        document_of = {id(change): document for change, document in changes}
        vectors = {row["passage_sha"]: row["vector"] for row in known}
        points = [
            Point(
                id=point,
                sparse=passage.words,
                dense=encoded(vectors[passage.passage_sha]) if passage.passage_sha in vectors else None,
                payload=_payload(note.workspace, document_of[id(note)], note.path, note.tags, exchange=passage.chunk.exchange),
            )
            for point, (note, passage) in passages.items()
        ]
        for some in _batched(points):
            await self._index.upsert(some)
        return {point.id: point.dense is not None for point in points}

    async def drain(self) -> None:
        """Write what is due. Raises `ServiceError` where the index or the database is away; all that is left stays due."""
        while True:
            began = time.monotonic()
            # What is published meanwhile need not wait for all of it.
            async with self._lock:
                if not (await self._write_removals() or await self._write_points()):
                    return
            await self.pace.rest(time.monotonic() - began)

    async def run(self) -> None:
        """Check the index now and then, and write what a failure left over; for ever."""
        while True:
            self._check_due.clear()
            try:
                await self.check()
                pause = CHECK_SECONDS
            except (ServiceError, *UNAVAILABLE, asyncpg.PostgresError) as error:
                logger.warning("The index cannot be brought up to date yet: %s", said(error))
                self._complete = False
                pause = RETRY_SECONDS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._check_due.wait()

    async def check(self) -> None:
        """Compare the number of points with the tables, look some up, and fill the index again where it is not as the tables say."""
        # Whoever publishes waits for the lock: it is not taken to ask an engine that does not answer.
        await self._index.count()
        await self.drain()
        missed, self._missed = self._missed, set()
        async with self._lock:
            difference = await self._difference([*missed, *await spot_check.sample(self._pool)])
        if difference is None:
            self._complete = True
            return
        # Another instance may have been between its two writes: only what is the same a moment later is a difference.
        await asyncio.sleep(CONFIRM_SECONDS)
        async with self._lock:
            if await self._difference(difference.lost) != difference:
                self._check_due.set()
                return
            self._complete = False
            self._losses += 1
            await self._begin_again(difference)
        await self.drain()
        self._complete = True

    async def _difference(self, points: Collection[UUID]) -> _Difference | None:
        """Whether the index has as many points as it should, and finds these."""
        if (counted := await self._count()) is not None:
            return _Difference(counted)
        lost = await spot_check.lost(self._pool, self._index, self.space, points)
        return _Difference(None, frozenset(lost)) if lost else None

    async def _begin_again(self, difference: _Difference) -> None:
        """Have everything written once more; into an empty index, unless it only lacks some."""
        if difference.counted is None:
            logger.warning("The index does not find passages that it has (%d of those looked up); filling it again", len(difference.lost))
        else:
            logger.warning("The index has %d points where the tables have %d to %d; filling it again", *difference.counted)
        cleared = difference.counted is None or difference.counted[0] > difference.counted[2]
        if cleared:
            await self._index.clear()
        await self._forget(cleared=cleared)

    async def _count(self) -> tuple[int, int, int] | None:
        """The points in the index, and the least and the most that the tables say are there; None where they agree."""
        points = await self._index.count()
        async with connection(self._pool) as db:
            row = await db.fetchrow(
                "SELECT (SELECT count(*) FROM chunks WHERE in_index) + (SELECT count(*) FROM removals WHERE certain) AS least, "
                "(SELECT count(*) FROM removals WHERE NOT certain) + (SELECT count(*) FROM chunks WHERE NOT in_index) AS more"
            )
        assert row is not None
        least, most = row["least"], row["least"] + row["more"]
        return None if least <= points <= most else (points, least, most)

    async def begin_space(self, space: str) -> None:
        """Go over to another embedding space: the old vectors are near to nothing in it. Words are found as before, and by vectors what has
        got its new one.
        """
        # What is being staged may have vectors of the old space, and must not come after they have gone.
        async with self._staging, self._lock:
            if self.space is not None:
                # Whatever happens from here on, no vector counts as written that is not.
                async with transaction(self._pool) as db:
                    await _let_take_long(db)
                    await db.execute("UPDATE chunks SET dense = false WHERE dense", timeout=LONG_SECONDS)
                self._losses += 1
                await self._index.forget_dense()
            async with transaction(self._pool) as db:
                await _let_take_long(db)
                # What has just been verified against the old vectors is saved before they go (RC-4).
                await hold_to_publish(db, [row["workspace"] for row in await db.fetch("SELECT workspace FROM publications")])
                await db.execute(
                    "INSERT INTO embedding_space (space) VALUES ($1) ON CONFLICT (single) DO UPDATE SET space = excluded.space", space
                )
                await db.execute("UPDATE chunks SET embedded = false WHERE embedded", timeout=LONG_SECONDS)
            self.space = space
            self.published += 1

    async def set_dense(self, vectors: Sequence[tuple[UUID, bytes]]) -> None:
        """Give points their dense vectors (float32), at the pace that searches leave."""
        began = time.monotonic()
        async with self._lock:
            await self._index.set_dense([DenseVector(id=one, dense=encoded(vector)) for one, vector in vectors])
            async with transaction(self._pool) as db:
                points = [one for one, _ in vectors]
                await _publish_vectors(db, points)
        await self.pace.rest(time.monotonic() - began)

    async def _forget(self, *, cleared: bool) -> None:
        async with transaction(self._pool) as db:
            await _let_take_long(db)
            await db.execute("UPDATE chunks SET in_index = false, dense = false WHERE in_index OR dense", timeout=LONG_SECONDS)
            await db.execute("DELETE FROM removals WHERE certain" if cleared else "UPDATE removals SET certain = false WHERE certain")

    async def _write_removals(self) -> bool:
        # Whoever needs such a point again waits for the row, and then writes it again.
        async with transaction(self._pool) as db:
            due = "SELECT point FROM removals WHERE due_at <= now() ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED"
            ids = [row["point"] for row in await db.fetch(due, REMOVALS_PER_WRITE)]
            if not ids:
                return False
            await self._index.delete(ids)
            await db.execute("DELETE FROM removals WHERE point = ANY($1)", ids)
        return True

    async def _write_points(self) -> bool:
        async with connection(self._pool) as db:
            rows = await db.fetch(
                "SELECT c.point, c.workspace, c.document, s.tokens, s.weights, c.exchange, d.path, d.tags, v.vector "
                "FROM chunks c JOIN documents d ON d.id = c.document JOIN words s ON s.chunk = c.id "
                "LEFT JOIN vectors v ON v.space = $1 AND v.passage_sha = c.passage_sha WHERE NOT c.in_index LIMIT $2",
                self.space, self.pace.piece(FILLED_PER_WRITE),
            )  # fmt: skip
        if not rows:
            return False
        for some in _batched([_point(row) for row in rows]):
            await self._index.upsert(some)
        async with transaction(self._pool) as db:
            await db.execute(
                "UPDATE chunks c SET in_index = true WHERE point = ANY($1)", [row["point"] for row in rows if row["vector"] is None]
            )
            await _publish_vectors(db, [row["point"] for row in rows if row["vector"] is not None], written=True)
            # Gone since they were read: the removal may have been worked off before the point was written.
            await db.execute(
                "INSERT INTO removals (point) SELECT one FROM unnest($1::uuid[]) AS one "
                "WHERE NOT EXISTS (SELECT FROM chunks WHERE point = one) ON CONFLICT DO NOTHING",
                [row["point"] for row in rows],
            )
        self.published += any(row["vector"] is None for row in rows)
        return True


async def _let_take_long(db: Connection) -> None:
    """A transaction that writes every chunk."""
    await db.execute(f"SET LOCAL statement_timeout = '{LONG_SECONDS:.0f}s'")


async def _publish_vectors(db: Connection, points: Sequence[UUID], *, written: bool = False) -> None:
    """Their vectors are known and in the index, `written` just now with the points. It makes another publication of the vectors, unless
    they were known before.
    """
    if not points:
        return
    rows = await db.fetch(
        "UPDATE chunks c SET in_index = c.in_index OR $2, dense = c.dense OR c.in_index OR $2, embedded = true "
        "FROM chunks b WHERE c.point = ANY($1) AND b.id = c.id RETURNING c.workspace, b.embedded",
        points, written,
    )  # fmt: skip
    if published := {row["workspace"] for row in rows if not row["embedded"]}:
        await db.execute(
            "UPDATE publications SET vector_generation = vector_generation + 1, vectors_at = now() WHERE workspace = ANY($1)",
            sorted(published),
        )


def _batched(points: Iterable[Point]) -> Iterator[list[Point]]:
    """As many together as fit into one message."""
    batch: list[Point] = []
    size = 0
    for point in points:
        # An index has up to ten digits, a weight six.
        needed = 20 * len(point.sparse.indices) + len(point.dense or "") + 1000
        if batch and (len(batch) == POINTS_PER_WRITE or size + needed > BYTES_PER_WRITE):
            yield batch
            batch, size = [], 0
        batch.append(point)
        size += needed
    if batch:
        yield batch


def _point(row: asyncpg.Record) -> Point:
    return Point(
        id=row["point"],
        sparse=sparse(row["tokens"], row["weights"]),
        dense=encoded(row["vector"]) if row["vector"] is not None else None,
        payload=_payload(row["workspace"], row["document"], row["path"], row["tags"], exchange=row["exchange"]),
    )


def _payload(workspace: UUID, document: UUID | None, path: str, tags: list[str], *, exchange: bool) -> dict[str, Any]:
    return {
        "workspace": str(workspace),
        "document": str(document),
        "ancestors": ancestors(path),
        "tags": searchable_tags(tags),
        "exchange": exchange,
    }
