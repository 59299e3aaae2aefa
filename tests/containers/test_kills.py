"""Agents, retrievals and gateways killed one after the other under chats: no turn is lost, none is told twice."""

import asyncio
import logging
import random
import time
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.containers.images.slow_model import words
from tests.support.chat_client import ChatClient, Streamed
from tests.support.containers import ORIGIN, Containers, ready
from tests.support.polling import eventually

logger = logging.getLogger(__name__)
pytestmark = pytest.mark.timeout(1500)

CHATS = 20
PARTS = {"agent": 3, "retrieval": 2, "gateway": 2}
# Of a whole turn, taken over twice and waited for.
TURN_SECONDS = 90.0
LOST = (httpx.TransportError, AssertionError)


@dataclass
class Turn:
    """What one turn's client has seen, however often it had to come back."""

    question: str
    events: list[dict[str, Any]] = field(default_factory=list)
    connections: int = 0
    refusals: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        told = [event for event in self.events if event["type"] not in ("TextDelta", "Citation")]
        refused = f" after {', '.join(self.refusals)}" if self.refusals else ""
        return f"{self.question}: {', '.join(event.get('code') or event.get('status') or event['type'] for event in told)}{refused}"

    @property
    def given_up(self) -> bool:
        """Whether it took three agents with it, or was cancelled after a request of its client had failed in whatever way."""
        said = {event.get("code") for event in self.events}
        return "agent_lost" in said or (bool(self.refusals) and self.events[-1]["status"] == "cancelled")

    @property
    def ended(self) -> bool:
        return bool(self.events) and self.events[-1]["type"] == "Done"


class Chat:
    """One person who asks again and again in one conversation, and goes to another gateway when one is lost."""

    def __init__(self, number: int, containers: Containers, headers: dict[str, str]) -> None:
        self.number = number
        self.turns: list[Turn] = []
        self.conversation: str | None = None
        self._containers = containers
        self._headers = headers

    async def go_on(self, until: float) -> None:
        while time.monotonic() < until:
            turn = Turn(f"question {self.number}.{len(self.turns)}")
            self.turns.append(turn)
            async with asyncio.timeout(TURN_SECONDS):
                while not turn.ended:
                    await self._read_on(turn)
            self.conversation = turn.events[0]["conversation_id"]

    async def _read_on(self, turn: Turn) -> None:
        turn.connections += 1
        addresses = await asyncio.to_thread(self._containers.addresses)
        if not addresses:
            await asyncio.sleep(0.2)
            return
        address = addresses[(self.number + turn.connections) % len(addresses)]
        try:
            async with httpx.AsyncClient(base_url=address, headers=self._headers, timeout=20) as http:
                await self._take(ChatClient(http), turn)
        except LOST as error:  # a gateway that is not there, or says that an agent is not
            turn.refusals.append(str(error)[:80] or type(error).__name__)
            await asyncio.sleep(0.2)

    async def _take(self, client: ChatClient, turn: Turn) -> None:
        if turn.events:
            after = {"last-event-id": str(turn.events[-1]["seq"])}
            stream = client.stream("GET", f"/api/chat/turns/{turn.events[0]['turn_id']}/events", headers=after)
        else:
            known = {} if self.conversation is None else {"conversation_id": self.conversation}
            body = {"provider": "slow", "on_disconnect": "keep", "client_message_id": turn.question, **known}
            stream = client.chat(turn.question, **body)
        async with stream as streamed:
            try:
                while await streamed.read_one():
                    pass
            finally:
                turn.events += streamed.events


async def test_parts_killed_under_chats_lose_no_turn_and_store_none_twice(  # OP-3, OP-4
    containers: Containers, request: pytest.FixtureRequest
) -> None:
    kills, every, seed = int(request.config.getoption("--container-kills")), 5.0, random.randrange(10**6)
    chance = random.Random(seed)
    logger.warning("seed %d", seed)
    containers.up(**PARTS)
    async with containers.client() as client:
        made = await client.http.post("/api/auth/tokens", json={"name": f"kills {seed}"})
        headers = {"authorization": f"Bearer {made.json()['token']}", "origin": ORIGIN}
    victims = [one for part in PARTS for one in containers.ids(part)]
    chats = [Chat(number, containers, headers) for number in range(CHATS)]
    async with asyncio.TaskGroup() as group:
        for chat in chats:
            group.create_task(chat.go_on(time.monotonic() + (kills + 1) * every))
        for _ in range(kills):
            await asyncio.sleep(every)  # the pace of the kills is what is asked for
            await containers.kill(chance.choice(victims))
    turns = [turn for chat in chats for turn in chat.turns]
    async with containers.client() as client:
        await eventually(lambda: ready(client.http), TURN_SECONDS, every=0.2)
        for chat in chats:
            await stored_as_seen(client, chat)
    unfinished = [turn for turn in turns if turn.events[-1]["status"] != "completed"]
    restarted = sum(any(event["type"] == "RoundRestarted" for event in turn.events) for turn in turns)
    resumed = sum(turn.connections > 1 for turn in turns)
    logger.warning("%d kills, %d turns: %d taken over, %d read on; %s", kills, len(turns), restarted, resumed, list(map(str, unfinished)))
    assert [str(turn) for turn in unfinished if not turn.given_up] == []


async def stored_as_seen(client: ChatClient, chat: Chat) -> None:
    """Each of its turns is one log with one `Done`, and one question and one answer in the conversation."""
    for turn in chat.turns:
        assert [event["seq"] for event in turn.events] == list(range(1, len(turn.events) + 1)), turn.question
        whole: Streamed = await client.events(turn.events[0]["turn_id"])
        assert whole.events == turn.events, turn.question
        assert whole.done, turn.question
        assert whole.done["status"] != "completed" or whole.text == "".join(words(turn.question)), turn.question
    assert chat.conversation is not None
    messages = (await client.conversation(chat.conversation))["messages"]
    assert [message["content"] for message in messages if message["role"] == "user"] == [turn.question for turn in chat.turns]
    replies = [message for message in messages if message["role"] == "assistant"]
    assert [reply["turn_id"] for reply in replies] == [turn.events[0]["turn_id"] for turn in chat.turns]
    for reply, turn in zip(replies, chat.turns, strict=True):
        assert reply["status"] != "completed" or reply["content"] == "".join(words(turn.question)), turn.question
    assert {len(message["versions"]) for message in messages} == {1}
    ids = [message["id"] for message in messages]
    assert len(set(ids)) == len(ids)
