"""Conversations as trees: regenerating, editing, choosing, and turns that end late (VT-*)."""

import asyncio

import pytest

from tests.support.chat_client import ChatStack
from tests.support.scripted_provider import Gate, Script, answer, chunk, frame


async def texts(stack: ChatStack, conversation_id: str) -> list[str]:
    return [message["content"] for message in (await stack.client.conversation(conversation_id))["messages"]]


async def test_a_conversation_goes_on_along_its_active_path(chat_stack: ChatStack) -> None:
    chat_stack.provider.next(answer("One."), answer("Two."))
    first = await chat_stack.client.ask("First")
    conversation_id = first.started["conversation_id"]
    await chat_stack.client.ask("Second", conversation_id=conversation_id)
    assert await texts(chat_stack, conversation_id) == ["First", "One.", "Second", "Two."]
    assert [message["content"] for message in chat_stack.provider.exchanges[1].body["messages"][1:]] == ["First", "One.", "Second"]
    (listed,) = (await chat_stack.client.http.get("/api/chat/conversations")).json()["items"]
    assert (listed["id"], listed["title"]) == (conversation_id, "First")


async def test_regenerating_adds_a_sibling_and_the_model_sees_the_branch_up_to_the_question(chat_stack: ChatStack) -> None:  # VT-2
    # lobehub/lobehub#16519, cloudflare/agents#2038
    chat_stack.provider.next(answer("Bad."), answer("Good."))
    first = await chat_stack.client.ask("First")
    conversation_id, bad = first.started["conversation_id"], first.started["response_id"]
    second = await chat_stack.client.ask(None, conversation_id=conversation_id, retry_message_id=bad)
    good = second.started["response_id"]
    assert second.started["user_message_id"] == first.started["user_message_id"]
    assert [message["role"] for message in chat_stack.provider.exchanges[1].body["messages"]] == ["system", "user"]
    conversation = await chat_stack.client.conversation(conversation_id)
    assert [message["content"] for message in conversation["messages"]] == ["First", "Good."]
    assert conversation["messages"][1]["versions"] == [bad, good]
    assert conversation["active_leaf"] == good


async def test_editing_makes_another_version_of_the_question_and_keeps_what_followed_the_first(chat_stack: ChatStack) -> None:  # VT-2, VT-3
    # Rose22/openlumara#24, danny-avila/LibreChat#13732
    chat_stack.provider.next(answer("One."), answer("Two."), answer("Other."))
    first = await chat_stack.client.ask("First")
    conversation_id = first.started["conversation_id"]
    await chat_stack.client.ask("Second", conversation_id=conversation_id)
    edited = await chat_stack.client.ask(
        "First, edited", conversation_id=conversation_id, retry_message_id=first.started["user_message_id"]
    )
    assert await texts(chat_stack, conversation_id) == ["First, edited", "Other."]
    versions = (await chat_stack.client.conversation(conversation_id))["messages"][0]["versions"]
    assert versions == [first.started["user_message_id"], edited.started["user_message_id"]]
    # Choosing the first version restores the path that was last active below it, whole.
    chosen = await chat_stack.client.http.post(f"/api/chat/conversations/{conversation_id}/messages/{versions[0]}/select")
    assert [message["content"] for message in chosen.json()["messages"]] == ["First", "One.", "Second", "Two."]
    chosen = await chat_stack.client.http.post(f"/api/chat/conversations/{conversation_id}/messages/{versions[1]}/select")
    assert [message["content"] for message in chosen.json()["messages"]] == ["First, edited", "Other."]
    chat_stack.provider.next(answer("Three."))
    await chat_stack.client.ask("Third", conversation_id=conversation_id)
    assert [message["content"] for message in chat_stack.provider.exchanges[-1].body["messages"][1:]] == [
        "First, edited",
        "Other.",
        "Third",
    ]


async def test_a_failed_regenerate_leaves_the_good_answer_active(chat_stack: ChatStack) -> None:  # VT-4
    # rmusser01/tldw_chatbook#2164
    chat_stack.provider.next(answer("Good."), Script(status=400, body={"error": {"message": "no"}}))
    first = await chat_stack.client.ask("First")
    conversation_id = first.started["conversation_id"]
    failed = await chat_stack.client.ask(None, conversation_id=conversation_id, retry_message_id=first.started["response_id"])
    assert failed.done["status"] == "failed"
    conversation = await chat_stack.client.conversation(conversation_id)
    assert [message["content"] for message in conversation["messages"]] == ["First", "Good."]
    assert conversation["messages"][1]["versions"] == [first.started["response_id"], failed.started["response_id"]]


@pytest.mark.parametrize("first_to_end", [0, 1])
@pytest.mark.parametrize("ending", ["failed", "cancelled"])
async def test_regenerates_begun_one_over_the_other_that_all_bring_nothing_leave_the_good_answer_active(
    chat_stack: ChatStack, ending: str, first_to_end: int
) -> None:  # VT-4
    good = await chat_stack.client.ask("First")
    conversation_id, response_id = good.started["conversation_id"], good.started["response_id"]
    retry = {"conversation_id": conversation_id, "retry_message_id": response_id}
    gates = [Gate(), Gate()]
    for gate in gates:
        chat_stack.provider.next(Script([gate, frame({"error": {"message": "boom"}})]))
    async with asyncio.timeout(20), chat_stack.client.chat(None, **retry) as one:
        await gates[0].reached.wait()
        async with chat_stack.client.chat(None, **retry) as other:
            await gates[1].reached.wait()
            turns = [(one, gates[0]), (other, gates[1])]
            for streamed, gate in turns if first_to_end == 0 else turns[::-1]:
                await streamed.read(until="TurnStarted")
                if ending == "failed":
                    gate.open()
                else:
                    await chat_stack.client.http.post(f"/api/chat/turns/{streamed.started['turn_id']}/cancel")
                await streamed.read()
                assert streamed.done["status"] == ending
    conversation = await chat_stack.client.conversation(conversation_id)
    assert conversation["active_leaf"] == conversation["active_response_id"] == response_id
    assert [message["content"] for message in conversation["messages"]] == ["First", "Hello."]
    assert len(conversation["messages"][1]["versions"]) == 3


async def test_a_failed_edit_leaves_the_old_path_active(chat_stack: ChatStack) -> None:  # VT-4
    chat_stack.provider.next(answer("Good."), Script(status=400, body={"error": {"message": "no"}}))
    first = await chat_stack.client.ask("First")
    conversation_id = first.started["conversation_id"]
    await chat_stack.client.ask("Edited", conversation_id=conversation_id, retry_message_id=first.started["user_message_id"])
    assert await texts(chat_stack, conversation_id) == ["First", "Good."]


async def test_a_regenerate_cancelled_with_text_shows_what_there_is_and_without_any_gives_the_path_back(
    chat_stack: ChatStack,
) -> None:  # VT-4
    chat_stack.provider.next(answer("Good."))
    first = await chat_stack.client.ask("First")
    conversation_id = first.started["conversation_id"]
    for steps, shown in (([Gate()], "Good."), ([chunk(content="Half"), Gate()], "Half")):
        chat_stack.provider.next(Script(steps))
        retried = chat_stack.client.chat(None, conversation_id=conversation_id, retry_message_id=first.started["response_id"])
        async with asyncio.timeout(20), retried as streamed:
            await streamed.read(until="TextDelta" if len(steps) > 1 else "TurnStarted")
            assert (await chat_stack.client.conversation(conversation_id))["active_response_id"] == streamed.started["response_id"]
            await chat_stack.client.http.post(f"/api/chat/turns/{streamed.started['turn_id']}/cancel")
            await streamed.read()
        assert streamed.done["status"] == "cancelled"
        assert (await texts(chat_stack, conversation_id))[1] == shown


async def test_a_late_turn_ends_under_its_own_version_and_takes_no_path_from_a_newer_one(chat_stack: ChatStack) -> None:  # VT-4
    # SamSaffron/term-llm#387
    gate = Gate()
    chat_stack.provider.next(answer("One."), Script([chunk(content="Late"), gate, chunk(finish_reason="stop")]), answer("New."))
    first = await chat_stack.client.ask("First")
    conversation_id = first.started["conversation_id"]
    retry = {"conversation_id": conversation_id, "retry_message_id": first.started["response_id"]}
    async with asyncio.timeout(20), chat_stack.client.chat(None, **retry) as slow:
        await slow.read(until="TextDelta")
        newer = await chat_stack.client.ask(None, **retry)
        gate.open()
        await slow.read()
    assert slow.done["status"] == "completed"
    conversation = await chat_stack.client.conversation(conversation_id)
    assert conversation["active_leaf"] == newer.started["response_id"]
    assert [message["content"] for message in conversation["messages"]] == ["First", "New."]
    chosen = await chat_stack.client.http.post(f"/api/chat/conversations/{conversation_id}/messages/{slow.started['response_id']}/select")
    assert chosen.json()["messages"][1]["content"] == "Late"


async def test_a_turns_state_tells_the_whole_so_far(chat_stack: ChatStack) -> None:
    # open-webui/open-webui#29596, cloudflare/agents#896
    gate = Gate()
    chat_stack.provider.next(Script([chunk(reasoning_content="Hm."), chunk(content="Half"), gate, chunk(finish_reason="stop")]))
    async with asyncio.timeout(20), chat_stack.client.chat("Hi") as streamed:
        await streamed.read(until="TextDelta")
        state = (await chat_stack.client.http.get(f"/api/chat/turns/{streamed.started['turn_id']}")).json()
        assert (state["status"], state["content"], state["thinking"], state["attempt"]) == ("running", "Half", "Hm.", 1)
        gate.open()
        await streamed.read()
    state = (await chat_stack.client.http.get(f"/api/chat/turns/{streamed.started['turn_id']}")).json()
    assert (state["status"], state["last_seq"]) == ("completed", streamed.ids[-1])
    assert set(state) == {
        "turn_id", "conversation_id", "response_id", "status", "attempt", "last_seq", "content", "thinking", "activity", "tool_calls",
    }  # fmt: skip


async def test_readers_may_come_and_go_at_any_event_and_miss_nothing(chat_stack: ChatStack) -> None:
    gates = [Gate() for _ in range(8)]
    steps = [step for number, gate in enumerate(gates) for step in (chunk(content=f"part {number} "), gate)]
    chat_stack.provider.next(Script([*steps, chunk(finish_reason="stop")]))
    async with asyncio.timeout(30), chat_stack.client.chat("Hi", on_disconnect="keep") as first:
        await first.read(until="TurnStarted")
    turn_id = first.started["turn_id"]
    events = list(first.events)
    for gate in gates:
        await gate.reached.wait()
        gate.open()
        async with chat_stack.client.stream(
            "GET", f"/api/chat/turns/{turn_id}/events", headers={"last-event-id": str(events[-1]["seq"])}
        ) as again:
            await again.read(until="TextDelta")
            events += again.events
    events += (await chat_stack.client.events(turn_id, after=events[-1]["seq"])).events
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events == (await chat_stack.client.events(turn_id)).events
    assert "".join(event["text"] for event in events if event["type"] == "TextDelta") == "".join(f"part {n} " for n in range(8))


async def test_a_conversation_is_renamed_and_deleted_and_lists_page_by_cursor(chat_stack: ChatStack) -> None:
    http = chat_stack.client.http
    turns = [await chat_stack.client.ask(f"Question {number}\nwith a second line") for number in range(3)]
    identifiers = [turn.started["conversation_id"] for turn in turns]
    page = (await http.get("/api/chat/conversations?limit=2")).json()
    rest = (await http.get("/api/chat/conversations", params={"limit": 2, "cursor": page["next_cursor"]})).json()
    assert [item["id"] for item in page["items"] + rest["items"]] == identifiers[::-1]
    assert rest["next_cursor"] is None
    assert page["items"][0]["title"] == "Question 2"
    renamed = await http.patch(f"/api/chat/conversations/{identifiers[0]}", json={"title": "A title"})
    assert renamed.json()["title"] == "A title"
    assert (await http.delete(f"/api/chat/conversations/{identifiers[0]}")).status_code == 204
    assert (await http.get(f"/api/chat/conversations/{identifiers[0]}")).status_code == 404
    assert (await http.delete(f"/api/chat/conversations/{identifiers[0]}")).status_code == 404


async def test_a_conversation_of_any_size_is_read_whole(chat_stack: ChatStack) -> None:
    """A message of NATS holds 16 MB; a long conversation may have more."""
    chat_stack.provider.standing = answer("漢" * 1_200_000)
    turn = await chat_stack.client.ask("0")
    conversation_id = turn.started["conversation_id"]
    for number in range(1, 5):
        turn = await chat_stack.client.ask(str(number), conversation_id=conversation_id)
    # Some servers refuse a body that does not say how long it is.
    assert int(chat_stack.provider.exchanges[-1].headers["Content-Length"]) > 4 * 3 * 1_200_000
    assert "Transfer-Encoding" not in chat_stack.provider.exchanges[-1].headers
    conversation = await chat_stack.client.conversation(conversation_id)
    assert [message["content"] for message in conversation["messages"][::2]] == list("01234")
    assert [len(message["content"]) for message in conversation["messages"][1::2]] == [1_200_000] * 5
    selected = await chat_stack.client.http.post(f"/api/chat/conversations/{conversation_id}/messages/{turn.started['response_id']}/select")
    assert selected.json() == conversation


async def test_a_number_beyond_a_running_turn_is_refused(chat_stack: ChatStack) -> None:
    gate = Gate()
    chat_stack.provider.next(Script([chunk(content="Half"), gate, chunk(finish_reason="stop")]))
    async with asyncio.timeout(20), chat_stack.client.chat("Hi") as streamed:
        await streamed.read(until="TextDelta")
        answered = await chat_stack.client.http.get(
            f"/api/chat/turns/{streamed.started['turn_id']}/events", headers={"last-event-id": "5000"}
        )
        assert (answered.status_code, answered.json()["code"]) == (400, "last_event_id_invalid")
        gate.open()
        await streamed.read()


async def test_the_same_client_message_id_may_be_fetched_in_another_way(chat_stack: ChatStack) -> None:
    streamed = await chat_stack.client.ask("Hi", client_message_id="my message 1 \u00e9")
    whole = await chat_stack.client.http.post(
        "/api/chat", json={"message": "Hi", "client_message_id": "my message 1 \u00e9", "stream": False, "on_disconnect": "keep"}
    )
    assert whole.json()["turn_id"] == streamed.started["turn_id"]
    assert len(chat_stack.provider.exchanges) == 1


async def test_a_question_follows_a_reply_never_another_question(chat_stack: ChatStack) -> None:
    first = await chat_stack.client.ask("Hi")
    body = {"message": "x", "conversation_id": first.started["conversation_id"], "parent_message_id": first.started["user_message_id"]}
    refused = await chat_stack.client.http.post("/api/chat", json=body)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid")
    branched = await chat_stack.client.ask(
        "y", conversation_id=first.started["conversation_id"], parent_message_id=first.started["response_id"]
    )
    assert branched.done["status"] == "completed"
