"""What providers really sent is read as it was meant, however the network cuts it (tests/recorded/README.md)."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from services.agent.chat_model import ChatModel, CompletionRequest
from services.agent.completion import CallArguments, Completion, Delta, Text, Thinking
from services.agent.provider_failure import ProviderFailure
from services.agent.providers import Provider
from tests.support.scripted_provider import Script, ScriptedProvider

RECORDED = Path(__file__).parents[2] / "recorded"
# Of this exchange, not of the answer: another one carries the bytes here.
HOP_BY_HOP = frozenset({"connection", "content-length", "date", "keep-alive", "server", "transfer-encoding"})
# Bytes per write; 0: any number, anew each time.
CUTS = (1, 7, 0, 1 << 20)


def script(recorded: bytes, cut: int, chance: random.Random) -> Script:
    """An answer as `curl -isN` prints it, sent in pieces."""
    for end in (b"\r\n", b"\n"):
        head, separator, body = recorded.partition(end * 2)
        if separator:
            break
    status, *lines = head.decode().splitlines()
    headers = dict(line.split(": ", 1) for line in lines)
    kept = {name: value for name, value in headers.items() if name.lower() not in HOP_BY_HOP | {"content-type"}}
    content_type = next(value for name, value in headers.items() if name.lower() == "content-type")
    steps = []
    while body:
        size = cut or chance.randint(1, 40)
        steps.append(body[:size])
        body = body[size:]
    return Script(steps, status=int(status.split()[1]), headers=kept, content_type=content_type)


async def read(provider: ScriptedProvider) -> dict[str, Any]:
    """What a turn would be told of the next answer."""
    told: list[Delta] = []
    completion, error = Completion(), None

    async def deliver(deltas: list[Delta]) -> None:
        told.extend(deltas)

    async def retried(_: str) -> None:
        """Another answer of the same kind follows."""

    model = ChatModel()
    asked = Provider(name="recorded", base_url=provider.base_url, models=["m"])
    try:
        await model.complete(asked, CompletionRequest(asked.model("m"), [], []), completion, deliver, retried)
    except ProviderFailure as failure:
        error = failure.code
    finally:
        await model.close()
    assert completion.text == "".join(delta.text for delta in told if isinstance(delta, Text))
    assert completion.thinking == "".join(delta.text for delta in told if isinstance(delta, Thinking))
    for call in completion.calls:
        pieces = [delta.fragment for delta in told if isinstance(delta, CallArguments) and delta.position == call.position]
        assert call.arguments == "".join(pieces)
    return {
        "text": completion.text,
        "thinking": completion.thinking,
        "calls": [{"name": call.name, "arguments": _parsed(call.arguments)} for call in completion.calls],
        "finish_reason": completion.finish_reason,
        "usage": completion.usage,
        "error": error,
    }


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", sorted(path.stem for path in RECORDED.glob("*.http")))
async def test_a_recorded_answer_is_read_as_it_was_meant(provider: ScriptedProvider, name: str, cut: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201
    provider.standing = script((RECORDED / f"{name}.http").read_bytes(), cut, random.Random(seed))
    assert await read(provider) == json.loads((RECORDED / f"{name}.json").read_text("utf-8"))


def test_every_recording_says_what_is_expected_and_holds_no_key() -> None:
    recordings = {path.stem for path in RECORDED.glob("*.http")}
    assert recordings == {path.stem for path in RECORDED.glob("*.json")}
    for name in recordings:
        words = (RECORDED / f"{name}.http").read_bytes().lower()
        assert not any(secret in words for secret in (b"bearer ", b"sk-", b"set-cookie", b"authorization"))
