"""The tools of the agent mode: which are offered, what they do, what the model and the client are told. Over HTTP, on a real vault."""

import json
from typing import Any
from uuid import UUID

import pytest

from services.agent import note_tools
from tests.support.agent_stack import BREAD, AgentStack
from tests.support.scripted_provider import answer, calls, tool_calls
from tests.support.scripted_retrieval import hit

READING = {"rag_search", "notes_search", "notes_read", "markdown_catalog", "markdown_compose"}


def offered(stack: AgentStack, exchange: int = -1) -> set[str]:
    return {tool["function"]["name"] for tool in stack.provider.exchanges[exchange].body.get("tools", [])}


async def test_every_tool_that_changes_nothing_is_offered_unless_the_request_says_which(agent_stack: AgentStack) -> None:
    # MD-3, ON-3
    await agent_stack.ask()
    assert offered(agent_stack) == READING
    await agent_stack.ask(allowed_tools=["notes.read", "notes.patch_markdown"])
    assert offered(agent_stack) == {"notes_read", "notes_patch_markdown"}
    await agent_stack.ask(retrieval={"enabled": False})
    assert offered(agent_stack) == READING - {"rag_search"}
    await agent_stack.ask(allowed_tools=[])
    assert offered(agent_stack) == set()
    await agent_stack.ask(mode="chat", allowed_tools=["notes.create", "whatever"])
    assert offered(agent_stack) == {"rag_search"}
    refused = await agent_stack.client.http.post("/api/chat", json={"message": "Hi", "mode": "agent", "allowed_tools": ["notes.burn"]})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid")
    assert "notes.burn" in refused.json()["detail"]


async def test_a_tool_that_was_not_offered_is_not_executed(agent_stack: AgentStack) -> None:  # ON-3
    for fields in ({"mode": "chat"}, {"allowed_tools": ["notes.read"]}):
        agent_stack.provider.next(tool_calls(("notes_create", {"path": "New.md", "content": "x"})), answer("No."))
        turn = await agent_stack.ask(**fields)
        assert turn.done["status"] == "completed"
        (end,) = turn.of("ToolCallEnd")
        assert (end["name"], end["status"]) == ("notes.create", "failed")
        assert "There is no tool" in agent_stack.results()[0]
        assert not (agent_stack.vault / "New.md").exists()


async def test_catalogue_compose_search_and_read_one_after_the_other(agent_stack: AgentStack) -> None:
    # MD-1, MD-2, MD-3: seed A's order of things
    agent_stack.chat.retrieval.hits = {"knead": [hit("k", "Knead for ten minutes.", "Bread.md")]}
    agent_stack.provider.next(
        tool_calls(("markdown_catalog", {}), prefix="a"),
        tool_calls(("markdown_compose", {"blocks": [{"type": "heading", "level": 2, "content": "1. *Rye*"}]}), prefix="b"),
        tool_calls(("notes_search", {"query": "bread"}), ("notes_search", {"query": "nothing of it"}), prefix="c"),
        tool_calls(("notes_read", {"path": "Bread.md", "workspace": None}), prefix="d"),
        answer("See [Bread](Bread.md)."),
    )
    turn = await agent_stack.ask()
    assert turn.done["status"] == "completed"
    assert [(end["name"], end["status"], end.get("hits")) for end in turn.of("ToolCallEnd")] == [
        ("markdown.catalog", "completed", None),
        ("markdown.compose", "completed", None),
        ("notes.search", "completed", 1),
        ("notes.search", "completed", 0),
        ("notes.read", "completed", None),
    ]
    catalogue, composed, found, nothing, read = map(json.loads, agent_stack.results())
    assert {"formats", "callouts", "limits", "editing"} <= catalogue.keys()
    assert composed == {"markdown": "## 1. \\*Rye\\*\n"}
    assert [(note["path"], note["workspace"]) for note in found["notes"]] == [("Bread.md", "vault")]
    assert nothing["notes"] == []
    assert [found["notes"][0]["link"], read["link"]] == ["[Bread](Bread.md)"] * 2
    assert (read["content"], read["content_hash"]) == (BREAD, agent_stack.hash_of("Bread.md"))
    message = (await agent_stack.client.conversation(turn.started["conversation_id"]))["messages"][1]
    assert [call["status"] for call in message["tool_calls"]] == ["completed"] * 5


async def test_notes_are_found_by_their_text_where_the_name_does_not_say_it(agent_stack: AgentStack) -> None:  # MD-3
    found = hit("k", "Knead for ten minutes.", "Bread.md").model_copy(update={"workspace": UUID(agent_stack.workspace)})
    agent_stack.chat.retrieval.hits = {"knead": [found]}
    agent_stack.provider.next(tool_calls(("notes_search", {"query": "knead"})), answer("Found."))
    await agent_stack.ask()
    assert json.loads(agent_stack.results()[0])["notes"] == [
        {"workspace": "vault", "path": "Bread.md", "title": "Bread", "link": "[Bread](Bread.md)", "excerpt": "Knead for ten minutes."}
    ]
    agent_stack.chat.retrieval.failing = True
    agent_stack.provider.next(tool_calls(("notes_search", {"query": "bread"})), answer("Found."))
    await agent_stack.ask()
    result = json.loads(agent_stack.results()[0])
    assert ([note["path"] for note in result["notes"]], "by name alone" in result["notice"]) == (["Bread.md"], True)


@pytest.mark.parametrize(
    ("name", "arguments", "why"),
    [
        ("notes_read", {"path": "Gone.md"}, "note_not_found"),
        ("notes_read", {"path": "../../etc/passwd"}, "path_invalid"),
        ("notes_read", {"path": "Bread.md", "offset": 1000}, "35 characters"),
        ("notes_read", {"path": "Bread.md", "offset": "0"}, "offset"),
        ("notes_read", {"path": "Bread.md", "workspace": "elsewhere"}, "there are: vault"),
        ("notes_read", {}, "path"),
        ("notes_read", {"path": "Bread.md", "colour": "red"}, "colour"),
        ("notes_search", {"query": " "}, "query"),
        ("markdown_compose", {"blocks": [{"type": "blink"}]}, "blocks"),
        ("rag_search", {"query": ["a"]}, "query"),
    ],
)
async def test_a_call_that_cannot_be_done_is_explained_to_the_model(
    agent_stack: AgentStack, name: str, arguments: dict[str, Any], why: str
) -> None:
    agent_stack.provider.next(tool_calls((name, arguments)), answer("I see."))
    turn = await agent_stack.ask()
    (end,) = turn.of("ToolCallEnd")
    assert (end["status"], end["arguments"]) == ("failed", arguments)
    assert why in end["error"]
    assert why in agent_stack.results()[0]
    assert turn.done["status"] == "completed"


async def test_a_note_elsewhere_is_linked_to_as_seen_from_the_conversations_workspace(agent_stack: AgentStack) -> None:  # MN-3
    http = agent_stack.client.http
    other = (await http.post("/api/workspaces", json={"directory": "my other", "notes_dir": ".notes"})).json()["id"]
    written = await http.put(f"/api/workspaces/{other}/notes/Bread.md", json={"content": "# Rye"}, headers={"if-none-match": "*"})
    assert written.status_code == 201
    agent_stack.provider.next(
        tool_calls(("notes_read", {"path": "Bread.md", "workspace": "my other"}), ("notes_search", {"query": "rye"})), answer("Read.")
    )
    await agent_stack.ask()
    read, found = map(json.loads, agent_stack.results())
    assert [read["link"], found["notes"][0]["link"]] == ["[Rye](../my%20other/.notes/Bread.md)"] * 2


async def test_a_long_note_is_read_in_parts(agent_stack: AgentStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(note_tools, "READ_CHARACTERS_MAX", 10)
    agent_stack.provider.next(
        tool_calls(("notes_read", {"path": "Bread.md"}), ("notes_read", {"path": "Bread.md", "offset": 10})), answer("I see.")
    )
    await agent_stack.ask()
    first, second = map(json.loads, agent_stack.results())
    assert first["content"] + second["content"] == BREAD[:20]
    assert (first["next_offset"], first["total_characters"]) == (10, len(BREAD))
    assert first["content_hash"] == second["content_hash"] == agent_stack.hash_of("Bread.md")


async def test_after_twelve_rounds_the_tools_are_withdrawn(agent_stack: AgentStack) -> None:  # ON-8
    agent_stack.provider.standing = lambda body: tool_calls(("notes_read", {"path": "Bread.md"}), prefix=f"round{len(body['messages'])}")
    turn = await agent_stack.ask()
    assert turn.done["status"] == "limit_reached"
    assert len(agent_stack.provider.exchanges) == 13
    assert [bool(exchange.body.get("tools")) for exchange in agent_stack.provider.exchanges] == [True] * 12 + [False]
    assert "Answer now" in agent_stack.results()[-1]


async def test_what_the_tools_may_see_is_what_the_account_may(agent_stack: AgentStack) -> None:  # MD-3
    http = agent_stack.client.http
    assert (await http.post("/api/workspaces", json={"directory": "other"})).status_code == 201
    created = await http.post("/api/accounts", json={"username": "mara", "password": "a long password", "role": "member"})
    member = created.json()["id"]
    members = {"items": [{"account_id": member, "access": "read"}]}
    assert (await http.put(f"/api/workspaces/{agent_stack.workspace}/members", json=members)).status_code == 200
    http.cookies.clear()
    await agent_stack.client.login("mara", "a long password")
    agent_stack.provider.next(
        tool_calls(
            ("notes_read", {"path": "x.md", "workspace": "other"}),
            ("notes_read", {"path": "Bread.md"}),
            ("notes_append", {"path": "Bread.md", "text": "x"}),
        ),
        answer("No."),
    )
    turn = await agent_stack.ask(allowed_tools=["notes.read", "notes.append"])
    hidden, seen, refused = turn.of("ToolCallEnd")
    assert "there are: vault" in hidden["error"]
    assert seen["status"] == "completed"
    assert refused["error"].startswith("forbidden")
    assert not turn.of("ApprovalRequired")


async def test_a_search_keeps_its_numbers_beside_other_tools(agent_stack: AgentStack) -> None:  # ON-6
    agent_stack.chat.retrieval.hits = {"herons": [hit("h", "Herons stand.", "a.md")]}
    agent_stack.provider.next(calls("herons"), tool_calls(("notes_read", {"path": "Bread.md"})), answer("They stand [1]."))
    turn = await agent_stack.ask()
    assert turn.done["cited"] == [1]


async def test_a_model_without_tools_answers_and_says_so(agent_stack: AgentStack) -> None:  # ON-2
    turn = await agent_stack.ask(provider="ruled", model="toolless")
    assert [notice["code"] for notice in turn.of("Notice")] == ["retrieval_unavailable"]
    turn = await agent_stack.ask(provider="ruled", model="toolless", allowed_tools=["notes.read"])
    assert [notice["code"] for notice in turn.of("Notice")] == ["tools_unavailable"]
    assert turn.started["retrieval"] == "off"


async def test_the_tools_respect_what_the_account_has_switched_off(agent_stack: AgentStack) -> None:  # MD-6
    off = {"locale": "en", "markdown": {"math": False, "diagrams": True, "callouts": True}}
    assert (await agent_stack.client.http.put("/api/preferences", json=off)).status_code == 200
    agent_stack.provider.next(
        tool_calls(("markdown_catalog", {}), ("markdown_compose", {"blocks": [{"type": "math", "tex": "a"}]})), answer("No.")
    )
    turn = await agent_stack.ask()
    assert [end["status"] for end in turn.of("ToolCallEnd")] == ["completed", "failed"]
    assert "math" not in [one["type"] for one in json.loads(agent_stack.results()[0])["formats"]]
