"""Conversations from elsewhere, and conversations taken elsewhere: imported as one path, exported as JSON or Markdown."""

import json
from typing import Any
from uuid import uuid4

import pytest
from markdown_it import MarkdownIt

from services.agent.prompt import SILENT_USER, UNFINISHED_REPLY
from tests.support.chat_client import ChatStack
from tests.support.scripted_provider import answer, calls
from tests.support.scripted_retrieval import WORKSPACE, hit
from tests.support.strict_provider import Strict

LISTED = ("role", "content", "thinking", "tool_calls", "sources", "created_at")
SOURCE = {
    "number": 1,
    "citation_id": "cit_b1",
    "block_id": "b1",
    "workspace": str(WORKSPACE),
    "file_path": "tea.md",
    "heading_path": ["Brewing"],
    "locator": {"start": 0, "end": 10, "content_hash": "0" * 64},
    "excerpt": "80 °C",
}
HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "How hot?", "created_at": "2024-02-29T12:00:00+02:00"},
    {
        "role": "assistant",
        "content": "At 80 °C [1].",
        "thinking": "I look.",
        "tool_calls": [{"id": "c1", "name": "rag.search", "arguments": {"query": "tea"}, "hits": 1}],
        "sources": [SOURCE],
    },
    {"role": "user", "content": "And coffee?"},
]


async def post(stack: ChatStack, body: dict[str, Any]) -> Any:
    return await stack.client.http.post("/api/chat/conversations/import", json=body)


async def imported(stack: ChatStack, messages: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    made = await post(stack, {"title": "Old", "messages": messages, **fields})
    assert made.status_code == 201, made.text
    return made.json()  # type: ignore[no-any-return]


async def test_a_linear_history_becomes_one_path(chat_stack: ChatStack) -> None:  # VT-5
    conversation = await imported(chat_stack, HISTORY, workspace=str(WORKSPACE))
    assert (conversation["title"], conversation["workspace"]) == ("Old", str(WORKSPACE))
    question, reply, next_question = conversation["messages"]
    assert [message["parent_message_id"] for message in conversation["messages"]] == [None, question["id"], reply["id"]]
    assert [message["versions"] for message in conversation["messages"]] == [[question["id"]], [reply["id"]], [next_question["id"]]]
    assert conversation["active_leaf"] == next_question["id"]
    assert conversation["active_response_id"] is None
    assert question["created_at"] == "2024-02-29T10:00:00Z"
    assert (reply["status"], reply["turn_id"], reply["thinking"]) == ("completed", None, "I look.")
    assert reply["cited"] == [1]
    assert reply["sources"] == [{**SOURCE, "state": "current"}]
    assert await chat_stack.client.conversation(conversation["id"]) == conversation
    listed = (await chat_stack.client.http.get("/api/chat/conversations")).json()["items"]
    assert [one["id"] for one in listed] == [conversation["id"]]


async def test_old_tool_calls_stay_unordered(chat_stack: ChatStack) -> None:  # VT-1
    conversation = await imported(chat_stack, HISTORY)
    reply = conversation["messages"][1]
    assert reply["activity"] is None
    assert reply["tool_calls"] == [
        {"id": "c1", "name": "rag.search", "arguments": {"query": "tea"}, "status": "completed", "round": 1, "hits": 1}
    ]


async def test_an_old_answer_cites_by_the_ids_of_its_sources(chat_stack: ChatStack) -> None:  # ON-17
    text = "At 80 °C [cit_blk_b2], `[cit_blk_b1]`, [cit_blk_gone]."
    sources = [{"citation_id": "cit_blk_b1"}, {"citation_id": "cit_blk_b2", "file_path": "tea.md"}, {"file_path": "no id.md"}]
    messages = [{"role": "user", "content": "How hot?"}, {"role": "assistant", "content": text, "sources": sources}]
    conversation = await imported(chat_stack, messages)
    reply = conversation["messages"][1]
    assert (reply["content"], reply["cited"]) == (text, [2])
    assert [(source["number"], source["citation_id"]) for source in reply["sources"]] == [(1, "cit_blk_b1"), (2, "cit_blk_b2"), (3, None)]
    await chat_stack.client.ask("Sure?", conversation_id=conversation["id"])
    assert chat_stack.provider.exchanges[0].body["messages"][2]["content"] == "At 80 °C (tea.md), `[cit_blk_b1]`, [cit_blk_gone]."


async def test_a_turn_after_an_import_sees_text_and_thinking_and_no_call_without_its_result(chat_stack: ChatStack) -> None:  # ON-13, ON-15
    conversation = await imported(chat_stack, HISTORY[:2])
    turn = await chat_stack.client.ask("And coffee?", conversation_id=conversation["id"])
    assert turn.done["status"] == "completed"
    assert chat_stack.provider.exchanges[0].body["messages"][1:] == [
        {"role": "user", "content": "How hot?"},
        {"role": "assistant", "content": "At 80 °C (tea.md).", "reasoning_content": "I look."},
        {"role": "user", "content": "And coffee?"},
    ]
    messages = (await chat_stack.client.conversation(conversation["id"]))["messages"]
    assert [message["content"] for message in messages] == ["How hot?", "At 80 °C [1].", "And coffee?", "Hello."]


async def test_an_imported_reply_and_question_have_versions_like_others(chat_stack: ChatStack) -> None:  # VT-2
    conversation = await imported(chat_stack, HISTORY[:2])
    question, reply = conversation["messages"]
    await chat_stack.client.ask(None, conversation_id=conversation["id"], retry_message_id=reply["id"])
    again = (await chat_stack.client.conversation(conversation["id"]))["messages"]
    assert [message["content"] for message in again] == ["How hot?", "Hello."]
    assert again[1]["versions"][0] == reply["id"]
    await chat_stack.client.ask("How cold?", conversation_id=conversation["id"], retry_message_id=question["id"])
    edited = (await chat_stack.client.conversation(conversation["id"]))["messages"]
    assert [message["content"] for message in edited] == ["How cold?", "Hello."]


async def test_a_reply_that_answers_nothing_is_kept_and_cannot_be_made_anew(chat_stack: ChatStack) -> None:
    conversation = await imported(chat_stack, [{"role": "assistant", "content": "Welcome."}, {"role": "assistant", "content": "Ask."}])
    for message in conversation["messages"]:
        body = {"conversation_id": conversation["id"], "retry_message_id": message["id"]}
        assert (await chat_stack.client.http.post("/api/chat", json=body)).status_code == 422


async def test_whatever_the_order_of_a_history_the_next_request_is_one_that_every_server_takes(chat_stack: ChatStack) -> None:  # VT-5
    chat_stack.provider.strict = Strict()
    said = [("assistant", "Welcome."), ("assistant", "Ask."), ("user", " "), ("assistant", ""), ("user", ""), ("user", "One")]
    conversation = await imported(chat_stack, [{"role": role, "content": content} for role, content in said])
    turn = await chat_stack.client.ask("Hi", conversation_id=conversation["id"])
    assert (turn.done["status"], chat_stack.provider.objections) == ("completed", [])
    first, again = [await _asked_again(chat_stack, conversation["id"], number) for number in range(2)]
    assert again[: len(first)] == first  # MN-6
    assert [message["content"] for message in first[1:]] == [
        SILENT_USER, "Welcome.", SILENT_USER, "Ask.", SILENT_USER, UNFINISHED_REPLY, "One\n\nHi", "Hello.", "Next 0",
    ]  # fmt: skip


async def _asked_again(stack: ChatStack, conversation_id: str, number: int) -> list[dict[str, Any]]:
    await stack.client.ask(f"Next {number}", conversation_id=conversation_id)
    return stack.provider.exchanges[-1].body["messages"]  # type: ignore[no-any-return]


async def test_what_is_read_can_be_imported_again(chat_stack: ChatStack) -> None:
    chat_stack.retrieval.hits["tea"] = [hit("b1", "Tea is brewed at 80 °C.")]
    chat_stack.provider.next(calls("tea", thinking="I look."), answer("At 80 °C [1]."))
    turn = await chat_stack.client.ask("How hot?", workspace=str(WORKSPACE))
    original = await chat_stack.client.conversation(turn.started["conversation_id"])
    exported = [{name: message[name] for name in LISTED} for message in original["messages"]]
    copy = await imported(chat_stack, exported, workspace=original["workspace"])
    assert copy["id"] != original["id"]
    assert [{name: message[name] for name in LISTED} for message in copy["messages"]] == exported
    assert copy["messages"][1]["cited"] == original["messages"][1]["cited"] == [1]


async def test_what_is_absent_is_not_invented(chat_stack: ChatStack) -> None:
    reply = {
        "role": "assistant",
        "content": "See [2].",
        "tool_calls": [{"name": "rag.search"}, {"name": "rag.search", "status": "running"}],
        "sources": [{"file_path": "a.md"}, {"citation_id": "cit_blk_9", "file_path": "b.md", "workspace": str(uuid4())}],
    }
    conversation = await imported(chat_stack, [{"role": "user", "content": "?"}, reply])
    message = conversation["messages"][1]
    assert [(source["number"], source["file_path"], source["locator"], source["state"]) for source in message["sources"]] == [
        (1, "a.md", None, None),  # no workspace: nobody can say what became of it
        (2, "b.md", None, None),
    ]
    assert [(call["id"], call["arguments"], call["status"]) for call in message["tool_calls"]] == [
        ("call_1", {}, "completed"),
        ("call_2", {}, "error"),  # it will not end any more
    ]
    assert message["cited"] == [2]


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"messages": []}, 422),
        ({"title": " "}, 422),
        ({"title": "x" * 201}, 422),
        ({"owner": "me"}, 422),
        ({"messages": [{"role": "system", "content": "Hi"}]}, 422),
        ({"messages": [{"role": "user"}]}, 422),
        ({"messages": [{"role": "user", "content": "Hi", "id": str(uuid4())}]}, 422),
        ({"messages": [{"role": "user", "content": "Hi", "thinking": "hm"}]}, 422),
        ({"messages": [{"role": "user", "content": "a\0b"}]}, 422),
        ({"messages": [{"role": "user", "content": 1}]}, 422),
        ({"messages": [{"role": "user", "content": "Hi", "created_at": 1700000000}]}, 422),
        ({"messages": [{"role": "user", "content": "Hi", "created_at": "1700000000"}]}, 422),
        ({"messages": [{"role": "user", "content": "Hi", "created_at": "2024-01-01T00:00:00"}]}, 422),
        ({"messages": [{"role": "user", "content": "Hi", "created_at": "0001-01-01T00:00:00+14:00"}]}, 422),
        ({"messages": [{"role": "user", "content": "Hi", "created_at": "2024-02-30T00:00:00Z"}]}, 422),
        ({"messages": [{"role": "assistant", "content": "Hi", "sources": [{"number": 1}]}]}, 422),
        ({"messages": [{"role": "assistant", "content": "Hi", "sources": [SOURCE, SOURCE]}]}, 422),
        ({"messages": [{"role": "assistant", "content": "Hi", "sources": [{**SOURCE, "number": 2}, {"file_path": "b.md"}]}]}, 422),
        ({"messages": [{"role": "assistant", "content": "Hi", "tool_calls": [{"id": "a", "name": "f"}, {"id": "a", "name": "f"}]}]}, 422),
        ({"messages": [{"role": "assistant", "content": "Hi", "tool_calls": [{"name": "f", "result": "x"}]}]}, 422),
        ({"messages": [{"role": "user", "content": "Hi"}] * 2001}, 422),
        ({"messages": [{"role": "user", "content": "x" * 200_001}]}, 413),
        ({"messages": [{"role": "user", "content": "x" * 190_000}] * 6}, 413),
        ({"workspace": "22222222-2222-4222-8222-222222222222"}, 404),
    ],
)
async def test_what_is_no_history_is_refused_and_nothing_is_kept(chat_stack: ChatStack, change: dict[str, Any], status: int) -> None:
    answered = await post(chat_stack, {"title": "Old", "messages": HISTORY, **change})
    assert answered.status_code == status, answered.text
    assert answered.headers["content-type"] == "application/problem+json"
    assert (await chat_stack.client.http.get("/api/chat/conversations")).json()["items"] == []


async def test_two_thousand_messages_are_kept_in_order(chat_stack: ChatStack) -> None:
    history = [{"role": ("user", "assistant")[number % 2], "content": str(number)} for number in range(2000)]
    conversation = await imported(chat_stack, history)
    assert [message["content"] for message in conversation["messages"]] == [message["content"] for message in history]


async def markdown(stack: ChatStack, conversation_id: str, accept: str = "text/markdown") -> Any:
    return await stack.client.http.get(f"/api/chat/conversations/{conversation_id}", headers={"accept": accept})


async def test_a_copied_conversation_keeps_its_citations(chat_stack: ChatStack) -> None:  # open-webui/open-webui#11527
    hidden = {**SOURCE, "number": 2, "citation_id": "cit_b2", "block_id": "b2", "file_path": "hidden.md"}
    gone = {**SOURCE, "number": 3, "citation_id": "cit_b3", "block_id": "b3", "file_path": "Old/gone.md", "heading_path": ["A", "B"]}
    chat_stack.retrieval.hashes["Old/gone.md"] = None
    history = [HISTORY[0], {**HISTORY[1], "content": "At 80 °C [3][1].", "sources": [SOURCE, hidden, gone]}]
    conversation = await imported(chat_stack, history)
    exported = await markdown(chat_stack, conversation["id"])
    assert exported.status_code == 200
    assert exported.headers["content-type"] == "text/markdown; charset=utf-8"
    lines = exported.text.splitlines()
    assert lines[0] == "# Old"
    assert lines[2] == "## User, 2024-02-29 10:00 UTC"
    assert "At 80 °C [3][1]." in lines
    assert lines[-4:] == ["Sources:", "", "- [3] Old/gone.md › A › B (the note is gone)", "- [1] tea.md › Brewing"]
    assert "hidden" not in exported.text  # presented, not cited


async def test_json_stays_the_default(chat_stack: ChatStack) -> None:
    conversation = await imported(chat_stack, HISTORY)
    for accept in ("*/*", "", "application/json", "text/html", "application/json, text/markdown", "text/markdown;q=0.5, application/json"):
        answered = await markdown(chat_stack, conversation["id"], accept)
        assert answered.headers["content-type"] == "application/json", accept
        assert answered.headers["vary"] == "Accept"
        assert json.loads(answered.content)["id"] == conversation["id"]
    assert (await markdown(chat_stack, str(uuid4()))).status_code == 404


async def test_hostile_names_and_open_blocks_cannot_take_over_the_document(chat_stack: ChatStack) -> None:
    path = "a](javascript:alert(1)) <b> `x` #t [[w]] https://evil.example www.evil.example\n# h.md"
    source = {**SOURCE, "file_path": path, "heading_path": ["*bold*", "1 < 2"]}
    history = [
        {"role": "user", "content": "```\nopen"},
        {"role": "assistant", "content": "See [1].\n\n<!-- open", "sources": [source]},
        {"role": "user", "content": "End"},
    ]
    conversation = await imported(chat_stack, history, title="*T* <x> [l](u)")
    tokens = MarkdownIt("commonmark").parse((await markdown(chat_stack, conversation["id"])).text)
    headings = [tokens[at + 1] for at, token in enumerate(tokens) if token.type == "heading_open"]
    assert [heading.content.split(",")[0] for heading in headings[1:]] == ["User", "Assistant", "User"]
    shown = [[child.content for child in token.children or []] for token in tokens if token.type == "inline"]
    plain = ["".join(words) for words in shown]
    assert plain[0] == "*T* <x> [l](u)"
    flat = path.replace("\n", " ")
    assert f"[1] {flat} › *bold* › 1 < 2" in plain
    kinds = {child.type for token in tokens for child in token.children or []}
    assert not kinds & {"link_open", "code_inline", "html_inline", "em_open", "image"}
