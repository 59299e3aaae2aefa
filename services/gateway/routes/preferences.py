"""What an account prefers, each account's own."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request
from pydantic import ConfigDict

from services.gateway.access import AnyCaller
from services.gateway.strict_route import Body, StrictRoute
from shared.contracts.markdown import Preset

router = APIRouter(route_class=StrictRoute)


class MarkdownPresets(Preset):
    """Which syntax is on."""

    model_config = ConfigDict(strict=True, extra="forbid")


class Preferences(Body):
    """An account's own preferences."""

    locale: Literal["zh", "en"] = "en"
    markdown: MarkdownPresets = MarkdownPresets()


async def preferences_of(caller: AnyCaller, request: Request) -> Preferences:
    """The account's, with defaults where nothing was set."""
    return Preferences.model_validate(await request.app.state.accounts.preferences(caller.identity.id))


CallersPreferences = Annotated[Preferences, Depends(preferences_of)]


@router.get("/api/preferences", response_model=Preferences, summary="Read one's preferences")
async def preferences(present: CallersPreferences) -> Preferences:
    """Defaults where nothing was set."""
    return present


@router.put("/api/preferences", response_model=Preferences, summary="Set one's preferences")
async def set_preferences(body: Preferences, caller: AnyCaller, request: Request) -> Preferences:
    """Replaces them; what is absent takes its default."""
    await request.app.state.accounts.set_preferences(caller.identity.id, body.model_dump())
    return body
