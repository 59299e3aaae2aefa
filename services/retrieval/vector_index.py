"""The port to the Qdrant engine. Two adapters: the embedded engine over NATS, and a Qdrant server."""

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from shared.contracts.index import DenseVector, Point, Search, SearchReply


class VectorIndex(Protocol):
    """Points, one per chunk, found by words and by vectors.

    What is said is the index contract's. Every write is durable when it returns and may be repeated. Each method raises `ServiceError`
    (`service_unavailable`, `deadline_exceeded`) where the engine does not answer.
    """

    async def upsert(self, points: Sequence[Point]) -> None:
        """Adds points or replaces them; one without a dense vector keeps what it has."""

    async def set_dense(self, vectors: Sequence[DenseVector]) -> None:
        """Gives existing points their dense vectors; the others are passed over."""

    async def forget_dense(self) -> None:
        """Removes all dense vectors; the points stay, and are found by words."""

    async def delete(self, ids: Sequence[UUID]) -> None:
        """Removes points; unknown ids are passed over."""

    async def search(self, request: Search, seconds: float) -> SearchReply:
        """Both legs, in at most so many seconds."""

    async def count(self) -> int:
        """How many points there are."""

    async def clear(self) -> None:
        """Removes all points."""
