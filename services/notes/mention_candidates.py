"""What the mention menu offers while somebody types (MN-1, MN-2): from the indexes in memory, and the words of the texts."""

from collections import OrderedDict
from uuid import UUID

from services.notes import mention_query, workspaces
from services.notes.content_words import content_query
from services.notes.file_threads import FileThreads
from services.notes.indexing import as_text
from services.notes.mention_feed import MentionFeed
from services.notes.mention_index import IndexedNote, NoteIndex
from services.notes.note_path import NotePath, is_plain_text
from services.notes.search_key import search_key
from services.notes.vault import NoSuchNote, NoteInaccessible, NoteUnreadable, VaultUnavailable
from services.notes.workspaces import Readable
from shared import references
from shared.commonmark.headings import Heading, headings
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.mentions import (
    LIMIT,
    LIMIT_MAX,
    QUERY_CHARACTERS_MAX,
    Candidates,
    CandidatesRequest,
    Insert,
    NoteCandidate,
    WorkspaceCandidate,
)
from shared.database.pool import Pool, connection
from shared.messaging.scope import Account
from shared.references import Locale

# Of a word that more notes have, which of them come first is left open: their rows are not sorted, which would take too long.
CONTENT_MATCHES_MAX = 200
HEADINGS_KEPT = 64
# A note's name, or a heading, may hold one.
NUMBER_SIGNS_MAX = 3
WORKSPACE: dict[Locale, str] = {"zh": "工作区", "en": "Workspace"}


class MentionCandidates:
    """See the module."""

    def __init__(self, pool: Pool, threads: FileThreads, feed: MentionFeed) -> None:
        self._pool = pool
        self._threads = threads
        self._feed = feed
        # The headings of the notes last asked for, by workspace, path and time of change: no file is read at each key.
        self._headings: OrderedDict[tuple[UUID, str, float], list[Heading]] = OrderedDict()

    async def offer(self, request: CandidatesRequest, account: Account | None) -> Candidates:
        """The candidates, best first.

        Raises:
            ServiceError: `workspace_not_found`, `invalid`.
        """
        if request.workspace is None:
            return Candidates(items=[])
        if not 1 <= request.limit <= LIMIT_MAX or len(request.query) > QUERY_CHARACTERS_MAX or not is_plain_text(request.query):
            raise ServiceError(ErrorCode.INVALID, f"A query is text of up to {QUERY_CHARACTERS_MAX} characters, a limit 1 to {LIMIT_MAX}.")
        readable = await workspaces.readable(self._pool, account)
        session = next((one for one in readable if one.id == request.workspace), None)
        if session is None:
            raise workspaces.not_found()
        query = mention_query.understood(request.query, session, readable)
        # Workspaces come first, and leave room for the notes.
        rows = query.workspaces if query.notes_of is None else query.workspaces[: max(1, request.limit // 2)]
        items: list[NoteCandidate | WorkspaceCandidate] = [_workspace(one, request.locale) for one in rows[: request.limit]]
        left = request.limit - len(items)
        if query.notes_of is not None and left:
            items += await self._notes(query.notes_of, query.text, session, left)
        return Candidates(items=items)

    async def _notes(self, workspace: Readable, text: str, session: Readable, limit: int) -> list[NoteCandidate]:
        index = await self._feed.index(workspace.id, workspace.revision)
        key = search_key(text)
        if not key:
            return [_note(note, workspace, session) for note in index.latest(limit)]
        sections = (await self._sections(index, workspace, text, session))[:limit] if "#" in text else []
        found = {note.path: note for note in index.found(key, limit)}
        if len(found) < limit:
            found |= {note.path: note for note in await self._with_words(index, workspace, key) if note.path not in found}
        if len(found) < limit:
            found |= {note.path: note for note in index.resembling(key, limit) if note.path not in found}
        return [*sections, *(_note(note, workspace, session) for note in list(found.values())[: limit - len(sections)])]

    async def _with_words(self, index: NoteIndex, workspace: Readable, key: str) -> list[IndexedNote]:
        """The notes whose text has the words, the latest first."""
        if (words := content_query(key)) is None:
            return []
        async with connection(self._pool) as connected:
            rows = await connected.fetch(
                "SELECT path FROM note_words WHERE workspace = $1 AND words @@ $2::text::tsquery LIMIT $3",
                workspace.id, words, CONTENT_MATCHES_MAX,
            )  # fmt: skip
        notes = [note for row in rows if (note := index.get(row["path"])) is not None]
        return sorted(notes, key=lambda note: (-note.modified, note.path))

    # Headings: `note#heading`

    async def _sections(self, index: NoteIndex, workspace: Readable, text: str, session: Readable) -> list[NoteCandidate]:
        """The sections of the note that is named before a `#`, by what stands behind it."""
        at = text.rfind("#")
        for _ in range(NUMBER_SIGNS_MAX):
            if at <= 0:
                break
            name, wanted = search_key(text[:at]), search_key(text[at + 1 :])
            notes = index.found(name, LIMIT) if name else []
            if note := next((note for note in notes if name in _names(note, workspace)), None):
                having = [one for one in await self._headings_of(note, workspace) if wanted in search_key(one.text)]
                having.sort(key=lambda one: not search_key(one.text).startswith(wanted))
                return [_section(note, heading, workspace, session) for heading in having]
            at = text.rfind("#", 0, at)
        return []

    async def _headings_of(self, note: IndexedNote, workspace: Readable) -> list[Heading]:
        place = workspace.id, note.path, note.modified
        if place not in self._headings:
            try:
                self._headings[place] = await self._threads.run(workspace.id, _read_headings, workspace, note.path)
            except (VaultUnavailable, NoSuchNote, NoteUnreadable, NoteInaccessible):
                return []
        self._headings.move_to_end(place)
        while len(self._headings) > HEADINGS_KEPT:
            self._headings.popitem(last=False)
        return self._headings[place]


def _read_headings(workspace: Readable, path: str) -> list[Heading]:
    return [one for one in headings(as_text(workspace.vault.read(NotePath.parse(path)).data) or "") if one.text]


def _names(note: IndexedNote, workspace: Readable) -> set[str]:
    """What a note may be called in full."""
    below = f"{workspace.notes_dir}/{note.path}" if workspace.notes_dir else note.path
    return {search_key(name) for name in (note.title, note.path, below, _stem(note.path), note.path.rpartition(".")[0])}


def _stem(path: str) -> str:
    return path.rpartition("/")[2].rpartition(".")[0]


def _note(note: IndexedNote, workspace: Readable, session: Readable) -> NoteCandidate:
    reference = references.of_note(workspace, note.path, session)
    return NoteCandidate(name=note.title, description=_description(note, workspace, session), insert=_insert(note.title, reference))


def _section(note: IndexedNote, heading: Heading, workspace: Readable, session: Readable) -> NoteCandidate:
    reference = references.of_note(workspace, note.path, session, heading.anchor)
    insert = _insert(f"{note.title} › {heading.text}", reference)
    return NoteCandidate(name=heading.text, description=_description(note, workspace, session), insert=insert)


def _insert(label: str, reference: references.Reference) -> Insert:
    return Insert(
        ref=reference.ref(in_session=True), label=label, clipboard_text=references.link(label, reference, in_session=True)
    )  # fmt: skip


def _description(note: IndexedNote, workspace: Readable, session: Readable) -> str:
    return _stem(note.path) if workspace.id == session.id else f"{workspace.title} · {_stem(note.path)}"


def _workspace(workspace: Readable, locale: Locale) -> WorkspaceCandidate:
    has_other_title = workspace.title != workspace.directory
    return WorkspaceCandidate(
        name=f"{workspace.directory}/",
        description=f"{WORKSPACE[locale]} · {workspace.title}" if has_other_title else WORKSPACE[locale],
        text=f"@{mention_query.completion(workspace)}",
    )
