"""A Qdrant server. The same points as in the embedded engine, in one collection."""

import base64
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast
from uuid import UUID

import numpy as np
from qdrant_client import AsyncQdrantClient
from qdrant_client import models as q
from qdrant_client.http.exceptions import ApiException, ResponseHandlingException

from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.index import DenseVector, Filter, Point, Scored, Search, SearchReply, unscored
from shared.telemetry import tracing
from shared.telemetry import vocabulary as words

COLLECTION = "marginalia"
DENSE = "dense"
SPARSE = "bm25"
WRITE_SECONDS = 30


def connect(url: str, api_key: str | None, tls: ssl.SSLContext | None = None) -> AsyncQdrantClient:
    """A client that asks nothing before it is needed."""
    verify: Any = True if tls is None else tls
    return AsyncQdrantClient(url=url, api_key=api_key, timeout=WRITE_SECONDS, check_compatibility=False, verify=verify)


class ServerIndex:
    """The collection is made at first use. Dense vectors get the first one's dimension; another dimension begins anew."""

    def __init__(self, client: AsyncQdrantClient) -> None:
        self._client = client
        self._dimension: int | None = None

    async def upsert(self, points: Sequence[Point]) -> None:
        """See the port."""
        async with _answering("upsert"):
            await self._ready()
            given = {point.id: _decoded(point.dense) for point in points if point.dense is not None}
            for vector in given.values():
                await self._fit_dimension(len(vector))
            dense = await self._dense_of([point.id for point in points if point.id not in given]) | given
            stored = [
                q.PointStruct(
                    id=str(point.id),
                    vector={SPARSE: q.SparseVector(**point.sparse.model_dump())}
                    | (cast("dict[str, Any]", {DENSE: dense[point.id]}) if point.id in dense else {}),
                    payload=point.payload,
                )
                for point in points
            ]
            await self._client.upsert(COLLECTION, stored, wait=True)

    async def set_dense(self, vectors: Sequence[DenseVector]) -> None:
        """See the port."""
        async with _answering("set_dense"):
            await self._ready()
            decoded = {str(vector.id): _decoded(vector.dense) for vector in vectors}
            for vector in decoded.values():
                await self._fit_dimension(len(vector))
            present = await self._client.retrieve(COLLECTION, list(decoded), with_payload=False)
            updates = [q.PointVectors(id=record.id, vector={DENSE: decoded[str(record.id)]}) for record in present]
            if updates:
                await self._client.update_vectors(COLLECTION, updates, wait=True)

    async def forget_dense(self) -> None:
        """See the port."""
        async with _answering("forget_dense"):
            await self._ready()
            if self._dimension:
                await self._client.delete_vector_name(COLLECTION, DENSE)
                self._dimension = 0

    async def delete(self, ids: Sequence[UUID]) -> None:
        """See the port."""
        async with _answering("delete"):
            await self._ready()
            await self._client.delete(COLLECTION, q.PointIdsList(points=[str(one) for one in ids]), wait=True)

    async def search(self, request: Search, seconds: float) -> SearchReply:
        """See the port."""
        if not request.filter.workspaces or request.filter.documents == []:
            return SearchReply(sparse=[], dense=[])
        async with _answering("search"):
            await self._ready()
            queries: dict[str, Any] = {}
            if request.sparse is not None and request.sparse.indices:
                queries[SPARSE] = q.SparseVector(**request.sparse.model_dump())
            if request.dense is not None and len(vector := _decoded(request.dense)) == self._dimension:
                queries[DENSE] = vector
            condition = _filter(request.filter)
            legs = await self._legs({using: (query, condition, request.limit) for using, query in queries.items()}, seconds)
            more = {
                using: (queries[using], q.Filter(must=[q.HasIdCondition(has_id=[str(one) for one in ids])]), len(ids))
                for using, ids in unscored(legs).items()
            }
            for using, scored in (await self._legs(more, seconds)).items():
                legs[using] = [*legs[using], *scored]
        return SearchReply(sparse=legs.get(SPARSE, []), dense=legs.get(DENSE, []))

    async def _legs(self, asked: Mapping[str, tuple[Any, q.Filter, int]], seconds: float) -> dict[str, list[Scored]]:
        """By the vector's name: query, filter and limit; all in one request."""
        if not asked:
            return {}
        requests = [
            q.QueryRequest(query=query, using=using, filter=condition, limit=limit, with_payload=False)
            for using, (query, condition, limit) in asked.items()
        ]
        answers = await self._client.query_batch_points(COLLECTION, requests, timeout=max(1, int(seconds)))
        return {
            using: [Scored(id=UUID(str(hit.id)), score=hit.score) for hit in answer.points]
            for using, answer in zip(asked, answers, strict=True)
        }

    async def count(self) -> int:
        """See the port."""
        async with _answering("count"):
            await self._ready()
            return (await self._client.count(COLLECTION, exact=True)).count

    async def clear(self) -> None:
        """See the port."""
        async with _answering("clear"):
            await self._client.delete_collection(COLLECTION)
            self._dimension = None
            await self._ready()

    async def _ready(self) -> None:
        if self._dimension is not None:
            return
        if not await self._client.collection_exists(COLLECTION):
            await self._client.create_collection(
                COLLECTION, vectors_config={}, sparse_vectors_config={SPARSE: q.SparseVectorParams(modifier=q.Modifier.IDF)}
            )
            await self._client.create_payload_index(
                COLLECTION, "workspace", q.KeywordIndexParams(type=q.KeywordIndexType.KEYWORD, is_tenant=True)
            )
            for name in ("document", "ancestors", "tags"):
                await self._client.create_payload_index(COLLECTION, name, q.PayloadSchemaType.KEYWORD)
            await self._client.create_payload_index(COLLECTION, "exchange", q.PayloadSchemaType.BOOL)
        vectors = (await self._client.get_collection(COLLECTION)).config.params.vectors
        named = vectors.get(DENSE) if isinstance(vectors, dict) else None
        self._dimension = named.size if named is not None else 0

    async def _fit_dimension(self, dimension: int) -> None:
        if dimension == self._dimension:
            return
        if self._dimension:
            await self._client.delete_vector_name(COLLECTION, DENSE)
        await self._client.create_vector_name(
            COLLECTION, DENSE, q.DenseVectorNameConfig(dense=q.DenseVectorConfig(size=dimension, distance=q.Distance.COSINE))
        )
        self._dimension = dimension

    async def _dense_of(self, ids: Sequence[UUID]) -> dict[UUID, list[float]]:
        if not ids or not self._dimension:
            return {}
        records = await self._client.retrieve(COLLECTION, [str(one) for one in ids], with_payload=False, with_vectors=[DENSE])
        found = ((UUID(str(record.id)), record.vector) for record in records)
        return {one: cast("list[float]", vector[DENSE]) for one, vector in found if isinstance(vector, dict) and DENSE in vector}


@asynccontextmanager
async def _answering(operation: str) -> AsyncIterator[None]:
    told = {words.DB_SYSTEM: "qdrant", words.DB_COLLECTION: COLLECTION, words.DB_OPERATION: operation}
    with tracing.span(words.POINTS, told, operation=operation):
        try:
            yield
        except (ApiException, ResponseHandlingException, OSError) as error:
            raise ServiceError(ErrorCode.UNAVAILABLE, "The Qdrant server did not answer as it should; try again shortly.") from error


def _decoded(text: str) -> list[float]:
    vector: list[float] = np.frombuffer(base64.b64decode(text), dtype="<f4").tolist()
    return vector


def _filter(wanted: Filter) -> q.Filter:
    must: list[Any] = [_any("workspace", wanted.workspaces)]
    if wanted.ancestor:
        must.append(q.FieldCondition(key="ancestors", match=q.MatchValue(value=wanted.ancestor)))
    if wanted.documents is not None:
        must.append(_any("document", wanted.documents))
    if not wanted.include_exchanges:
        must.append(q.FieldCondition(key="exchange", match=q.MatchValue(value=False)))
    must.extend(q.FieldCondition(key="tags", match=q.MatchValue(value=tag)) for tag in wanted.tags)
    return q.Filter(must=must)


def _any(key: str, ids: Sequence[UUID]) -> q.FieldCondition:
    return q.FieldCondition(key=key, match=q.MatchAny(any=[str(one) for one in ids]))
