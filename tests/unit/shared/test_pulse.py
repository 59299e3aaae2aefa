import asyncio
from pathlib import Path

import pytest

from shared import pulse
from tests.support.polling import eventually


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "BEAT_SECONDS", 0.001)


async def test_the_file_is_touched_while_the_process_is_well_and_not_after(tmp_path: Path) -> None:
    path, asked, well = tmp_path / "pulse", 0, True

    async def is_well() -> bool:
        nonlocal asked
        asked += 1
        return well

    async def asked_again(before: int) -> bool:
        return asked > before + 1

    beating = asyncio.create_task(pulse.beat(path, is_well))
    try:
        await eventually(lambda: asyncio.to_thread(path.exists))
        path.unlink()
        await eventually(lambda: asyncio.to_thread(path.exists))
        well = False
        before = asked
        await eventually(lambda: asked_again(before))
        path.unlink()
        later = asked
        await eventually(lambda: asked_again(later))
        assert not path.exists()
    finally:
        beating.cancel()
