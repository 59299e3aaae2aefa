"""Changes of notes that wait for the user's consent (MD-5), over HTTP, on a real vault, with agents that come and go."""

import asyncio
import hashlib
from typing import Any
from uuid import UUID

import pytest

from services.agent import execution
from services.agent.app import serve as serve_agent
from services.agent.execution import Execution
from services.agent.note_tools import NoteTools
from services.agent.settings import AgentSettings
from services.agent.turn_reader import TurnReader
from shared.contracts.chat import TurnResult
from shared.contracts.errors import ErrorCode, ServiceError
from tests.support.agent_stack import BREAD, AgentStack
from tests.support.chat_client import Streamed, running
from tests.support.polling import eventually
from tests.support.scripted_provider import KEY, Gate, Script, answer, chunk, tool_calls

WRITING = ["notes.read", "notes.create", "notes.patch_markdown", "notes.append"]


def patch(stack: AgentStack, old: str = "ten", new: str = "twelve", path: str = "Bread.md") -> tuple[str, dict[str, Any]]:
    return "notes_patch_markdown", {"path": path, "content_hash": stack.hash_of(path), "old_text": old, "new_text": new}


async def suspended(stack: AgentStack, *wanted: tuple[str, dict[str, Any]], text: str = "", **fields: Any) -> Streamed:
    """A turn that waits for the user's consent to these calls."""
    stack.provider.next(tool_calls(*wanted, text=text))
    turn = await stack.ask(**{"allowed_tools": WRITING, **fields})
    assert turn.types[-1] == "Suspended", turn.events
    return turn


async def after(stack: AgentStack, turn: Streamed) -> Streamed:
    """What comes after the events that are known."""
    return await stack.client.events(turn.events[0]["turn_id"], after=turn.ids[-1])


async def approved_and_lost_in_the_answer(stack: AgentStack, turn: Streamed) -> Streamed:
    """What comes of a turn whose change is approved, and whose agent is lost in the middle of the answer that follows."""
    (asked,) = turn.of("ApprovalRequired")
    path, headers = f"/api/chat/turns/{asked['turn_id']}/events", {"last-event-id": str(turn.ids[-1])}
    async with asyncio.timeout(30), stack.client.stream("GET", path, headers=headers) as reader:
        assert (await stack.decide(asked)).status_code == 202
        await reader.read(until="TextDelta")
        await stack.chat.execute("UPDATE turns SET owner = gen_random_uuid()")
        return await reader.read()


async def test_a_change_is_shown_then_made_exactly_as_shown_and_the_turn_goes_on(agent_stack: AgentStack) -> None:
    # MD-5, MD-4, ON-11; codexmark/kram#67
    turn = await suspended(agent_stack, patch(agent_stack), text="I change it.")
    (asked,) = turn.of("ApprovalRequired")
    assert (asked["tool_call_id"], asked["name"], asked["path"]) == ("tool_0", "notes.patch_markdown", "Bread.md")
    assert asked["arguments"]["old_text"] == "ten"
    assert "-Knead for ten minutes.\r\n+Knead for twelve minutes.\r\n" in asked["diff"]
    assert asked["diff_sha256"] == hashlib.sha256(asked["diff"].encode()).hexdigest()
    last = turn.events[-1]
    assert (last["reason"], last["tool_call_ids"]) == ("awaiting_approval", ["tool_0"])
    assert (agent_stack.vault / "Bread.md").read_bytes() == BREAD.encode()

    # meanwhile, and from any client
    state = await agent_stack.state(asked["turn_id"])
    assert (state["status"], state["content"], state["last_seq"]) == ("suspended", "I change it.", last["seq"])
    message = (await agent_stack.client.conversation(turn.started["conversation_id"]))["messages"][1]
    assert message["status"] == "awaiting_approval"
    (call,) = message["tool_calls"]
    assert (call["status"], call["approval"]["diff"]) == ("awaiting_approval", asked["diff"])

    agent_stack.provider.next(answer("Done."))
    assert (await agent_stack.decide(asked)).status_code == 202
    rest = await after(agent_stack, turn)
    assert rest.ids == list(range(last["seq"] + 1, last["seq"] + 1 + len(rest.ids)))
    (end,) = rest.of("ToolCallEnd")
    assert (end["status"], end["arguments"]) == ("completed", asked["arguments"])
    assert rest.done["status"] == "completed"
    assert (agent_stack.vault / "Bread.md").read_bytes() == BREAD.replace("ten", "twelve").encode()
    assert agent_stack.hash_of("Bread.md") in agent_stack.results()[0]
    # Nothing was lost or asked again: both rounds count, and all is known of them (ON-12).
    assert (rest.of("Usage")[0]["rounds"], rest.of("Usage")[0]["partial"]) == (2, False)
    assert not rest.of("RoundRestarted")

    whole = await agent_stack.client.events(asked["turn_id"])
    assert whole.events == [*turn.events, *rest.events]
    message = (await agent_stack.client.conversation(turn.started["conversation_id"]))["messages"][1]
    assert (message["status"], message["content"]) == ("completed", "I change it.\n\nDone.")
    assert [call["status"] for call in message["tool_calls"]] == ["completed"]
    assert (await agent_stack.state(asked["turn_id"]))["status"] == "completed"


async def test_that_notes_could_not_be_read_is_said_once_however_often_the_turn_goes_on(agent_stack: AgentStack) -> None:  # MN-6
    # No contexts service runs here.
    turn = await suspended(agent_stack, patch(agent_stack), message="Change [it](Bread.md).")
    assert [notice["code"] for notice in turn.of("Notice")] == ["context_unavailable"]
    agent_stack.provider.next(answer("Done."))
    assert (await agent_stack.decide(turn.of("ApprovalRequired")[0])).status_code == 202
    rest = await after(agent_stack, turn)
    assert (rest.done["status"], rest.of("Notice")) == ("completed", [])


async def test_a_rejected_change_is_told_to_the_model_and_nothing_is_written(agent_stack: AgentStack) -> None:  # MD-5
    turn = await suspended(agent_stack, patch(agent_stack))
    agent_stack.provider.next(answer("As you like."))
    assert (await agent_stack.decide(turn.of("ApprovalRequired")[0], "reject")).status_code == 202
    rest = await after(agent_stack, turn)
    assert (rest.of("ToolCallEnd")[0]["status"], rest.done["status"]) == ("rejected", "completed")
    assert "rejected" in agent_stack.results()[0]
    assert (agent_stack.vault / "Bread.md").read_bytes() == BREAD.encode()
    message = (await agent_stack.client.conversation(turn.started["conversation_id"]))["messages"][1]
    assert [call["status"] for call in message["tool_calls"]] == ["rejected"]


async def test_a_note_that_was_edited_meanwhile_is_not_overwritten(agent_stack: AgentStack) -> None:
    # MD-4, MD-5: seed A's last check
    turn = await suspended(agent_stack, patch(agent_stack), ("notes_create", {"path": "New.md", "content": "mine"}))
    patched, created = turn.of("ApprovalRequired")
    (agent_stack.vault / "Bread.md").write_text("Somebody's own words, ten of them.")
    (agent_stack.vault / "New.md").write_text("theirs")
    stale = await agent_stack.decide(patched)
    assert (stale.status_code, stale.json()["code"]) == (409, "note_stale")
    assert stale.json()["current_hash"] == agent_stack.hash_of("Bread.md")
    taken = await agent_stack.decide(created)
    assert (taken.status_code, taken.json()["code"]) == (409, "note_exists")
    (agent_stack.vault / "Bread.md").unlink()
    assert (await agent_stack.decide(patched)).json()["current_hash"] is None
    assert (await agent_stack.state(patched["turn_id"]))["status"] == "suspended"
    agent_stack.provider.next(answer("Then not."))
    for asked in (patched, created):
        assert (await agent_stack.decide(asked, "reject")).status_code == 202
    rest = await agent_stack.client.events(patched["turn_id"])
    assert rest.events[-1]["type"] == "Done" or (await after(agent_stack, rest)).done
    assert (agent_stack.vault / "New.md").read_text() == "theirs"


async def test_an_edit_between_the_consent_and_the_write_is_not_overwritten(
    agent_stack: AgentStack, monkeypatch: pytest.MonkeyPatch
) -> None:  # MD-4
    written = Execution._written

    async def edited_first(*arguments: Any) -> Any:
        (agent_stack.vault / "Bread.md").write_text("Somebody's own words.")
        return await written(*arguments)

    monkeypatch.setattr(Execution, "_written", edited_first)
    turn = await suspended(agent_stack, patch(agent_stack))
    agent_stack.provider.next(answer("I see."))
    assert (await agent_stack.decide(turn.of("ApprovalRequired")[0])).status_code == 202
    rest = await after(agent_stack, turn)
    assert (rest.of("ToolCallEnd")[0]["status"], rest.done["status"]) == ("failed", "completed")
    assert "note_stale" in agent_stack.results()[0]
    assert (agent_stack.vault / "Bread.md").read_text() == "Somebody's own words."


async def test_decisions_that_cannot_be_taken_are_refused_and_repeated_ones_change_nothing(agent_stack: AgentStack) -> None:
    turn = await suspended(agent_stack, ("notes_read", {"path": "Bread.md"}), patch(agent_stack))
    (asked,) = turn.of("ApprovalRequired")
    http, path = agent_stack.client.http, f"/api/chat/turns/{asked['turn_id']}/approvals"

    async def refused(answer: Any, status: int, code: str) -> None:
        answer = await answer
        assert (answer.status_code, answer.json()["code"]) == (status, code)

    await refused(agent_stack.decide(asked, diff_sha256="0" * 64), 409, "approval_stale")
    await refused(agent_stack.decide(asked, diff_sha256="short"), 422, "invalid")
    await refused(agent_stack.decide(asked, "perhaps"), 422, "invalid")
    await refused(agent_stack.decide({**asked, "tool_call_id": "tool_9"}), 404, "tool_call_not_found")
    await refused(agent_stack.decide({**asked, "tool_call_id": "tool_0"}), 409, "approval_not_pending")
    await refused(agent_stack.decide({**asked, "turn_id": "11111111-1111-4111-8111-111111111111"}), 404, "turn_not_found")
    await refused(http.post(f"{path}/{asked['tool_call_id']}", json={"decision": "approve"}), 422, "invalid")
    assert (await agent_stack.state(asked["turn_id"]))["status"] == "suspended"

    agent_stack.provider.next(answer("Done."))
    # Two windows at once.
    statuses = [one.status_code for one in await asyncio.gather(*(agent_stack.decide(asked) for _ in range(4)))]
    assert statuses == [202] * 4
    rest = await after(agent_stack, turn)
    assert len(rest.of("ToolCallEnd")) == 1
    assert (await agent_stack.decide(asked)).status_code == 202
    await refused(agent_stack.decide(asked, "reject"), 409, "approval_decided")
    assert (agent_stack.vault / "Bread.md").read_text().count("twelve") == 1


async def test_another_accounts_turn_cannot_be_decided_about(agent_stack: AgentStack) -> None:
    turn = await suspended(agent_stack, patch(agent_stack))
    http = agent_stack.client.http
    assert (await http.post("/api/accounts", json={"username": "mara", "password": "a long password", "role": "admin"})).status_code == 201
    http.cookies.clear()
    await agent_stack.client.login("mara", "a long password")
    refused = await agent_stack.decide(turn.of("ApprovalRequired")[0])
    assert (refused.status_code, refused.json()["code"]) == (404, "turn_not_found")


async def test_several_changes_are_decided_one_by_one(agent_stack: AgentStack) -> None:
    turn = await suspended(
        agent_stack,
        ("notes_create", {"path": "One.md", "content": "one\n"}),
        ("notes_create", {"path": "Two.md", "content": "two\n"}),
        ("notes_append", {"path": "Bread.md", "text": "Bake it."}),
        ("notes_append", {"path": "Bread.md", "text": "Eat it."}),
    )
    first, second, third = turn.of("ApprovalRequired")
    # Two changes of one note: the second would be of a version that the first replaces.
    assert turn.of("ToolCallEnd")[0]["error"].startswith("Another change of this note")
    assert (await agent_stack.decide(second)).status_code == 202
    between = await after(agent_stack, turn)
    assert [event["type"] for event in between.events] == ["ToolCallEnd", "Suspended"]
    assert between.events[-1]["tool_call_ids"] == ["tool_0", "tool_2"]
    assert (agent_stack.vault / "Two.md").read_text() == "two\n"
    assert not (agent_stack.vault / "One.md").exists()
    agent_stack.provider.next(answer("Done."))
    assert (await agent_stack.decide(third)).status_code == 202
    assert (await agent_stack.decide(first, "reject")).status_code == 202

    async def done() -> Any:
        return (await agent_stack.state(first["turn_id"]))["status"] == "completed"

    await eventually(done, 15)
    whole = await agent_stack.client.events(first["turn_id"])
    assert whole.ids == list(range(1, len(whole.ids) + 1))
    assert {end["tool_call_id"]: end["status"] for end in whole.of("ToolCallEnd")} == {
        "tool_0": "rejected", "tool_1": "completed", "tool_2": "completed", "tool_3": "failed",
    }  # fmt: skip
    assert (agent_stack.vault / "Bread.md").read_bytes() == BREAD.encode() + b"\r\nBake it.\r\n"
    assert not (agent_stack.vault / "One.md").exists()
    assert whole.of("Usage")[0]["partial"] is False


async def test_a_decision_may_come_before_the_round_is_over(agent_stack: AgentStack) -> None:
    # A client that decides at `ApprovalRequired`, while another call of the round still runs.
    gate = agent_stack.chat.retrieval.gates["slow"] = Gate()
    agent_stack.provider.next(tool_calls(patch(agent_stack), ("rag_search", {"query": "slow"})), answer("Done."))
    fields = {"mode": "agent", "workspace": agent_stack.workspace, "allowed_tools": [*WRITING, "rag.search"]}
    async with asyncio.timeout(30), agent_stack.client.chat("Do it.", **fields) as streamed:
        await streamed.read(until="ApprovalRequired")
        deciding = asyncio.create_task(agent_stack.decide(streamed.events[-1]))
        await gate.reached.wait()
        gate.open()
        await streamed.read()
        assert (await deciding).status_code == 202
    rest = streamed if streamed.types[-1] == "Done" else await after(agent_stack, streamed)
    assert rest.done["status"] == "completed"
    assert "twelve" in (agent_stack.vault / "Bread.md").read_text()


async def test_a_reader_that_knows_all_so_far_waits_for_the_decision(agent_stack: AgentStack) -> None:
    turn = await suspended(agent_stack, patch(agent_stack))
    asked = turn.of("ApprovalRequired")[0]
    agent_stack.provider.next(answer("Done."))
    path, headers = f"/api/chat/turns/{asked['turn_id']}/events", {"last-event-id": str(turn.ids[-1])}
    async with asyncio.timeout(20), agent_stack.client.stream("GET", path, headers=headers) as waiting:
        assert (await agent_stack.decide(asked)).status_code == 202
        await waiting.read()
    assert waiting.done["status"] == "completed"


@pytest.mark.parametrize("text", ["", "I change it."])
async def test_a_turn_that_waits_can_be_cancelled(agent_stack: AgentStack, text: str) -> None:
    # ON-13: every call gets its end
    turn = await suspended(agent_stack, patch(agent_stack), text=text)
    turn_id = turn.started["turn_id"]
    assert (await agent_stack.client.http.post(f"/api/chat/turns/{turn_id}/cancel")).status_code == 202
    rest = await after(agent_stack, turn)
    assert [event["type"] for event in rest.events] == ["ToolCallEnd", "Usage", "Done"]
    assert (rest.events[0]["status"], rest.done["status"]) == ("failed", "cancelled")
    assert rest.of("Usage")[0]["rounds"] == 1
    refused = await agent_stack.decide(turn.of("ApprovalRequired")[0])
    assert (refused.status_code, refused.json()["code"]) == (409, "approval_not_pending")
    message = (await agent_stack.client.conversation(turn.started["conversation_id"]))["messages"][1]
    assert (message["status"], message["content"], message["tool_calls"][0]["status"]) == ("interrupted", text, "error")
    assert (agent_stack.vault / "Bread.md").read_bytes() == BREAD.encode()


async def test_the_conversation_can_go_on_while_a_turn_waits(agent_stack: AgentStack) -> None:  # VT-4
    turn = await suspended(agent_stack, patch(agent_stack), text="I change it.")
    agent_stack.provider.next(answer("Something else."))
    conversation = turn.started["conversation_id"]
    other = await agent_stack.ask("And?", conversation_id=conversation)
    assert other.done["status"] == "completed"
    assert "not decided about this change yet" in agent_stack.results()[0]
    agent_stack.provider.next(answer("Changed."))
    assert (await agent_stack.decide(turn.of("ApprovalRequired")[0])).status_code == 202
    assert (await after(agent_stack, turn)).done["status"] == "completed"
    messages = (await agent_stack.client.conversation(conversation))["messages"]
    assert [message["content"] for message in messages] == ["Do it.", "I change it.\n\nChanged.", "And?", "Something else."]


async def test_a_conversation_can_be_deleted_while_a_turn_waits(agent_stack: AgentStack) -> None:
    turn = await suspended(agent_stack, patch(agent_stack))
    assert (await agent_stack.client.http.delete(f"/api/chat/conversations/{turn.started['conversation_id']}")).status_code == 204
    refused = await agent_stack.decide(turn.of("ApprovalRequired")[0])
    assert (refused.status_code, refused.json()["code"]) == (404, "turn_not_found")


async def test_without_a_stream_the_answer_says_that_the_turn_waits(agent_stack: AgentStack) -> None:
    agent_stack.provider.next(tool_calls(patch(agent_stack)))
    body = {"message": "Do it.", "mode": "agent", "workspace": agent_stack.workspace, "allowed_tools": WRITING, "stream": False}
    result = (await agent_stack.client.http.post("/api/chat", json=body)).json()
    assert (result["message"]["status"], result["done"], result["usage"]) == ("awaiting_approval", None, None)
    approval = result["message"]["tool_calls"][0]["approval"]
    agent_stack.provider.next(answer("Done."))
    asked = {"turn_id": result["turn_id"], "tool_call_id": "tool_0", **approval}
    assert (await agent_stack.decide(asked)).status_code == 202
    assert (await agent_stack.client.events(result["turn_id"])).done["status"] == "completed"


async def test_a_decision_is_taken_days_later_by_an_agent_that_was_not_there(
    nats_url: str, database_url: str, agent_stack: AgentStack
) -> None:  # MD-5
    turn = await suspended(agent_stack, patch(agent_stack))
    asked = turn.of("ApprovalRequired")[0]
    await agent_stack.chat.execute("UPDATE turns SET created_at = created_at - interval '9 days', active_since = now() - interval '9 days'")
    # The stream has forgotten it, and the agent that began it is gone.
    await agent_stack.chat.forget_events()
    agent_stack.chat.stop_agent.set()
    settings = AgentSettings(
        NATS_URL=nats_url, DATABASE_URL=database_url, MODEL_BASE_URL=agent_stack.provider.base_url, MODEL_NAME="scripted", MODEL_API_KEY=KEY
    )
    agent_stack.provider.next(answer("Done."))
    async with running(serve_agent, settings):

        async def decided() -> bool:
            return (await agent_stack.decide(asked)).status_code == 202

        await eventually(decided, 20)
        rest = await after(agent_stack, turn)
        assert rest.done["status"] == "completed"
        assert (await agent_stack.client.events(asked["turn_id"])).events == [*turn.events, *rest.events]
    assert "twelve" in (agent_stack.vault / "Bread.md").read_text()


async def test_an_agent_that_is_lost_after_the_write_repeats_nothing(agent_stack: AgentStack, monkeypatch: pytest.MonkeyPatch) -> None:
    # The note is written; the agent that wrote it is gone before it could say so.
    settled, gate = Execution._settled, Gate()

    async def lost(self: Execution, *arguments: Any) -> None:
        if not gate.reached.is_set():
            await self._written(arguments[0])
            await gate.wait()
        await settled(self, *arguments)

    monkeypatch.setattr(Execution, "_settled", lost)
    turn = await suspended(agent_stack, patch(agent_stack))
    asked = turn.of("ApprovalRequired")[0]
    agent_stack.provider.next(answer("Done."))
    assert (await agent_stack.decide(asked)).status_code == 202
    async with asyncio.timeout(10):
        await gate.reached.wait()
    await agent_stack.chat.execute("UPDATE turns SET owner = gen_random_uuid()")
    rest = await after(agent_stack, turn)
    gate.open()
    assert [event["type"] for event in rest.events].count("ToolCallEnd") == 1
    assert (rest.of("ToolCallEnd")[0]["status"], rest.done["status"]) == ("completed", "completed")
    assert (agent_stack.vault / "Bread.md").read_bytes() == BREAD.replace("ten", "twelve").encode()


async def test_an_agent_that_is_lost_while_it_goes_on_asks_the_model_again_and_writes_nothing_again(agent_stack: AgentStack) -> None:
    turn = await suspended(agent_stack, patch(agent_stack))
    half = Script([chunk(role="assistant", content="Half "), Gate()])
    agent_stack.provider.next(half, answer("Whole."))
    reader = await approved_and_lost_in_the_answer(agent_stack, turn)
    assert reader.done["status"] == "completed"
    assert len(reader.of("ToolCallEnd")) == 1
    assert reader.of("RoundRestarted")[0]["content_characters"] == 0
    message = (await agent_stack.client.conversation(turn.started["conversation_id"]))["messages"][1]
    assert (message["content"], [call["status"] for call in message["tool_calls"]]) == ("Whole.", ["completed"])
    assert agent_stack.hash_of("Bread.md") in agent_stack.results()[0]


async def test_a_write_whose_turn_is_cancelled_meanwhile_is_told_as_what_it_was(
    agent_stack: AgentStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, gate = Execution._written, Gate()

    async def slow(*arguments: Any) -> Any:
        await gate.wait()
        return await written(*arguments)

    monkeypatch.setattr(Execution, "_written", slow)
    turn = await suspended(agent_stack, patch(agent_stack))
    asked = turn.of("ApprovalRequired")[0]
    assert (await agent_stack.decide(asked)).status_code == 202
    async with asyncio.timeout(10):
        await gate.reached.wait()
    assert (await agent_stack.client.http.post(f"/api/chat/turns/{asked['turn_id']}/cancel")).status_code == 202
    gate.open()
    rest = await after(agent_stack, turn)
    assert (rest.of("ToolCallEnd")[0]["status"], rest.done["status"]) == ("completed", "cancelled")
    assert "twelve" in (agent_stack.vault / "Bread.md").read_text()


@pytest.mark.parametrize(
    ("code", "said"),
    [(ErrorCode.STORAGE_FULL, "The change was not made."), (ErrorCode.UNAVAILABLE, "Whether the change was made is not known")],
)
async def test_a_change_that_was_told_as_failed_is_not_made_by_the_next_agent(
    agent_stack: AgentStack, monkeypatch: pytest.MonkeyPatch, code: ErrorCode, said: str
) -> None:
    carry_out, refusals = NoteTools.carry_out, [ServiceError(code, "Not now.")]

    async def refused_once(self: NoteTools, *arguments: Any) -> None:
        if refusals:
            raise refusals.pop()
        await carry_out(self, *arguments)

    monkeypatch.setattr(NoteTools, "carry_out", refused_once)
    turn = await suspended(agent_stack, patch(agent_stack))
    agent_stack.provider.next(Script([chunk(role="assistant", content="Half "), Gate()]), answer("Not written."))
    reader = await approved_and_lost_in_the_answer(agent_stack, turn)
    assert [(end["status"], said in end["error"]) for end in reader.of("ToolCallEnd")] == [("failed", True)]
    assert said in agent_stack.results()[0]
    assert (agent_stack.vault / "Bread.md").read_bytes() == BREAD.encode()


async def test_a_change_that_was_made_is_told_as_made_though_its_agent_is_lost_and_the_turn_cancelled(
    agent_stack: AgentStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()

    async def lost(self: Execution, *arguments: Any) -> None:
        await self._written(arguments[0])
        await gate.wait()

    monkeypatch.setattr(Execution, "_settled", lost)
    turn = await suspended(agent_stack, patch(agent_stack), ("notes_create", {"path": "New.md", "content": "mine"}))
    patched, created = turn.of("ApprovalRequired")
    assert (await agent_stack.decide(patched)).status_code == 202
    async with asyncio.timeout(10):
        await gate.reached.wait()
    assert (await agent_stack.decide(created)).status_code == 202
    assert (await agent_stack.client.http.post(f"/api/chat/turns/{patched['turn_id']}/cancel")).status_code == 202
    await agent_stack.chat.execute("UPDATE turns SET owner = gen_random_uuid()")
    rest = await after(agent_stack, turn)
    gate.open()
    assert rest.done["status"] == "cancelled"
    assert [end["status"] for end in rest.of("ToolCallEnd")] == ["completed", "failed"]
    assert "twelve" in (agent_stack.vault / "Bread.md").read_text()
    assert not (agent_stack.vault / "New.md").exists()
    # The next turn of the conversation is told so, too.
    await agent_stack.ask("And?", conversation_id=turn.started["conversation_id"])
    assert [agent_stack.hash_of("Bread.md") in result for result in agent_stack.results()] == [True, False]


async def test_what_may_not_be_changed_any_more_is_refused_when_it_is_approved(agent_stack: AgentStack) -> None:
    client = agent_stack.client
    account = {"username": "guest", "password": "a long password", "role": "member"}
    guest = (await client.http.post("/api/accounts", json=account)).json()["id"]

    async def may(access: str) -> None:
        body = {"items": [{"account_id": guest, "access": access}]}
        assert (await client.http.put(f"/api/workspaces/{agent_stack.workspace}/members", json=body)).status_code == 200

    await may("write")
    await client.login("guest", "a long password")
    turn = await suspended(agent_stack, patch(agent_stack))
    asked = turn.of("ApprovalRequired")[0]
    await client.login()
    await may("read")
    await client.login("guest", "a long password")
    refused = await agent_stack.decide(asked)
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert (await agent_stack.state(asked["turn_id"]))["status"] == "suspended"
    agent_stack.provider.next(answer("Then not."))
    assert (await agent_stack.decide(asked, "reject")).status_code == 202
    assert (await after(agent_stack, turn)).done["status"] == "completed"


async def test_changes_that_are_too_long_together_are_refused_to_the_model(
    agent_stack: AgentStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "DIFFS_BYTES_MAX", 300)
    create = [("notes_create", {"path": f"{number}.md", "content": "x" * 150}) for number in range(3)]
    turn = await suspended(agent_stack, *create[:2])
    assert [asked["path"] for asked in turn.of("ApprovalRequired")] == ["0.md"]
    assert "next reply" in turn.of("ToolCallEnd")[0]["error"]
    # What was decided counts as well: the reply shows it for ever.
    agent_stack.provider.next(tool_calls(create[2], prefix="later"), answer("Done."))
    assert (await agent_stack.decide(turn.of("ApprovalRequired")[0])).status_code == 202
    rest = await after(agent_stack, turn)
    assert [end["status"] for end in rest.of("ToolCallEnd")] == ["completed", "failed"]
    assert rest.done["status"] == "completed"


async def test_a_consent_after_the_cancel_is_refused(agent_stack: AgentStack) -> None:
    turn = await suspended(agent_stack, patch(agent_stack))
    await agent_stack.chat.execute("UPDATE turns SET cancel_requested = true")  # no agent has met it yet
    late = await agent_stack.decide(turn.of("ApprovalRequired")[0])
    assert (late.status_code, late.json()["code"]) == (409, "approval_not_pending")


async def test_another_turn_is_told_later_what_became_of_a_change_that_waited(agent_stack: AgentStack) -> None:
    turn = await suspended(agent_stack, patch(agent_stack))
    conversation = turn.started["conversation_id"]
    await agent_stack.ask("And?", conversation_id=conversation)
    assert (await agent_stack.decide(turn.of("ApprovalRequired")[0])).status_code == 202
    await after(agent_stack, turn)
    # The result of the turn itself is what happened.
    assert agent_stack.hash_of("Bread.md") in agent_stack.results()[0]
    await agent_stack.ask("Now?", conversation_id=conversation)
    assert agent_stack.hash_of("Bread.md") in agent_stack.results()[0]


async def test_a_turn_whose_provider_has_gone_while_it_waited_ends_and_says_so(
    nats_url: str, database_url: str, agent_stack: AgentStack
) -> None:
    turn = await suspended(agent_stack, patch(agent_stack), provider="ruled", model="required")
    asked = turn.of("ApprovalRequired")[0]
    agent_stack.chat.stop_agent.set()
    settings = AgentSettings(
        NATS_URL=nats_url, DATABASE_URL=database_url, MODEL_BASE_URL=agent_stack.provider.base_url, MODEL_NAME="scripted", MODEL_API_KEY=KEY
    )
    async with running(serve_agent, settings):

        async def decided() -> bool:
            return (await agent_stack.decide(asked)).status_code == 202

        await eventually(decided, 20)
        rest = await after(agent_stack, turn)
    assert (rest.of("Error")[0]["code"], rest.done["status"]) == ("unknown_provider", "failed")
    assert "before the change was made" in rest.of("ToolCallEnd")[0]["error"]
    assert (agent_stack.vault / "Bread.md").read_bytes() == BREAD.encode()


async def test_whoever_waits_for_the_whole_answer_gets_it_where_the_change_is_decided_meanwhile(
    agent_stack: AgentStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, result = Gate(), TurnReader.result
    agent_stack.provider.next(tool_calls(patch(agent_stack)), Script([gate, *answer("Done.").steps]))

    async def decided_before(reader: TurnReader, turn_id: UUID, account: UUID) -> TurnResult:
        monkeypatch.setattr(TurnReader, "result", result)
        (call,) = (await agent_stack.state(str(turn_id)))["tool_calls"]
        asked = {"turn_id": turn_id, "tool_call_id": call["id"], "diff_sha256": call["approval"]["diff_sha256"]}
        assert (await agent_stack.decide(asked)).status_code == 202
        await gate.reached.wait()
        try:
            return await result(reader, turn_id, account)
        finally:
            gate.open()

    monkeypatch.setattr(TurnReader, "result", decided_before)
    body = {"message": "Do it.", "mode": "agent", "workspace": agent_stack.workspace, "allowed_tools": WRITING, "stream": False}
    answered = await agent_stack.client.http.post("/api/chat", json=body)
    assert (answered.status_code, answered.json()["message"]["content"]) == (200, "Done.")
    assert (answered.json()["done"]["status"], answered.json()["message"]["status"]) == ("completed", "completed")
    assert (agent_stack.vault / "Bread.md").read_bytes() == BREAD.replace("ten", "twelve").encode()
