import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from local.home import Home
from local.supervisor import Supervisor


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    opened = Home.open(tmp_path / "home")
    yield opened
    opened.close()


@pytest.fixture
def reports() -> list[str]:
    return []


@pytest.fixture
async def supervisor(home: Home, reports: list[str]) -> AsyncIterator[Supervisor]:
    made = Supervisor(home, Path.cwd(), {"MARGINALIA_HOME": str(home.path)}, reports.append)
    yield made
    await made.stop(grace_seconds=5)


@pytest.fixture
def until() -> Callable[..., Awaitable[None]]:
    """Waits for a condition, at most some seconds."""

    async def wait(condition: Callable[[], object], seconds: float = 10) -> None:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110 - other processes can only be polled
                await asyncio.sleep(0.01)

    return wait
