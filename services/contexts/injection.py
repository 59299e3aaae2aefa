"""Reading the notes that a branch's messages mention, so that the model gets them (MN-6, MN-10).

Each note once, by workspace, path and hash. A note that is gone, or that the account may not read, is passed over: the link stays as it is.
Only what a user has written is scanned, and every note is read for the user's account: no text can have another one's notes injected.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from services.contexts import injected_text
from services.contexts.injected_text import Material
from shared import references
from shared.commonmark.headings import section
from shared.commonmark.links import destinations
from shared.contracts import notes
from shared.contracts.contexts import INJECTED_CHARACTERS_MAX, Injection, InjectReply, InjectRequest, Prepared, Present
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.notes import Note, ReadNote, Workspace
from shared.contracts.subject import Empty
from shared.messaging.client import Client
from shared.messaging.scope import Scope
from shared.references import Reference

# Of one message, and of all together, the latest messages' first.
MENTIONS_MAX = 50
MENTIONS_OF_BRANCH_MAX = 200
# A note may have megabytes.
READS_AT_ONCE = 4
# A message longer than this is scanned in a thread.
LONG_CHARACTERS = 20_000
PASSED_OVER = frozenset({ErrorCode.NOTE_NOT_FOUND, ErrorCode.PATH_INVALID, ErrorCode.NOTE_UNREADABLE, ErrorCode.WORKSPACE_NOT_FOUND})


@dataclass(frozen=True, slots=True)
class _Mention:
    """A reference in a message, and the note that it leads to, should there be one."""

    message: int
    reference: Reference
    workspace: Workspace
    path: str


@dataclass(frozen=True, slots=True)
class _Found:
    """A mention whose note is there. `section` is None where the note has none of that name."""

    mention: _Mention
    note: Note
    section: str | None
    material: Material

    @property
    def key(self) -> tuple[UUID, str, str, str | None]:
        return self.mention.workspace.id, self.note.path, self.note.content_hash, self.section

    @property
    def whole(self) -> tuple[UUID, str, str, None]:
        return self.mention.workspace.id, self.note.path, self.note.content_hash, None


class Injector:
    """See the module."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def inject(self, request: InjectRequest, scope: Scope) -> InjectReply:
        """The notes that the messages mention, and that the branch does not have yet.

        Raises:
            ServiceError: the workspaces are not known at present.
        """
        nothing = InjectReply(messages=[Prepared(items=[]) for _ in request.messages])
        scanned = [await _mentioned(text) for text in request.messages]
        if not any(scanned):
            return nothing
        workspaces = (await self._client.ask(notes.WORKSPACE_LIST, Empty(), scope)).items
        session = next((one for one in workspaces if one.id == request.workspace), None)
        mentions = _located(scanned, session, workspaces)
        reads = asyncio.Semaphore(READS_AT_ONCE)
        outcomes = await asyncio.gather(*(self._find(mention, reads, scope) for mention in mentions))
        problems = {mention.message: str(found) for mention, found in zip(mentions, outcomes, strict=True) if isinstance(found, str)}
        fresh = _fresh([found for found in outcomes if isinstance(found, _Found)], request.present)
        items: list[list[Injection]] = [[] for _ in request.messages]
        for found, share in _shared_out(fresh, INJECTED_CHARACTERS_MAX - sum(one.characters for one in request.present)):
            items[found.mention.message].append(_injection(found, share, session, request))
        return InjectReply(messages=[Prepared(items=several, problem=problems.get(at)) for at, several in enumerate(items)])

    async def _find(self, mention: _Mention, reads: asyncio.Semaphore, scope: Scope) -> _Found | str | None:
        """The note as it is now; None where there is none, or why it cannot be read at present."""
        async with reads:
            try:
                note = await self._client.ask(notes.NOTE_READ, ReadNote(workspace=mention.workspace.id, path=mention.path), scope)
            except ServiceError as error:
                if error.code is ErrorCode.CANCELLED:
                    raise
                return None if error.code in PASSED_OVER else error.detail
            narrowed, material = await asyncio.to_thread(_material, note.content, mention.reference.fragment)
        return _Found(mention, note.model_copy(update={"content": ""}), narrowed, material)


async def _mentioned(text: str) -> list[Reference]:
    """The references of a message, each once."""
    if len(text) <= LONG_CHARACTERS:
        return _scanned(text)
    return await asyncio.to_thread(_scanned, text)


def _scanned(text: str) -> list[Reference]:
    found = (references.from_destination(destination) for destination in destinations(text))
    return list(dict.fromkeys(reference for reference in found if reference is not None))


def _located(scanned: Sequence[list[Reference]], session: Workspace | None, workspaces: Sequence[Workspace]) -> list[_Mention]:
    """The mentions of notes in these workspaces, each spelling of one once in a message; so many of them, from the latest message back."""
    found: list[list[_Mention]] = []
    left = MENTIONS_OF_BRANCH_MAX
    for message in range(len(scanned) - 1, -1, -1):
        seen: dict[Reference, _Mention] = {}
        for reference in scanned[message]:
            if (place := references.located(reference, session, workspaces)) is not None:
                spelled = reference.seen_from(None if session is None else session.directory)
                seen.setdefault(spelled, _Mention(message, spelled, *place))
        found.append(list(seen.values())[: min(MENTIONS_MAX, left)])
        left -= len(found[-1])
    return [mention for several in reversed(found) for mention in several]


def _material(content: str, fragment: str | None) -> tuple[str | None, Material]:
    narrowed = None if fragment is None else section(content, fragment)
    if narrowed is None:
        return None, Material.of(content)
    return narrowed.anchor, Material.of(content[narrowed.start : narrowed.end])


def _fresh(found: Iterable[_Found], present: Iterable[Present]) -> list[_Found]:
    """Without what is there already, as itself or as part of the whole note."""
    seen = {(one.workspace, one.path, one.content_hash, one.section) for one in present}
    whole = {(one.workspace, one.path, one.content_hash, None) for one in present if one.form == "full" and one.section is None}
    fresh = []
    for one in found:
        if one.key not in seen and one.whole not in whole:
            seen.add(one.key)
            fresh.append(one)
    return fresh


def _shared_out(found: list[_Found], left: int) -> list[tuple[_Found, int | None]]:
    """What of the budget each gets, in order: None for all of its text. Short notes go first, so that as many as can be are whole."""
    shares: dict[int, int | None] = {}
    by_length = sorted(range(len(found)), key=lambda at: found[at].material.characters)
    # What the others would take as outlines.
    reserved = sum(min(injected_text.OUTLINE_CHARACTERS_MAX, one.material.characters) for one in found)
    for waiting, at in zip(range(len(found), 0, -1), by_length, strict=True):
        material = found[at].material
        reserved -= min(injected_text.OUTLINE_CHARACTERS_MAX, material.characters)
        if material.characters <= left - reserved:
            shares[at] = None
            left -= material.characters
        else:
            shares[at] = share = min(injected_text.OUTLINE_CHARACTERS_MAX, max(0, left) // waiting)
            left -= material.outlined(share).characters
    whole = {one.key for at, one in enumerate(found) if shares[at] is None and one.section is None}
    return [(one, shares[at]) for at, one in enumerate(found) if one.section is None or one.whole not in whole]


def _injection(found: _Found, share: int | None, session: Workspace | None, request: InjectRequest) -> Injection:
    workspace, note, in_session = found.mention.workspace, found.note, session is not None
    reference = references.of_note(workspace, note.path, session, found.section)
    link = references.link(note.title, reference, in_session=in_session)
    given = found.material.whole if share is None else found.material.outlined(share)
    return Injection(
        ref=reference.ref(in_session=in_session),
        title=note.title,
        path=note.path,
        content_hash=note.content_hash,
        characters=given.characters,
        form="full" if share is None else "outline",
        text=injected_text.written(link, note.title, note.path, found.section, given, request.mode),
        workspace=workspace.id,
        directory=workspace.directory,
        root_path=reference.path,
        section=found.section,
    )
