"""The embedded Qdrant engine, a process of its own on the same NATS."""

from collections.abc import Sequence
from uuid import UUID

from shared.contracts import index
from shared.contracts.index import Delete, DenseVector, Point, Search, SearchReply, SetDense, Upsert
from shared.contracts.subject import Empty
from shared.messaging.client import Client
from shared.messaging.scope import Scope

WRITE_SECONDS = 30.0


class EmbeddedIndex:
    """Asks `index.*`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def upsert(self, points: Sequence[Point]) -> None:
        """See the port."""
        await self._client.ask(index.UPSERT, Upsert(points=list(points)), Scope.root(WRITE_SECONDS))

    async def set_dense(self, vectors: Sequence[DenseVector]) -> None:
        """See the port."""
        await self._client.ask(index.SET_DENSE, SetDense(vectors=list(vectors)), Scope.root(WRITE_SECONDS))

    async def forget_dense(self) -> None:
        """See the port."""
        await self._client.ask(index.FORGET_DENSE, Empty(), Scope.root(WRITE_SECONDS))

    async def delete(self, ids: Sequence[UUID]) -> None:
        """See the port."""
        await self._client.ask(index.DELETE, Delete(ids=list(ids)), Scope.root(WRITE_SECONDS))

    async def search(self, request: Search, seconds: float) -> SearchReply:
        """See the port."""
        return await self._client.ask(index.SEARCH, request, Scope.root(seconds))

    async def count(self) -> int:
        """See the port."""
        return (await self._client.ask(index.STATS, Empty(), Scope.root(index.STATS.timeout_seconds))).points

    async def clear(self) -> None:
        """See the port."""
        await self._client.ask(index.CLEAR, Empty(), Scope.root(WRITE_SECONDS))
