"""Changes that a person judges first: drafted, then made as they were drafted, over NATS (MD-5); and finding the notes to change."""

import hashlib
import os
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from shared.contracts import notes
from shared.contracts.errors import ErrorCode
from shared.contracts.notes import (
    AppendText,
    ApplyDraft,
    Change,
    CreateText,
    Draft,
    DraftNote,
    FindNotes,
    Member,
    Note,
    PatchText,
    PutMembers,
)
from shared.messaging.scope import Account
from tests.integration.notes.conftest import Asker, refused
from tests.support.polling import eventually


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def listed(vault: Path) -> list[str]:
    return sorted(f"{directory}/{name}" for directory, below, files in os.walk(vault) for name in [*below, *files])


class Drafter:
    """Drafts and applies in one workspace."""

    def __init__(self, asker: Asker, workspace: UUID, account: Account | None = None) -> None:
        self.asker = asker
        self.workspace = workspace
        self.account = account

    async def draft(self, path: str, change: Change) -> Draft:
        return await self.asker.ask(notes.NOTE_DRAFT, DraftNote(workspace=self.workspace, path=path, change=change), self.account)

    async def apply(self, draft: Draft, change: Change) -> Note:
        request = ApplyDraft(
            workspace=self.workspace, path=draft.path, change=change, base_hash=draft.base_hash, content_hash=draft.content_hash
        )
        return await self.asker.ask(notes.NOTE_APPLY, request, self.account)


@pytest.fixture
async def drafter(service: Asker, vault: Path) -> Drafter:
    (vault / "a.md").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\nthree\r\n")
    workspace = (await service.workspace()).id

    async def known() -> bool:
        return "a.md" in await service.hashes(workspace)

    await eventually(known, 10)
    return Drafter(service, workspace)


async def test_a_draft_writes_nothing_and_the_write_makes_exactly_what_it_showed(vault: Path, drafter: Drafter) -> None:
    # MD-5; codexmark/kram#67
    before = (vault / "a.md").read_bytes()
    change = PatchText(content_hash=sha(before), old_text="two\n", new_text="2\n2½\n")
    draft = await drafter.draft("a.md", change)
    assert (vault / "a.md").read_bytes() == before
    assert draft.diff == "--- a/a.md\n+++ b/a.md\n@@ -1,3 +1,4 @@\n \ufeffone\r\n-two\r\n+2\r\n+2½\r\n three\r\n"
    assert draft.diff_sha256 == sha(draft.diff.encode())
    note = await drafter.apply(draft, change)
    assert (vault / "a.md").read_bytes() == "\ufeffone\r\n2\r\n2½\r\nthree\r\n".encode()
    assert note.content_hash == draft.content_hash == sha((vault / "a.md").read_bytes())


async def test_a_draft_that_was_made_is_made_once_however_often_it_is_asked_for(vault: Path, drafter: Drafter) -> None:
    for path, change in (("a.md", AppendText(text="four")), ("new/b.md", CreateText(content="# B\n")), ("c.md", AppendText(text="\nc\n"))):
        draft = await drafter.draft(path, change)
        first = await drafter.apply(draft, change)
        again = await drafter.apply(draft, change)
        assert again.content == first.content
        assert (vault / path).read_bytes() == first.content.encode()
    assert (vault / "a.md").read_bytes() == b"\xef\xbb\xbfone\r\ntwo\r\nthree\r\n\r\nfour\r\n"
    assert (vault / "c.md").read_bytes() == b"c\n"


async def test_a_draft_of_another_version_is_not_made(vault: Path, drafter: Drafter) -> None:
    # MD-4, MD-5
    change = AppendText(text="four")
    draft = await drafter.draft("a.md", change)
    (vault / "a.md").write_text("somebody else's")
    error = await refused(drafter.apply(draft, change), ErrorCode.NOTE_STALE)
    assert error.extra["current_hash"] == sha(b"somebody else's")
    creation = CreateText(content="mine")
    draft = await drafter.draft("b.md", creation)
    (vault / "b.md").write_text("theirs")
    await refused(drafter.apply(draft, creation), ErrorCode.NOTE_EXISTS)
    assert (vault / "b.md").read_text() == "theirs"
    (vault / "a.md").unlink()
    gone = draft.model_copy(update={"path": "a.md", "base_hash": sha(b"x")})
    await refused(drafter.apply(gone, change), ErrorCode.NOTE_STALE)


async def test_what_would_be_refused_is_refused_before_anybody_is_asked(vault: Path, drafter: Drafter) -> None:
    present = sha((vault / "a.md").read_bytes())
    for path, change, code in (
        ("a.md", CreateText(content="x"), ErrorCode.NOTE_EXISTS),
        ("a.md", PatchText(content_hash=sha(b"old"), old_text="two", new_text="2"), ErrorCode.NOTE_STALE),
        ("a.md", PatchText(content_hash=present, old_text="o", new_text="0"), ErrorCode.MATCH_NOT_UNIQUE),
        ("a.md", PatchText(content_hash=present, old_text="five", new_text="5"), ErrorCode.MATCH_NOT_FOUND),
        ("a.md", PatchText(content_hash=present, old_text="two", new_text="two"), ErrorCode.INVALID),
        ("gone.md", PatchText(content_hash=present, old_text="two", new_text="2"), ErrorCode.NOTE_NOT_FOUND),
        ("../b.md", CreateText(content="x"), ErrorCode.PATH_INVALID),
        ("b.txt", CreateText(content="x"), ErrorCode.PATH_INVALID),
        (".obsidian/b.md", CreateText(content="x"), ErrorCode.PATH_INVALID),
        ("b.md", CreateText(content="x\0"), ErrorCode.INVALID),
        ("b.md", CreateText(content="line\n" * 100_000), ErrorCode.TOO_LARGE),
    ):
        await refused(drafter.draft(path, change), code)
    assert sorted(os.listdir(vault)) == ["a.md"]


async def test_who_may_only_read_is_not_asked_to_approve(drafter: Drafter) -> None:
    # MD-3
    reader, stranger = Account(uuid4(), "member"), Account(uuid4(), "member")
    members = PutMembers(workspace=drafter.workspace, items=[Member(account_id=reader.id, access="read")])
    await drafter.asker.ask(notes.MEMBERS_PUT, members, Account(uuid4(), "admin"))
    for account, code in ((reader, ErrorCode.FORBIDDEN), (stranger, ErrorCode.WORKSPACE_NOT_FOUND)):
        drafter.account = account
        await refused(drafter.draft("a.md", AppendText(text="x")), code)
        draft = Draft(path="a.md", base_hash=None, content_hash=sha(b"x"), diff="", diff_sha256="")
        await refused(drafter.apply(draft, CreateText(content="x")), code)


async def test_notes_are_found_by_title_path_and_tags_in_this_order(vault: Path, drafter: Drafter) -> None:
    # MD-3
    for path, text in (
        ("bread/rye.md", "# Sourdough with rye\n"),
        ("one.md", "# Rye\n"),
        ("two.md", "# Ryegrass\n"),
        ("three.md", "# Other\n\n#rye\n"),
        ("four.md", "# 黑麦面包\n"),
    ):
        (vault / path).parent.mkdir(exist_ok=True)
        (vault / path).write_text(text)

    async def found(query: str, account: Account | None = None) -> list[str]:
        return [note.path for note in (await drafter.asker.ask(notes.NOTE_FIND, FindNotes(query=query), account)).items]

    async def all_known() -> bool:
        return len(await drafter.asker.hashes(drafter.workspace)) == 6

    await eventually(all_known, 10)
    assert await found("RYE") == ["one.md", "two.md", "bread/rye.md", "three.md"]
    assert await found("rye sourdough") == ["bread/rye.md"]
    assert await found("黑麦") == ["four.md"]
    assert await found("nothing") == []
    assert await found("rye", Account(uuid4(), "member")) == []
    await refused(found(" "), ErrorCode.INVALID)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("a.md/b.md", ErrorCode.PATH_INVALID),
        ("link/b.md", ErrorCode.PATH_INVALID),
        ("con/b.md", ErrorCode.PATH_INVALID),
        ("new/a\u202e/b.md", ErrorCode.PATH_INVALID),
        ("taken.md", ErrorCode.NOTE_EXISTS),
        ("dangling.md", ErrorCode.NOTE_EXISTS),
    ],
)
async def test_a_note_that_could_not_be_made_there_is_refused_at_once_and_nothing_is_made(
    vault: Path, drafter: Drafter, path: str, code: ErrorCode
) -> None:
    (vault / "taken.md").mkdir()
    (vault / "dangling.md").symlink_to("nowhere")
    (vault / "link").symlink_to(vault)
    before = listed(vault)
    for change in (CreateText(content="x"), AppendText(text="x")):
        await refused(drafter.draft(path, change), code)
    assert listed(vault) == before


async def test_of_two_notes_that_differ_in_spelling_alone_the_one_that_was_named_is_changed(vault: Path, drafter: Drafter) -> None:
    composed, decomposed = "\u00fc.md", "u\u0308.md"
    for name in (composed, decomposed):
        (vault / name).write_text("same")
    change = AppendText(text="more")
    draft = await drafter.draft(decomposed, change)
    await drafter.apply(draft, change)
    assert [(vault / name).read_text() for name in (composed, decomposed)] == ["same", "same\n\nmore\n"]
