"""Searching, stored runs, what is indexed."""

import asyncio
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field, model_validator

from services.gateway.access import AdminCaller, AnyCaller
from services.gateway.disconnect import client_left
from services.gateway.responses import as_json
from services.gateway.search_filters import SearchFilters
from services.gateway.strict_route import Body, Id, NotBlank, StrictRoute
from shared.contracts import retrieval
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.retrieval import (
    PUBLISH_SECONDS_MAX,
    QUERY_CHARACTERS_MAX,
    RUN_LIMIT_MAX,
    CreateRun,
    ListRuns,
    Publication,
    PublicationList,
    PublicationRequest,
    Publish,
    Run,
    RunPage,
    RunRef,
    Status,
    StatusRequest,
)

router = APIRouter(route_class=StrictRoute)


class RunRequest(Body):
    """A search; `workspaces` is short for `filters.workspaces`."""

    mode: Literal["keyword", "keyword_chunks", "vector", "hybrid"]
    query: Annotated[NotBlank, Field(min_length=1, max_length=QUERY_CHARACTERS_MAX)]
    workspaces: Annotated[list[Id], Field(max_length=100)] | None = None
    filters: SearchFilters = SearchFilters()
    limit: Annotated[int, Field(ge=1, le=RUN_LIMIT_MAX)] = 10

    @model_validator(mode="after")
    def _one_list_of_workspaces(self) -> "RunRequest":
        if self.workspaces is not None and self.filters.workspaces is not None:
            raise ValueError("workspaces and filters.workspaces are one thing; give one of them")
        return self

    def to_contract(self) -> CreateRun:
        """The command to retrieval."""
        filters = self.filters.to_contract()
        if self.workspaces is not None:
            filters = filters.model_copy(update={"workspaces": self.workspaces})
        return CreateRun(mode=self.mode, query=self.query, filters=filters, limit=self.limit)


class PublishRequest(Body):
    """What to publish."""

    workspace: Id


@router.post("/api/retrieval/runs", response_model=Run, status_code=201, summary="Search, and keep the answer")
async def create_run(body: RunRequest, request: Request, caller: AnyCaller) -> Response:
    """Stored whole: the results, and which publications were searched. A client that leaves stops the search."""
    work = asyncio.ensure_future(caller.ask(retrieval.RUN_CREATE, body.to_contract()))
    left = asyncio.ensure_future(client_left(request.receive))
    try:
        await asyncio.wait({work, left}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ServiceError(ErrorCode.CANCELLED, "The client left.")
        return as_json(work.result(), 201)
    finally:
        for task in (work, left):
            task.cancel()


@router.get("/api/retrieval/runs", response_model=RunPage, summary="List stored runs")
async def list_runs(
    caller: AnyCaller, page: Annotated[int, Query(ge=1, le=1_000_000)] = 1, page_size: Annotated[int, Query(ge=1, le=100)] = 20
) -> Response:
    """Newest first, without their results; one's own, an admin's include everyone's."""
    return as_json(await caller.ask(retrieval.RUN_LIST, ListRuns(page=page, page_size=page_size)))


@router.get("/api/retrieval/runs/{run_id}", response_model=Run, summary="Read a stored run")
async def get_run(run_id: UUID, caller: AnyCaller) -> Response:
    """As it was answered."""
    return as_json(await caller.ask(retrieval.RUN_GET, RunRef(run=run_id)))


@router.get("/api/retrieval/publications", response_model=PublicationList, summary="What is published")
async def list_publications(caller: AdminCaller) -> Response:
    """One entry per workspace. Admins only."""
    return as_json(await caller.ask(retrieval.PUBLICATION_LIST, PublicationRequest()))


@router.post("/api/retrieval/publications", response_model=Publication, status_code=201, summary="Publish what is held")
async def publish(body: PublishRequest, caller: AdminCaller) -> Response:
    """All that is held of one workspace, or nothing of it; answers what is published then. Admins only."""
    return as_json(await caller.ask(retrieval.PUBLISH, Publish(workspace=body.workspace), PUBLISH_SECONDS_MAX), 201)


@router.get("/api/retrieval/status", response_model=Status, summary="How far indexing is")
async def status(caller: AnyCaller, workspace: UUID | None = None) -> Response:
    """In notes; of one workspace or of all that the account may use."""
    return as_json(await caller.ask(retrieval.STATUS, StatusRequest(workspace=workspace)))
