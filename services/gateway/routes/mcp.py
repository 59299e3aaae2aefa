"""The door for clients of the Model Context Protocol (streamable HTTP), with a personal access token."""

from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.types import Receive, Scope, Send

from services.gateway.access import TokenCaller, check_origin
from services.gateway.routes.preferences import preferences_of
from services.gateway.strict_route import JSON

router = APIRouter()

BODY = {"content": {JSON: {"schema": {"type": "object", "description": "One JSON-RPC message."}}}, "required": True}
ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The answer to a request, at once or as the only event of a stream.",
        "content": {JSON: {"schema": {"type": "object"}}, "text/event-stream": {"schema": {"type": "string"}}},
    },
    202: {"description": "A notification was heard."},
}


class _Passed(Response):
    """Leaves the response to the protocol's own server."""

    def __init__(self, request: Request) -> None:
        super().__init__()
        self._request = request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._request.app.state.mcp.handle_request(scope, receive, send)


@router.post(
    "/mcp",
    summary="The tools, for MCP's clients",
    responses=ANSWERS,
    response_class=Response,
    openapi_extra={"requestBody": BODY},
)
async def mcp(request: Request, caller: TokenCaller) -> Response:
    """`rag.search`, `notes.read`, `markdown.catalog`, `markdown.compose` and, where the client can ask its user, `notes.patch_markdown`: in
    the workspaces of the token's account. An `Origin` must be on the allow-list. Leaving cancels.
    """
    if "origin" in request.headers:
        check_origin(request)
    request.state.caller = caller
    request.state.preferences = await preferences_of(caller, request)
    return _Passed(request)
