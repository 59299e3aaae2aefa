"""Services that are frozen (SIGSTOP) rather than dead: requests are told so within 2 s, with `Retry-After`, and work again afterwards."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.support.local_stack import local_stack

CASES = [
    ("notes", "GET", "/api/workspaces", None),
    ("agent", "GET", "/api/chat/conversations", None),
    ("agent", "POST", "/api/chat", {"message": "Hi"}),
    ("retrieval", "POST", "/api/retrieval/runs", {"mode": "keyword", "query": "tea"}),
    ("nats", "GET", "/api/workspaces", None),
    ("postgres", "GET", "/api/workspaces", None),
]


@pytest.fixture
def freezing():  # type: ignore[no-untyped-def]
    frozen: list[int] = []

    def freeze(pid: int) -> None:
        pids = [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
        for one in pids:
            os.kill(one, signal.SIGSTOP)
        frozen.extend(pids)

    def thaw() -> None:
        while frozen:
            os.kill(frozen.pop(), signal.SIGCONT)

    yield freeze, thaw
    thaw()


async def test_a_frozen_service_is_said_to_be_away_within_two_seconds(tmp_path: Path, freezing) -> None:  # type: ignore[no-untyped-def]
    freeze, thaw = freezing
    async with local_stack(tmp_path / "home", {}) as stack:
        await stack.searchable()
        for name, method, path, body in CASES:
            freeze(stack.pid(name))
            async with asyncio.timeout(2.5):  # the bar is 2 s; the machine may be busy
                answer = await stack.client.http.request(method, path, json=body)
            assert (answer.status_code, answer.headers.get("retry-after")) == (503, "2"), (name, path, answer.text)
            async with asyncio.timeout(2.5):
                ready = await stack.client.http.get("/readyz")
            assert ready.status_code == 503, name
            assert any(
                name in problem for problem in (*ready.json()["problems"], "postgres" if "database" in ready.json()["problems"] else "")
            ), (
                name,
                ready.text,
            )
            thaw()
            await stack.ready(20)
