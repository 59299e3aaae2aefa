"""Readers that come and go: whoever reads on from the last event it has seen misses nothing and sees nothing twice (ON-11)."""

import asyncio
import random

from tests.support.chat_client import ChatStack, Streamed
from tests.support.scripted_provider import DONE, Gate, Script, Step, call_fragments, chunk
from tests.support.scripted_retrieval import hit

TURNS = 30
RESUMES = 500
NUMBERS = 150


async def test_500_random_disconnects_and_resumes_miss_nothing_and_repeat_nothing(chat_stack: ChatStack) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    chat_stack.retrieval.hits = {"heron": [hit("h", "Herons stand.", "a.md")]}
    gates: list[Gate] = []

    def script(body: dict[str, object]) -> Script:
        if not any(message["role"] == "tool" for message in body["messages"]):  # type: ignore[attr-defined]
            return Script([chunk(reasoning_content="Hm."), *call_fragments("heron"), chunk(finish_reason="tool_calls"), DONE])
        steps: list[Step] = []
        for number in range(NUMBERS):
            steps.append(chunk(content=f"{number} "))
            if number % 3 == 0:
                gates.append(Gate())
                steps.append(gates[-1])
        return Script([*steps, chunk(content="[1]."), chunk(finish_reason="stop"), DONE])

    chat_stack.provider.standing = script
    resumes = [0]
    pump = asyncio.create_task(_open(gates))
    try:
        async with asyncio.timeout(60):
            logs = await asyncio.gather(*(_read_in_pieces(chat_stack, chance, resumes) for _ in range(TURNS)))
    finally:
        pump.cancel()
    assert resumes[0] >= RESUMES, f"only {resumes[0]} resumes; seed {seed}"
    for log in logs:
        whole = await chat_stack.client.events(log[0]["turn_id"])
        assert log == whole.events, f"seed {seed}"
        assert whole.ids == list(range(1, len(whole.ids) + 1))
        assert whole.done["cited"] == [1]
        assert whole.text == "".join(f"{number} " for number in range(NUMBERS)) + "[1]."


async def _read_in_pieces(stack: ChatStack, chance: random.Random, resumes: list[int]) -> list[dict[str, object]]:
    """All events of a turn, read by a client that leaves after a few events each time."""
    events: list[dict[str, object]] = []
    async with stack.client.chat("Hi", on_disconnect="keep") as streamed:
        await _some(streamed, chance, events)
    turn_id = events[0]["turn_id"]
    while events[-1]["type"] != "Done":
        resumes[0] += 1
        headers = {"last-event-id": str(events[-1]["seq"])}
        async with stack.client.stream("GET", f"/api/chat/turns/{turn_id}/events", headers=headers) as streamed:
            await _some(streamed, chance, events)
    return events


async def _some(streamed: Streamed, chance: random.Random, events: list[dict[str, object]]) -> None:
    """A few events, then the connection is closed; what may be in its buffer is lost."""
    for _ in range(chance.randint(1, 4)):
        before = len(streamed.events)
        await streamed.read_one()
        events += streamed.events[before:]
        if len(streamed.events) == before or events[-1]["type"] == "Done":
            return


async def _open(gates: list[Gate]) -> None:
    """Open each gate once its stream has got there."""
    opened = 0
    while True:
        while opened < len(gates):
            async with asyncio.timeout(30):
                await gates[opened].reached.wait()
            gates[opened].open()
            opened += 1
        await asyncio.sleep(0.002)
