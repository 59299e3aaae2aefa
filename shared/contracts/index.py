"""The index family: the embedded Qdrant engine, a process of its own, asked by retrieval alone.

Where `QDRANT_URL` names a server these subjects have no responder and no asker. A point is one chunk. Vectors travel as base64 of
little-endian float32. Every write is durable when it is answered, and may be repeated.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from shared.contracts.subject import Empty, Message, Query


class SparseVector(Message):
    """Token ids (unsigned 32 bit, each once) and their weights."""

    indices: list[int]
    values: list[float]


class Point(Message):
    """One chunk. A point without `dense` keeps the dense vector it has, if any.

    Attributes:
        payload: `workspace` (str), `document` (str), `ancestors` (list of folders, each ending in `/`), `tags`, `exchange` (bool).
    """

    id: UUID
    sparse: SparseVector
    dense: str | None = None
    payload: dict[str, Any]


class Upsert(Message):
    """Adds points or replaces them whole."""

    points: list[Point]


class DenseVector(Message):
    """The dense vector of a point that exists."""

    id: UUID
    dense: str


def encoded(vector: bytes) -> str:
    """A dense vector (little-endian float32) as it travels."""
    return base64.b64encode(vector).decode()


class SetDense(Message):
    """Gives existing points their dense vectors; points that have gone since are passed over."""

    vectors: list[DenseVector]


class Delete(Message):
    """Removes points; unknown ids are passed over."""

    ids: list[UUID]


class Filter(Message):
    """Which points may be found: the workspace is one of these AND each further condition that is set."""

    workspaces: list[UUID]
    ancestor: str | None = None
    tags: list[str] = []
    documents: list[UUID] | None = None
    include_exchanges: bool = False


class Search(Message):
    """One or two legs over the same filter; at least one of `sparse` and `dense`. `limit` is of what each leg finds."""

    filter: Filter
    sparse: SparseVector | None = None
    dense: str | None = None
    limit: int


class Scored(Message):
    """A point and its score in one leg, higher is better."""

    id: UUID
    score: float


class SearchReply(Message):
    """The legs' hits, best first; a leg that was not asked is empty. Where two were asked, each has behind its own hits those of the other
    that it did not find, with what they score in it; those without any of the words have none.
    """

    sparse: list[Scored]
    dense: list[Scored]


def unscored(legs: Mapping[str, Sequence[Scored]]) -> dict[str, list[UUID]]:
    """For each of two legs the points that only the other has."""
    found = {name: {hit.id for hit in leg} for name, leg in legs.items()}
    missing = {name: [hit.id for other in legs for hit in legs[other] if hit.id not in found[name]] for name in legs}
    return {name: ids for name, ids in missing.items() if ids}


class Stats(Message):
    """`points` in the index, `generation` of the storage (grows with each optimised rebuild)."""

    points: int
    generation: int


OWNER = "index"

UPSERT = Query("index.upsert", Upsert, Empty, owner=OWNER, askers=("retrieval",), timeout_seconds=30)
SET_DENSE = Query("index.set_dense", SetDense, Empty, owner=OWNER, askers=("retrieval",), timeout_seconds=30)
DELETE = Query("index.delete", Delete, Empty, owner=OWNER, askers=("retrieval",), timeout_seconds=30)
SEARCH = Query("index.search", Search, SearchReply, owner=OWNER, askers=("retrieval",), timeout_seconds=5)
STATS = Query("index.stats", Empty, Stats, owner=OWNER, askers=("retrieval",), timeout_seconds=5)
FORGET_DENSE = Query("index.forget_dense", Empty, Empty, owner=OWNER, askers=("retrieval",), timeout_seconds=30)
CLEAR = Query("index.clear", Empty, Empty, owner=OWNER, askers=("retrieval",), timeout_seconds=30)
