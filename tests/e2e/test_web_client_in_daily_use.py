"""The web client as people use it: impatient, in several windows, with a network and services that go away and come back."""

import asyncio
import re

import pytest
from playwright.async_api import Locator, Page, Route, expect

from tests.support.browser import Client, replies, say
from tests.support.chat_client import PASSWORD
from tests.support.polling import eventually
from tests.support.scripted_provider import Gate, Script, answer, calls, streamed, tool_calls


async def to_the_front(page: Page) -> None:
    """What a browser tells a window that somebody turns to; the window looks for news, and has them when this returns."""
    async with page.expect_response(lambda response: "/api/chat/conversations/" in response.url):
        await page.evaluate("window.dispatchEvent(new Event('focus'))")


async def set_visible(page: Page, visible: bool) -> None:
    state = "visible" if visible else "hidden"
    await page.evaluate(
        """(state) => {
            Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        state,
    )


async def refuse(page: Page, addresses: str, status: int = 503, code: str = "unavailable") -> asyncio.Event:
    """What is behind these is away from now on; the event is set at the first refusal."""
    refused = asyncio.Event()

    async def away(route: Route) -> None:
        await route.fulfill(status=status, content_type="application/problem+json", json={"code": code, "detail": "Away."})
        refused.set()

    await page.route(addresses, away)
    return refused


async def imported(web: Client, title: str, *messages: tuple[str, str]) -> str:
    body = {"title": title, "messages": [{"role": role, "content": content} for role, content in messages]}
    made = await web.stack.client.http.post("/api/chat/conversations/import", json=body)
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


async def workspace_of(web: Client, directory: str) -> str:
    items = (await web.stack.client.http.get("/api/workspaces")).json()["items"]
    return str(next(item["id"] for item in items if item["directory"] == directory))


async def has_note(web: Client, path: str) -> bool:
    read = await web.stack.client.http.get(f"/api/workspaces/{await workspace_of(web, web.vault.name)}/notes/{path}")
    return read.status_code == 200


async def open_live(web: Client, page: Page, name: str) -> Locator:
    """The panel with this note, new, once its changes are heard: it is read when it is opened, and again when the page begins to listen."""
    (web.vault / f"{name}.md").write_text(f"# {name}\n\nFirst text.\n")
    await eventually(lambda: has_note(web, f"{name}.md"), 15)
    reads: list[str] = []
    page.on("response", lambda response: reads.append(response.url) if response.url.endswith(f"{name}.md") else None)

    async def listens() -> bool:
        return len(reads) > 1

    await page.get_by_role("link", name="Notes").click()
    await page.get_by_role("button", name=name).click()
    panel = page.get_by_role("complementary")
    await expect(panel.get_by_text("First text.")).to_be_visible()
    await eventually(listens, 15)
    return panel


async def ask_for_an_addition(web: Client, page: Page, path: str, then: Script) -> None:
    """The model proposes to add to this note, new, and waits; `then` is what it says next."""
    (web.vault / path).write_text("# New\n\nOnce.\n")
    await eventually(lambda: has_note(web, path), 15)
    web.provider.next(tool_calls(("notes_append", {"path": path, "text": "Twice."}), prefix=path.removesuffix(".md")), then)
    await page.get_by_label("Notes to search").select_option("vault")
    await page.get_by_label("Mode").select_option("Work on notes")
    await say(page, "Add.")


async def test_a_double_click_asks_once(web: Client) -> None:  # UI-2
    async with web.window() as window:
        page = window.page
        await say(page, "Question?")
        await expect(replies(page).get_by_text("Hello.")).to_be_visible()
        await replies(page).get_by_role("button", name="Answer anew").dblclick(delay=5)
        await expect(replies(page).get_by_text("2/2")).to_be_visible()
        await expect(page.get_by_role("button", name="Stop")).to_be_hidden()
        conversation = page.url.rpartition("/")[2]
        read = await web.stack.client.http.get(f"/api/chat/conversations/{conversation}")
        assert len(read.json()["messages"][-1]["versions"]) == 2


async def test_a_draft_stays_with_its_conversation(web: Client) -> None:  # UI-4
    async with web.window() as window:
        page = window.page
        field = page.get_by_label("Message", exact=True)
        await say(page, "Question?")
        await expect(replies(page).get_by_text("Hello.")).to_be_visible()
        await field.fill("A draft of the second message")
        await page.reload()
        await expect(replies(page).get_by_text("Hello.")).to_be_visible()
        await expect(field).to_have_value("A draft of the second message")
        await page.get_by_role("link", name="New conversation").click()
        await expect(page.get_by_role("heading", name="Ask your notes")).to_be_visible()
        await expect(field).to_have_value("")


async def test_what_is_too_long_is_refused_and_never_cut(web: Client) -> None:  # danny-avila/LibreChat#14959
    text = "长" * 200_100
    async with web.window() as window:
        page = window.page
        field = page.get_by_label("Message", exact=True)
        await field.fill(text)
        await page.get_by_role("button", name="Send").click()
        await expect(page.get_by_role("alert")).to_contain_text("200,100 of 200,000 characters")
        assert await field.input_value() == text


async def test_a_draft_that_the_browser_cannot_keep_can_be_written_all_the_same(web: Client) -> None:
    async with web.window() as window:
        page = window.page
        await page.evaluate("() => { Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError'); }; }")
        await say(page, "Question?")
        await expect(replies(page).get_by_text("Hello.")).to_be_visible()


async def test_a_window_goes_on_after_somebody_signed_in_anew_in_another(web: Client) -> None:
    async with web.context() as context:
        page = (await web.open(context)).page
        await expect(page.get_by_label("Message", exact=True)).to_be_visible()
        await context.clear_cookies()
        other = (await web.open(context)).page
        await other.get_by_label("Password").fill(PASSWORD)
        await other.keyboard.press("Enter")
        await expect(other.get_by_role("heading", name="Ask your notes")).to_be_visible()
        await say(page, "Still there?")
        await expect(replies(page).get_by_text("Hello.")).to_be_visible()


async def test_another_account_in_the_same_browser_sees_nothing_of_the_former_one(web: Client) -> None:
    body = {"username": "second", "password": "long enough it is", "role": "member"}
    assert (await web.stack.client.http.post("/api/accounts", json=body)).status_code == 201
    async with web.context() as context:
        page = (await web.open(context)).page
        await page.get_by_label("Message", exact=True).fill("For my eyes only")
        other = (await web.open(context)).page
        await other.get_by_role("button", name="Sign out").click()
        await other.get_by_label("Name").fill("second")
        await other.get_by_label("Password").fill("long enough it is")
        await other.keyboard.press("Enter")
        await expect(other.get_by_role("button", name="Sign out (second)")).to_be_visible()
        await page.get_by_role("button", name="Send").click(force=True, no_wait_after=True)
        await expect(page.get_by_role("button", name="Sign out (second)")).to_be_visible()
        await expect(page.get_by_label("Message", exact=True)).to_have_value("")
        listed = await page.request.get(f"{web.stack.base_url}/api/chat/conversations")
        assert (await listed.json())["items"] == []


async def test_searches_are_looked_through_page_by_page(web: Client) -> None:
    for number in range(52):
        made = await web.stack.client.http.post("/api/retrieval/runs", json={"mode": "keyword", "query": f"search {number}"})
        assert made.status_code == 201
    async with web.window("/#/admin/runs") as window:
        page = window.page
        await expect(page.get_by_role("link", name="search 51", exact=True)).to_be_visible()
        await page.get_by_role("button", name="Next page").click()
        await expect(page.get_by_role("link", name="search 0", exact=True)).to_be_visible()
        await expect(page.get_by_role("button", name="Next page")).to_be_disabled()
        await expect(page.get_by_role("link", name="Administration")).to_have_attribute("aria-current", "page")


async def test_a_session_that_ends_while_somebody_writes_says_so_and_keeps_the_draft(web: Client) -> None:  # UI-5
    async with web.context() as context:
        page = (await web.open(context)).page
        await page.get_by_label("Message", exact=True).fill("Nearly done")
        await context.clear_cookies()
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("Your session has ended.")).to_be_visible()
        await page.get_by_label("Password").fill(PASSWORD)
        await page.keyboard.press("Enter")
        await expect(page.get_by_label("Message", exact=True)).to_have_value("Nearly done")


async def test_a_conversation_that_was_deleted_in_another_window_says_so(web: Client) -> None:
    conversation = await imported(web, "Short-lived", ("user", "Question?"), ("assistant", "Answer."))
    async with web.context() as context:
        first = (await web.open(context, f"/#/c/{conversation}")).page
        second = (await web.open(context, f"/#/c/{conversation}")).page
        for page in (first, second):
            await expect(replies(page).get_by_text("Answer.")).to_be_visible()
        await first.get_by_role("button", name="Delete", exact=True).click()
        await first.get_by_role("dialog").get_by_role("button", name="Delete").dblclick(delay=5)
        await expect(first.get_by_role("heading", name="Ask your notes")).to_be_visible()
        await expect(second.get_by_text("This conversation does not exist any more.")).to_be_visible()
        await expect(second.get_by_role("link", name="Short-lived")).to_have_count(0)


async def test_a_conversation_that_cannot_be_deleted_stays_and_says_why(web: Client) -> None:
    conversation = await imported(web, "Kept", ("user", "Question?"), ("assistant", "Answer."))
    async with web.window(f"/#/c/{conversation}") as window:
        page = window.page
        await expect(replies(page).get_by_text("Answer.")).to_be_visible()
        await page.route(
            re.compile("/api/chat/conversations/"), lambda route: route.abort() if route.request.method == "DELETE" else route.continue_()
        )
        await page.get_by_role("button", name="Delete", exact=True).click()
        await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        await expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("cannot be reached")
        await page.keyboard.press("Escape")
        await expect(replies(page).get_by_text("Answer.")).to_be_visible()


async def test_among_hundreds_of_conversations_an_old_one_is_found_and_renamed(web: Client) -> None:
    old = await imported(web, "The oldest of all", ("user", "Question?"), ("assistant", "Answer."))
    for start in range(0, 220, 20):
        await asyncio.gather(
            *(imported(web, f"Conversation {number}", ("user", "Q?"), ("assistant", "A.")) for number in range(start, start + 20))
        )
    async with web.window(f"/#/c/{old}") as window:
        page = window.page
        await expect(page.locator(".top-text")).to_have_text("The oldest of all")
        links = page.locator(".conversation-link")
        await page.get_by_role("button", name="Show more").click()
        await expect(links).to_have_count(100)
        await to_the_front(page)
        await page.wait_for_load_state("networkidle")
        await expect(links).to_have_count(100)
        await page.get_by_label("Find a conversation").fill("oldest")
        await expect(links).to_have_text(["The oldest of all"])
        await page.get_by_role("button", name="Rename").click()
        await page.get_by_role("textbox", name="Rename").fill("As old as time")
        await page.keyboard.press("Enter")
        await expect(page.locator(".top-text")).to_have_text("As old as time")
        await page.get_by_label("Find a conversation").fill("time")
        await expect(links).to_have_text(["As old as time"])


async def test_turning_to_a_window_leaves_what_is_about_to_be_clicked_in_its_place(web: Client) -> None:
    conversation = await imported(web, "Looked at", ("user", "Question?"), ("assistant", "Answer."))
    async with web.window(f"/#/c/{conversation}") as window:
        page = window.page
        await expect(replies(page).get_by_text("Answer.")).to_be_visible()
        await page.wait_for_load_state("networkidle")
        button = await replies(page).get_by_role("button", name="Copy the answer").element_handle()
        link = await page.get_by_role("link", name="Looked at").element_handle()
        await to_the_front(page)
        await page.wait_for_load_state("networkidle")
        assert await button.evaluate("(one) => one.isConnected")
        assert await link.evaluate("(one) => one.isConnected")


async def test_a_note_is_closed_by_escape_after_its_text_was_clicked(web: Client) -> None:  # UI-5
    async with web.window("/#/notes") as window:
        page = window.page
        await page.get_by_role("button", name="Tea").click()
        text = page.get_by_role("complementary").get_by_text("Green tea is brewed")
        await text.click()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("complementary")).to_be_hidden()


async def test_an_answer_is_stopped_before_anything_of_it_was_read(web: Client) -> None:  # UI-2
    web.provider.next(streamed("It begins", Gate()))
    async with web.window() as window:
        page = window.page
        await say(page, "Go on.")
        await expect(replies(page).get_by_text("It begins")).to_be_visible()
        held = asyncio.Event()

        async def hold(route: Route) -> None:
            await held.wait()
            await route.continue_()

        await page.route("**/api/chat/turns/*/events", hold)
        await page.reload()
        await page.get_by_role("button", name="Stop").click()
        await eventually(lambda: _closed(web), 5)
        held.set()
        await expect(replies(page).get_by_text("Stopped.")).to_be_visible()


async def test_a_question_whose_arrival_nobody_knows_of_is_not_asked_twice(web: Client) -> None:
    async with web.window() as window:
        page = window.page

        async def lose_the_answer(route: Route) -> None:
            await route.fetch()
            await route.abort()

        await page.route("**/api/chat", lose_the_answer)
        await say(page, "Did this arrive?")
        await expect(page.get_by_role("alert").get_by_text("cannot be reached")).to_be_visible()
        await page.unroute("**/api/chat")
        await page.get_by_role("button", name="Send").click()
        await expect(replies(page).get_by_text("Hello.")).to_be_visible()
        await expect(page.get_by_role("link", name="Did this arrive?")).to_have_count(1)


@pytest.mark.parametrize(("status", "code"), [(503, "unavailable"), (404, "note_not_found")])
async def test_a_note_that_cannot_be_read_for_a_while_stays_and_is_then_as_it_is(web: Client, status: int, code: str) -> None:  # UI-1
    note = web.vault / "Outage.md"
    async with web.window() as window:
        page = window.page
        panel = await open_live(web, page, "Outage")
        gone = panel.get_by_text("This note was deleted or moved.")
        refused = await refuse(page, "**/notes/Outage.md", status, code)
        note.write_text("# Outage\n\nSecond text.\n")
        await asyncio.wait_for(refused.wait(), 15)
        await expect(gone).to_have_count(1 if status == 404 else 0)
        await expect(panel.get_by_text("First text.")).to_be_visible()
        await page.unroute("**/notes/Outage.md")
        # No change is told any more.
        await expect(panel.get_by_text("Second text.")).to_be_visible()
        await expect(gone).to_have_count(0)
    note.unlink()


async def test_of_two_readings_of_a_note_that_overlap_the_later_counts(web: Client) -> None:  # UI-1
    note = web.vault / "Twice.md"
    async with web.window() as window:
        page = window.page
        panel = await open_live(web, page, "Twice")
        caught, held = asyncio.Event(), asyncio.Event()

        async def hold_the_first(route: Route) -> None:
            if caught.is_set():
                await route.continue_()
                return
            answered = await route.fetch()
            caught.set()
            await held.wait()
            await route.fulfill(response=answered)

        await page.route("**/notes/Twice.md", hold_the_first)
        note.write_text("# Twice\n\nSecond text.\n")
        await asyncio.wait_for(caught.wait(), 15)
        note.write_text("# Twice\n\nThird text.\n")
        await expect(panel.get_by_text("Third text.")).to_be_visible()
        async with page.expect_response("**/notes/Twice.md"):
            held.set()
        await page.evaluate("new Promise((resolve) => setTimeout(resolve))")
        await expect(panel.get_by_text("Third text.")).to_be_visible()
        await expect(panel.get_by_text("Second text.")).to_have_count(0)
    note.unlink()


async def test_a_note_is_live_again_after_the_gateway_was_away(web: Client) -> None:  # UI-1
    note = web.vault / "Alive.md"
    async with web.window() as window:
        page = window.page
        panel = await open_live(web, page, "Alive")
        refused = await refuse(page, "**/api/workspaces/*/events")
        await web.stack.kill("gateway")
        await asyncio.wait_for(refused.wait(), 30)
        await web.stack.ready()
        await page.unroute("**/api/workspaces/*/events")
        note.unlink()
        await expect(panel.get_by_text("This note was deleted or moved.")).to_be_visible()
        note.write_text("# Alive\n\nFirst text.\n")
        await expect(panel.get_by_text("This note was deleted or moved.")).to_have_count(0)
        await expect(panel.get_by_text("First text.")).to_be_visible()
        window.errors.clear()
    note.unlink()


async def test_enter_waits_for_the_notes_that_are_being_looked_for(web: Client) -> None:  # MN-11
    async with web.window() as window:
        page = window.page
        await page.get_by_label("Notes to search").select_option("vault")
        held = asyncio.Event()

        async def hold(route: Route) -> None:
            if "bre" in route.request.url:
                await held.wait()
            await route.continue_()

        await page.route("**/api/mentions/candidates*", hold)
        field = page.get_by_label("Message", exact=True)
        await field.press_sequentially("About @bre")
        await field.press("Enter")
        held.set()
        await expect(page.get_by_role("list", name="Mentioned notes").get_by_text("Bread")).to_be_visible()
        await expect(field).to_have_value("About ")
        await expect(page.get_by_role("article")).to_have_count(0)


async def test_a_note_that_is_mentioned_while_a_message_is_on_its_way_belongs_to_the_next(web: Client) -> None:  # MN-11
    async with web.window() as window:
        page = window.page
        await page.get_by_label("Notes to search").select_option("vault")
        field = page.get_by_label("Message", exact=True)
        chips = page.get_by_role("list", name="Mentioned notes")

        async def mention(route: Route) -> None:
            await field.press_sequentially(" @bre")
            await page.get_by_role("option", name="Bread").first.click()
            await route.continue_()

        await page.route("**/api/chat", mention)
        await say(page, "Question?")
        await expect(replies(page).get_by_text("Hello.")).to_be_visible()
        await expect(chips.get_by_text("Bread")).to_be_visible()


async def test_a_note_is_found_among_more_than_a_page_shows(web: Client) -> None:
    async with web.window("/#/") as window:
        page = window.page
        await page.route("**/notes?*", lambda route: route.continue_(url=route.request.url.replace("limit=200", "limit=1")))
        await page.get_by_role("link", name="Notes").click()
        await page.get_by_label("Filter by path or title").fill("绿")
        await expect(page.locator(".note-row")).to_have_text(["绿茶绿茶.md"])


async def test_a_vault_that_is_away_is_told(web: Client) -> None:  # ADR 10
    place = web.vault.parent / "other place"
    away = web.vault.parent / "elsewhere"
    place.rename(away)
    try:
        await eventually(lambda: _is_away(web, "other place"), 30)
        async with web.window("/#/notes") as window:
            page = window.page
            await expect(page.get_by_label("Workspace")).to_contain_text("other place (cannot be reached)")
            await page.goto(f"{web.stack.base_url}/#/")
            await expect(page.get_by_label("Notes to search")).to_contain_text("other place (cannot be reached)")
    finally:
        away.rename(place)
        await eventually(lambda: _is_there(web, "other place"), 30)


async def test_a_copied_answer_has_its_sources_with_it(web: Client) -> None:  # open-webui/open-webui#11527
    web.provider.next(calls("how long does dough prove", prefix="copy"), answer("Two hours [1]."))
    async with web.window() as window:
        page = window.page
        await page.get_by_label("Notes to search").select_option("vault")
        await say(page, "How long?")
        await expect(replies(page).locator(".source-card")).to_have_count(1)
        place = await replies(page).locator(".source-place").inner_text()
        await replies(page).get_by_role("button", name="Copy the answer").click()
        await expect(replies(page).get_by_text("Copied", exact=True)).to_be_visible()
        assert await page.evaluate("navigator.clipboard.readText()") == f"Two hours [1].\n\n[1] {place}\n"


async def test_code_is_copied_where_the_browser_has_no_clipboard_for_programs(web: Client) -> None:  # UI-3, plain http in a home network
    web.provider.next(answer("```sh\nmake run\n```"))
    async with web.window() as window:
        page = window.page
        await page.add_init_script("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
        await page.reload()
        await say(page, "How?")
        await expect(replies(page).locator("code .line")).to_have_count(1)
        await replies(page).get_by_role("button", name="Copy the code").click()
        await expect(replies(page).get_by_text("Copied", exact=True)).to_be_visible()
        field = page.get_by_label("Message", exact=True)
        await field.focus()
        await page.keyboard.press("Control+V")
        await expect(field).to_have_value("make run\n")


async def test_an_answer_that_is_begun_anew_by_another_agent_is_shown_once(web: Client) -> None:  # ADR 19
    web.provider.next(streamed("Half of the first", Gate()), answer("The whole second."))
    async with web.window() as window:
        page = window.page
        await say(page, "Go on.")
        await expect(replies(page).get_by_text("Half of the first")).to_be_visible()
        await web.stack.kill("agent")
        await expect(replies(page).locator(".answer-text")).to_have_text("The whole second.", timeout=60_000)
        await expect(page.get_by_role("button", name="Stop")).to_be_hidden()
        await web.stack.ready()


async def test_an_answer_goes_on_after_the_gateway_was_away_and_the_outage_is_told_once(web: Client) -> None:
    # UI-2; open-webui/open-webui#29628
    gate = Gate()
    web.provider.next(streamed("One, ", gate, "two."))
    async with web.window() as window:
        page = window.page
        await say(page, "Count.")
        await expect(replies(page).get_by_text("One,")).to_be_visible()
        await page.evaluate(
            """() => {
                window.most = 0;
                new MutationObserver(() => (window.most = Math.max(window.most, document.querySelectorAll(".said p").length)))
                    .observe(document.querySelector(".said"), { childList: true });
            }"""
        )
        refusals = 0

        async def refuse(route: Route) -> None:
            nonlocal refusals
            refusals += 1
            await (route.abort() if refusals < 4 else route.continue_())

        await page.route("**/api/chat/turns/*/events", refuse)
        await web.stack.kill("gateway")
        await web.stack.ready()
        gate.open()
        await expect(replies(page).locator(".answer-text")).to_have_text("One, two.")
        await expect(page.get_by_role("button", name="Stop")).to_be_hidden()
        assert await page.evaluate("window.most") == 1
        window.errors.clear()


async def test_of_two_windows_one_decides_and_the_other_sees_it(web: Client) -> None:  # UI-4
    note = web.vault / "Decided.md"
    async with web.context() as context:
        page = (await web.open(context)).page
        await ask_for_an_addition(web, page, "Decided.md", answer("So be it."))
        approve = page.get_by_role("button", name="Make this change")
        await expect(approve).to_be_visible()
        second = (await web.open(context, "/#" + page.url.partition("#")[2])).page
        reject = second.get_by_role("button", name="Reject")
        await expect(reject).to_be_visible()
        twice = "(one) => { one.click(); one.click(); }"
        buttons = [await button.element_handle() for button in (approve, reject)]
        await asyncio.gather(*(button.evaluate(twice) for button in buttons))
        for one in (page, second):
            await expect(replies(one).get_by_text("So be it.")).to_be_visible()
            await expect(one.get_by_role("region", name="May this change be made?")).to_have_count(0)
    assert note.read_text().count("Twice.") <= 1
    note.unlink()


async def test_a_waiting_change_does_not_hide_what_another_window_does(web: Client) -> None:  # UI-2
    note = web.vault / "Waiting.md"
    async with web.context() as context:
        page = (await web.open(context)).page
        await ask_for_an_addition(web, page, "Waiting.md", answer("Something else."))
        await expect(page.get_by_role("button", name="Make this change")).to_be_visible()
        second = (await web.open(context, "/#" + page.url.partition("#")[2])).page
        await expect(second.get_by_role("button", name="Make this change")).to_be_visible()
        await say(page, "Never mind.")
        for one in (page, second):
            await expect(replies(one).last.get_by_text("Something else.")).to_be_visible()
    note.unlink()


async def test_a_long_conversation_is_printed_whole(web: Client) -> None:
    text = "\n\n".join(f"Paragraph {number}." for number in range(200))
    conversation = await imported(web, "Printed", ("user", "Question?"), ("assistant", text))
    async with web.window(f"/#/c/{conversation}", color_scheme="dark") as window:
        page = window.page
        await expect(replies(page).get_by_text("Paragraph 199.")).to_be_visible()
        await page.emulate_media(media="print")
        assert await page.evaluate("getComputedStyle(document.body).color") == "rgb(36, 33, 28)"  # dark ink, whatever the screen is
        cut = """() => [...document.querySelectorAll("body, .shell, .middle, .main, .conversation, .scroller")]
            .filter((one) => one.scrollHeight > one.clientHeight + 1 && getComputedStyle(one).overflowY !== "visible")
            .map((one) => one.className)"""
        assert await page.evaluate(cut) == []
        await expect(page.get_by_label("Message", exact=True)).to_be_hidden()
        await expect(page.get_by_role("navigation")).to_be_hidden()


async def test_back_and_forward_show_what_was_there(web: Client) -> None:
    one = await imported(web, "The one", ("user", "Question?"), ("assistant", "Answer one."))
    other = await imported(web, "The other", ("user", "Question?"), ("assistant", "Answer two."))
    async with web.window(f"/#/c/{one}") as window:
        page = window.page
        await expect(replies(page).get_by_text("Answer one.")).to_be_visible()
        assert await page.title() == "The one · Marginalia"
        await page.goto(f"{web.stack.base_url}/#/c/{other}")
        await expect(replies(page).get_by_text("Answer two.")).to_be_visible()
        await page.go_back()
        await expect(replies(page)).to_have_text(re.compile("Answer one."))
        await page.go_forward()
        await expect(replies(page)).to_have_text(re.compile("Answer two."))
        await page.goto(f"{web.stack.base_url}/#/c/%E0%A4%A")
        await expect(page.get_by_text("This conversation does not exist any more.")).to_be_visible()


async def test_the_keyboard_keeps_its_place_through_stopping_and_versions(web: Client) -> None:  # UI-5
    for text in ("First.", "Second.", "Third."):
        web.provider.next(answer(text))
    async with web.window() as window:
        page = window.page
        await say(page, "Question?")
        await expect(replies(page).get_by_text("First.")).to_be_visible()
        for text in ("Second.", "Third."):
            again = replies(page).get_by_role("button", name="Answer anew")
            await again.focus()
            await page.keyboard.press("Enter")
            await expect(replies(page).get_by_text(text)).to_be_visible()
            await expect(page.get_by_role("button", name="Stop")).to_be_hidden()
            await expect(again).to_be_focused()
        await page.get_by_role("button", name="Previous version").focus()
        await page.keyboard.press("Enter")
        await expect(replies(page).get_by_text("Second.")).to_be_visible()
        await expect(page.get_by_role("button", name="Previous version")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(replies(page).get_by_text("First.")).to_be_visible()
        await expect(page.get_by_role("button", name="Next version")).to_be_focused()
        web.provider.next(streamed("It begins", Gate()))
        await say(page, "Go on.")
        await expect(replies(page).last.get_by_text("It begins")).to_be_visible()
        await page.get_by_role("button", name="Stop").focus()
        await page.keyboard.press("Enter")
        await expect(replies(page).get_by_text("Stopped.")).to_be_visible()
        await expect(page.get_by_label("Message", exact=True)).to_be_focused()


async def test_windows_in_the_background_leave_the_connections_to_the_one_in_front(web: Client) -> None:
    # A browser opens six to one server, for all windows together.
    gate = Gate()
    web.provider.next(streamed("One, ", gate, "two."))
    async with web.context() as context:
        front = (await web.open(context)).page
        await say(front, "Count.")
        await expect(replies(front).get_by_text("One,")).to_be_visible()
        address = "/#" + front.url.partition("#")[2]
        behind = []
        for _ in range(6):
            page = (await web.open(context, address)).page
            await expect(replies(page).get_by_text("One,")).to_be_visible()
            await set_visible(page, visible=False)
            behind.append(page)
        gate.open()
        await expect(replies(front).get_by_text("One, two.")).to_be_visible()
        await set_visible(behind[0], visible=True)
        await expect(replies(behind[0]).get_by_text("One, two.")).to_be_visible()
        await expect(behind[0].get_by_role("button", name="Stop")).to_be_hidden()


async def test_texts_from_right_to_left_are_shown_so(web: Client) -> None:
    conversation = await imported(web, "RTL", ("user", "مرحبا بالعالم (123)"), ("assistant", "- هذا نص عربي.\n\nLatin."))
    async with web.window(f"/#/c/{conversation}") as window:
        page = window.page
        direction = "(one) => getComputedStyle(one).direction"
        await expect(page.get_by_text("Latin.")).to_be_visible()
        assert await page.get_by_text("مرحبا").evaluate(direction) == "rtl"
        assert await page.get_by_role("listitem").get_by_text("هذا").evaluate(direction) == "rtl"
        assert await page.get_by_text("Latin.").evaluate(direction) == "ltr"


async def test_what_an_administrator_cannot_do_just_now_is_told(web: Client) -> None:
    async with web.window("/#/admin/index") as window:
        page = window.page
        publishing = page.get_by_label("Publishing").first
        await page.route("**/api/workspaces/*", lambda route: route.abort() if route.request.method == "PATCH" else route.continue_())
        await publishing.select_option("by hand")
        await expect(page.locator(".said").get_by_text("cannot be reached")).to_be_visible()


async def test_an_administrator_gives_a_member_a_workspace(web: Client) -> None:
    body = {"username": "guest", "password": "long enough it is", "role": "member"}
    assert (await web.stack.client.http.post("/api/accounts", json=body)).status_code == 201
    async with web.window(signed_in=False) as window:
        page = window.page
        await page.get_by_label("Name").fill("guest")
        await page.get_by_label("Password").fill("long enough it is")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("No workspace has been given to you yet")).to_be_visible()
        await say(page, "Hello?")
        await expect(replies(page).get_by_text("Hello.")).to_be_visible()
        await expect(replies(page).get_by_role("button", name="Save to a note")).to_have_count(0)
    async with web.window("/#/admin/accounts") as window:
        page = window.page
        await page.get_by_label("guest, vault").select_option("may read")
        await expect(page.get_by_label("guest, vault")).to_be_enabled()
    async with web.window(signed_in=False) as window:
        page = window.page
        await page.get_by_label("Name").fill("guest")
        await page.get_by_label("Password").fill("long enough it is")
        await page.keyboard.press("Enter")
        await expect(page.get_by_label("Notes to search")).to_contain_text("vault")


async def test_an_administrator_changes_role_and_password_of_an_account(web: Client) -> None:
    body = {"username": "novice", "password": "long enough it is", "role": "member"}
    assert (await web.stack.client.http.post("/api/accounts", json=body)).status_code == 201
    async with web.window("/#/admin/accounts") as window:
        page = window.page
        await page.get_by_label("novice, Role").select_option("admin")
        row = page.get_by_role("row", name="novice").first
        await row.get_by_role("button", name="New password").click()
        shown = page.get_by_role("dialog", name="New password: novice")
        await shown.get_by_label("Password").fill("quite another one")
        await shown.get_by_role("button", name="Save").click()
        await expect(shown).to_have_count(0)
        await page.reload()
        await expect(page.get_by_label("novice, Role")).to_have_value("admin")
    async with web.window(signed_in=False) as window:
        page = window.page
        await page.get_by_label("Name").fill("novice")
        await page.get_by_label("Password").fill("quite another one")
        await page.keyboard.press("Enter")
        await expect(page.get_by_label("Message", exact=True)).to_be_visible()


async def _closed(web: Client) -> bool:
    return web.provider.exchanges[-1].closed_early.is_set()


async def _is_there(web: Client, directory: str) -> bool:
    items = (await web.stack.client.http.get("/api/workspaces")).json()["items"]
    return bool(next(item["available"] for item in items if item["directory"] == directory))


async def _is_away(web: Client, directory: str) -> bool:
    return not await _is_there(web, directory)


async def test_the_progress_of_indexing_is_shown_as_it_goes_on(web: Client) -> None:
    status = {"indexed": 3, "pending": 2, "held": 0, "unembedded": 0, "oldest_pending_seconds": 1, "last_error": None}

    async def progress(route: Route) -> None:
        await route.fulfill(json=status)

    async with web.context() as context:
        await context.route(f"**/api/retrieval/status?workspace={await workspace_of(web, web.vault.name)}", progress)
        page = (await web.open(context, "/#/admin/index")).page
        table = page.get_by_role("group", name="Index")
        row = table.get_by_role("row").filter(has_text="vault")
        await expect(row).to_contain_text("3")
        await table.focus()
        status |= {"indexed": 5, "pending": 0}
        await expect(row).to_contain_text("5")
        await expect(table).to_be_focused()


async def test_a_new_window_begins_in_the_mode_that_was_chosen_last(web: Client) -> None:
    async with web.context() as context:
        first = (await web.open(context)).page
        await first.get_by_label("Mode").select_option("Work on notes")
        second = (await web.open(context)).page
        await expect(second.get_by_label("Mode")).to_have_value("agent")
        await second.get_by_label("Mode").select_option("Ask")
        await expect((await web.open(context)).page.get_by_label("Mode")).to_have_value("chat")
        # A window that has chosen for itself keeps to that.
        await first.reload()
        await expect(first.get_by_label("Mode")).to_have_value("agent")


async def test_a_card_says_what_the_passage_says_without_its_marks(web: Client) -> None:
    (web.vault / "Rye.md").write_text("Rye is *kneaded* with **wet hands**, see [Bread](Kitchen/Bread.md).\n")
    web.provider.next(calls("rye wet hands", prefix="rye"), answer("Wet hands [1, 2, 3, 4, 5, 6]."))

    async def found() -> bool:
        run = await web.stack.client.http.post("/api/retrieval/runs", json={"mode": "keyword", "query": "rye wet hands"})
        return "Rye.md" in run.text

    await eventually(found, 30)
    async with web.window() as window:
        await say(window.page, "How is rye kneaded?")
        card = replies(window.page).locator(".source-card", has_text="Rye.md")
        await expect(card.locator(".source-excerpt")).to_have_text("Rye is kneaded with wet hands, see Bread.")
