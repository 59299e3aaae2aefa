"""What the bundled demo model and the bundled embedder have in common as OpenAI-compatible servers: small addresses, errors, JSON."""

from typing import Any

import orjson
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


class Refused(Exception):
    """The request cannot be served; `response` says why in OpenAI's form."""

    def __init__(self, status: int, message: str, code: str | None) -> None:
        super().__init__(message)
        self.response = as_json({"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}, status)


def common_routes(model: str) -> list[Route]:
    """`/v1/models`, which lists the one model, and `/healthz`."""

    async def models(_: Request) -> Response:
        return as_json({"object": "list", "data": [{"id": model, "object": "model", "created": 0, "owned_by": "marginalia"}]})

    async def healthz(_: Request) -> Response:
        return as_json({"status": "ok"})

    return [Route("/v1/models", models), Route("/healthz", healthz)]


async def read[Asked: BaseModel](request: Request, form: type[Asked], model: str) -> Asked:
    """The body as `form`, which has a field `model`.

    Raises:
        Refused: it is not of that form, or asks for another model.
    """
    try:
        asked = form.model_validate_json(await request.body())
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        raise Refused(400, f"{'.'.join(map(str, first['loc'])) or 'body'}: {first['msg']}", None) from None
    wanted: Any = getattr(asked, "model", model)
    if wanted != model:
        raise Refused(404, f"The model {wanted!r} does not exist; this server has {model}.", "model_not_found")
    return asked


def as_json(payload: dict[str, Any], status: int = 200) -> Response:
    """A JSON response; numpy arrays become lists."""
    return Response(orjson.dumps(payload, option=orjson.OPT_SERIALIZE_NUMPY), status, media_type="application/json")
