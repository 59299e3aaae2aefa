"""Which notes are known to differ from what can be found, and since when."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID


@dataclass(slots=True)
class _Due:
    """`former_paths`: where the note stood before, if it has moved; at one of them it is found as yet."""

    since: float
    revision: int
    heard: bool
    former_paths: tuple[str, ...] = ()


class Backlog:
    """Paths per workspace, each counted once however often it changes."""

    def __init__(self) -> None:
        self._due: dict[UUID, dict[str, _Due]] = {}
        # By former path: where the notes that stood there are due.
        self._left: dict[tuple[UUID, str], set[str]] = {}
        self._compared: set[UUID] = set()

    def __len__(self) -> int:
        return sum(len(paths) for paths in self._due.values())

    def add(self, workspace: UUID, path: str, revision: int = 0, *, heard: bool = False, moved_from: str | None = None) -> None:
        """The note changed, or is not as it was indexed. `revision` 0: unknown. `heard`: of a fact that another instance may take in."""
        now = _Due(time.monotonic(), revision, heard, (moved_from,) if moved_from else ())
        there = self._due.get(workspace, {}).get(moved_from) if moved_from is not None else None
        # By a later fact another note is due there.
        if moved_from is not None and there is not None and there.revision < revision:
            self._remove(workspace, moved_from)
            now.since, now.former_paths = there.since, (*there.former_paths, moved_from)
        if (before := self._remove(workspace, path)) is not None:
            now.since, now.revision = before.since, max(before.revision, revision)
            now.heard = before.heard and heard
            now.former_paths = tuple(dict.fromkeys((*before.former_paths, *now.former_paths)))
        self._due.setdefault(workspace, {})[path] = now
        for one in now.former_paths:
            self._left.setdefault((workspace, one), set()).add(path)

    def _remove(self, workspace: UUID, path: str) -> _Due | None:
        due = self._due.get(workspace, {}).pop(path, None)
        if due is not None:
            for one in due.former_paths:
                self._left[workspace, one].discard(path)
                if not self._left[workspace, one]:
                    del self._left[workspace, one]
        return due

    def compared(self, workspace: UUID) -> None:
        """Whatever of the workspace was not as it had been indexed when this process began has been added."""
        self._compared.add(workspace)

    def is_compared(self, workspace: UUID) -> bool:
        """Whether that is so. Until then there may be notes that nobody has counted."""
        return workspace in self._compared

    def taken_in_elsewhere(self, older_than_seconds: float) -> None:
        """All facts have been taken in by someone: forget those that were only heard of."""
        horizon = time.monotonic() - older_than_seconds
        for workspace, paths in self._due.items():
            for path in [path for path, due in paths.items() if due.heard and due.since < horizon]:
                self._remove(workspace, path)

    @property
    def has_heard(self) -> bool:
        """Whether facts were heard of that this instance has not taken in."""
        return any(due.heard for paths in self._due.values() for due in paths.values())

    def done(self, workspace: UUID, path: str, revision: int | None) -> None:
        """The note was stored as of `revision` (None: as of now). A later change stays due, and a move until its fact is taken in."""
        due = self._due.get(workspace, {}).get(path)
        if due is not None and (due.revision <= revision if revision is not None else not due.former_paths):
            self._remove(workspace, path)

    def moves_on(self, workspace: UUID, path: str, revision: int) -> bool:
        """Whether the note that stood there is due elsewhere, by a later fact than that."""
        return any(self._due[workspace][to].revision > revision for to in self._left.get((workspace, path), ()))

    def moves_in(self, workspace: UUID, path: str, revision: int) -> bool:
        """Whether a note is due there that has moved, by a later fact than that."""
        due = self._due.get(workspace, {}).get(path)
        return due is not None and bool(due.former_paths) and due.revision > revision

    def paths(self, workspaces: Iterable[UUID]) -> list[tuple[UUID, str]]:
        """The notes that are due in these workspaces."""
        return [(workspace, path) for workspace in workspaces for path in self._due.get(workspace, ())]

    def former_paths(self, workspaces: Iterable[UUID]) -> list[tuple[UUID, str]]:
        """Where those of them that have moved may be found as yet."""
        return [(workspace, one) for workspace in workspaces for due in self._due.get(workspace, {}).values() for one in due.former_paths]

    def oldest_seconds(self, workspaces: Iterable[UUID]) -> float:
        """How long the one that waits longest has waited."""
        since = [due.since for workspace in workspaces for due in self._due.get(workspace, {}).values()]
        return time.monotonic() - min(since) if since else 0.0
