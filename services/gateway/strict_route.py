"""The form that request bodies and queries must have before a handler sees them, and the base of the models that describe them."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any
from uuid import UUID

from fastapi import Request
from fastapi.routing import APIRoute
from pydantic import AfterValidator, BaseModel, ConfigDict, Strict
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.datastructures import QueryParams
from starlette.responses import Response

from services.gateway import strict_json
from shared.contracts.errors import ErrorCode, ServiceError

JSON = "application/json"


class _AnyConvertor(PathConvertor):
    """Like `path`, and takes line breaks: a note's name may hold one."""

    regex = r"(?s:.*)"


register_url_convertor("any", _AnyConvertor())


class Body(BaseModel):
    """Base of request bodies: nothing coerced, nothing unknown."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


# In JSON an id can only be a string; strictness elsewhere stays.
Id = Annotated[UUID, Strict(False)]


def _not_blank(value: str) -> str:
    # Zero-width and bidirectional marks alone are as blank as spaces.
    if not any(character.isprintable() and not character.isspace() for character in value):
        raise ValueError("must not be blank")
    return value


NotBlank = Annotated[str, AfterValidator(_not_blank)]


class _StrictRequest(Request):
    async def json(self) -> Any:
        return strict_json.loads(await self.body())


class StrictRoute(APIRoute):
    """Reads bodies strictly: JSON only, said to be JSON, UTF-8, not compressed; each query parameter at most once."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        """FastAPI's hook."""
        handle = super().get_route_handler()
        takes_body = self.body_field is not None

        async def handler(request: Request) -> Response:
            strict = _StrictRequest(request.scope, request.receive)
            _check_query(strict.query_params)
            if takes_body:
                await _check_body(strict)
            return await handle(strict)

        return handler


def _check_query(query: QueryParams) -> None:
    names = [name for name, _ in query.multi_items()]
    if len(set(names)) != len(names):
        raise strict_json.malformed("A query parameter stands twice.")
    if any("\x00" in value or "\ufffd" in value for value in query.values()):
        raise strict_json.malformed("A query parameter is not UTF-8 text.")


async def _check_body(request: Request) -> None:
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ServiceError(ErrorCode.UNSUPPORTED_MEDIA_TYPE, "The body must not be compressed.")
    media_type, _, parameters = request.headers.get("content-type", "").partition(";")
    charset = parameters.strip().lower().removeprefix("charset=").strip('"')
    if media_type.strip().lower() != JSON or charset not in ("", "utf-8", "utf8"):
        raise ServiceError(ErrorCode.UNSUPPORTED_MEDIA_TYPE, f"The body must be {JSON} in UTF-8.")
    if not await request.body():
        raise strict_json.malformed("The body is empty.")
