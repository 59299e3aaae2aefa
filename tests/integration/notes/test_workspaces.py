"""Which workspaces there are, and who may use them."""

import shutil
from pathlib import Path
from uuid import uuid4

import pytest

from services.notes.settings import NotesSettings
from services.notes.workspaces import VaultsError, require_distinct
from shared.contracts import notes
from shared.contracts.errors import ErrorCode
from shared.contracts.notes import CreateWorkspace, Member, PutMembers, UpdateWorkspace, WorkspaceRef
from shared.messaging.scope import Account
from tests.integration.notes.conftest import Asker, Serving, refused
from tests.support.polling import eventually

ADMIN = Account(uuid4(), "admin")


async def test_a_workspace_keeps_its_id_while_it_is_not_served(vault: Path, tmp_path: Path, serving: Serving) -> None:
    (vault / "a.md").write_text("a")
    other = tmp_path / "other"
    other.mkdir()
    async with serving(vault, other) as asker:
        before = await asker.workspaces()
        assert list(before) == ["other", "vault"]
    async with serving(other) as asker:
        assert list(await asker.workspaces()) == ["other"]
        await refused(asker.read(before["vault"].id, "a.md"), ErrorCode.WORKSPACE_NOT_FOUND)
    moved = tmp_path / "elsewhere" / "vault"
    shutil.copytree(vault, moved)
    async with serving(moved) as asker:
        assert (await asker.workspace()).id == before["vault"].id
        assert (await asker.read(before["vault"].id, "a.md")).content == "a"


def test_two_directories_of_one_name_are_an_error(tmp_path: Path) -> None:
    settings = NotesSettings(MARGINALIA_VAULTS=f"{tmp_path}/x/vault:{tmp_path}/y/vault/")
    with pytest.raises(VaultsError, match="one name"):
        require_distinct(settings.vault_paths, settings.created_vaults)


async def test_an_admin_makes_a_workspace_and_its_notes_appear(service: Asker, home: Path) -> None:
    made = await service.ask(notes.WORKSPACE_CREATE, CreateWorkspace(directory="新的", title=" 标题 ", notes_dir=".notes"), ADMIN)
    assert (made.directory, made.title, made.notes_dir, made.notes) == ("新的", "标题", ".notes", 0)
    (home / "vaults" / "新的" / ".notes" / "a.md").write_text("# A")

    async def indexed() -> bool:
        return list(await service.hashes(made.id)) == ["a.md"]

    await eventually(indexed, 3)
    for directory in ("新的", "VAULT"):
        await refused(service.ask(notes.WORKSPACE_CREATE, CreateWorkspace(directory=directory), ADMIN), ErrorCode.WORKSPACE_EXISTS)


async def test_a_created_workspace_is_there_after_a_restart(serving: Serving) -> None:
    async with serving() as asker:
        made = await asker.ask(notes.WORKSPACE_CREATE, CreateWorkspace(directory="made"))
    async with serving() as asker:
        assert (await asker.workspaces())["made"].id == made.id


@pytest.mark.parametrize(
    "request_",
    [
        CreateWorkspace(directory="../x"), CreateWorkspace(directory="a/b"), CreateWorkspace(directory=".x"), CreateWorkspace(directory=""),
        CreateWorkspace(directory="x", notes_dir="../y"), CreateWorkspace(directory="x", title=" "), CreateWorkspace(directory="x\0"),
        CreateWorkspace(directory="x", title="t" * 201),
    ],
    ids=repr,
)  # fmt: skip
async def test_an_unsafe_name_makes_nothing(service: Asker, home: Path, request_: CreateWorkspace) -> None:
    await refused(service.ask(notes.WORKSPACE_CREATE, request_, ADMIN), ErrorCode.INVALID)
    assert not (home / "vaults").exists()


async def test_the_title_changes_and_the_directory_does_not(service: Asker) -> None:
    workspace = await service.workspace()
    changed = await service.ask(notes.WORKSPACE_UPDATE, UpdateWorkspace(workspace=workspace.id, title="My notes"), ADMIN)
    assert changed == workspace.model_copy(update={"title": "My notes"})
    assert await service.ask(notes.WORKSPACE_UPDATE, UpdateWorkspace(workspace=workspace.id)) == changed
    for title in ("", "  ", "t" * 201, "a\nb", "a\0"):
        await refused(service.ask(notes.WORKSPACE_UPDATE, UpdateWorkspace(workspace=workspace.id, title=title)), ErrorCode.INVALID)


async def test_a_member_sees_only_what_it_was_given(vault: Path, tmp_path: Path, serving: Serving) -> None:
    (vault / "a.md").write_text("a")
    (tmp_path / "other").mkdir()
    reader, writer = Account(uuid4(), "member"), Account(uuid4(), "member")
    async with serving(vault, tmp_path / "other") as asker:
        workspace = (await asker.workspace()).id
        ref = WorkspaceRef(workspace=workspace)
        assert await asker.workspaces(reader) == {}
        items = [Member(account_id=reader.id, access="read"), Member(account_id=writer.id, access="write")]
        put = PutMembers(workspace=workspace, items=items)
        await refused(asker.ask(notes.MEMBERS_PUT, put, reader), ErrorCode.WORKSPACE_NOT_FOUND)
        assert {m.account_id: m.access for m in (await asker.ask(notes.MEMBERS_PUT, put, ADMIN)).items} == {
            reader.id: "read", writer.id: "write",
        }  # fmt: skip
        assert {name: found.access for name, found in (await asker.workspaces(reader)).items()} == {"vault": "read"}
        assert (await asker.ask(notes.WORKSPACE_GET, ref, writer)).access == "write"
        assert (await asker.ask(notes.NOTE_READ, notes.ReadNote(workspace=workspace, path="a.md"), reader)).content == "a"
        assert len((await asker.ask(notes.NOTE_LIST, notes.ListNotes(workspace=workspace), reader)).items) == 1

        other = (await asker.workspace("other")).id
        stranger = Account(uuid4(), "member")
        for account, target in ((reader, other), (stranger, workspace), (reader, uuid4()), (ADMIN, uuid4())):
            for query, request in (
                (notes.WORKSPACE_GET, WorkspaceRef(workspace=target)),
                (notes.WORKSPACE_UPDATE, UpdateWorkspace(workspace=target, title="x")),
                (notes.MEMBERS_GET, WorkspaceRef(workspace=target)),
                (notes.NOTE_LIST, notes.ListNotes(workspace=target)),
                (notes.NOTE_READ, notes.ReadNote(workspace=target, path="a.md")),
            ):
                await refused(asker.ask(query, request, account), ErrorCode.WORKSPACE_NOT_FOUND)  # type: ignore[arg-type]
        for query, request in (
            (notes.WORKSPACE_UPDATE, UpdateWorkspace(workspace=workspace, title="x")),
            (notes.MEMBERS_GET, ref),
            (notes.MEMBERS_PUT, put),
            (notes.WORKSPACE_CREATE, CreateWorkspace(directory="x")),
        ):
            await refused(asker.ask(query, request, writer), ErrorCode.FORBIDDEN)  # type: ignore[arg-type]

        await refused(asker.ask(notes.MEMBERS_PUT, PutMembers(workspace=workspace, items=[items[0], items[0]]), ADMIN), ErrorCode.INVALID)
        await asker.ask(notes.MEMBERS_PUT, PutMembers(workspace=workspace, items=[]), ADMIN)
        assert await asker.workspaces(reader) == {}
