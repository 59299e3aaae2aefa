"""The whole system in containers, by the compose file that users have; public images are replaced by what `tests/containers/images` makes.

Where no engine runs, the tests that need one are skipped with the reason; where `CI` is set they fail.
"""

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from local.stack import ROOT
from tests.support.chat_client import ChatClient
from tests.support.polling import eventually

IMAGES = ROOT / "tests" / "containers" / "images"
BASE = "marginalia-test/base:trixie"
STAND_INS = ("nats", "postgres", "index", "slow-model", "node")
SERVICES = ("gateway", "agent", "retrieval", "notes", "contexts")
PROGRAMS = (*SERVICES, "embedder", "model", "nats", "postgres", "qdrant")
BUILD_SECONDS = 600
COMMAND_SECONDS = 120
READY_SECONDS = 90.0
ORIGIN = "http://chat.test"
# Set by a person for the stand-ins, or by those who can pull.
IMAGE_VARIABLES = {
    "MARGINALIA_IMAGES": "marginalia-test",
    "PYTHON_IMAGE": BASE,
    "NODE_IMAGE": "marginalia-test/base-node",
    "NATS_IMAGE": "marginalia-test/base-nats",
    "POSTGRES_IMAGE": "marginalia-test/base-postgres",
    "QDRANT_IMAGE": "marginalia-test/base-index",
    "SLOW_MODEL_IMAGE": "marginalia-test/base-slow-model",
    # Of the builders that an engine may have, the one that needs no plugin.
    "DOCKER_BUILDKIT": "0",
}


def missing() -> str | None:
    """Why there can be no containers here."""
    if shutil.which("docker") is None:
        return "there is no docker (apt-get install docker.io)"
    if compose_command() is None:
        return "there is no docker-compose (apt-get install docker-compose)"
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        return "base images are made by debootstrap, as root (apt-get install debootstrap)"
    if subprocess.run(["docker", "info"], capture_output=True, timeout=30, check=False).returncode != 0:
        return "no Docker engine runs (start dockerd)"
    return None


def compose_command() -> tuple[str, ...] | None:
    """The plugin where there is one, else the program before it."""
    if (
        shutil.which("docker")
        and subprocess.run(["docker", "compose", "version"], capture_output=True, timeout=30, check=False).returncode == 0
    ):
        return ("docker", "compose")
    return ("docker-compose",) if shutil.which("docker-compose") else None


def run(*command: str, cwd: Path = ROOT, seconds: float = COMMAND_SECONDS, **variables: str) -> str:
    """What a command prints; its error is the assertion's."""
    environment = {**os.environ, **IMAGE_VARIABLES, **variables}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


def built() -> None:
    """All images, from the cache of an earlier run where nothing has changed."""
    if not run("docker", "images", "--quiet", BASE).strip():
        run("sh", str(IMAGES / "base.sh"), BASE, seconds=BUILD_SECONDS)
    for name in STAND_INS:
        arguments = ("--build-arg", f"BASE={BASE}", "--target", name, "--tag", f"marginalia-test/base-{name}")
        run("docker", "build", "--quiet", "--network", "host", *arguments, "--file", str(IMAGES / "Dockerfile"), ".", seconds=BUILD_SECONDS)
    files = ("--file", "docker-compose.yml", "--file", "tests/containers/docker-compose.test.yml")
    run(*(compose_command() or ()), *files, "build", seconds=2 * BUILD_SECONDS)


@dataclass
class Containers:
    """A project of containers in a directory of its own, as a user has it after cloning and `deploy/prepare.sh`."""

    directory: Path
    project: str
    variables: dict[str, str] = field(default_factory=dict)

    def compose(self, *arguments: str) -> str:
        files = ("--file", "docker-compose.yml", "--file", "docker-compose.test.yml")
        command = (*(compose_command() or ()), "--project-name", self.project, *files, *arguments)
        return run(*command, cwd=self.directory, **self.variables)

    def up(self, **scale: int) -> None:
        """Start what is not running, so many of each; a service that is not named has one."""
        scaled = [part for name, number in scale.items() for part in ("--scale", f"{name}={number}")]
        self.compose("up", "--detach", "--no-build", *scaled)

    def documented(self, heading: str) -> list[str]:
        """The blocks of commands in a section of the operating guide."""
        page = (ROOT / "docs" / "operating.md").read_text("utf-8")
        section = page.split(f"\n### {heading}\n")[1].split("\n#")[0]
        return re.findall(r"^```\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)

    def shell(self, commands: str) -> None:
        """What an operator would paste, asked of this project."""
        compose = f"{' '.join(compose_command() or ())} --project-name {self.project} -f docker-compose.yml -f docker-compose.test.yml"
        run("sh", "-euc", commands.replace("docker compose", compose), cwd=self.directory, seconds=2 * COMMAND_SECONDS, **self.variables)

    def ids(self, service: str) -> list[str]:
        """The containers of a service, stopped ones included."""
        label = f"label=com.docker.compose.project={self.project}"
        return run("docker", "ps", "--all", "--quiet", "--filter", label, "--filter", f"label=com.docker.compose.service={service}").split()

    def inspected(self, *containers: str) -> list[dict[str, Any]]:
        return json.loads(run("docker", "inspect", *containers))  # type: ignore[no-any-return]

    def addresses(self) -> list[str]:
        """Where the gateways listen that run just now."""
        states = self.inspected(*self.ids("gateway"))
        bound = [binding for state in states for binding in state["NetworkSettings"]["Ports"].get("8080/tcp") or []]
        return [f"http://{binding['HostIp']}:{binding['HostPort']}" for binding in bound]

    async def kill(self, container: str) -> None:
        """kill -9 of its process. The engine is not asked: it would take that for a wish, and not start it again."""
        state = self.inspected(container)[0]["State"]
        if state["Running"] and state["Pid"]:
            os.kill(state["Pid"], signal.SIGKILL)

    async def killed_and_restarted(self, container: str, within: float = 30) -> None:
        before = self.inspected(container)[0]["State"]["Pid"]
        await self.kill(container)

        async def again() -> bool:
            state = self.inspected(container)[0]["State"]
            return bool(state["Running"] and state["Pid"] not in (0, before))

        await eventually(again, within, every=0.2)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[ChatClient]:
        """Logged in at one of the gateways."""
        async with httpx.AsyncClient(base_url=self.addresses()[0], headers={"origin": ORIGIN}, timeout=20) as http:
            client = ChatClient(http)
            await eventually(lambda: ready(http), READY_SECONDS, every=0.2)
            await client.login(password=(self.directory / "deploy" / "secrets" / "admin_password").read_text().strip())
            yield client


async def ready(http: httpx.AsyncClient) -> bool:
    """Whether everything answers, and every note is searchable."""
    try:
        return (await http.get("/readyz", timeout=3)).status_code == 200
    except httpx.TransportError:
        return False


async def searchable(client: ChatClient) -> bool:
    """Whether every note can be found by words and by meaning."""
    status = (await client.http.get("/api/retrieval/status")).json()
    return bool(status.get("indexed") and status["pending"] == 0 and status["unembedded"] == 0)


@pytest.fixture(scope="session")
def images() -> None:
    """All images are built."""
    if why := missing():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(why)
    built()


@pytest.fixture(scope="session")
def containers(images: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containers]:
    """The whole system, started by the commands that the documentation names; gone at the end, with its volumes."""
    directory = tmp_path_factory.mktemp("marginalia")
    for name in ("docker-compose.yml", "tests/containers/docker-compose.test.yml", "tests/containers/providers.toml"):
        shutil.copy(ROOT / name, directory)
    shutil.copytree(ROOT / "deploy", directory / "deploy", ignore=shutil.ignore_patterns("secrets"))
    shutil.copytree(ROOT / "local" / "sample_vault", directory / "local" / "sample_vault")
    run("sh", "deploy/prepare.sh", cwd=directory)
    variables = {"MARGINALIA_ALLOWED_ORIGINS": ORIGIN, "MARGINALIA_PUBLISH": "127.0.0.1:18080-18099"}
    containers = Containers(directory, f"marginalia-test-{os.getpid()}", variables)
    try:
        containers.up()
        yield containers
    finally:
        containers.compose("down", "--volumes", "--timeout", "1")


async def cited(client: ChatClient) -> bool:
    """Whether a question to the bundled model is answered with a citation just now."""
    try:
        turn = await client.ask("How do I feed a sourdough starter?")
    except (httpx.TransportError, AssertionError, TimeoutError):
        return False
    return turn.done["status"] == "completed" and turn.done["cited"] == [1] and "flour" in turn.text
