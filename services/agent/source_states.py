"""What has become of the notes that an answer was made of: each source says whether its note is still what was cited (ON-18)."""

import logging
from collections.abc import Sequence
from uuid import UUID

from shared.contracts import notes
from shared.contracts.chat import ChatMessage
from shared.contracts.errors import ServiceError
from shared.contracts.notes import HashesRequest, ReadNote
from shared.messaging.client import Client
from shared.messaging.scope import Scope

logger = logging.getLogger(__name__)

ASK_SECONDS = 2.0


async def with_states(client: Client, messages: Sequence[ChatMessage], scope: Scope) -> list[ChatMessage]:
    """The messages with `state` on each source: `current`, `changed`, `gone`; null while the notes cannot be asked,
    or where an imported source does not say what was cited.
    """
    wanted = list({note for message in messages for source in message.sources if (note := _note(source)) is not None})
    states: dict[tuple[str, str], str | None] = await _hashes(client, wanted, scope) if wanted else {}
    return [
        message.model_copy(update={"sources": [{**source, "state": _state(source, states)} for source in message.sources]})
        for message in messages
    ]


async def _hashes(client: Client, wanted: list[tuple[str, str]], scope: Scope) -> dict[tuple[str, str], str | None]:
    request = HashesRequest(items=[ReadNote(workspace=UUID(workspace), path=path) for workspace, path in wanted])
    try:
        reply = await client.ask(notes.NOTE_HASHES, request, scope, timeout=ASK_SECONDS)
    except ServiceError as error:
        logger.warning("The states of sources are not known now: %s", error.code)
        return {}
    return dict(zip(wanted, reply.items, strict=True))


def _state(source: dict[str, object], states: dict[tuple[str, str], str | None]) -> str | None:
    note, locator = _note(source), source["locator"]
    if note is None or note not in states:
        return None
    if states[note] is None:
        return "gone"
    if not isinstance(locator, dict):
        return None
    return "current" if states[note] == locator["content_hash"] else "changed"


def _note(source: dict[str, object]) -> tuple[str, str] | None:
    """Workspace and path; None where an imported source does not say them."""
    return (str(source["workspace"]), str(source["file_path"])) if source["workspace"] and source["file_path"] else None
