"""Which workspaces a request may name: those that its account may read."""

from collections.abc import Iterable
from uuid import UUID

from shared.contracts import notes
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.subject import Empty
from shared.messaging.client import Client
from shared.messaging.scope import Scope


async def require_readable(client: Client, named: Iterable[UUID | None], scope: Scope) -> None:
    """Nobody is asked where none is named.

    Raises:
        ServiceError: `workspace_not_found`.
    """
    wanted = {workspace for workspace in named if workspace is not None}
    if not wanted:
        return
    readable = {workspace.id for workspace in (await client.ask(notes.WORKSPACE_LIST, Empty(), scope)).items}
    if not wanted <= readable:
        raise ServiceError(ErrorCode.WORKSPACE_NOT_FOUND, "There is no such workspace.")
