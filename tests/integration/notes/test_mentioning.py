"""Mentions, over NATS: what is offered, what a reference says, and what is told where it leads nowhere."""

import os
import unicodedata
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from shared.contracts import mentions, notes
from shared.contracts.errors import ErrorCode
from shared.contracts.mentions import (
    Candidates,
    CandidatesRequest,
    Lexicon,
    LexiconRequest,
    NoteCandidate,
    Reference,
    SerializeRequest,
    WorkspaceCandidate,
)
from shared.contracts.notes import CreateNote, DeleteNote, Member, MoveNote, PutMembers, UpdateWorkspace
from shared.messaging.scope import Account
from tests.integration.notes.conftest import NOTICED_SECONDS, Asker, Serving, refused
from tests.support.polling import eventually


def write(vault: Path, **notes_: str) -> None:
    """Notes by name, the first the latest."""
    for age, (name, text) in enumerate(notes_.items()):
        path = vault / f"{name.replace('__', '/')}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (1_700_000_000 - age, 1_700_000_000 - age))


class Menu:
    """Types into the menu of a session in one workspace."""

    def __init__(self, asker: Asker, workspace: UUID | None, account: Account | None = None) -> None:
        self.asker, self.workspace, self.account = asker, workspace, account

    async def candidates(self, query: str = "", limit: int = 50, locale: str = "en") -> Candidates:
        request = CandidatesRequest.model_validate({"workspace": self.workspace, "query": query, "limit": limit, "locale": locale})
        return await self.asker.ask(mentions.CANDIDATES, request, self.account)

    async def notes(self, query: str = "", limit: int = 50) -> list[str]:
        """The refs of the notes offered."""
        found = await self.candidates(query, limit)
        return [item.insert.ref for item in found.items if isinstance(item, NoteCandidate)]

    async def workspaces(self, query: str) -> list[str]:
        """What the workspaces offered complete to."""
        return [item.text for item in (await self.candidates(query)).items if isinstance(item, WorkspaceCandidate)]

    async def line(self, *refs: str, label: str = "T", locale: str = "en") -> str:
        asked = [Reference(ref=ref, label=label) for ref in refs]
        request = SerializeRequest.model_validate({"workspace": self.workspace, "references": asked, "locale": locale})
        return (await self.asker.ask(mentions.SERIALIZE, request, self.account)).text

    async def missing(self, ref: str, label: str = "T", locale: str = "en") -> dict[str, object]:
        error = await refused(self.line(ref, label=label, locale=locale), ErrorCode.REFERENCE_MISSING)
        (missing,) = error.extra["missing"]
        return missing  # type: ignore[no-any-return]

    async def lexicon(self, *known: str, after: int = 0) -> Lexicon:
        return await self.asker.ask(
            mentions.LEXICON, LexiconRequest(workspace=self.workspace, known=list(known), after=after), self.account
        )


async def menu(asker: Asker, directory: str = "vault", account: Account | None = None) -> Menu:
    return Menu(asker, (await asker.workspace(directory)).id, account)


async def test_what_is_meant_comes_first_and_the_latest_among_equals(vault: Path, serving: Serving) -> None:  # MN-1
    write(
        vault,
        words="# Something else\nHow green tea is brewed.",
        path__tea_cups="# Crockery",
        inside="# Green tea",
        old_prefix="# Tea, black",
        other="# Coffee",
        exact="# Tea",
        letters="# The early apple",
        newer="x",
    )
    os.utime(vault / "newer.md", (1_700_000_100, 1_700_000_100))
    async with serving() as asker:
        at = await menu(asker)
        assert await at.notes("tea") == ["exact.md", "old_prefix.md", "inside.md", "path/tea_cups.md", "words.md", "letters.md"]
        assert (await at.notes())[:2] == ["newer.md", "words.md"]
        assert await at.notes("tea", limit=2) == ["exact.md", "old_prefix.md"]
        assert await at.notes("nothing of the kind") == []


async def test_a_candidate_says_what_it_inserts(vault: Path, serving: Serving) -> None:  # MN-1, MN-3
    write(vault, **{"drinks__my tea (1)": "# Brewing [tea]"})
    async with serving() as asker:
        (item,) = (await (await menu(asker)).candidates("brew")).items
        assert item.model_dump() == {
            "kind": "note",
            "name": "Brewing [tea]",
            "description": "my tea (1)",
            "icon": "📝",
            "insert": {
                "source": "notes",
                "ref": "drinks/my tea (1).md",
                "label": "Brewing [tea]",
                "clipboard_text": "[Brewing \\[tea\\]](drinks/my%20tea%20%281%29.md)",
            },
        }


async def test_spelling_does_not_matter_and_chinese_is_found_in_the_middle(vault: Path, service: Asker) -> None:
    # eugeniughelbur/obsidian-second-brain#159
    (vault / unicodedata.normalize("NFD", "Café.md")).write_text("# Café: 水温与时间 Zeit\n冲泡绿茶")
    at = await menu(service)
    await eventually(at.notes, NOTICED_SECONDS)
    nfd = unicodedata.normalize("NFD", "café")
    for query in ("CAFÉ", "cafe", nfd, "ｃａｆé", "水温", "温与", "泡绿", "与时间", "水 绿", "caf zeit", "cfz"):
        assert await at.notes(query) == ["Café.md"], query


async def test_a_query_is_text_whatever_it_holds(vault: Path, serving: Serving) -> None:
    write(vault, a="# Plain\nwords")
    async with serving() as asker:
        at = await menu(asker)
        hostile = [
            "%",
            "_",
            "\\",
            "'",
            "a & | b",
            "(((",
            "!!",
            "foo:*",
            "[",
            ".*",
            "'x':* | y",
            "\u202e",
            "\u0301" * 400,
            "@",
            "#",
            '"',
            '"/',
            "/",
        ]
        for query in hostile:
            assert len((await at.candidates(query)).items) <= 1
        await refused(at.candidates("\0"), ErrorCode.INVALID)
        await refused(at.candidates("x" * 501), ErrorCode.INVALID)


async def test_other_workspaces_are_offered_by_part_of_their_names_and_entered_by_the_whole(
    tmp_path: Path, serving: Serving
) -> None:  # MN-2
    vaults = [tmp_path / name for name in ("vault", "dsh-plugin", "中文工作区", "two words", 'odd "one"')]
    for vault in vaults:
        write(vault, tea=f"# Tea of {vault.name}", sub__x="# Other")
    async with serving(*vaults) as asker:
        for workspace in (await asker.workspaces()).values():
            if workspace.directory == "dsh-plugin":
                await asker.ask(notes.WORKSPACE_UPDATE, UpdateWorkspace(workspace=workspace.id, title="Plug-ins/new"))
        at = await menu(asker)
        assert await at.workspaces("dsh-pl") == ["@dsh-plugin/"]
        assert await at.workspaces("PLUG") == ["@dsh-plugin/"]
        assert await at.workspaces("dplg") == ["@dsh-plugin/"]
        assert await at.workspaces("工作") == ["@中文工作区/"]
        assert await at.workspaces("two") == ['@"two words"/']
        assert await at.workspaces("odd") == ['@"odd "one""/']
        first = (await at.candidates("dsh-pl", locale="zh")).items[0]
        assert first.model_dump() == {
            "kind": "workspace", "name": "dsh-plugin/", "description": "工作区 · Plug-ins/new", "icon": "🗂️", "text": "@dsh-plugin/",
        }  # fmt: skip
        assert (await at.candidates("工作")).items[0].description == "Workspace"
        for entered in ("dsh-plugin", "dsh-plugin/", "Plug-ins/new", "Plug-ins/new/", "plug-ins/NEW/"):
            assert await at.notes(entered) == ["../dsh-plugin/tea.md", "../dsh-plugin/sub/x.md"], entered
        assert await at.notes("dsh-plugin/te") == ["../dsh-plugin/tea.md"]
        assert await at.notes("中文工作区/其他") == []
        assert await at.notes('"two words"/tea') == await at.notes("two words/tea") == ["../two words/tea.md"]
        assert await at.notes('"odd "one""/tea') == ['../odd "one"/tea.md']
        assert await at.notes("vault/tea") == ["tea.md"]
        assert (await at.candidates("dsh-plugin/te")).items[0].description == "Plug-ins/new · tea"
        # What names no workspace is looked for in paths.
        assert await at.notes("sub/x") == ["sub/x.md"]


async def test_workspaces_of_one_title_are_told_apart_by_directory(tmp_path: Path, serving: Serving) -> None:  # MN-3
    vaults = [tmp_path / name for name in ("vault", "one", "two")]
    for vault in vaults:
        write(vault, same="# Same")
    async with serving(*vaults) as asker:
        for directory in ("one", "two"):
            await asker.ask(notes.WORKSPACE_UPDATE, UpdateWorkspace(workspace=(await asker.workspace(directory)).id, title="Shared"))
        at = await menu(asker)
        assert await at.workspaces("Shared") == ["@one/", "@two/"]
        assert await at.notes("one/same") == ["../one/same.md"]
        # logancyang/obsidian-copilot#1253
        assert await at.line("../one/same.md", "../two/same.md", "same.md") == (
            "Referenced note [T](../one/same.md)\nReferenced note [T](../two/same.md)\nReferenced note [T](same.md)"
        )


async def test_headings_are_offered_behind_a_number_sign(vault: Path, serving: Serving) -> None:
    write(vault, **{"C# basics": "---\ntitle: C# basics\n---\n# Setup\n```\n# no heading\n```\n## Tools *now*\n# Setup\n", "other": "x"})
    async with serving() as asker:
        at = await menu(asker)
        headings = ["C# basics.md#Setup", "C# basics.md#Tools now", "C# basics.md#setup-1"]
        for named in ("C# basics#", "c# BASICS.md#", "C# basics.md#"):
            assert (await at.notes(named))[:3] == headings, named
        assert (await at.notes("C# basics#tool"))[0] == headings[1]
        assert await at.notes("C#") == ["C# basics.md"]
        item = (await at.candidates("C# basics#tool")).items[0]
        assert isinstance(item, NoteCandidate)
        assert (item.name, item.insert.label) == ("Tools now", "C# basics › Tools now")
        assert await at.line(headings[1]) == "Referenced note [T](C%23%20basics.md#Tools%20now)"


async def test_the_menu_follows_whoever_changes_notes(vault: Path, service: Asker) -> None:  # MN-8
    at = await menu(service)
    assert await at.notes() == []
    assert at.workspace is not None
    created = await service.ask(notes.NOTE_CREATE, CreateNote(workspace=at.workspace, path="a.md", content="# First\nuncommonword"))
    assert await at.notes("first") == ["a.md"]  # with the very next question
    assert await at.notes("uncommonw") == ["a.md"]
    moved = await service.ask(notes.NOTE_MOVE, MoveNote(workspace=at.workspace, path="a.md", to="b.md", content_hash=created.content_hash))
    assert await at.notes("first") == ["b.md"]
    (vault / "b.md").write_text("# Second")
    await eventually(lambda: at.notes("second"), NOTICED_SECONDS)
    assert await at.notes("first") == await at.notes("uncommonw") == []
    (vault / "b.md").rename(vault / "c.md")

    async def renamed() -> bool:
        return await at.notes("second") == ["c.md"]

    await eventually(renamed, NOTICED_SECONDS)
    gone = await service.read(at.workspace, "c.md")
    await service.ask(notes.NOTE_DELETE, DeleteNote(workspace=at.workspace, path="c.md", content_hash=gone.content_hash))
    assert await at.notes() == []
    assert moved.path == "b.md"


async def test_without_a_workspace_nothing_is_offered_and_refs_start_at_the_directories(vault: Path, serving: Serving) -> None:  # MN-1
    write(vault, a="# A")
    async with serving() as asker:
        nowhere = Menu(asker, None)
        assert (await nowhere.candidates("a")).items == []
        assert (await nowhere.lexicon()).titles == []
        assert await nowhere.line("/vault/a.md", locale="zh") == "引用笔记 [T](/vault/a.md)"
        assert (await nowhere.missing("a.md"))["moved_to"] is None


async def test_equal_spellings_of_a_reference_are_one_and_other_paths_are_none(
    vault: Path, serving: Serving, tmp_path: Path
) -> None:  # MN-3
    write(vault, sub__a="# A", **{"x.md#y": "# odd", "a%20b": "# percent"})
    (tmp_path / "outside.md").write_text("secret")
    (vault / "link.md").symlink_to(tmp_path / "outside.md")
    async with serving() as asker:
        at = await menu(asker)
        for ref in ("sub/a.md", "./sub/a.md", "sub/../sub/a.md", "../vault/sub/a.md", "/vault/sub/a.md", "sub//a.md"):
            assert await at.line(ref) == "Referenced note [T](sub/a.md)", ref
        assert await at.line("x.md#y.md") == "Referenced note [T](x.md%23y.md)"
        assert await at.line("a%20b.md") == "Referenced note [T](a%2520b.md)"
        for ref in (
            "../outside.md",
            "../../etc/passwd.md",
            "link.md",
            "/etc/passwd",
            "sub",
            "",
            "#",
            ".md",
            "..",
            "a\0.md",
            "sub\\a.md",
            "/",
            "../vault",
        ):
            assert (await at.missing(ref))["moved_to"] is None, ref


async def test_a_missing_note_is_named_in_the_users_language_with_where_it_went(
    vault: Path, serving: Serving, tmp_path: Path
) -> None:  # MN-5
    # onyx-dot-app/onyx#11854
    other = tmp_path / "other"
    other.mkdir()
    write(vault, moved="# Moved", twice="# Twice", across="# Across", gone="# Gone", kept="# Kept", late="# Late")
    async with serving(vault, other) as asker:
        at = await menu(asker)
        assert at.workspace is not None
        for path, to in (("moved.md", "new/place.md"), ("twice.md", "b.md"), ("b.md", "c.md")):
            note = await asker.read(at.workspace, path)
            await asker.ask(notes.NOTE_MOVE, MoveNote(workspace=at.workspace, path=path, to=to, content_hash=note.content_hash))
        (vault / "c.md").write_text("# Twice, and edited since")
        (vault / "gone.md").unlink()
        (vault / "across.md").rename(other / "here.md")
        held = (vault / "late.md").read_bytes()
        (vault / "late.md").unlink()
        await asker.told(at.workspace, "deleted", "late.md")
        (vault / "later.md").write_bytes(held)
        await asker.told(at.workspace, "created", "later.md")
        await asker.told(at.workspace, "deleted", "across.md")
        await asker.told((await asker.workspace("other")).id, "created", "here.md")
        assert await at.missing("moved.md#Part", label="[标题]", locale="zh") == {
            "ref": "moved.md#Part", "label": "[标题]", "message": "[标题] 无法找到，请删除该引用", "moved_to": "new/place.md#Part",
        }  # fmt: skip
        assert (await at.missing("twice.md"))["moved_to"] == "c.md"
        assert (await at.missing("across.md"))["moved_to"] == "../other/here.md"
        assert (await at.missing("late.md"))["moved_to"] == "later.md"
        assert await at.missing("gone.md", label="") == {
            "ref": "gone.md", "label": "", "message": "gone.md cannot be found, remove the reference", "moved_to": None,
        }  # fmt: skip
        error = await refused(at.line("kept.md", "gone.md", "nope.md"), ErrorCode.REFERENCE_MISSING)
        assert [one["ref"] for one in error.extra["missing"]] == ["gone.md", "nope.md"]


async def test_accounts_see_and_reach_only_their_workspaces(tmp_path: Path, serving: Serving) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    write(mine, a="# Mine")
    write(theirs, secret="# Secret", was="# Was")
    async with serving(mine, theirs) as asker:
        account = Account(uuid4(), "member")
        own = await asker.workspace("mine")
        other = await asker.workspace("theirs")
        await asker.ask(notes.MEMBERS_PUT, PutMembers(workspace=own.id, items=[Member(account_id=account.id, access="read")]))
        at = Menu(asker, own.id, account)
        assert await at.notes() == ["a.md"]
        assert await at.workspaces("theirs") == []
        assert await at.notes("theirs/") == await at.notes("theirs/secret") == []
        assert (await at.missing("../theirs/secret.md"))["moved_to"] is None
        (theirs / "was.md").rename(theirs / "is.md")
        (mine / "a.md").rename(theirs / "taken.md")
        await asker.told(own.id, "deleted", "a.md")
        await asker.told(other.id, "created", "taken.md")
        await asker.told(other.id, "moved", "is.md")
        assert (await at.missing("../theirs/was.md"))["moved_to"] is None
        assert (await at.missing("a.md"))["moved_to"] is None
        stranger = Menu(asker, other.id, account)
        for asking in (stranger.candidates(), stranger.line("secret.md"), stranger.lexicon()):
            await refused(asking, ErrorCode.WORKSPACE_NOT_FOUND)


async def test_notes_below_a_directory_of_their_own_keep_it_in_their_refs(tmp_path: Path, serving: Serving, home: Path) -> None:  # MN-3
    async with serving() as asker:
        at = await menu(asker)
        request = notes.CreateWorkspace(directory="hid den", notes_dir=".notes/笔记")
        made = await asker.ask(notes.WORKSPACE_CREATE, request)
        await asker.ask(notes.NOTE_CREATE, CreateNote(workspace=made.id, path="a b.md", content="# A"))
        ref = "../hid den/.notes/笔记/a b.md"
        assert await at.notes('"hid den"/') == [ref]
        assert await at.line(ref) == "Referenced note [T](../hid%20den/.notes/笔记/a%20b.md)"
        assert await Menu(asker, made.id).notes() == [".notes/笔记/a b.md"]
        assert (await at.missing("../hid den/a b.md"))["moved_to"] is None
        assert (home / "vaults" / "hid den" / ".notes" / "笔记" / "a b.md").exists()


async def test_the_lexicon_has_a_version_and_comes_in_parts(vault: Path, serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:  # MN-7
    monkeypatch.setattr("services.notes.mention_routes.LEXICON_BYTES_MAX", 10)
    write(vault, a="# Beta", b="# Alpha", c="# Alpha", d="# 笔记")
    async with serving() as asker:
        at = await menu(asker)
        first = await at.lexicon()
        assert (first.titles, first.more) == (["Alpha"], True)
        assert (await at.lexicon(after=1)).titles == ["Beta"]
        last = await at.lexicon(after=2)
        assert (last.titles, last.more) == (["笔记"], False)
        assert (await at.lexicon("another", first.version)).titles is None
        (vault / "e.md").write_text("# New")

        async def other() -> bool:
            return (await at.lexicon(first.version)).titles is not None

        await eventually(other, NOTICED_SECONDS)
