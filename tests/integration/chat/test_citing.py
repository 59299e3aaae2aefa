"""Sources and citations as clients see them, from the stream to the reload: what was found, what was shown to the model, what it cites."""

import json
from typing import Any
from uuid import uuid4

import asyncpg

from shared.contracts import contexts
from shared.contracts.contexts import Injection, InjectReply, InjectRequest, Prepared
from shared.messaging.bus import Bus, Route
from shared.messaging.scope import Scope
from tests.support.chat_client import ChatStack, Streamed
from tests.support.scripted_provider import answer, calls
from tests.support.scripted_retrieval import WORKSPACE, hit

TEA = hit("b1", "Tea is brewed at 80 °C.", "drinks/tea.md", ("Tea", "Brewing"))
WATER = hit("b2", "Water boils at 100 °C.", "water.md")
MILK = hit("b3", "Milk boils over.", "milk.md")


async def reloaded(stack: ChatStack, turn: Streamed) -> dict[str, Any]:
    conversation = await stack.client.conversation(turn.started["conversation_id"])
    return next(message for message in conversation["messages"] if message["id"] == turn.started["response_id"])


def tool_results(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [json.loads(message["content"]) for message in body["messages"] if message["role"] == "tool"]


async def test_found_shown_and_cited_are_told_apart(chat_stack: ChatStack) -> None:  # ON-18, open-webui/open-webui#12231
    long = hit("b4", "x" * 36_000, "long.md")
    chat_stack.retrieval.hits["tea"] = [TEA, WATER, long]
    chat_stack.provider.next(calls("tea"), answer("At 80 °C [1]."))
    reply = await reloaded(chat_stack, await chat_stack.client.ask("How hot?"))
    assert [call["hits"] for call in reply["tool_calls"]] == [3]
    assert [source["block_id"] for source in reply["sources"]] == ["b1", "b2"]
    assert [item["block_id"] for item in reply["left_out"]] == ["b4"]
    assert reply["cited"] == [1]


async def test_a_reply_that_searched_and_cites_nothing_says_so(chat_stack: ChatStack) -> None:  # ON-18
    # linagora/openrag#847, infiniflow/ragflow#12005: what was shown stays there, and nothing is made up to be cited.
    chat_stack.retrieval.hits["tea"] = [TEA, WATER]
    chat_stack.provider.next(calls("tea"), answer("At 80 °C."))
    turn = await chat_stack.client.ask("How hot?")
    assert turn.done["cited"] == []
    reply = await reloaded(chat_stack, turn)
    assert (reply["cited"], [source["number"] for source in reply["sources"]]) == ([], [1, 2])


async def test_a_greeting_has_no_sources(chat_stack: ChatStack) -> None:
    # coleam00/dark-factory-experiment#176, coleam00/dark-factory-experiment#8
    chat_stack.provider.next(answer("Hello [1]."))
    turn = await chat_stack.client.ask("Hi")
    reply = await reloaded(chat_stack, turn)
    assert (turn.of("Citation"), turn.done["cited"], reply["sources"], reply["cited"]) == ([], [], [], [])


async def test_a_number_means_the_passage_that_it_was_first_given_to(chat_stack: ChatStack) -> None:  # ON-6
    # open-webui/open-webui#11592, #10979, #12811, SolaceLabs/solace-agent-mesh#769, tale-project/tale#1279: one counter from 1, over
    # parallel searches and over rounds; a passage found again keeps its number.
    chat_stack.retrieval.hits = {"tea": [TEA, WATER], "heat": [WATER, MILK], "milk": [MILK, TEA, hit("b5", "Milk keeps.", "cold.md")]}
    chat_stack.provider.next(calls("tea", "heat"), calls("milk", prefix="again"), answer("Not over [3], kept [4], hot [1]."))
    turn = await chat_stack.client.ask("How hot?")
    numbered = [(event["number"], event["block_id"]) for event in turn.of("Citation")]
    assert numbered == [(1, "b1"), (2, "b2"), (3, "b3"), (4, "b5")]
    reply = await reloaded(chat_stack, turn)
    assert [(source["number"], source["block_id"]) for source in reply["sources"]] == numbered
    assert reply["cited"] == turn.done["cited"] == [3, 4, 1]
    # open-webui/open-webui#29569, #29627: the model reads each number together with its passage.
    shown = {
        source["number"]: source["content"]
        for result in tool_results(chat_stack.provider.exchanges[2].body)
        for source in result["sources"]
    }
    assert shown == {1: TEA.text, 2: WATER.text, 3: MILK.text, 4: "Milk keeps."}


async def test_a_card_is_found_by_its_number_and_says_where_the_passage_stands(chat_stack: ChatStack) -> None:
    # infiniflow/ragflow#8594, CherryHQ/cherry-studio#7051, CherryHQ/cherry-studio#6011, #5834
    chat_stack.retrieval.hits["tea"] = [WATER, MILK, TEA]
    chat_stack.provider.next(calls("tea"), answer("At 80 °C [3]."))
    turn = await chat_stack.client.ask("How hot?")
    reply = await reloaded(chat_stack, turn)
    assert reply["cited"] == [3]
    (card,) = [source for source in reply["sources"] if source["number"] in reply["cited"]]
    assert (card["file_path"], card["heading_path"], card["excerpt"]) == ("drinks/tea.md", ["Tea", "Brewing"], TEA.text)
    assert card["workspace"] == str(WORKSPACE)


async def test_stream_object_and_reload_say_the_same(chat_stack: ChatStack) -> None:  # langgenius/dify#10861, #34724, #26943
    chat_stack.retrieval.hits["tea"] = [TEA, WATER]
    chat_stack.provider.next(calls("tea"), answer("At 80 °C [1]."), calls("tea"), answer("At 100 °C [2]."))
    turn = await chat_stack.client.ask("How hot?")
    reply = await reloaded(chat_stack, turn)
    streamed = [{key: value for key, value in event.items() if key not in ("type", "seq", "turn_id")} for event in turn.of("Citation")]
    assert [{key: value for key, value in source.items() if key != "state"} for source in reply["sources"]] == streamed
    answered = (await chat_stack.client.http.post("/api/chat", json={"message": "How hot?", "stream": False})).json()
    conversation = await chat_stack.client.conversation(answered["conversation_id"])
    assert answered["message"] == conversation["messages"][1]
    assert answered["done"]["cited"] == answered["message"]["cited"] == [2]


async def test_each_version_of_each_reply_keeps_its_own_sources(chat_stack: ChatStack) -> None:
    # infiniflow/ragflow#8474, #8527, #6356: [1] is water in one reply, tea in the next, milk in another version of that.
    chat_stack.retrieval.hits = {"water": [WATER], "tea": [TEA], "milk": [MILK]}
    for words in chat_stack.retrieval.hits:
        chat_stack.provider.next(calls(words), answer("Hot [1]."))
    first = await chat_stack.client.ask("Water?")
    conversation_id = first.started["conversation_id"]
    second = await chat_stack.client.ask("Tea?", conversation_id=conversation_id)
    await chat_stack.client.ask(None, conversation_id=conversation_id, retry_message_id=second.started["response_id"])
    replies = (await chat_stack.client.conversation(conversation_id))["messages"][1::2]
    assert [[source["block_id"] for source in reply["sources"]] for reply in replies] == [["b2"], ["b3"]]
    versions = f"/api/chat/conversations/{conversation_id}/messages"
    selected = await chat_stack.client.http.post(f"{versions}/{second.started['response_id']}/select")
    assert selected.status_code == 200, selected.text
    replies = selected.json()["messages"][1::2]
    assert [[source["block_id"] for source in reply["sources"]] for reply in replies] == [["b2"], ["b1"]]
    assert [reply["cited"] for reply in replies] == [[1], [1]]


async def test_brackets_in_code_are_no_citations_and_stay_as_they_are(chat_stack: ChatStack) -> None:
    # HKUDS/DeepTutor#469, brave/brave-core#36236: in what is streamed, stored, and read again by the model.
    text = "Use `dp[1]`:\n\n```python\ndp[1][2] = dp[0][1]\n```\n\n~~~\nx[2]\n~~~\n\n    y[1]\n\nSee \\[1] and "
    chat_stack.retrieval.hits["tea"] = [TEA, WATER]
    chat_stack.provider.next(calls("tea"), answer(text + "[2]."), answer("Yes."))
    turn = await chat_stack.client.ask("How?")
    reply = await reloaded(chat_stack, turn)
    assert turn.text == reply["content"] == text + "[2]."
    assert turn.done["cited"] == reply["cited"] == [2]
    await chat_stack.client.ask("Sure?", conversation_id=turn.started["conversation_id"])
    assert chat_stack.provider.exchanges[2].body["messages"][-2]["content"] == text + "(water.md)."


async def test_a_marker_in_pieces_at_the_very_end_is_neither_lost_nor_held_back(chat_stack: ChatStack) -> None:  # onyx-dot-app/onyx#11932
    chat_stack.retrieval.hits["tea"] = [TEA, WATER]
    chat_stack.provider.next(calls("tea"), answer("Hot ", "[", "1", "]", "[2"))
    turn = await chat_stack.client.ask("How hot?")
    assert turn.text == (await reloaded(chat_stack, turn))["content"] == "Hot [1][2"
    assert turn.done["cited"] == [1]


async def test_lists_and_chinese_brackets_count_and_what_is_unknown_stays_text(chat_stack: ChatStack) -> None:
    # CherryHQ/cherry-studio#10621, pipeshub-ai/pipeshub-ai#1005, stella/stella#1686
    text = "热 [3, 1]【2】[9], [b1], [cit_blk_9]."
    chat_stack.retrieval.hits["tea"] = [TEA, WATER, MILK]
    chat_stack.provider.next(calls("tea"), answer(text))
    turn = await chat_stack.client.ask("How hot?")
    assert turn.done["cited"] == [3, 1, 2]
    assert (await reloaded(chat_stack, turn))["content"] == text


async def test_a_citation_of_a_note_that_is_gone_stays_and_says_so(chat_stack: ChatStack) -> None:  # jswest/bartleby#343, #699
    chat_stack.retrieval.hits["tea"] = [TEA, WATER]
    chat_stack.retrieval.hashes = {TEA.file_path: None}
    chat_stack.provider.next(calls("tea"), answer("At 80 °C [1], not [2]."))
    reply = await reloaded(chat_stack, await chat_stack.client.ask("How hot?"))
    assert (reply["content"], reply["cited"]) == ("At 80 °C [1], not [2].", [1, 2])
    assert [source["state"] for source in reply["sources"]] == ["gone", "current"]


async def test_ids_of_notes_and_passages_are_never_taken_for_citations(chat_stack: ChatStack) -> None:  # jswest/bartleby#623
    found = hit("7", "Tea is brewed at 80 °C.", "2.md")
    chat_stack.retrieval.hits["tea"] = [found]
    chat_stack.provider.next(calls("tea"), answer(f"Hot [7] [2] [2.md] [{found.citation_id}]."))
    turn = await chat_stack.client.ask("How hot?")
    assert (turn.done["cited"], (await reloaded(chat_stack, turn))["cited"]) == ([], [])


async def test_old_markers_count_by_the_id_of_their_source(chat_stack: ChatStack) -> None:  # ON-17
    text = "Hot [cit_blk_2], `[cit_blk_1]`, [cit_blk_3]."
    chat_stack.retrieval.hits["tea"] = [hit("blk_1", "Tea.", "tea.md"), hit("blk_2", "Water.", "water.md")]
    chat_stack.provider.next(calls("tea"), answer(text), answer("Yes."))
    turn = await chat_stack.client.ask("How hot?")
    reply = await reloaded(chat_stack, turn)
    assert (turn.done["cited"], reply["cited"], reply["content"]) == ([2], [2], text)
    await chat_stack.client.ask("Sure?", conversation_id=turn.started["conversation_id"])
    assert chat_stack.provider.exchanges[2].body["messages"][-2]["content"] == "Hot (water.md), `[cit_blk_1]`, [cit_blk_3]."


async def test_what_is_cited_is_read_from_the_text_at_every_reload(chat_stack: ChatStack) -> None:  # ON-16
    chat_stack.retrieval.hits["tea"] = [TEA, WATER]
    chat_stack.provider.next(calls("tea"), answer("At 80 °C [1]."))
    turn = await chat_stack.client.ask("How hot?")
    database = await asyncpg.connect(chat_stack.database_url)
    try:
        await database.execute("UPDATE agent.messages SET content = 'As imported [2], `[1]`.' WHERE id = $1", turn.started["response_id"])
    finally:
        await database.close()
    assert (await reloaded(chat_stack, turn))["cited"] == [2]


async def test_a_mentioned_note_gets_a_number_when_a_search_finds_it(chat_stack: ChatStack) -> None:  # LegalQuants/lq-ai#258
    async def inject(request: InjectRequest, _: Scope) -> InjectReply:
        ref, text = "drinks/tea.md", "# Tea"
        note = Injection(
            ref=ref, title="Tea", path=ref, content_hash="0" * 64, characters=len(text), form="full", text=text,
            workspace=WORKSPACE, directory="vault", root_path=ref,
        )  # fmt: skip
        return InjectReply(messages=[Prepared(items=[note])])

    bus = Bus(f"contexts-{uuid4().hex[:8]}", chat_stack.nats_url)
    await bus.connect()
    await bus.serve([Route(contexts.INJECT, inject)])
    try:
        chat_stack.retrieval.hits["tea"] = [TEA]
        chat_stack.provider.next(calls("tea"), answer("At 80 °C [1]."))
        turn = await chat_stack.client.ask("How hot, by [Tea](drinks/tea.md)?", workspace=str(WORKSPACE))
    finally:
        await bus.stop()
    assert [item["path"] for item in turn.of("ContextInjected")[0]["items"]] == [TEA.file_path]
    assert [(event["number"], event["file_path"]) for event in turn.of("Citation")] == [(1, TEA.file_path)]
    assert turn.done["cited"] == [1]
