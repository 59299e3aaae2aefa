"""The real Prometheus and its tool, from Debian's package. Where they are missing, what needs them is skipped with the reason; where `CI`
is set it fails.
"""

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from local.ports import free_port
from local.stack import ROOT
from tests.support.polling import eventually

TELEMETRY = ROOT / "deploy" / "telemetry"
READY_SECONDS = 30.0


def require(program: str) -> str:
    """Where the program is."""
    if (path := shutil.which(program)) is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"there is no {program} (apt-get install prometheus)")
    return str(path)


def promtool(*arguments: str) -> str:
    """What promtool says; fails where it finds something wrong."""
    ended = subprocess.run([require("promtool"), *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running server."""

    http: httpx.AsyncClient

    async def ask(self, query: str, at: float) -> dict[frozenset[tuple[str, str]], float]:
        """The value by labels."""
        answer = (await self.http.get("/api/v1/query", params={"query": query, "time": at})).json()
        assert answer["status"] == "success", answer
        return {frozenset(one["metric"].items()): float(one["value"][1]) for one in answer["data"]["result"]}

    async def get(self, path: str) -> Any:
        """The data of an API answer."""
        answer = (await self.http.get(f"/api/v1/{path}")).json()
        assert answer["status"] == "success", answer
        return answer["data"]


@asynccontextmanager
async def serving(configuration: Path, data: Path) -> AsyncIterator[Prometheus]:
    """A server with this configuration on this data; ended at the end."""
    port = free_port()
    with (data.parent / "prometheus.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            require("prometheus"),
            f"--config.file={configuration}",
            f"--storage.tsdb.path={data}",
            "--storage.tsdb.retention.time=10y",
            f"--web.listen-address=127.0.0.1:{port}",
            stdout=log,
            stderr=log,
        )
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20) as http:
            await eventually(lambda: _ready(http), READY_SECONDS)
            yield Prometheus(http)
    finally:
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            await process.wait()


async def _ready(http: httpx.AsyncClient) -> bool:
    try:
        return (await http.get("/-/ready")).status_code == 200
    except httpx.TransportError:
        return False
