"""Which directories of notes the stack serves: those asked for, or a copy of the bundled sample."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from local.errors import StartError

_SAMPLE = Path(__file__).parent / "sample_vault"
_SAMPLE_NAME = "Sample"


def require_vaults(asked_for: Sequence[Path]) -> tuple[Path, ...]:
    """The absolute paths of the vaults asked for. Raises `StartError` where one is missing or two share a name."""
    by_name: dict[str, Path] = {}
    for asked in asked_for:
        path = Path(os.path.normpath(asked.absolute()))  # a link keeps the name it was given by
        if not path.exists():
            raise StartError(f"the vault {path} does not exist (MARGINALIA_VAULTS)")
        if not path.is_dir():
            raise StartError(f"the vault {path} is not a directory (MARGINALIA_VAULTS)")
        if not os.access(path, os.R_OK | os.X_OK):
            raise StartError(f"the vault {path} cannot be read (MARGINALIA_VAULTS)")
        if path.name in by_name:
            raise StartError(f"two vaults have one name: {by_name[path.name]} and {path} (MARGINALIA_VAULTS)")
        by_name[path.name] = path
    return tuple(by_name.values())


def sample_if_empty(vaults: Path) -> tuple[Path, ...]:
    """The vaults below `vaults`; where there are none yet, a copy of the sample, which from then on is its owner's."""
    there = sorted(path for path in vaults.iterdir() if path.is_dir() and not path.name.startswith("."))
    if there:
        return tuple(there)
    copy = vaults / _SAMPLE_NAME
    draft = vaults / f".{_SAMPLE_NAME}.new"
    shutil.rmtree(draft, ignore_errors=True)
    shutil.copytree(_SAMPLE, draft)
    draft.rename(copy)
    return (copy,)
