"""Two agents, and the one that is in the middle of an answer is killed or frozen: the other goes on, and every reader sees one log."""

import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from local.stack import ROOT
from tests.support.chat_client import Streamed
from tests.support.local_stack import LocalStack, local_stack
from tests.support.polling import eventually
from tests.support.scripted_provider import DONE, Exchange, Gate, Script, ScriptedProvider, Step, call_fragments, chunk, usage_chunk

# More by hand: pytest tests/faults/test_agents.py --kills 100
DONE_WITHIN = 30.0
PHASES = ("before the first token", "thinking", "text", "arguments", "second round")


@pytest.fixture
def kills(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("kills"))


async def test_kill_9_of_an_agent_in_mid_answer_ends_every_turn_once_and_nearly_all_whole(
    tmp_path: Path, provider: ScriptedProvider, kills: int
) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    vault = tmp_path / "vault"
    vault.mkdir()
    (vault / "heron.md").write_text("# Heron\n\nThe heron stands still.\n")
    outcomes: list[str] = []
    async with two_agents(tmp_path, provider, vault) as (stack, agents):
        await stack.searchable()
        for number in range(kills):
            phase = PHASES[number % len(PHASES)] if number < len(PHASES) else chance.choice(PHASES)
            gate = Gate()
            provider.standing = telling(phase, gate)
            async with asyncio.timeout(DONE_WITHIN), stack.client.chat("Where does the heron stand?") as streamed:
                reading = asyncio.create_task(streamed.read())
                await gate.reached.wait()
                await agents.kill(serving(agents, provider.exchanges[-1]))
                await reading
            outcomes.append(streamed.done["status"])
            await check_one_log(stack, streamed, f"{phase}, seed {seed}")
            await agents.both_there()
    assert outcomes.count("completed") >= 0.95 * len(outcomes), (outcomes, seed)


async def test_an_agent_that_was_only_frozen_publishes_nothing_of_a_turn_that_another_took_over(
    tmp_path: Path, provider: ScriptedProvider
) -> None:
    vault = tmp_path / "vault"
    vault.mkdir()
    async with two_agents(tmp_path, provider, vault) as (stack, agents):
        gate = Gate()
        # What the provider goes on to say waits in the frozen agent's socket.
        provider.next(Script([chunk(role="assistant", content="Half "), gate, chunk(content="of another."), chunk(finish_reason="stop")]))
        provider.standing = Script([chunk(role="assistant", content="Whole."), chunk(finish_reason="stop"), DONE])
        async with asyncio.timeout(DONE_WITHIN), stack.client.chat("Hi") as streamed:
            await streamed.read(until="TextDelta")
            pid = serving(agents, provider.exchanges[-1])
            os.kill(pid, signal.SIGSTOP)
            try:
                gate.open()
                await streamed.read(until="RoundRestarted")
            finally:
                os.kill(pid, signal.SIGCONT)
            await streamed.read()
        assert (streamed.done["status"], streamed.text) == ("completed", "Whole.")
        await check_one_log(stack, streamed, "frozen")
        # It is of use again.
        await eventually(lambda: _answers(stack), 10)


async def test_an_agent_that_is_told_to_stop_leaves_its_turns_to_the_other(tmp_path: Path, provider: ScriptedProvider) -> None:
    """What ends within its grace ends there; the rest goes on elsewhere."""
    vault = tmp_path / "vault"
    vault.mkdir()
    async with two_agents(tmp_path, provider, vault) as (stack, agents):
        gate = Gate()
        provider.next(Script([chunk(role="assistant", content="Half "), gate]))
        provider.standing = Script([chunk(role="assistant", content="Whole."), chunk(finish_reason="stop"), DONE])
        async with asyncio.timeout(DONE_WITHIN), stack.client.chat("Hi") as streamed:
            await streamed.read(until="TextDelta")
            os.kill(serving(agents, provider.exchanges[-1]), signal.SIGTERM)
            await streamed.read()
        assert (streamed.done["status"], streamed.text) == ("completed", "Whole."), streamed.of("Error")
        assert len(streamed.of("RoundRestarted")) == 1
        await check_one_log(stack, streamed, "stopped")


class Agents:
    """The supervisor's agent and one more; whichever dies is started again."""

    def __init__(self, stack: LocalStack, environment: dict[str, str], log: Path) -> None:
        self._stack = stack
        self._environment = environment
        self._log = log
        self._other: asyncio.subprocess.Process | None = None
        self._starts = 1

    async def start(self) -> None:
        self._starts += 1
        with self._log.open("ab") as log:
            self._other = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "services.agent", cwd=ROOT, env=self._environment, stdout=log, stderr=log
            )

    async def stop(self) -> None:
        if self._other is not None and self._other.returncode is None:
            self._other.terminate()
            async with asyncio.timeout(20):
                await self._other.wait()

    def pids(self) -> list[int]:
        assert self._other is not None
        return [self._stack.pid("agent"), self._other.pid]

    async def kill(self, pid: int) -> None:
        assert self._other is not None
        if pid == self._other.pid:
            self._other.kill()
            await self._other.wait()
            await self.start()
        else:
            self._starts += 1
            await self._stack.kill("agent")

    async def both_there(self) -> None:
        """Until every agent that was started has said that it is ready."""

        async def ready() -> bool:
            logs = (self._log, self._stack.home / "logs" / "agent.log")
            return sum(log.read_text().count("agent is ready") for log in logs) == self._starts

        await eventually(ready, 20, every=0.1)


@asynccontextmanager
async def two_agents(tmp_path: Path, provider: ScriptedProvider, vault: Path) -> AsyncIterator[tuple[LocalStack, Agents]]:
    model = {"MODEL_BASE_URL": provider.base_url, "MODEL_NAME": "scripted"}
    async with local_stack(tmp_path / "home", {"MARGINALIA_VAULTS": str(vault), **model}) as stack:
        agents = Agents(stack, stack.environment("agent"), tmp_path / "agent-2.log")
        await agents.start()
        try:
            await agents.both_there()
            yield stack, agents
        finally:
            await agents.stop()


def telling(phase: str, gate: Gate) -> Callable[[dict[str, Any]], Script]:
    """A provider that searches once and then answers; its first answer in this phase waits at the gate for its agent's death."""
    held = [gate]

    def script(body: dict[str, Any]) -> Script:
        results = [message for message in body["messages"] if message["role"] == "tool"]
        steps: list[Step] = [chunk(role="assistant", content=None)]
        if not results:
            steps += [chunk(reasoning_content="Let me "), chunk(reasoning_content="see. "), chunk(content="I look. ")]
            cut = {"before the first token": 0, "thinking": 2, "text": 4, "arguments": 6}.get(phase)
            steps += [*call_fragments("heron stands"), chunk(finish_reason="tool_calls"), usage_chunk(), DONE]
        else:
            steps += [chunk(content="It stands "), chunk(content="still [1]."), chunk(finish_reason="stop"), usage_chunk(), DONE]
            cut = 2 if phase == "second round" else None
        if cut is not None and held:
            steps.insert(cut, held.pop())
        return Script(steps)

    return script


def serving(agents: Agents, exchange: Exchange) -> int:
    """The agent whose socket the request came through."""
    for pid in agents.pids():
        sockets = {str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink()}
        for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if int(fields[1].split(":")[1], 16) == exchange.client_port and f"socket:[{fields[9]}]" in sockets:
                return pid
    raise AssertionError("no agent holds the request")


async def check_one_log(stack: LocalStack, streamed: Streamed, phase: str) -> None:
    """The reader saw what is kept, each event once, every call ended."""
    turn_id = streamed.started["turn_id"]
    assert streamed.ids == list(range(1, len(streamed.ids) + 1)), phase
    assert (await stack.client.events(turn_id)).events == streamed.events, phase
    state = (await stack.client.http.get(f"/api/chat/turns/{turn_id}")).json()
    message = (await stack.client.conversation(streamed.started["conversation_id"]))["messages"][1]
    assert message["content"] == state["content"] == streamed.text, phase
    assert message["activity"] == state["activity"], phase
    started = [event["tool_call_id"] for event in streamed.of("ToolCallStart")]
    assert sorted(started) == sorted(event["tool_call_id"] for event in streamed.of("ToolCallEnd")), phase
    if streamed.done["status"] == "completed" and streamed.of("Citation"):
        assert streamed.done["cited"] == [source["number"] for source in message["sources"]] == [1], phase


async def _answers(stack: LocalStack) -> bool:
    answered: Awaitable[Streamed] = stack.client.ask("Hi")
    return (await answered).done["status"] == "completed"
