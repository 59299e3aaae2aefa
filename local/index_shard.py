"""One shard of the Qdrant engine: what the index contract says, in the engine's own calls.

The engine is synchronous and holds the interpreter lock during each call, so that callers pass at most `POINTS_PER_CALL` points at a
time and use one thread. It refuses with plain `Exception`s, which become `EngineError` here, and in this module alone.
"""

import base64
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from uuid import UUID

import numpy as np
import qdrant_edge as edge
from qdrant_edge import UpdateOperation

from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.index import DenseVector, Filter, Point, Scored, Search, SearchReply, SparseVector, unscored

DENSE = "dense"
SPARSE = "bm25"
# The folder of the engine's log, which it replays over whatever its segments had on disk when it was killed.
LOG = "wal"
# Some 5 ms of the interpreter lock; a search waits for no more.
POINTS_PER_CALL = 32
# Queries hold the lock too: more threads than segments would only take turns.
SEARCH_THREADS = 2

_KEYWORDS = ("workspace", "document", "ancestors", "tags")
# Stored as 0 or 1: the engine's MatchValue takes a bool for an integer, and then matches no bool.
_FLAG = "exchange"


class EngineError(Exception):
    """The engine refused a call."""


class Shard:
    """A folder that this process alone has open.

    The dense vectors' dimension is that of the first one written (an external embedding model may have any). One of another
    dimension begins anew: the vectors that were there belong to another space, and go.
    """

    def __init__(self, shard: edge.EdgeShard) -> None:
        self._shard = shard
        self._dimension = self._known_dimension()

    @classmethod
    def create(cls, path: Path) -> Self:
        """An empty shard in a folder that has none."""
        with _engine():
            shard = edge.EdgeShard.create(str(path), _config())
            for name in _KEYWORDS:
                shard.update(UpdateOperation.create_field_index(name, edge.PayloadSchemaType.Keyword))
            shard.update(UpdateOperation.create_field_index(_FLAG, edge.PayloadSchemaType.Integer))
            shard.flush()
            return cls(shard)

    @classmethod
    def load(cls, path: Path) -> Self:
        """The shard in that folder.

        Raises:
            EngineError: it is damaged, of another version, or open elsewhere.
        """
        with _engine():
            # With what it would be made with today; the dense vectors stay as they are.
            shard = edge.EdgeShard.load(str(path), _config())
            if not {*_KEYWORDS, _FLAG} <= set(shard.info().payload_schema):
                raise EngineError("the shard has not the payload indexes that filters need")
            return cls(shard)

    def upsert(self, points: Sequence[Point]) -> int:
        """Adds points or replaces them whole, except that one without a dense vector keeps what it has. Returns how many have one."""
        given = {point.id: decode_dense(point.dense) for point in points if point.dense is not None}
        sparse = {point.id: _sparse(point.sparse) for point in points}
        for vector in given.values():
            self._fit_dimension(len(vector))
        with _engine():
            kept = self._dense_of([point.id for point in points if point.id not in given]) if self._dimension else {}
            stored = [
                edge.Point(point.id, _named(sparse[point.id], given.get(point.id, kept.get(point.id))), _payload(point.payload))
                for point in points
            ]
            self._shard.update(UpdateOperation.upsert_points(stored))
        return len(given) + len(kept)

    def set_dense(self, vectors: Sequence[DenseVector]) -> int:
        """Gives existing points their dense vectors; points that are not there are passed over. Returns how many are."""
        decoded = {vector.id: decode_dense(vector.dense) for vector in vectors}
        for vector in decoded.values():
            self._fit_dimension(len(vector))
        with _engine():
            # One unknown id fails the whole operation.
            present = [_id(record) for record in self._shard.retrieve(list(decoded), False, False)]
            if present:
                self._shard.update(UpdateOperation.update_vectors([edge.PointVectors(one, {DENSE: decoded[one]}) for one in present]))
        return len(present)

    def forget_dense(self) -> None:
        """Removes all dense vectors; of any dimension may the next ones be."""
        with _engine():
            self._shard.update(UpdateOperation.delete_vector_name(DENSE))
            # As when the dimension changes.
            self._shard.flush()
        self._dimension = 0

    def delete(self, ids: Sequence[UUID]) -> int:
        """Removes points; unknown ids are passed over. Returns 0: it writes no vector."""
        with _engine():
            self._shard.update(UpdateOperation.delete_points(list(ids)))
        return 0

    def search(self, request: Search) -> SearchReply:
        """Both legs over the same filter, exact as far as the points are not yet optimised."""
        if not request.filter.workspaces or request.filter.documents == []:
            return SearchReply(sparse=[], dense=[])
        condition = _conditions(request.filter)
        queries: dict[str, Any] = {}
        if request.sparse is not None:
            queries[SPARSE] = _sparse(request.sparse)
        # Vectors of another dimension than the points have nothing to be near to.
        if request.dense is not None and len(dense := decode_dense(request.dense)) == self._dimension:
            queries[DENSE] = dense
        with _engine():
            legs = {using: self._leg(query, using, condition, request.limit) for using, query in queries.items()}
            for using, ids in unscored(legs).items():
                legs[using] = [*legs[using], *self._leg(queries[using], using, [edge.HasIdCondition(set(ids))], len(ids))]
        return SearchReply(sparse=legs.get(SPARSE, []), dense=legs.get(DENSE, []))

    def points(self) -> int:
        """How many points there are."""
        with _engine():
            return int(self._shard.count(edge.CountRequest(exact=True)))

    def dense_points(self) -> int:
        """How many have a dense vector."""
        with _engine():
            if not self._dimension:
                return 0
            return int(self._shard.count(edge.CountRequest(exact=True, filter=edge.Filter(must=[edge.HasVectorCondition(DENSE)]))))

    def copy_points(self, ids: Sequence[UUID], target: "Shard") -> int:
        """Makes `target` have these points as they are here, absent ones included. Returns how many of them have a dense vector."""
        with _engine():
            records = self._shard.retrieve(list(ids), True, True)
            gone = set(ids) - {_id(record) for record in records}
            if gone:
                target._shard.update(UpdateOperation.delete_points(list(gone)))  # noqa: SLF001 - another shard of this class
            if not records:
                return 0
            if self._dimension:
                target._fit_dimension(self._dimension)  # noqa: SLF001
            points = [edge.Point(record.id, _vectors(record), dict(record.payload or {})) for record in records]
            target._shard.update(UpdateOperation.upsert_points(points))  # noqa: SLF001
            return sum(DENSE in _vectors(record) for record in records)

    def optimize(self) -> None:
        """Builds the vector index, for seconds or minutes; for a process of its own."""
        with _engine():
            self._shard.optimize()

    def flush(self) -> None:
        """All that was written is in the segments on disk when this returns, and the log begins anew."""
        with _engine():
            self._shard.flush()

    def close(self) -> None:
        """Gives the folder up."""
        with _engine():
            self._shard.close()

    def _leg(self, query: Any, using: str, conditions: Sequence[Any], limit: int) -> list[Scored]:
        # Where few points have such a vector yet, the engine would look at all the others as well.
        condition = edge.Filter(must=[*conditions, edge.HasVectorCondition(using)])
        request = edge.QueryRequest(limit=limit, query=edge.Query.Nearest(query, using=using), filter=condition, with_payload=False)
        return [Scored(id=_id(hit), score=hit.score) for hit in self._shard.query(request)]

    def _dense_of(self, ids: Sequence[UUID]) -> dict[UUID, list[float]]:
        if not ids:
            return {}
        found = ((_id(record), _vectors(record)) for record in self._shard.retrieve(list(ids), False, [DENSE]))
        return {one: vectors[DENSE] for one, vectors in found if DENSE in vectors}

    def _fit_dimension(self, dimension: int) -> None:
        if dimension == self._dimension:
            return
        with _engine():
            # Also where none is known: the name may be left from points that have gone.
            self._shard.update(UpdateOperation.delete_vector_name(DENSE))
            self._shard.update(UpdateOperation.create_dense_vector(DENSE, dimension, edge.Distance.Cosine))
            # The log must not be replayed over points that have the new vectors already.
            self._shard.flush()
        self._dimension = dimension

    def _known_dimension(self) -> int:
        """The dense vectors' dimension; 0 as long as there are none.

        The engine does not tell its schema, but each point with a dense vector shows it.
        """
        some = edge.ScrollRequest(limit=1, filter=edge.Filter(must=[edge.HasVectorCondition(DENSE)]), with_vector=[DENSE])
        records, _ = self._shard.scroll(some)
        return len(_vectors(records[0])[DENSE]) if records else 0


@contextlib.contextmanager
def _engine() -> Iterator[None]:
    try:
        yield
    except (EngineError, ServiceError):
        raise
    except Exception as error:  # the engine has no classes of errors
        raise EngineError(str(error)) from error


def _config() -> edge.EdgeConfig:
    return edge.EdgeConfig(
        sparse_vectors={SPARSE: edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf)},
        hnsw_config=edge.HnswIndexConfig(m=16, ef_construct=100, full_scan_threshold=10_000, max_indexing_threads=1),
        # When asked to optimise it does so, whatever there is: by itself it leaves up to 10 MB of vectors to be searched one by one.
        optimizers=edge.EdgeOptimizersConfig(indexing_threshold=1),
        max_search_threads=SEARCH_THREADS,
        wal_enabled=True,
    )


def decode_dense(text: str) -> list[float]:
    """The vector that travelled as base64.

    Raises:
        ServiceError: `invalid`: it is none, or has a part that is no number (the engine would take that, and never find it).
    """
    try:
        vector = np.frombuffer(base64.b64decode(text, validate=True), dtype="<f4")
    except ValueError as error:
        raise ServiceError(ErrorCode.INVALID, "A dense vector is not base64 of float32 values.") from error
    if not len(vector) or not np.isfinite(vector).all():
        raise ServiceError(ErrorCode.INVALID, "A dense vector is empty or has a value that is not a finite number.")
    values: list[float] = vector.tolist()
    return values


def _sparse(vector: SparseVector) -> edge.SparseVector:
    if len(vector.indices) != len(vector.values) or len(set(vector.indices)) != len(vector.indices):
        raise ServiceError(ErrorCode.INVALID, "A sparse vector needs one value for each index, and each index once.")
    if not all(0 <= index < 2**32 for index in vector.indices) or not np.isfinite(vector.values).all():
        raise ServiceError(ErrorCode.INVALID, "A sparse vector has an index beyond 32 bits or a value that is not a finite number.")
    return edge.SparseVector(vector.indices, vector.values)


def _conditions(wanted: Filter) -> list[Any]:
    must: list[Any] = [_is_one_of("workspace", wanted.workspaces)]
    if wanted.ancestor:
        must.append(edge.FieldCondition("ancestors", match=edge.MatchValue(wanted.ancestor)))
    if wanted.documents is not None:
        must.append(_is_one_of("document", wanted.documents))
    must.extend(edge.FieldCondition("tags", match=edge.MatchValue(tag)) for tag in wanted.tags)
    if not wanted.include_exchanges:
        must.append(edge.FieldCondition(_FLAG, match=edge.MatchValue(0)))
    return must


def _is_one_of(field: str, ids: Sequence[UUID]) -> edge.FieldCondition:
    values = [str(one) for one in ids]
    # Each point's is looked up: one value in less time than a set of one.
    return edge.FieldCondition(field, match=edge.MatchValue(values[0]) if len(values) == 1 else edge.MatchAny(values))


def _named(sparse: edge.SparseVector, dense: list[float] | None) -> Any:
    return {SPARSE: sparse} if dense is None else {SPARSE: sparse, DENSE: dense}


def _id(found: edge.Record | edge.ScoredPoint) -> UUID:
    """Points are known by nothing else."""
    one = found.id  # made anew each time it is asked for
    assert isinstance(one, UUID)
    return one


def _payload(payload: dict[str, Any]) -> dict[str, Any]:
    return payload | {_FLAG: int(payload.get(_FLAG, False))}


def _vectors(record: edge.Record) -> dict[str, Any]:
    return dict(record.vector) if isinstance(record.vector, Mapping) else {}
