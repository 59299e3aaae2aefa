"""The whole system on this machine, for a benchmark: started, measured, ended."""

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psutil

from local.ports import free_port

READY_SECONDS = 60.0
TICKS = os.sysconf("SC_CLK_TCK")
CALM_SECONDS = 3
CALM_PERCENT = 8.0
PASSWORD = "a password for benchmarks"


@dataclass(frozen=True)
class Stack:
    """A running system: its address, an admin's bearer token, its data directory."""

    base_url: str
    token: str
    home: Path

    def pid(self, name: str) -> int:
        """The process id of one of its processes."""
        return int((self.home / "run" / f"{name}.pid").read_text())

    @property
    def names(self) -> list[str]:
        """The processes that it started."""
        return sorted(path.stem for path in (self.home / "run").glob("*.pid"))

    def cpu_seconds(self, name: str) -> float:
        """User and system time of a process so far."""
        fields = Path(f"/proc/{self.pid(name)}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def resident_bytes(self, name: str) -> int:
        """Memory that belongs to a process, shared pages counted by their share."""
        for line in Path(f"/proc/{self.pid(name)}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
        return 0


async def quiet(seconds: float = 60.0) -> None:
    """Wait until the machine has little else to do: what a first start still does in the background is not what is measured."""
    psutil.cpu_percent()
    async with asyncio.timeout(seconds):
        calm = 0
        while calm < CALM_SECONDS:
            await asyncio.sleep(1)
            calm = calm + 1 if psutil.cpu_percent() < CALM_PERCENT else 0


@asynccontextmanager
async def running(vaults: str, environment: Mapping[str, str]) -> AsyncIterator[Stack]:
    """The embedded stack over these vaults, ready, with a token to ask it by."""
    with tempfile.TemporaryDirectory() as home:
        port = free_port()
        variables = {
            **os.environ,
            "MARGINALIA_HOME": home,
            "MARGINALIA_PORT": str(port),
            "MARGINALIA_VAULTS": vaults,
            "MARGINALIA_ADMIN_PASSWORD": PASSWORD,
            **environment,
        }
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", "local", env=variables, stdout=asyncio.subprocess.DEVNULL)
        try:
            base_url = f"http://127.0.0.1:{port}"
            yield Stack(base_url, await _token(base_url), Path(home))
        finally:
            process.send_signal(signal.SIGTERM)
            await process.wait()


async def _token(base_url: str) -> str:
    async with aiohttp.ClientSession(base_url, headers={"origin": base_url}, cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        async with asyncio.timeout(READY_SECONDS):
            while not await _ready(http):  # noqa: ASYNC110 - another process becomes ready
                await asyncio.sleep(0.1)
        async with http.post("/api/auth/login", json={"username": "admin", "password": PASSWORD}) as answer:
            csrf = (await answer.json())["csrf_token"]
        async with http.post("/api/auth/tokens", json={"name": "bench"}, headers={"x-csrf-token": csrf}) as answer:
            return str((await answer.json())["token"])


async def _ready(http: aiohttp.ClientSession) -> bool:
    try:
        async with http.get("/readyz") as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False
