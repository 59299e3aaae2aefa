"""Asks an OpenAI-compatible `/embeddings` for dense vectors."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile
from typing import Any, Literal

import httpx
import numpy as np
import orjson
from httpx_aiohttp import AiohttpTransport

from shared.telemetry import tracing
from shared.telemetry import vocabulary as words

logger = logging.getLogger(__name__)

type Kind = Literal["query", "passage"]

# A passage takes the bundled model some tenths of a second.
PASSAGES_SECONDS = 60.0
CACHED_QUERIES = 512
# Of a query's text, in letters; models read no more than a few hundred words. A character that is a word, or half of one, counts for some.
QUERY_LETTERS_MAX = 2000
LETTERS_PER_CHARACTER = 3
RETRY_AFTER_SECONDS_MAX = 300.0
_REFUSALS = (httpx.codes.BAD_REQUEST, httpx.codes.REQUEST_ENTITY_TOO_LARGE, httpx.codes.UNPROCESSABLE_ENTITY)


class EmbeddingError(Exception):
    """The endpoint could not be asked, or answered something else. The text is for a person and holds no key.

    Attributes:
        refused: it is these texts that it does not take; asking again is of no use.
        retry_after: seconds, where the endpoint has said how long to wait.
    """

    def __init__(self, text: str, *, refused: bool = False, retry_after: float = 0.0) -> None:
        super().__init__(text)
        self.refused = refused
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class _Rule:
    """How a family of models is told queries from passages."""

    name: str
    query_prefix: str = ""
    passage_prefix: str = ""
    says_input_type: bool = False
    # In one request: elsewhere it is the way there that takes the time, here the model.
    passages_at_once: int = 64


# The bundled server's own name for its model. It has a field for the kind, and puts the model's prefixes itself.
BUNDLED_MODEL = "multilingual-e5-small+all-minilm-l6-v2"
_BUNDLED = _Rule("input_type", says_input_type=True, passages_at_once=8)
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
        self._base_url, self._api_key = base_url, api_key
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

    @property
    def passages_at_once(self) -> int:
        """How many passages to ask for in one request."""
        return self._rule.passages_at_once

    def of_space(self, space: str) -> "Embedder":
        """The model that made the vectors of that space, asked at the same address. Whether it is still served there is not known."""
        return Embedder(self._base_url, self._api_key, space.rsplit("/", 2)[0])

    async def query(self, text: str, seconds: float) -> bytes:
        """The float32 vector of a query; the last ones are remembered.

        Raises:
            EmbeddingError: none came in time.
        """
        text = _beginning(text)
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
        asked = {
            **tracing.server(self._url),
            words.GEN_AI_OPERATION: "embeddings",
            words.GEN_AI_MODEL: self.model,
            words.INPUTS: len(texts),
        }
        with tracing.span(words.EMBEDDINGS, asked, model=self.model) as span:
            try:
                # httpx counts the time between bytes, not the whole.
                async with asyncio.timeout(seconds):
                    response = await self._http.post(
                        self._url, content=orjson.dumps(body), headers={"Content-Type": "application/json"}, timeout=seconds
                    )
            except (httpx.HTTPError, TimeoutError) as error:
                tracing.note_error(span, type(error).__name__)
                raise EmbeddingError(f"The embedding model did not answer ({type(error).__name__}).") from error
            if response.status_code != httpx.codes.OK:
                tracing.note_error(span, str(response.status_code))
                raise EmbeddingError(
                    f"The embedding model answered with status {response.status_code}.",
                    refused=response.status_code in _REFUSALS,
                    retry_after=_retry_after(response),
                )
            return _vectors(response.content, len(texts))


def _beginning(text: str) -> str:
    """As much of a query as is embedded."""
    letters = accumulate(1 if character.isascii() else LETTERS_PER_CHARACTER for character in text)
    return text[: sum(1 for _ in takewhile(lambda so_far: so_far <= QUERY_LETTERS_MAX, letters))]


def _retry_after(response: httpx.Response) -> float:
    given = response.headers.get("retry-after", "")
    return min(float(given), RETRY_AFTER_SECONDS_MAX) if given.isascii() and given.isdigit() else 0.0


def _vectors(body: bytes, count: int) -> list[bytes]:
    try:
        data = sorted(orjson.loads(body)["data"], key=lambda item: item["index"])
        vectors = np.array([item["embedding"] for item in data], dtype="<f4")
    except (ValueError, KeyError, TypeError) as error:
        raise EmbeddingError("The embedding model's answer is not of the OpenAI form.") from error
    if vectors.ndim != 2 or len(vectors) != count or not vectors.shape[1] or not np.isfinite(vectors).all():
        raise EmbeddingError("The embedding model did not give one vector of finite numbers for each text.")
    return [vector.tobytes() for vector in vectors]
