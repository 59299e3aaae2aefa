"""Hints about what other programs touch."""

import os
import sys
from pathlib import Path

import pytest

from services.notes.watching import Hints, watched
from tests.support.polling import eventually


@pytest.mark.skipif(sys.platform == "darwin", reason="has no names that are not UTF-8")
async def test_a_name_that_is_no_text_does_not_end_the_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.notes.watching.RESTART_SECONDS", 0.1)
    with watched(tmp_path) as hints:
        # Everything, once the watch stands.
        assert await hints.take(10) is None
        (tmp_path / os.fsdecode(b"caf\xe9.md")).write_text("x")
        # Some may have been missed.
        assert await hints.take(10) is None
        await eventually(lambda: _watches(hints), 10)
        (tmp_path / "a.md").write_text("x")
        await eventually(lambda: _is_touched(hints, "a.md"), 10)


async def _watches(hints: Hints) -> bool:
    return hints.watching


async def _is_touched(hints: Hints, path: str) -> bool:
    return path in (await hints.take(1) or ())
