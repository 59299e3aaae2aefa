"""The whole stack as a person starts it. Each step builds on the one before, since a start takes seconds."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from local import processes
from local.ports import free_port
from local.stack import ROOT

PROGRAMS = {"nats", "postgres", "embedder", "model", "index", "notes", "retrieval", "contexts", "agent", "gateway"}
READY_SECONDS = 60

type Until = Callable[..., Awaitable[None]]


class Marginalia:
    """`python -m local` on a home of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = free_port()
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        environment = {"PATH": os.environ["PATH"], "MARGINALIA_HOME": str(self.home), "MARGINALIA_PORT": str(self.port)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "local"], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    async def until_said(self, line_start: str) -> list[str]:
        """What it has printed, up to and including the line that starts so."""
        assert self.process is not None
        assert self.process.stdout is not None
        said: list[str] = []
        async with asyncio.timeout(READY_SECONDS):
            while not said or not said[-1].startswith(line_start):
                said.append((await asyncio.to_thread(self.process.stdout.readline)).rstrip())
                assert said[-1], self.errors()
        return said

    def errors(self) -> str:
        assert self.process is not None
        self.process.kill()
        return self.process.communicate()[1]

    def pids(self) -> dict[str, int]:
        """Those that are there: a process that is being started again has none for a moment."""
        found = {}
        for path in (self.home / "run").glob("*.pid"):
            with contextlib.suppress(FileNotFoundError, ValueError):
                found[path.stem] = int(path.read_text())
        return found

    def ours(self) -> list[int]:
        """Every process of this home, children of children included."""
        everything = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        started = processes.started_with(everything, "MARGINALIA_HOME", str(self.home))
        return [pid for pid in started if self.process is None or pid != self.process.pid]


@pytest.fixture
def marginalia(tmp_path: Path) -> Iterator[Marginalia]:
    stack = Marginalia(tmp_path / "home")
    yield stack
    if stack.process is not None:
        stack.process.kill()
        stack.process.communicate()


async def logged_in(client: httpx.AsyncClient, password: str) -> None:
    answer = await client.post("/api/auth/login", json={"username": "admin", "password": password})
    assert answer.status_code == 200
    client.headers["X-CSRF-Token"] = answer.json()["csrf_token"]


async def asked(client: httpx.AsyncClient, question: str) -> list[dict[str, Any]]:
    async with client.stream("POST", "/api/chat", json={"message": question}) as answer:
        return [json.loads(line.removeprefix("data: ")) async for line in answer.aiter_lines() if line.startswith("data: ")]


async def is_ready(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/readyz")).status_code == 200
    except httpx.HTTPError:
        return False


async def until_ready(client: httpx.AsyncClient, seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while not await is_ready(client):  # noqa: ASYNC110 - only asking tells
            await asyncio.sleep(0.05)


@pytest.mark.timeout(180)
async def test_one_command_starts_answers_survives_kills_and_ends_everything(marginalia: Marginalia, until: Until) -> None:
    marginalia.start()
    said = await marginalia.until_said("Answers come")
    password = (marginalia.home / "admin-password").read_text().strip()
    assert said[0] == f"Marginalia is ready: http://127.0.0.1:{marginalia.port}"
    assert password in said[1]
    assert set(marginalia.pids()) == PROGRAMS
    endpoints = json.loads((marginalia.home / "endpoints.json").read_text())
    assert {"nats", "postgres", "gateway"} <= set(endpoints)

    base = f"http://127.0.0.1:{marginalia.port}"
    async with httpx.AsyncClient(base_url=base, headers={"Origin": base}, timeout=30) as client:
        await logged_in(client, password)
        await until_searchable(client)
        for question, quoted in (("How often is a sourdough starter fed?", "once a day"), ("泡绿茶用多少度的水？", "75 到 85 度")):
            events = await asked(client, question)
            assert events[-1]["type"] == "Done"
            assert events[-1]["cited"]
            assert quoted in "".join(event["text"] for event in events if event["type"] == "TextDelta")

        # OP-3: any one of them dies and is back.
        for name in ("agent", "nats"):
            killed = marginalia.pids()[name]
            os.kill(killed, signal.SIGKILL)
            await until(lambda name=name, killed=killed: marginalia.pids().get(name, killed) != killed)
            await until_ready(client, 15)
        assert (await asked(client, "How often is a sourdough starter fed?"))[-1]["status"] == "completed"

    # The supervisor itself: nothing outlives it, and the next start finds everything as it was.
    assert marginalia.process is not None
    marginalia.process.kill()
    marginalia.process.communicate()
    await until(lambda: not marginalia.ours())
    marginalia.start()
    said = await marginalia.until_said("Answers come")
    assert str(marginalia.home / "admin-password") in said[1]
    assert password not in said[1]
    marginalia.process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(marginalia.process.wait, 25) == 0
    assert marginalia.pids() == {}
    assert marginalia.ours() == []


async def test_a_stop_during_the_start_leaves_nothing(marginalia: Marginalia, until: Until) -> None:
    marginalia.start()
    await until(lambda: marginalia.home.exists() and "notes" in marginalia.pids(), 30)
    assert marginalia.process is not None
    marginalia.process.send_signal(signal.SIGINT)
    out, errors = await asyncio.to_thread(marginalia.process.communicate, None, 25)
    assert (marginalia.process.returncode, out, errors) == (0, "", "")
    assert marginalia.ours() == []


async def until_searchable(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(30):
        while True:
            status = (await client.get("/api/retrieval/status")).json()
            if status["pending"] == 0 and status["indexed"] + status["unembedded"] >= 8:
                return
            await asyncio.sleep(0.1)
