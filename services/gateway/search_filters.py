"""Whether the model of a turn may search, and where searches look: as request bodies say it."""

from typing import Annotated

from pydantic import Field

from services.gateway.strict_route import Body, Id
from shared.contracts.chat import RetrievalChoice
from shared.contracts.retrieval import Filters


class SearchFilters(Body):
    """Where searches look."""

    workspaces: Annotated[list[Id], Field(max_length=100)] | None = None
    path_prefix: Annotated[str, Field(max_length=1000)] | None = None
    tags: Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=50)] | None = None
    include_exchanges: bool = False

    def to_contract(self) -> Filters:
        """As services know it."""
        return Filters(**self.model_dump())


class RetrievalOptions(Body):
    """Whether the model may search."""

    enabled: bool = True
    filters: SearchFilters = SearchFilters()

    def to_contract(self) -> RetrievalChoice:
        """As services know it."""
        return RetrievalChoice(enabled=self.enabled, filters=self.filters.to_contract())
