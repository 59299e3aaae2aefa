"""The embedder's HTTP surface: OpenAI's embeddings, with `input_type` beside (`query` or, by default, `passage`)."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Sequence
from itertools import batched
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from local.embedder.encoder import Encoder
from local.embedder.model import NAME, Encoded, InputType
from local.openai_server import Refused, as_json, common_routes, read

MODEL = NAME
_INPUTS_MAX = 2048
# Short texts are computed together; of the groups of a client that has gone no other is begun.
_TEXTS_AT_ONCE = 8
# Nothing interrupts the work on one text: about 0.2 s for each 1,000 characters of English, each 500 of Chinese.
_CHARACTERS_MAX = 20_000

type Text = Annotated[str, Field(min_length=1, max_length=_CHARACTERS_MAX)]


class EmbeddingsRequest(BaseModel):
    """What is to be embedded."""

    model_config = ConfigDict(extra="ignore")
    model: str = MODEL
    input: Text | Annotated[list[Text], Field(min_length=1, max_length=_INPUTS_MAX)]
    input_type: InputType = InputType.PASSAGE
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Literal[769] = 769


def app() -> Starlette:
    """The ASGI application."""

    @contextlib.asynccontextmanager
    async def lifespan(application: Starlette) -> AsyncIterator[None]:
        application.state.encoder = Encoder()
        yield

    return Starlette(
        lifespan=lifespan,
        routes=[
            Route("/v1/embeddings", embeddings, methods=["POST"]),
            *common_routes(MODEL),
        ],
    )


async def embeddings(request: Request) -> Response:
    """The vectors of the texts, in their order. For a client that has gone nothing is begun any more."""
    try:
        asked = await read(request, EmbeddingsRequest, MODEL)
    except Refused as refused:
        return refused.response
    encoder: Encoder = request.app.state.encoder
    texts = [asked.input] if isinstance(asked.input, str) else asked.input
    work = asyncio.ensure_future(_encoded(encoder, texts, asked.input_type))
    left = asyncio.ensure_future(_client_left(request))
    try:
        await asyncio.wait({work, left}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            return Response(status_code=499)
        made = work.result()
    finally:
        for task in (work, left):
            task.cancel()
    tokens = sum(encoded.tokens for encoded in made)
    data = [{"object": "embedding", "index": at, "embedding": _shown(encoded, asked.encoding_format)} for at, encoded in enumerate(made)]
    return as_json({"object": "list", "data": data, "model": MODEL, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}})


async def _encoded(encoder: Encoder, texts: Sequence[str], kind: InputType) -> list[Encoded]:
    return [encoded for some in batched(texts, _TEXTS_AT_ONCE) for encoded in await encoder.encode(some, kind)]


async def _client_left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _shown(encoded: Encoded, encoding_format: str) -> Any:
    if encoding_format == "float":
        return encoded.vector
    return base64.b64encode(encoded.vector.astype("<f4").tobytes()).decode("ascii")
