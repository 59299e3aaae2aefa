"""References as they go into a message: each is looked for before anything is sent (MN-4, MN-5)."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from services.notes import workspaces
from services.notes.file_threads import FileThreads
from services.notes.mention_feed import MentionFeed
from services.notes.note_path import NotePath, is_plain_text
from services.notes.vault import VaultUnavailable
from services.notes.workspaces import Readable
from shared import references
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.mentions import REFERENCES_MAX, MissingReference, Reference, Serialized, SerializeRequest
from shared.database.pool import Connection, Pool, connection
from shared.messaging.scope import Account

# How long a file system may take to say what is there; after that the index is believed.
LOOK_SECONDS = 2.0
# How many moves of a note are followed.
MOVES_MAX = 100


@dataclass(frozen=True, slots=True)
class _Reading:
    """One thing that a ref may mean."""

    reference: references.Reference
    workspace: Readable
    path: str


class ReferenceCheck:
    """See the module."""

    def __init__(self, pool: Pool, threads: FileThreads, feed: MentionFeed) -> None:
        self._pool = pool
        self._threads = threads
        self._feed = feed

    async def serialize(self, request: SerializeRequest, account: Account | None) -> Serialized:
        """The references' lines.

        Raises:
            ServiceError: `reference_missing` with `missing`, `workspace_not_found`, `invalid`.
        """
        if len(request.references) > REFERENCES_MAX:
            raise ServiceError(ErrorCode.INVALID, f"A message may refer to {REFERENCES_MAX} notes.")
        readable = await workspaces.readable(self._pool, account)
        session = next((one for one in readable if one.id == request.workspace), None)
        if session is None and request.workspace is not None:
            raise workspaces.not_found()
        readings = [_readings(one.ref, session, readable) for one in request.references]
        present = await self._present([reading for several in readings for reading in several])
        lines, missing = list[str](), list[MissingReference]()
        for asked, several in zip(request.references, readings, strict=True):
            found = next((reading for reading in several if (reading.workspace.id, reading.path) in present), None)
            if found is None:
                missing.append(await self._missing(asked, several, session, readable, request))
            else:
                title = asked.label if asked.label.strip() else present[found.workspace.id, found.path]
                lines.append(references.line(title, found.reference, request.locale, in_session=session is not None))
        if missing:
            said = "; ".join(one.message for one in missing)
            raise ServiceError(ErrorCode.REFERENCE_MISSING, said, missing=[one.model_dump(mode="json") for one in missing])
        return Serialized(text="\n".join(lines))

    async def _present(self, readings: Sequence[_Reading]) -> dict[tuple[UUID, str], str]:
        """The notes that are there, with their titles. The files say so; the index, where they cannot be asked."""
        by_workspace: defaultdict[UUID, dict[str, Readable]] = defaultdict(dict)
        for reading in readings:
            by_workspace[reading.workspace.id][reading.path] = reading.workspace
        present: dict[tuple[UUID, str], str] = {}
        for identifier, paths in by_workspace.items():
            workspace = next(iter(paths.values()))
            index = await self._feed.index(identifier, workspace.revision)
            seen = await self._seen(workspace, list(paths))
            for path in paths:
                note = index.get(path)
                if path in seen if seen is not None else note is not None:
                    present[identifier, path] = note.title if note is not None else path.rpartition("/")[2].rpartition(".")[0]
        return present

    async def _seen(self, workspace: Readable, paths: list[str]) -> set[str] | None:
        if workspace.problem is not None:
            return None
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                survey = await self._threads.run(workspace.id, workspace.vault.survey, paths)
        except (VaultUnavailable, TimeoutError):
            return None
        return set(survey.notes) if all(map(survey.saw, paths)) else None

    async def _missing(
        self, asked: Reference, readings: list[_Reading], session: Readable | None, readable: list[Readable], request: SerializeRequest
    ) -> MissingReference:
        moved = None
        for reading in readings:
            moved = moved or await self._moved(reading, session, readable)
        title = asked.label if asked.label.strip() else asked.ref.rpartition("/")[2]
        ref = None if moved is None else moved.ref(in_session=session is not None)
        return MissingReference(ref=asked.ref, label=asked.label, message=references.missing(title, request.locale), moved_to=ref)

    async def _moved(self, reading: _Reading, session: Readable | None, readable: list[Readable]) -> references.Reference | None:
        """Where the note is now: where it was seen to go, or where alone its last text is."""
        async with connection(self._pool) as connected:
            if (found := await _followed(connected, reading.workspace.id, reading.path, [one.id for one in readable])) is None:
                return None
        place = next(one for one in readable if one.id == found[0])
        return references.of_note(place, found[1], session, reading.reference.fragment)


def _readings(ref: str, session: Readable | None, readable: list[Readable]) -> list[_Reading]:
    found = []
    for meant in references.from_ref(ref) if is_plain_text(ref) else ():
        if (place := references.located(meant, session, readable)) is not None and _names_a_note(place[1]):
            seen = meant.seen_from(None if session is None else session.directory)
            found.append(_Reading(seen, *place))
    return found


def _names_a_note(path: str) -> bool:
    try:
        return NotePath.parse(path).names_a_note
    except ServiceError:
        return False


async def _followed(connected: Connection, workspace: UUID, path: str, readable: list[UUID]) -> tuple[UUID, str] | None:
    content_hash = None
    for _ in range(MOVES_MAX):
        row = await connected.fetchrow(
            "SELECT content_hash, moved_to FROM departures WHERE workspace = $1 AND path = $2", workspace, path
        )  # fmt: skip
        if row is None:
            break
        content_hash, path = row["content_hash"], row["moved_to"]
        if path is None:
            break
        if await connected.fetchval("SELECT true FROM notes WHERE workspace = $1 AND path = $2", workspace, path):
            return workspace, path
    if content_hash is None:
        return None
    rows = await connected.fetch(
        "SELECT workspace, path FROM notes WHERE content_hash = $1 AND workspace = ANY($2) LIMIT 2", content_hash, readable
    )
    return (rows[0]["workspace"], rows[0]["path"]) if len(rows) == 1 else None
