"""Mentioning notes while one writes."""

from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, BeforeValidator, Field

from services.gateway import entity_tag
from services.gateway.access import AnyCaller, Caller
from services.gateway.responses import as_json
from services.gateway.routes.preferences import CallersPreferences
from services.gateway.strict_route import Body, Id, StrictRoute
from shared.contracts import mentions
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.mentions import (
    LABEL_CHARACTERS_MAX,
    LIMIT,
    LIMIT_MAX,
    QUERY_CHARACTERS_MAX,
    REF_CHARACTERS_MAX,
    REFERENCES_MAX,
    Candidates,
    CandidatesRequest,
    Lexicon,
    LexiconRequest,
    Reference,
    Serialized,
    SerializeRequest,
)

router = APIRouter(route_class=StrictRoute)

# A form sends the parameter also where there is no workspace.
Workspace = Annotated[UUID | None, BeforeValidator(lambda value: value or None), Query()]
LEXICON_ATTEMPTS = 3


class ReferenceIn(Body):
    """A note by its `ref`, as candidates give it, and what to call it; an empty label stands for its title."""

    ref: Annotated[str, Field(min_length=1, max_length=REF_CHARACTERS_MAX)]
    label: Annotated[str, Field(max_length=LABEL_CHARACTERS_MAX)] = ""

    def to_contract(self) -> Reference:
        """The same for the notes service."""
        return Reference(ref=self.ref, label=self.label)


class References(Body):
    """What to put into a message."""

    workspace: Id | None = None
    references: Annotated[list[ReferenceIn], Field(max_length=REFERENCES_MAX)]
    locale: Literal["zh", "en"] | None = None


class Titles(BaseModel):
    """The distinct titles of a workspace's notes."""

    titles: list[str]


MISSING: dict[int | str, dict[str, Any]] = {
    409: {"description": "`reference_missing` with `missing`: for each note that is not there `ref`, `label`, `message`, `moved_to`."}
}


@router.get("/api/mentions/candidates", response_model=Candidates, summary="What can be mentioned")
async def candidates(
    caller: AnyCaller,
    preferences: CallersPreferences,
    workspace: Workspace = None,
    query: Annotated[str, Query(max_length=QUERY_CHARACTERS_MAX)] = "",
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = LIMIT,
    locale: Literal["zh", "en"] | None = None,
) -> Response:
    """Best first, for the text behind an `@`: notes of the session's workspace, or of the one that the text names; and workspaces by part
    of their names. `note#` offers the note's headings.
    """
    asking = CandidatesRequest(workspace=workspace, query=query, limit=limit, locale=locale or preferences.locale)
    return as_json(await caller.ask(mentions.CANDIDATES, asking))


@router.post("/api/mentions/serialize", response_model=Serialized, responses=MISSING, summary="References as lines of a message")
async def serialize(body: References, caller: AnyCaller, preferences: CallersPreferences) -> Response:
    """A line for each, in the order given; all or none."""
    asked = [reference.to_contract() for reference in body.references]
    request = SerializeRequest(workspace=body.workspace, references=asked, locale=body.locale or preferences.locale)
    return as_json(await caller.ask(mentions.SERIALIZE, request))


@router.get(
    "/api/mentions/lexicon",
    response_model=Titles,
    responses={304: {"description": "If-None-Match names the current version."}},
    summary="Titles, for decoration",
)
async def lexicon(request: Request, caller: AnyCaller, workspace: Workspace = None) -> Response:
    """The titles of a workspace's notes, with `ETag`. A title in a message is decoration; only links refer to notes."""
    known = entity_tag.known(request.headers.get("if-none-match"))
    for _ in range(LEXICON_ATTEMPTS):
        if (found := await _lexicon(caller, workspace, known)) is None:
            continue
        headers = {"ETag": f'"{found.version}"', "Cache-Control": "private, no-cache"}
        if found.titles is None or entity_tag.ANY in known:
            return Response(status_code=304, headers=headers)
        return Response(Titles(titles=found.titles).model_dump_json(), headers=headers, media_type="application/json")
    raise ServiceError(ErrorCode.UNAVAILABLE, "The notes change while their titles are read; try again.")


async def _lexicon(caller: Caller, workspace: UUID | None, known: list[str]) -> Lexicon | None:
    """All the titles of one version; None where there is another one in the middle."""
    part = await caller.ask(mentions.LEXICON, LexiconRequest(workspace=workspace, known=known))
    titles = part.titles
    while part.more and titles is not None:
        part, version = await caller.ask(mentions.LEXICON, LexiconRequest(workspace=workspace, after=len(titles))), part.version
        if part.version != version or part.titles is None:
            return None
        titles = titles + part.titles
    return Lexicon(version=part.version, titles=titles)
