"""A change that waits for consent, and everything that could be lost on the way is killed: it is made once, and told as what it was."""

import asyncio
import random
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.chat_client import Streamed
from tests.support.local_stack import LocalStack, local_stack
from tests.support.polling import eventually
from tests.support.scripted_provider import Script, ScriptedProvider, answer, tool_calls

# More by hand: pytest tests/faults/test_approvals.py --kills 100
WITHIN = 40.0
# Killed while the turn waits, and just after the decision.
BEFORE = (("agent",), ("agent", "notes", "gateway"), ("nats", "postgres"), ())
AFTER = ("agent", "notes", "agent", "nats", "postgres")


def writing(body: dict[str, Any]) -> Script:
    """A model that adds what it is told to a note."""
    if body["messages"][-1]["role"] == "tool":
        return answer("Done.")
    text = body["messages"][-1]["content"]
    return tool_calls(("notes_append", {"path": "log.md", "text": text}), prefix=text.replace(" ", "_"))


async def test_an_approved_change_is_made_once_whoever_is_killed(
    tmp_path: Path, provider: ScriptedProvider, request: pytest.FixtureRequest
) -> None:  # MD-5
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    rounds = max(4, int(request.config.getoption("kills")) // 2)
    vault = tmp_path / "vault"
    vault.mkdir()
    (vault / "log.md").write_text("# Log\n")
    provider.standing = writing
    environment = {"MARGINALIA_VAULTS": str(vault), "MODEL_BASE_URL": provider.base_url, "MODEL_NAME": "scripted"}
    async with local_stack(tmp_path / "home", environment) as stack:
        await stack.searchable()
        for number in range(rounds):
            line = f"entry {number}"
            waiting = await stack.client.ask(line, mode="agent", allowed_tools=["notes.append"])
            assert waiting.types[-1] == "Suspended", (waiting.events, seed)
            for name in BEFORE[number % len(BEFORE)]:
                await stack.kill(name)
            await eventually(partial(decided, stack, waiting.of("ApprovalRequired")[0]), WITHIN)
            await asyncio.sleep(chance.random() * 0.1)  # not to be safe: to hit another moment each time
            await stack.kill(AFTER[number % len(AFTER)])
            whole = await eventually(partial(ended, stack, waiting), WITHIN)
            assert whole.events[: len(waiting.events)] == waiting.events, seed
            assert whole.ids == list(range(1, len(whole.ids) + 1)), seed
            assert [(end["status"], whole.done["status"]) for end in whole.of("ToolCallEnd")] == [("completed", "completed")], (
                whole.events, seed,
            )  # fmt: skip
            assert (vault / "log.md").read_text().splitlines().count(line) == 1, seed
            await stack.ready(WITHIN)
        assert (vault / "log.md").read_text() == "# Log\n" + "".join(f"\nentry {number}\n" for number in range(rounds))


async def decided(stack: LocalStack, asked: dict[str, Any]) -> bool:
    path = f"/api/chat/turns/{asked['turn_id']}/approvals/{asked['tool_call_id']}"
    try:
        answered = await stack.client.http.post(path, json={"decision": "approve", "diff_sha256": asked["diff_sha256"]})
    except httpx.TransportError:
        return False
    assert answered.status_code in (202, 503), answered.text
    return answered.status_code == 202


async def ended(stack: LocalStack, waiting: Streamed) -> Streamed | None:
    turn_id = waiting.started["turn_id"]
    try:
        state = (await stack.client.http.get(f"/api/chat/turns/{turn_id}")).json()
        if state.get("status") in (None, "running", "suspended"):
            return None
        return await stack.client.events(turn_id)
    except (httpx.TransportError, AssertionError):
        return None
