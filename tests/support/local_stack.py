"""The whole system as a user starts it, in processes of its own: `python -m local` on a directory of this test."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from local.ports import free_port
from local.stack import ROOT
from tests.support.chat_client import PASSWORD, ChatClient, client_of
from tests.support.polling import eventually

READY_SECONDS = 60.0
REFUSED = re.compile(r"permissions violation|permission denied for|InsufficientPrivilege", re.IGNORECASE)


@dataclass
class LocalStack:
    """A running system and a logged-in client."""

    home: Path
    base_url: str
    process: asyncio.subprocess.Process
    client: ChatClient

    def pid(self, name: str) -> int:
        return int((self.home / "run" / f"{name}.pid").read_text())

    def environment(self, name: str) -> dict[str, str]:
        """The variables that one of its processes was given."""
        variables = Path(f"/proc/{self.pid(name)}/environ").read_bytes().decode().split("\0")
        return dict(variable.split("=", 1) for variable in variables if variable)

    async def kill(self, name: str) -> int:
        """kill -9 of one of its processes; the process id that was."""
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)

        async def gone() -> bool:
            try:
                return self.pid(name) != pid
            except FileNotFoundError:
                return False

        await eventually(gone, 10)
        return pid

    async def ready(self, within: float = READY_SECONDS) -> None:
        """Wait until everything answers."""

        async def check() -> bool:
            try:
                return (await self.client.http.get("/readyz", timeout=3)).status_code == 200
            except httpx.TransportError:
                return False

        await eventually(check, within, every=0.1)

    async def searchable(self, within: float = 30) -> None:
        """Wait until every note is searchable by words."""

        async def check() -> bool:
            status = (await self.client.http.get("/api/retrieval/status")).json()
            return bool(status["pending"] == 0 and status["indexed"] + status["unembedded"] > 0)

        await eventually(check, within, every=0.1)


def refusals(home: Path) -> list[str]:
    """What NATS and PostgreSQL have refused a service, by the services' own logs: whatever a service needs, its user may do."""
    return [line for log in (home / "logs").glob("*.log*") for line in log.read_text(errors="replace").splitlines() if REFUSED.search(line)]


@asynccontextmanager
async def local_stack(home: Path, environment: Mapping[str, str], *, port: int | None = None) -> AsyncIterator[LocalStack]:
    """Start it, wait until it is ready, log in; end it with SIGTERM."""
    port = port or free_port()
    variables = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("MARGINALIA_", "MODEL_", "EMBEDDING_", "OTEL_"))},
        "MARGINALIA_HOME": str(home),
        "MARGINALIA_PORT": str(port),
        "MARGINALIA_ADMIN_PASSWORD": PASSWORD,
        **environment,
    }
    log = (home.parent / f"{home.name}-supervisor.log").open("ab")
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "local", cwd=ROOT, env=variables, stdout=log, stderr=log)
    base_url = f"http://127.0.0.1:{port}"
    try:
        async with client_of(base_url, within=READY_SECONDS) as client:
            stack = LocalStack(home, base_url, process, client)
            await stack.ready()
            await client.login()
            yield stack
            assert refusals(home) == []
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            await process.wait()
        log.close()
