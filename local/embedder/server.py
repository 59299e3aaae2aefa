"""The embedder's HTTP surface: OpenAI's embeddings, with `input_type` beside (`query` or, by default, `passage`)."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from local.embedder.encoder import Encoded, Encoder, InputType
from local.embedder.native_engine import built_engine, improve
from local.openai_server import Refused, as_json, common_routes, read

MODEL = "multilingual-e5-small"
_INPUTS_MAX = 2048
# One text is one call into C that nothing can interrupt: about 0.4 s for each 2,000 characters.
_CHARACTERS_MAX = 20_000

type Text = Annotated[str, Field(min_length=1, max_length=_CHARACTERS_MAX)]


class EmbeddingsRequest(BaseModel):
    """What is to be embedded."""

    model_config = ConfigDict(extra="ignore")
    model: str = MODEL
    input: Text | Annotated[list[Text], Field(min_length=1, max_length=_INPUTS_MAX)]
    input_type: InputType = InputType.PASSAGE
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Literal[384] = 384


def app(cache: Path | None) -> Starlette:
    """The ASGI application; `cache` is a directory for the engine built for this machine."""

    @contextlib.asynccontextmanager
    async def lifespan(application: Starlette) -> AsyncIterator[None]:
        encoder = application.state.encoder = Encoder(None if cache is None else built_engine(cache))
        async with asyncio.TaskGroup() as group:
            improving = None if cache is None else group.create_task(improve(encoder, cache))
            yield
            if improving is not None:
                improving.cancel()

    return Starlette(
        lifespan=lifespan,
        routes=[
            Route("/v1/embeddings", embeddings, methods=["POST"]),
            *common_routes(MODEL),
        ],
    )


async def embeddings(request: Request) -> Response:
    """The vectors of the texts, in their order. A client that has gone gets no further passage made."""
    try:
        asked = await read(request, EmbeddingsRequest, MODEL)
    except Refused as refused:
        return refused.response
    encoder: Encoder = request.app.state.encoder
    texts = [asked.input] if isinstance(asked.input, str) else asked.input
    made: list[Encoded] = []
    for text in texts:
        if await request.is_disconnected():
            return Response(status_code=499)
        made.append(await encoder.encode(text, asked.input_type))
    tokens = sum(encoded.tokens for encoded in made)
    data = [{"object": "embedding", "index": at, "embedding": _shown(encoded, asked.encoding_format)} for at, encoded in enumerate(made)]
    return as_json({"object": "list", "data": data, "model": MODEL, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}})


def _shown(encoded: Encoded, encoding_format: str) -> Any:
    if encoding_format == "float":
        return encoded.vector
    return base64.b64encode(encoded.vector.astype("<f4").tobytes()).decode("ascii")
