"""Which notes are known to differ from what can be found, and since when."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID


@dataclass(slots=True)
class _Due:
    since: float
    revision: int
    heard: bool


class Backlog:
    """Paths per workspace, each counted once however often it changes."""

    def __init__(self) -> None:
        self._due: dict[UUID, dict[str, _Due]] = {}
        self._compared: set[UUID] = set()

    def __len__(self) -> int:
        return sum(len(paths) for paths in self._due.values())

    def add(self, workspace: UUID, path: str, revision: int = 0, *, heard: bool = False) -> None:
        """The note changed, or is not as it was indexed. `revision` 0: unknown. `heard`: of a fact that another instance may take in."""
        paths = self._due.setdefault(workspace, {})
        if (due := paths.get(path)) is None:
            paths[path] = _Due(time.monotonic(), revision, heard)
        else:
            due.revision = max(due.revision, revision)
            due.heard = due.heard and heard

    def compared(self, workspace: UUID) -> None:
        """Whatever of the workspace was not as it had been indexed when this process began has been added."""
        self._compared.add(workspace)

    def is_compared(self, workspace: UUID) -> bool:
        """Whether that is so. Until then there may be notes that nobody has counted."""
        return workspace in self._compared

    def taken_in_elsewhere(self, older_than_seconds: float) -> None:
        """All facts have been taken in by someone: forget those that were only heard of."""
        horizon = time.monotonic() - older_than_seconds
        for paths in self._due.values():
            for path in [path for path, due in paths.items() if due.heard and due.since < horizon]:
                del paths[path]

    @property
    def has_heard(self) -> bool:
        """Whether facts were heard of that this instance has not taken in."""
        return any(due.heard for paths in self._due.values() for due in paths.values())

    def done(self, workspace: UUID, path: str, revision: int | None) -> None:
        """The note was stored as of `revision` (None: as of now). A later change stays due."""
        paths = self._due.get(workspace, {})
        due = paths.get(path)
        if due is not None and (revision is None or due.revision <= revision):
            del paths[path]

    def paths(self, workspaces: Iterable[UUID]) -> list[tuple[UUID, str]]:
        """The notes that are due in these workspaces."""
        return [(workspace, path) for workspace in workspaces for path in self._due.get(workspace, ())]

    def oldest_seconds(self, workspaces: Iterable[UUID]) -> float:
        """How long the one that waits longest has waited."""
        since = [due.since for workspace in workspaces for due in self._due.get(workspace, {}).values()]
        return time.monotonic() - min(since) if since else 0.0
