"""Finding notes by what they are called: title, path, tags. What stands in them, retrieval finds."""

from collections.abc import Iterable
from uuid import UUID

from services.notes.note_path import is_plain_text, nfc
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.notes import FindNotes, FoundNote, Workspace
from shared.database.pool import Pool, connection

LIMIT_MAX = 50
QUERY_CHARACTERS_MAX = 500


async def find(pool: Pool, request: FindNotes, readable: Iterable[Workspace]) -> list[FoundNote]:
    """The notes, best first; the latest first among equals.

    Raises:
        ServiceError: `invalid`; `workspace_not_found` where it is not among the readable ones.
    """
    directories = _searched(request.workspace, readable)
    words = nfc(request.query).lower().split()
    if not words or len(request.query) > QUERY_CHARACTERS_MAX or not is_plain_text(request.query) or not 1 <= request.limit <= LIMIT_MAX:
        raise ServiceError(
            ErrorCode.INVALID, f"A search needs words, at most {QUERY_CHARACTERS_MAX} characters of them, and a limit of 1 to {LIMIT_MAX}."
        )
    async with connection(pool) as connected:
        rows = await connected.fetch(
            """
            WITH named AS (
                SELECT *, lower(normalize(title, NFC)) AS name, lower(path) AS place FROM notes WHERE workspace = ANY($1)
            )
            SELECT workspace, path, title, tags, content_hash, size, modified_at FROM named
            WHERE NOT EXISTS (
                SELECT 1 FROM unnest($2::text[]) AS word
                WHERE strpos(name, word) = 0 AND strpos(place, word) = 0 AND NOT ltrim(word, '#') = ANY(tag_keys)
            )
            ORDER BY CASE WHEN name = $3 THEN 0 WHEN starts_with(name, $3) THEN 1 WHEN strpos(name, $3) > 0 THEN 2 ELSE 3 END,
                     modified_at DESC, path
            LIMIT $4
            """,
            list(directories), words, " ".join(words), request.limit,
        )  # fmt: skip
    return [FoundNote(**dict(row), directory=directories[row["workspace"]]) for row in rows]


def _searched(workspace: UUID | None, readable: Iterable[Workspace]) -> dict[UUID, str]:
    directories = {one.id: one.directory for one in readable}
    if workspace is None:
        return directories
    if workspace not in directories:
        raise ServiceError(ErrorCode.WORKSPACE_NOT_FOUND, "There is no such workspace.")
    return {workspace: directories[workspace]}
