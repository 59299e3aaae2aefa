from pathlib import Path

import pytest

from local.errors import StartError
from local.vaults import require_vaults, sample_if_empty


def test_vaults_are_used_where_they_lie(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    assert require_vaults([tmp_path / "b" / ".." / "a"]) == (tmp_path / "a",)


def test_a_missing_vault_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"the vault .*/none does not exist"):
        require_vaults([tmp_path / "none"])


def test_a_file_is_no_vault(tmp_path: Path) -> None:
    (tmp_path / "note.md").write_text("")
    with pytest.raises(StartError, match=r"the vault .*/note\.md is not a directory"):
        require_vaults([tmp_path / "note.md"])


def test_two_vaults_with_one_name_are_refused(tmp_path: Path) -> None:
    for parent in ("x", "y"):
        (tmp_path / parent / "Notes").mkdir(parents=True)
    with pytest.raises(StartError, match=r"two vaults have one name: .*/x/Notes and .*/y/Notes"):
        require_vaults([tmp_path / "x" / "Notes", tmp_path / "y" / "Notes"])


def test_the_sample_is_copied_once_and_then_left_alone(tmp_path: Path) -> None:
    (vault,) = sample_if_empty(tmp_path)
    notes = sorted(vault.glob("**/*.md"))
    assert len(notes) >= 8
    notes[0].unlink()
    assert sample_if_empty(tmp_path) == (vault,)
    assert not notes[0].exists()


def test_beside_other_vaults_there_is_no_sample(tmp_path: Path) -> None:
    (tmp_path / "Mine").mkdir()
    assert sample_if_empty(tmp_path) == (tmp_path / "Mine",)
    assert [path.name for path in tmp_path.iterdir()] == ["Mine"]
