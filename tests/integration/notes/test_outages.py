"""A vault that vanishes is an outage, not a mass deletion (docs/adr/0010)."""
# ruff: noqa: ASYNC240 - the vault is local, and the service has threads of its own

import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from services.notes import keeping, losses
from services.notes.__main__ import believe
from services.notes.settings import NotesSettings
from services.notes.vault import Vault
from shared.contracts.errors import ErrorCode, ServiceError
from tests.integration.notes.conftest import Asker, Serving, refused
from tests.support.polling import eventually

RED_SECONDS = 5.0


@pytest.fixture
def full_vault(vault: Path) -> Path:
    for number in range(40):
        (vault / f"{number:02}.md").write_text(f"text {number}")
    return vault


async def available(asker: Asker, expected: bool, within: float = RED_SECONDS) -> None:
    async def look() -> bool:
        try:
            return (await asker.workspace()).available is expected and ("vaults" in await asker.problems()) is not expected
        except ServiceError:  # only being started
            return False

    await eventually(look, within)


async def nothing_is_forgotten(asker: Asker, workspace: UUID, count: int = 40) -> None:
    assert len(await asker.hashes(workspace)) == count
    assert {change.kind for change in await asker.changes(workspace)} == {"created"}
    await refused(asker.read(workspace, "00.md"), ErrorCode.VAULT_UNAVAILABLE)


async def test_a_vault_that_vanishes_and_returns(full_vault: Path, tmp_path: Path, serving: Serving) -> None:
    async with serving() as asker:
        workspace = (await asker.workspace()).id
        full_vault.rename(tmp_path / "away")
        await available(asker, False)
        assert "vault" in (await asker.problems())["vaults"]
        await nothing_is_forgotten(asker, workspace)
        (tmp_path / "away").rename(full_vault)
        await available(asker, True)
        assert (await asker.read(workspace, "00.md")).content == "text 0"
        (full_vault / "00.md").write_text("edited after the return")
        await asker.told(workspace, "updated", "00.md")


async def test_an_empty_mount_point_in_its_place_is_an_outage_even_for_few_notes(vault: Path, tmp_path: Path, serving: Serving) -> None:
    (vault / "00.md").write_text("the only one")
    async with serving() as asker:
        workspace = (await asker.workspace()).id
        vault.rename(tmp_path / "away")
        vault.mkdir()
        await available(asker, False)
        await nothing_is_forgotten(asker, workspace, 1)
        vault.rmdir()
        (tmp_path / "away").rename(vault)
        await available(asker, True)


async def test_a_mount_over_the_vault_is_an_outage(full_vault: Path, serving: Serving) -> None:
    async with serving() as asker:
        workspace = (await asker.workspace()).id
        mounted = subprocess.run(["mount", "-t", "tmpfs", "none", str(full_vault)], capture_output=True, check=False)  # noqa: ASYNC221
        if mounted.returncode != 0:
            pytest.skip("this process may not mount")
        try:
            await available(asker, False)
            await nothing_is_forgotten(asker, workspace)
        finally:
            subprocess.run(["umount", str(full_vault)], check=True)  # noqa: ASYNC221
        await available(asker, True)


async def test_a_vault_that_is_away_at_the_start_is_an_outage(full_vault: Path, tmp_path: Path, serving: Serving) -> None:
    async with serving() as asker:
        workspace = (await asker.workspace()).id
        await asker.told(workspace, "created", "39.md")
    full_vault.rename(tmp_path / "away")
    async with serving(wait=False) as asker:
        await available(asker, False)
        await nothing_is_forgotten(asker, workspace)
        (tmp_path / "away").rename(full_vault)
        await available(asker, True)


@pytest.mark.parametrize("left", [0, 20])
async def test_a_mass_loss_is_held_and_what_returns_is_as_before(full_vault: Path, tmp_path: Path, serving: Serving, left: int) -> None:
    async with serving() as asker:
        workspace = (await asker.workspace()).id
        (tmp_path / "away").mkdir()
        for number in range(left, 40):
            (full_vault / f"{number:02}.md").rename(tmp_path / "away" / f"{number:02}.md")
        await available(asker, False)
        await nothing_is_forgotten(asker, workspace)
        for note in (tmp_path / "away").iterdir():
            note.rename(full_vault / note.name)
        await available(asker, True)
        assert {change.kind for change in await asker.changes(workspace)} == {"created"}


async def test_a_mass_loss_that_persists_is_believed(full_vault: Path, serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "PERSISTING_SECONDS", 1.0)
    monkeypatch.setattr(keeping, "HELD_RESCAN_SECONDS", 0.2)
    async with serving() as asker:
        workspace = (await asker.workspace()).id
        for number in range(20, 40):
            (full_vault / f"{number:02}.md").unlink()
        await available(asker, False)
        await available(asker, True)
        await asker.told(workspace, "deleted", "39.md")
        assert len(await asker.hashes(workspace)) == 20


async def test_a_loss_of_everything_is_never_believed_by_itself(
    full_vault: Path, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "PERSISTING_SECONDS", 0.1)
    monkeypatch.setattr(keeping, "HELD_RESCAN_SECONDS", 0.1)
    monkeypatch.setattr(keeping, "PROBE_SECONDS", 0.1)
    scans = 0
    scan = keeping.Indexer.scan

    async def counting(*arguments: object, **more: object) -> object:
        nonlocal scans
        scans += 1
        return await scan(*arguments, **more)  # type: ignore[arg-type]

    async with serving() as asker:
        workspace = (await asker.workspace()).id
        monkeypatch.setattr(keeping.Indexer, "scan", counting)
        for note in full_vault.iterdir():
            note.unlink()

        async def looked_often() -> bool:
            return scans > 5

        await available(asker, False)
        await eventually(looked_often, 10)
        await nothing_is_forgotten(asker, workspace)


async def test_a_deletion_bit_by_bit_is_held_before_it_is_one(full_vault: Path, serving: Serving) -> None:
    """A slow `rm -r` comes in pieces that would each be believed."""
    async with serving() as asker:
        workspace = (await asker.workspace()).id
        for number in range(4):
            (full_vault / f"{number:02}.md").unlink()
        await asker.told(workspace, "deleted", "03.md")
        for number in range(4, 11):
            (full_vault / f"{number:02}.md").unlink()
        await available(asker, False)
        assert len(await asker.hashes(workspace)) == 36


async def test_few_deletions_are_believed_at_once(full_vault: Path, serving: Serving) -> None:
    async with serving() as asker:
        workspace = (await asker.workspace()).id
        for number in range(8):
            (full_vault / f"{number:02}.md").unlink()
        await asker.told(workspace, "deleted", "07.md")
        assert len(await asker.hashes(workspace)) == 32


async def test_one_vaults_outage_is_not_anothers(full_vault: Path, tmp_path: Path, serving: Serving) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.md").write_text("here")
    async with serving(full_vault, other) as asker:
        shutil.rmtree(full_vault)
        await available(asker, False)
        assert (await asker.read((await asker.workspace("other")).id, "a.md")).content == "here"
        os.utime(other / "a.md")
        (other / "b.md").write_text("new")
        await asker.told((await asker.workspace("other")).id, "created", "b.md")


async def test_an_operator_who_knows_better_is_believed(
    full_vault: Path, tmp_path: Path, serving: Serving, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "HELD_RESCAN_SECONDS", 0.2)
    settings = NotesSettings(DATABASE_URL=database_url)
    async with serving() as asker:
        workspace = (await asker.workspace()).id
        assert await believe(settings, "vault") == 1  # nothing is missing
        full_vault.rename(tmp_path / "away")
        full_vault.mkdir()
        await available(asker, False)
        assert await believe(settings, "vault") == 0
        await available(asker, True)
        assert await asker.hashes(workspace) == {}
        for number in range(40):
            (full_vault / f"{number:02}.md").write_text("again")

        async def there_again() -> bool:
            return len(await asker.hashes(workspace)) == 40

        await eventually(there_again)
        for number in range(40):
            (full_vault / f"{number:02}.md").unlink()
        await available(asker, False)  # only that one loss


@pytest.mark.parametrize("what", ["identity", "survey"])
async def test_a_mount_that_does_not_answer_is_an_outage_of_its_vault_alone(
    full_vault: Path, tmp_path: Path, serving: Serving, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(keeping, "PROBE_SECONDS", 0.2)
    monkeypatch.setattr(keeping, "PROBE_SECONDS_MAX", 0.5)
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.md").write_text("here")
    answers = threading.Event()
    answers.set()

    def answering_late[*Arguments, T](really: Callable[[Vault, *Arguments], T]) -> Callable[[Vault, *Arguments], T]:
        def wait_and_do(self: Vault, *arguments: *Arguments) -> T:
            if self.root == full_vault:
                answers.wait()
            return really(self, *arguments)

        return wait_and_do

    for name in {"identity", what}:
        monkeypatch.setattr(Vault, name, answering_late(getattr(Vault, name)))
    async with serving(full_vault, other) as asker:
        workspace = (await asker.workspace()).id
        answers.clear()
        try:
            (full_vault / "00.md").write_text("a hint, so that something is done")
            await available(asker, False)
            await refused(asker.read(workspace, "00.md"), ErrorCode.VAULT_UNAVAILABLE)
            (other / "b.md").write_text("new")
            await asker.told((await asker.workspace("other")).id, "created", "b.md")
        finally:
            answers.set()
        await available(asker, True)
        await asker.told(workspace, "updated", "00.md")
