"""Whatever happened in a conversation, the next request is one that the strictest servers take."""

import asyncio
import json
import random
import time

import pytest

from tests.support.chat_client import ChatStack, Streamed
from tests.support.polling import eventually
from tests.support.scripted_provider import DONE, Break, Gate, Script, Step, answer, call_fragments, calls, chunk, frame, whole
from tests.support.scripted_retrieval import hit
from tests.support.strict_provider import Strict

SEQUENCES = 50
AT_ONCE = 5
STEPS = (4, 8)
THINKING = ("", "Hm.")
BROKEN_ARGUMENTS = ('{"query": "te', "", "[1]", '{"query": "a"}{"query": "b"}', '{"query": 7}', '{"words": "tea"}', "{" * 400)


class Conversation:
    """One conversation that things happen to; `model` is the one whose rule the strict provider enforces."""

    def __init__(self, stack: ChatStack, model: str, seed: int, number: int) -> None:
        self.stack = stack
        self.model = model
        self.random = random.Random(f"{seed}-{number}")
        self.words = f"seed {seed} conversation {number}"
        self.id: str | None = None
        self.scripts: list[Script] = []
        self.asked = 0
        self.turn_id = ""
        self.outcomes: set[str] = set()
        self.started = asyncio.Event()

    # What the provider does

    def fragments(self) -> list[Step]:
        """Calls, some of which nobody can run, with ids that repeat from round to round."""
        queries = [f"{self.words} {number}" for number in range(self.random.choice((1, 1, 2, 7)))]
        return call_fragments(*queries, name=self.random.choice(("rag_search",) * 4 + ("other tool!",)))

    def thinking(self) -> list[Step]:
        field = self.random.choice(("reasoning_content", "reasoning"))
        return [chunk(**{field: text}) for text in [self.random.choice(THINKING)] if text]

    def round(self) -> Script:
        return Script([*self.thinking(), *self.fragments(), chunk(self.random.choice(("tool_calls", "stop", "length"))), DONE])

    def broken_round(self) -> Script:
        arguments = self.random.choice(BROKEN_ARGUMENTS)
        entry = {"id": self.random.choice(("", "c", None)), "function": {"name": "rag_search", "arguments": arguments}}
        return Script([*self.thinking(), chunk(tool_calls=[entry]), chunk("tool_calls"), DONE])

    def failure(self) -> Script:
        """The end of the turn, now or in mid-answer."""
        begun = self.random.choice(([], [chunk(content="Half")], self.fragments(), [chunk(reasoning_content="Hm.")]))
        end = self.random.choice(([Break()], [frame({"error": "no"})], [b"data: {\n\n"], [chunk("content_filter")], [chunk("stop"), DONE]))
        return self.random.choice((Script([*begun, *end]), Script(status=400, body={"error": {"message": "bad"}})))

    def last(self) -> Script:
        thinking = self.random.choice(THINKING)
        message = {"content": "Whole [1].", **({"reasoning_content": thinking} if thinking else {})}
        return self.random.choice((answer("Fine [1].", thinking=thinking), whole(message), answer(" \n", thinking=thinking)))

    def script(self, *ends: Script) -> None:
        rounds = [self.random.choice((self.round, self.round, self.broken_round))() for _ in range(self.random.choice((0, 1, 1, 2, 4)))]
        self.scripts = [*rounds, *ends]

    # What the user does

    async def turn(self) -> None:
        self.script(self.random.choice((self.last, self.last, self.failure))())
        await self.ask()

    async def cancel_in_mid_stream(self) -> None:
        gate = Gate()
        begun = self.random.choice(([], [chunk(content="Half")], self.fragments(), [chunk(reasoning_content="Hm.")]))
        self.script(Script([*begun, gate]))
        await self.cancelled_once(gate)

    async def cancel_in_mid_search(self) -> None:
        gate = self.stack.retrieval.gates[self.words] = Gate()
        self.scripts = [calls(f"{self.words} 0", f"{self.words} 1", text=self.random.choice(("", "I look.")))]
        await self.cancelled_once(gate)
        del self.stack.retrieval.gates[self.words]

    async def cancelled_once(self, gate: Gate) -> None:
        self.started = asyncio.Event()
        asking = asyncio.create_task(self.ask(on_disconnect="keep"))
        reached = asyncio.create_task(gate.reached.wait())
        await asyncio.wait((asking, reached), return_when=asyncio.FIRST_COMPLETED)
        await self.started.wait()
        await self.stack.client.http.post(f"/api/chat/turns/{self.turn_id}/cancel")
        await asking
        reached.cancel()

    async def edit(self) -> None:
        await self.again("user")

    async def regenerate(self) -> None:
        await self.again("assistant")

    async def reload(self) -> None:
        """Nothing that a reader does changes anything; another version may become active."""
        if self.id is not None:
            message = self.random.choice((await self.stack.client.conversation(self.id))["messages"])
            version = self.random.choice(message["versions"])
            chosen = await self.stack.client.http.post(f"/api/chat/conversations/{self.id}/messages/{version}/select")
            assert chosen.status_code == 200, chosen.text

    async def again(self, role: str) -> None:
        if self.id is None:
            return
        messages = (await self.stack.client.conversation(self.id))["messages"]
        target = self.random.choice([message for message in messages if message["role"] == role])
        self.script(self.last())
        await self.ask(retry_message_id=target["id"], text=f"Edited, {self.words}" if role == "user" else None)

    async def ask(self, text: str | None = "", **fields: object) -> None:
        self.asked += 1
        message = f"Question {self.asked}, {self.words}" if text == "" else text
        fields |= {"provider": "ruled", "model": self.model} | ({} if self.id is None else {"conversation_id": self.id})
        async with asyncio.timeout(20), self.stack.client.chat(message, **fields) as streamed:
            await streamed.read(until="TurnStarted")
            self.id, self.turn_id = streamed.started["conversation_id"], streamed.started["turn_id"]
            self.started.set()
            await streamed.read()
        ended_once(streamed)
        self.outcomes.add(streamed.done["status"])

    async def live(self) -> None:
        happenings = (self.turn, self.turn, self.cancel_in_mid_stream, self.cancel_in_mid_search, self.edit, self.regenerate, self.reload)
        for _ in range(self.random.randint(*STEPS)):
            await self.random.choice(happenings)()
        self.scripts = [answer("The end.")]
        await self.ask()


def ended_once(streamed: Streamed) -> None:
    assert streamed.done["status"] in ("completed", "cancelled", "failed", "limit_reached")
    begun, ended = ([event["tool_call_id"] for event in streamed.of(name)] for name in ("ToolCallStart", "ToolCallEnd"))
    assert sorted(begun) == sorted(ended)


# Complaints whose next request was refused: danny-avila/LibreChat#13366, NousResearch/hermes-agent#14938, bkywksj/knowledge-base#12,
# continuedev/continue#9940, unslothai/unsloth#10059, BigPizzaV3/CodexPlusPlus#1748, open-webui/open-webui#24940, earendil-works/pi#7777,
# earendil-works/pi#1048
@pytest.mark.parametrize("model", ["required", "never", "whole-required"])
async def test_no_request_of_any_conversation_is_refused(chat_stack: ChatStack, model: str) -> None:  # ON-4, ON-13, ON-15
    seed = time.time_ns()
    print(f"seed {seed}")  # noqa: T201
    conversations = {}

    def played(body: dict) -> Script:  # type: ignore[type-arg]
        text = json.dumps(body["messages"])
        (conversation,) = (one for one in conversations.values() if f'{one.words}"' in text or f"{one.words} " in text)
        return conversation.scripts.pop(0) if conversation.scripts else answer("No more.")

    chat_stack.provider.strict = Strict(reasoning="never" if model == "never" else "required")
    chat_stack.provider.standing = played
    limit = asyncio.Semaphore(AT_ONCE)

    async def live(number: int) -> None:
        conversation = conversations[number] = Conversation(chat_stack, model, seed, number)
        for rank in range(2):
            chat_stack.retrieval.hits[f"{conversation.words} {rank}"] = [hit(f"b{number}-{rank}", f"Text {number}-{rank}.")]
        async with limit:
            await conversation.live()

    async with asyncio.TaskGroup() as group:
        for number in range(SEQUENCES):
            group.create_task(live(number))
    assert chat_stack.provider.objections == []
    # It was not for want of happenings.
    assert {status for one in conversations.values() for status in one.outcomes} == {"completed", "cancelled", "failed", "limit_reached"}
    assert chat_stack.retrieval.interrupted > 0
    await eventually(lambda: _closed(chat_stack))


async def _closed(stack: ChatStack) -> bool:
    return stack.provider.open_streams == 0
