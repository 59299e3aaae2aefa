"""The Markdown tools: what can be written, and Markdown made of structure. Both follow the account's preferences and save nothing."""

from fastapi import APIRouter, Response

from services.gateway.access import AnyCaller
from services.gateway.responses import as_json
from services.gateway.routes.preferences import CallersPreferences
from services.gateway.strict_route import StrictRoute
from shared.contracts import markdown
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.markdown import Catalog, CatalogRequest, Compose, Composed, Document

router = APIRouter(route_class=StrictRoute)


@router.get("/api/markdown/catalog", response_model=Catalog, summary="What can be written")
async def catalog(caller: AnyCaller, preferences: CallersPreferences) -> Response:
    """Formats with examples, callouts, limits, how an edit is done; without what the account has switched off."""
    return as_json(await caller.ask(markdown.CATALOG, CatalogRequest(preset=preferences.markdown)))


@router.post("/api/markdown/compose", response_model=Composed, summary="Write Markdown from structure")
async def compose(body: Document, caller: AnyCaller, preferences: CallersPreferences) -> Response:
    """Reading the Markdown gives the document back, whatever its texts hold. What cannot be written, or is switched off, is a 422."""
    try:
        return as_json(await caller.ask(markdown.COMPOSE, Compose(document=body, preset=preferences.markdown)))
    except ServiceError as error:
        raise _in_body(error) from None


def _in_body(error: ServiceError) -> ServiceError:
    """The same refusal, with its place in the request instead of in the document."""
    if error.code is not ErrorCode.INVALID or "errors" not in error.extra:
        return error
    errors = [{**one, "location": f"body.{one['location']}"} for one in error.extra["errors"]]
    detail = "; ".join(f"{one['location']}: {one['message']}" for one in errors)
    return ServiceError(ErrorCode.INVALID, detail, **{**error.extra, "errors": errors})
