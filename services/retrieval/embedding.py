"""Asks an OpenAI-compatible `/embeddings` for dense vectors."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import httpx
import numpy as np
import orjson
from httpx_aiohttp import AiohttpTransport

from shared.telemetry.tracing import tracer

logger = logging.getLogger(__name__)

type Kind = Literal["query", "passage"]

# A passage takes the bundled model some tenths of a second.
PASSAGES_SECONDS = 60.0
CACHED_QUERIES = 512
# Of a query's text; models read no more than a few hundred words.
QUERY_CHARACTERS_MAX = 2000


class EmbeddingError(Exception):
    """The endpoint could not be asked, or answered something else. The text is for a person and holds no key."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """How a family of models is told queries from passages."""

    name: str
    query_prefix: str = ""
    passage_prefix: str = ""
    says_input_type: bool = False


# The bundled server's own name for its model. It has a field for the kind, and puts the model's prefixes itself.
BUNDLED_MODEL = "multilingual-e5-small"
_BUNDLED = _Rule("input_type", says_input_type=True)
_E5 = _Rule("e5", "query: ", "passage: ")
_BGE_EN = _Rule("bge-en", "Represent this sentence for searching relevant passages: ")
_BGE_ZH = _Rule("bge-zh", "为这个句子生成表示以用于检索相关文章：")
_NOMIC = _Rule("nomic", "search_query: ", "search_document: ")
_PLAIN = _Rule("plain")


def rule_for(model: str) -> _Rule:
    """The rule of a model by its name."""
    name = model.lower()
    if name == BUNDLED_MODEL:
        return _BUNDLED
    for part, rule in (("e5-", _E5), ("bge-m3", _PLAIN), ("bge-", _BGE_ZH if "-zh" in name else _BGE_EN), ("nomic-embed", _NOMIC)):
        if part in name:
            return rule
    return _PLAIN


class Embedder:
    """One model at one address."""

    def __init__(self, base_url: str, api_key: str | None, model: str) -> None:
        self.model = model
        self._rule = rule_for(model)
        self._url = f"{base_url.rstrip('/')}/embeddings"
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._http = httpx.AsyncClient(transport=AiohttpTransport(), headers=headers, timeout=PASSAGES_SECONDS)
        self._queries: OrderedDict[str, bytes] = OrderedDict()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    def space(self, dimension: int) -> str:
        """Names the space of the vectors: of two spaces' vectors no two may be compared."""
        return f"{self.model}/{dimension}/{self._rule.name}"

    def makes(self, space: str | None) -> bool:
        """Whether the vectors of this model are of that space, as far as that can be said without asking it."""
        return space is not None and space.startswith(f"{self.model}/") and space.endswith(f"/{self._rule.name}")

    async def query(self, text: str, seconds: float) -> bytes:
        """The float32 vector of a query; the last ones are remembered.

        Raises:
            EmbeddingError: none came in time.
        """
        text = text[:QUERY_CHARACTERS_MAX]
        if (known := self._queries.get(text)) is not None:
            self._queries.move_to_end(text)
            return known
        (vector,) = await self._ask([text], "query", seconds)
        self._queries[text] = vector
        if len(self._queries) > CACHED_QUERIES:
            self._queries.popitem(last=False)
        return vector

    async def passages(self, texts: Sequence[str]) -> list[bytes]:
        """The float32 vectors of passages.

        Raises:
            EmbeddingError: none came.
        """
        return await self._ask(texts, "passage", PASSAGES_SECONDS)

    async def _ask(self, texts: Sequence[str], kind: Kind, seconds: float) -> list[bytes]:
        prefix = self._rule.query_prefix if kind == "query" else self._rule.passage_prefix
        body: dict[str, Any] = {"model": self.model, "input": [prefix + text for text in texts]}
        if self._rule.says_input_type:
            body["input_type"] = kind
        attributes: dict[str, str | int] = {
            "gen_ai.operation.name": "embeddings",
            "gen_ai.request.model": self.model,
            "marginalia.inputs": len(texts),
        }
        with tracer().start_as_current_span(f"embeddings {self.model}", attributes=attributes) as span:
            try:
                # httpx counts the time between bytes, not the whole.
                async with asyncio.timeout(seconds):
                    response = await self._http.post(
                        self._url, content=orjson.dumps(body), headers={"Content-Type": "application/json"}, timeout=seconds
                    )
            except (httpx.HTTPError, TimeoutError) as error:
                span.set_attribute("error.type", type(error).__name__)
                raise EmbeddingError(f"The embedding model did not answer ({type(error).__name__}).") from error
            if response.status_code != httpx.codes.OK:
                span.set_attribute("error.type", str(response.status_code))
                raise EmbeddingError(f"The embedding model answered with status {response.status_code}.")
            return _vectors(response.content, len(texts))


def _vectors(body: bytes, count: int) -> list[bytes]:
    try:
        data = sorted(orjson.loads(body)["data"], key=lambda item: item["index"])
        vectors = np.array([item["embedding"] for item in data], dtype="<f4")
    except (ValueError, KeyError, TypeError) as error:
        raise EmbeddingError("The embedding model's answer is not of the OpenAI form.") from error
    if vectors.ndim != 2 or len(vectors) != count or not vectors.shape[1] or not np.isfinite(vectors).all():
        raise EmbeddingError("The embedding model did not give one vector of finite numbers for each text.")
    return [vector.tobytes() for vector in vectors]
