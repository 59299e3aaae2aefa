import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from services.contexts import __main__ as command


class Failing:
    """A store that is lost while it is read for the second time."""

    def __init__(self, _: object) -> None:
        self.parts = 0

    async def last_position(self) -> int:
        return 4

    async def part(self, after: int, _: int) -> Any:
        self.parts += 1
        if self.parts > 3:
            raise ConnectionError("gone")
        return SimpleNamespace(lines=["{}"], last=after + 2)


def test_an_export_that_fails_midway_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # RC-17
    monkeypatch.setattr(command, "SnapshotStore", Failing)
    with pytest.raises(ConnectionError):
        asyncio.run(command._export(None, tmp_path / "all.jsonl"))  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
