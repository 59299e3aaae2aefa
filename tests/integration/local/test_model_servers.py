import asyncio
import base64
import json
import re
import struct
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import httpx
import psutil
import pytest

from local.embedder.server import MODEL
from local.home import Home
from local.ports import free_port
from local.stack import http_program
from local.supervisor import Supervisor
from services.contexts.evidence_prompt import INSTRUCTIONS, INSUFFICIENT
from services.contexts.responses_parser import parse
from services.contexts.responses_request import request_body
from shared.contracts.evidence import Completion, ParsedResponse


@asynccontextmanager
async def serving(supervisor: Supervisor, name: str, module: str) -> AsyncIterator[httpx.AsyncClient]:
    port = free_port()
    supervisor.start(http_program(name, module, port))
    await supervisor.ready([name], 20)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}/v1", timeout=30) as client:
        yield client


@pytest.fixture
async def embedder(supervisor: Supervisor) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(supervisor, "embedder", "local.embedder") as client:
        yield client


@pytest.fixture
async def model(supervisor: Supervisor) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(supervisor, "model", "local.demo_model") as client:
        yield client


async def cpu_seconds_used_in_half_a_second(pid: int) -> float:
    before = psutil.Process(pid).cpu_times()
    await asyncio.sleep(0.5)
    after = psutil.Process(pid).cpu_times()
    return after.user - before.user


def nearness(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


async def test_a_question_is_nearest_to_its_answer_in_either_language(embedder: httpx.AsyncClient) -> None:
    passages = ["Feed a sourdough starter once a day.", "泡绿茶用八十度的水。", "A bicycle chain needs oil."]
    made = (await embedder.post("/embeddings", json={"model": MODEL, "input": passages})).json()
    vectors = [entry["embedding"] for entry in made["data"]]
    assert [entry["index"] for entry in made["data"]] == [0, 1, 2]
    assert made["usage"]["total_tokens"] > 20
    for question, nearest in (("How hot is the water for green tea?", 1), ("面包酵种多久喂一次", 0)):
        asked = (await embedder.post("/embeddings", json={"model": MODEL, "input": question, "input_type": "query"})).json()
        scores = [nearness(asked["data"][0]["embedding"], vector) for vector in vectors]
        assert scores.index(max(scores)) == nearest


async def test_base64_and_numbers_say_the_same(embedder: httpx.AsyncClient) -> None:
    body = {"model": MODEL, "input": "tea\0with NUL"}
    numbers = (await embedder.post("/embeddings", json=body)).json()["data"][0]["embedding"]
    text = (await embedder.post("/embeddings", json={**body, "encoding_format": "base64"})).json()["data"][0]["embedding"]
    assert struct.unpack("<769f", base64.b64decode(text)) == pytest.approx(numbers, abs=1e-6)
    assert nearness(numbers, numbers) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"input": []}, 400),
        ({"input": ["a", 1]}, 400),
        ({"input": ""}, 400),
        ({"input": "x" * 20_001}, 400),
        ({"input": "x", "dimensions": 1536}, 400),
        ({"input": "x", "model": "another"}, 404),
    ],
)
async def test_what_cannot_be_embedded_is_refused_in_openai_form(embedder: httpx.AsyncClient, body: object, status: int) -> None:
    answer = await embedder.post("/embeddings", json=body)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


async def test_a_query_that_nobody_waits_for_any_more_is_not_begun(home: Home, embedder: httpx.AsyncClient) -> None:
    process = psutil.Process(int(home.pid_file("embedder").read_text()))

    def ask(text: str, seconds: float) -> Awaitable[httpx.Response]:
        return embedder.post("/embeddings", json={"model": MODEL, "input": text, "input_type": "query"}, timeout=seconds)

    async def ask_and_leave() -> None:
        with pytest.raises(httpx.ReadTimeout):
            await ask(long, 0.3)

    long = "泡绿茶用八十度的水。" * 400
    before = process.cpu_times().user
    await ask(long, 120)
    for_one = process.cpu_times().user - before
    await asyncio.gather(*(ask_and_leave() for _ in range(20)))
    await ask("green tea", 120)
    assert process.cpu_times().user - before < 6 * for_one


async def test_a_client_that_leaves_stops_its_batch(home: Home, embedder: httpx.AsyncClient) -> None:
    long = "A starter is flour and water in which wild yeast lives. " * 40
    with pytest.raises(httpx.ReadTimeout):
        await embedder.post("/embeddings", json={"model": MODEL, "input": [long] * 500}, timeout=0.5)
    # One passage of the abandoned batch may still be in the model; the others would take minutes.
    pid = int(home.pid_file("embedder").read_text())
    async with asyncio.timeout(15):
        while await cpu_seconds_used_in_half_a_second(pid) > 0.1:
            pass


async def test_the_demo_model_streams_a_search_and_then_an_answer(model: httpx.AsyncClient) -> None:
    tool = {"type": "function", "function": {"name": "rag_search", "parameters": {"type": "object"}}}
    messages: list[dict[str, object]] = [{"role": "user", "content": "How often is a starter fed?"}]
    body = {"model": "marginalia-demo", "messages": messages, "tools": [tool], "stream": True, "stream_options": {"include_usage": True}}
    chunks = await streamed(model, body)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "starter fed" in "".join(delta.get("reasoning_content") or "" for delta in deltas)
    calls = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    arguments = "".join(call["function"].get("arguments", "") for call in calls)
    assert (calls[0]["function"]["name"], json.loads(arguments)) == ("rag_search", {"query": "starter fed"})
    assert chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["total_tokens"] > 0

    call = {"id": calls[0]["id"], "type": "function", "function": {"name": "rag_search", "arguments": arguments}}
    source = {"number": 1, "file_path": "Bread.md", "heading_path": ["Starter"], "content": "A starter is fed once a week."}
    messages += [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": calls[0]["id"], "content": json.dumps({"sources": [source]})},
    ]
    chunks = await streamed(model, body)
    text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"])
    assert text.endswith("A starter is fed once a week. [1]")
    assert len(chunks) > 6
    whole = (await model.post("/chat/completions", json={**body, "stream": False, "stream_options": None})).json()
    assert whole["choices"][0]["message"]["content"] == text


async def test_the_demo_model_answers_a_prepared_request_by_quotes_or_by_the_fixed_sentence(model: httpx.AsyncClient) -> None:
    # RC-9, RC-14, RC-20: what is tried out without a model of one's own
    evidence = [
        {"label": "E1", "title": "Bread", "source_url": None, "text": "Knead for ten minutes. Let the dough rest overnight."},
        {"label": "E2", "title": "绿茶", "source_url": None, "text": "泡绿茶用八十度的水。"},
    ]

    async def answered(question: str, output_tokens: int = 512) -> ParsedResponse:
        completion = Completion(model="marginalia-demo", output_tokens=output_tokens)
        body = request_body(completion, INSTRUCTIONS, question, evidence)
        return parse((await model.post("/responses", json=body)).json(), {"E1", "E2"})

    for question, outcome, text in (
        ("How long does the dough rest?", "answer_candidate", "Let the dough rest overnight. [E1]"),
        ("泡绿茶用多少度的水？", "answer_candidate", "泡绿茶用八十度的水。 [E2]"),
        ("Who won the race?", "insufficient_evidence", INSUFFICIENT),
    ):
        parsed = await answered(question)
        assert (parsed.outcome, parsed.text) == (outcome, text)
        assert parsed.usage
    assert (await answered("Who won the race?", 16)).outcome == "incomplete"
    for body in ({"model": "marginalia-demo", "input": []}, {"model": "marginalia-demo"}):
        assert (await model.post("/responses", json=body)).status_code == 400


async def test_the_demo_model_refuses_in_openai_form(model: httpx.AsyncClient) -> None:
    for body, status in (({"model": "marginalia-demo", "messages": []}, 400), ({"model": "x", "messages": [{"role": "user"}]}, 404)):
        answer = await model.post("/chat/completions", json=body)
        assert answer.status_code == status
        assert answer.json()["error"]["message"]
    broken = await model.post("/chat/completions", content=b"{")
    assert broken.status_code == 400
    assert [entry["id"] for entry in (await model.get("/models")).json()["data"]] == ["marginalia-demo"]


async def streamed(client: httpx.AsyncClient, body: dict[str, object]) -> list[dict[str, object]]:
    answer = await client.post("/chat/completions", json=body)
    frames = re.findall(r"data: (.*)\n\n", answer.text)
    assert frames[-1] == "[DONE]"
    return [json.loads(frame) for frame in frames[:-1]]
