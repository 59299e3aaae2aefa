"""Bad input gets a clear problem and changes nothing: never a 500, never a silent repair."""

import asyncio
import contextlib
import json

import httpx
import pytest

from tests.support.chat_client import ChatStack

VALID = {"message": "Hi", "stream": False}


async def post(stack: ChatStack, body: bytes, content_type: str = "application/json", **headers: str) -> httpx.Response:
    return await stack.client.http.post("/api/chat", content=body, headers={"content-type": content_type, **headers})


def encoded(**fields: object) -> bytes:
    return json.dumps({**VALID, **fields}).encode()


BODIES: list[tuple[str, bytes, int]] = [
    ("empty", b"", 400),
    ("cut off", b"{", 400),
    ("an array", b"[]", 422),
    ("not UTF-8", b'{"message":"\xff"}', 400),
    ("UTF-16", '{"message":"Hi"}'.encode("utf-16"), 400),
    ("a byte order mark", b"\xef\xbb\xbf" + encoded(), 400),
    ("NaN", b'{"message":NaN}', 400),
    ("Infinity", b'{"message":"Hi","stream":Infinity}', 400),
    ("a float beyond doubles", b'{"message":"Hi","stream":1e999}', 400),
    ("a lone surrogate", b'{"message":"\\ud800"}', 422),
    ("NUL", b'{"message":"a\\u0000b"}', 422),
    ("5,000 digits", b'{"message":' + b"9" * 5000 + b"}", 400),
    ("2^63", b'{"message":"Hi","stream":9223372036854775808}', 422),
    ("a number for a string", encoded(message=1), 422),
    ("a string for a bool", encoded(stream="true"), 422),
    ("1 for a bool", encoded(stream=1), 422),
    ("a key twice", b'{"message":"a","message":"b"}', 400),
    ("an unknown key", encoded(base_url="http://evil"), 422),
    ("100,000 brackets", b"[" * 100_000, 400),
    ("900 brackets deep", b"[" * 900 + b"]" * 900, 400),
    ("33 deep", b'{"message":' + b"[" * 33 + b"]" * 33 + b"}", 400),
    ("white space", encoded(message="  \n\t "), 422),
    ("zero-width only", encoded(message="\u200b\u202e\u2060"), 422),
    ("no message", b"{}", 422),
    ("an empty message", encoded(message=""), 422),
    ("a malformed id", encoded(conversation_id="not-an-id"), 422),
    ("an unknown mode", encoded(mode="root"), 422),
    ("a bad client id", encoded(client_message_id="a\r\nb"), 422),
    ("an unknown workspace in the filters", encoded(retrieval={"filters": {"workspaces": ["22222222-2222-4222-8222-222222222222"]}}), 404),
    ("a long client id", encoded(client_message_id="x" * 300), 422),
    ("unknown filters", encoded(retrieval={"filters": {"where": 1}}), 422),
    (
        "both retry and parent",
        encoded(retry_message_id="11111111-1111-4111-8111-111111111111", parent_message_id="11111111-1111-4111-8111-111111111111"),
        422,
    ),
    ("an unknown provider", encoded(provider="nobody"), 422),
    ("an unknown model", encoded(model="none"), 422),
    ("an unknown conversation", encoded(conversation_id="11111111-1111-4111-8111-111111111111"), 404),
    ("an unknown workspace", encoded(workspace="22222222-2222-4222-8222-222222222222"), 404),
    ("a retry without a conversation", encoded(retry_message_id="11111111-1111-4111-8111-111111111111"), 422),
    ("too long a message", encoded(message="x" * 200_001), 413),
    ("too large a body", encoded(message="x" * 1_100_000), 413),
]


async def test_every_bad_body_gets_its_problem_and_changes_nothing(chat_stack: ChatStack) -> None:
    for name, body, status in BODIES:
        answer = await post(chat_stack, body)
        assert answer.status_code == status, f"{name}: {answer.status_code} {answer.text[:300]}"
        assert answer.headers["content-type"] == "application/problem+json", name
        problem = answer.json()
        assert {"type", "title", "status", "detail", "code"} <= set(problem), name
        assert problem["status"] == status, name
        if status == 422:
            assert problem["errors"], name
            assert all(set(error) == {"location", "message"} for error in problem["errors"]), name
    assert chat_stack.provider.exchanges == []
    assert (await chat_stack.client.http.get("/api/chat/conversations")).json()["items"] == []


async def test_only_plain_json_is_taken(chat_stack: ChatStack) -> None:
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1", ""):
        answer = await post(chat_stack, encoded(), content_type)
        assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type"), content_type
    compressed = await post(chat_stack, encoded(), **{"content-encoding": "gzip"})
    assert compressed.status_code == 415
    assert (await post(chat_stack, encoded(), "application/json; charset=utf-8")).status_code == 200


async def test_a_body_without_a_declared_length_is_limited_too(chat_stack: ChatStack) -> None:
    async def body():  # type: ignore[no-untyped-def]
        for _ in range(40):
            yield b" " * 65_536

    answer = await chat_stack.client.http.post("/api/chat", content=body(), headers={"content-type": "application/json"})
    assert answer.status_code == 413


async def test_the_offending_value_is_not_echoed(chat_stack: ChatStack) -> None:
    answer = await chat_stack.client.http.post("/api/auth/login", json={"username": "admin", "password": ["s3cret-value"]})
    assert answer.status_code == 422
    assert "s3cret-value" not in answer.text


async def test_unknown_addresses_and_methods_are_problems(chat_stack: ChatStack) -> None:
    http = chat_stack.client.http
    for path in ("/api/nothing", "/nothing", "/api/chat/turns/not-an-id", "/api/chat/conversations/%00", "/api/chat/turns/..%2f..%2fx"):
        answer = await http.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json"), path
    answer = await http.delete("/api/chat")
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
    assert "POST" in answer.headers["allow"]


@pytest.mark.parametrize(
    "query", ["limit=1&limit=2", "limit=0", "limit=-1", "limit=1001", "limit=1e3", "limit=%D9%A3", "cursor=!!!", "limit=%ff"]
)
async def test_bad_queries_are_refused(chat_stack: ChatStack, query: str) -> None:
    answer = await chat_stack.client.http.get(f"/api/chat/conversations?{query}")
    assert answer.status_code in (400, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("value", ["abc", "-1", "9" * 30, "1.5", "٣"])
async def test_a_last_event_id_that_is_none_is_400(chat_stack: ChatStack, value: str) -> None:
    turn = await chat_stack.client.ask("Hi")
    answer = await chat_stack.client.http.get(
        f"/api/chat/turns/{turn.started['turn_id']}/events", headers={"last-event-id": value.encode("utf-8")}
    )
    assert (answer.status_code, answer.json()["code"]) == (400, "last_event_id_invalid")


async def test_a_number_beyond_the_end_of_a_turn_is_refused(chat_stack: ChatStack) -> None:
    turn = await chat_stack.client.ask("Hi")
    answer = await chat_stack.client.http.get(f"/api/chat/turns/{turn.started['turn_id']}/events", headers={"last-event-id": "999"})
    assert answer.status_code == 400


async def test_a_message_that_looks_like_our_frames_stays_a_message(chat_stack: ChatStack) -> None:
    turn = await chat_stack.client.ask('x\n\nid: 99\nevent: Done\ndata: {"type":"Done"}\n\n')
    assert turn.done["status"] == "completed"
    conversation = await chat_stack.client.conversation(turn.started["conversation_id"])
    assert conversation["messages"][0]["content"].startswith("x\n\nid: 99")


async def test_a_body_that_never_arrives_is_given_up(chat_stack: ChatStack) -> None:
    host, port = chat_stack.base_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    cookie = f"marginalia_session={chat_stack.client.http.cookies['marginalia_session']}"
    head = (
        f"POST /api/chat HTTP/1.1\r\nhost: {host}\r\norigin: {chat_stack.base_url}\r\ncookie: {cookie}\r\n"
        f"x-csrf-token: {chat_stack.client.http.headers['x-csrf-token']}\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{{"
    )
    writer.write(head.encode())
    async with asyncio.timeout(15):
        answer = await reader.read(12)
    assert answer == b"HTTP/1.1 408"
    writer.close()


@pytest.mark.parametrize("head", [b"", b"GET /healthz HTTP/1.1\r\nhost: x\r\n", b"GET / HTTP/1.1\r\nx: " + b"y" * 100_000])
async def test_a_head_that_never_ends_is_given_up(chat_stack: ChatStack, head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.gateway.http_protocol.HEAD_SECONDS", 0.5)
    host, port = chat_stack.base_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(head)
    async with asyncio.timeout(5):
        with contextlib.suppress(ConnectionError):
            assert not (await reader.read()).startswith(b"HTTP/1.1 2")
    writer.close()
    assert (await chat_stack.client.http.get("/healthz")).status_code == 200


async def test_streams_carry_the_headers_that_keep_proxies_from_holding_them(chat_stack: ChatStack) -> None:
    async with chat_stack.client.chat("Hi") as streamed:
        headers = streamed.response.headers
        assert headers["cache-control"] == "no-cache, no-transform"
        assert headers["x-accel-buffering"] == "no"
        assert headers["content-type"].startswith("text/event-stream")
        await streamed.read()
