"""What the notes service is told by its environment."""

import os
from pathlib import Path

from pydantic import Field

from shared.settings import DatabaseSettings


class NotesSettings(DatabaseSettings):
    """See `docs/reference/settings.md`. Created workspaces lie in `<home>/vaults/`."""

    vaults: str = Field(default="", alias="MARGINALIA_VAULTS", description="Directories of notes, separated by `:`, each a workspace.")

    @property
    def vault_paths(self) -> tuple[Path, ...]:
        """The directories, absolute. Links are kept: a workspace has the name it was given by."""
        return tuple(Path(os.path.normpath(Path(part).absolute())) for part in self.vaults.split(":") if part)

    @property
    def created_vaults(self) -> Path | None:
        """Where created workspaces lie."""
        return None if self.home is None else self.home.absolute() / "vaults"
