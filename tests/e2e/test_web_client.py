"""The web client in a real browser, on the whole system. One system serves all these tests; each has windows of its own.

`Window` looks on: a test fails where a page fetched anything from elsewhere, or wrote an error to its console, which is where a browser
tells what the policy of content has stopped.
"""

import re

import pytest
from playwright.async_api import Page, Route, expect

from tests.support.browser import Client, replies, say
from tests.support.chat_client import PASSWORD
from tests.support.hostile_html import HOSTILE
from tests.support.polling import eventually
from tests.support.scripted_provider import DONE, Gate, Script, answer, calls, chunk, streamed, tool_calls, usage_chunk
from tests.unit.contexts.evidence import response

CODE = 'def brew(leaf: str) -> str:\n\n    """Two spaces  here."""\n\treturn f"{leaf} & <water>"\n'


async def is_narrower_than_the_window(page: Page) -> bool:
    return bool(await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


async def test_signing_in_explains_where_the_first_password_is(web: Client) -> None:  # UI-5
    async with web.window(signed_in=False) as window:
        page = window.page
        await expect(page.get_by_text("admin-password")).to_be_visible()
        await window.shot("sign-in")
        await page.get_by_label("Password").fill("wrong")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("alert")).to_be_visible()
        await page.get_by_label("Password").fill(PASSWORD)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="Ask your notes")).to_be_visible()
        await expect(page.get_by_label("Message", exact=True)).to_be_focused()
        await window.shot("welcome")


async def test_steps_stand_in_one_box_in_order_and_cards_for_what_is_cited_alone(web: Client) -> None:
    # UI-1, VT-1; janhq/jan#8887; open-webui/open-webui#12231; infiniflow/ragflow#8594; brave/brave-core#36236; stella/stella#1686
    half, whole = Gate(), Gate()
    steps = [
        chunk(reasoning_content="Found it."),
        *(
            step if isinstance(step, Gate) else chunk(content=step)
            for step in ("Two hours [1", half, "]. `dp[1]` is code, [99] nothing.\n\n", whole)
        ),
        chunk(content="That is all."),
    ]
    web.provider.next(
        calls("how long does dough prove", "how to bake bread", thinking="The notes will know.", prefix="ui1"),
        Script([*steps, chunk(finish_reason="stop"), usage_chunk(), DONE]),
    )
    async with web.window() as window:
        page = window.page
        await page.get_by_label("Notes to search").select_option("vault")
        await say(page, "How long does dough prove?")
        reply = replies(page)
        cards = reply.locator(".source-card")
        await expect(reply.get_by_text("Two hours [1")).to_be_visible()
        await expect(cards).to_have_count(0)
        half.open()
        await expect(cards).to_have_count(1)
        whole.open()
        await expect(reply.get_by_text("That is all.")).to_be_visible()
        await expect(reply.get_by_text("80 in, 24 out")).to_be_visible()
        await expect(cards).to_have_count(1)
        await expect(reply.locator(".cite")).to_have_text(["1"])
        await reply.locator("summary", has_text="Thoughts").click()
        kinds = await reply.locator(".activity-list > li").evaluate_all("(all) => all.map((one) => one.dataset.kind)")
        assert kinds == ["thinking", "tool", "tool", "thinking"]
        assert not await reply.get_by_text(re.compile("verified|proven", re.IGNORECASE)).count()
        text = await reply.inner_text()
        await page.reload()
        await expect(replies(page).get_by_text("80 in, 24 out")).to_be_visible()
        await expect(replies(page).locator(".source-card")).to_have_count(1)
        await replies(page).locator("summary", has_text="Thoughts").click()
        assert await replies(page).inner_text() == text  # a reload gives what was streamed
        await replies(page).get_by_role("button", name="Open source 1").click()
        passage = page.locator("[data-passage]").first
        await expect(passage).to_be_in_viewport()
        await window.shot("answer-and-source")


async def test_a_number_and_its_card_open_the_note_at_the_passage_as_it_is_now(web: Client) -> None:
    # UI-1; open-webui/open-webui#11592, #10979; jswest/bartleby#343
    web.provider.next(calls("Sourdough starter", prefix="note"), answer("Feed it daily [1, 2, 3, 4, 5, 6]."))
    note = web.vault / "Sourdough.md"
    note.write_text("# Sourdough\n\n" + "Filler.\n\n" * 60 + "## Starter\n\nFeed the sourdough starter every day.\n")
    await eventually(lambda: _found(web, "sourdough starter", "Sourdough.md"), 30)
    async with web.window() as window:
        page = window.page
        await page.get_by_label("Notes to search").select_option("vault")
        await say(page, "How is a starter fed?")
        card = replies(page).locator(".source-card", has_text="Sourdough.md › Sourdough › Starter")
        await card.click()
        panel = page.get_by_role("complementary", name="Notes")
        await expect(panel.locator("[data-passage]").first).to_be_in_viewport()
        excerpt = await card.locator(".source-excerpt").inner_text()
        note.write_text("# Sourdough\n\nIt was rewritten.\n")  # by another program
        await expect(panel.get_by_text("It was rewritten.")).to_be_visible()
        await expect(panel.get_by_text("Changed just now")).to_be_visible()
        await expect(panel.get_by_label("The passage that the answer was shown")).to_have_text(excerpt)
        await page.reload()
        await expect(replies(page).get_by_text("The note was changed since").first).to_be_visible()
        note.unlink()
        await page.keyboard.press("Escape")


async def test_answers_have_versions_made_by_regenerating_and_editing(web: Client) -> None:  # UI-2, VT-2, VT-3; Rose22/openlumara#24
    async with web.window() as window:
        page = window.page
        for text in ("First.", "Second.", "To the edit."):
            web.provider.next(answer(text))
        await say(page, "Question?")
        await expect(replies(page).get_by_text("First.")).to_be_visible()
        await replies(page).get_by_role("button", name="Answer anew").click()
        await expect(replies(page).get_by_text("Second.")).to_be_visible()
        await expect(replies(page).get_by_text("2/2")).to_be_visible()
        await page.get_by_role("button", name="Previous version").click()
        await expect(replies(page).get_by_text("First.")).to_be_visible()
        await page.get_by_role("article", name="You").get_by_role("button", name="Edit").click()
        await page.get_by_role("textbox", name="Edit").fill("Another question?")
        await page.keyboard.press("Control+Enter")
        await expect(replies(page).get_by_text("To the edit.")).to_be_visible()
        await expect(page.get_by_role("article", name="You").get_by_text("Another question?")).to_be_visible()
        await page.get_by_role("button", name="Previous version").click()
        await expect(replies(page).get_by_text("First.")).to_be_visible()  # what was last active below it
        await expect(page.get_by_role("article", name="You").get_by_text("Question?", exact=True)).to_be_visible()


async def test_what_is_typed_while_a_message_is_on_its_way_stays(web: Client) -> None:  # UI-2
    web.provider.next(answer("First."))
    async with web.window() as window:
        page = window.page
        field = page.get_by_label("Message", exact=True)

        async def typed_meanwhile(route: Route) -> None:
            await field.press_sequentially(" And this?")
            await route.continue_()

        await page.route("**/api/chat", typed_meanwhile)
        await say(page, "Question?")
        await expect(replies(page).get_by_text("First.")).to_be_visible()
        await expect(field).to_have_value(" And this?")


async def test_an_answer_is_stopped_and_what_there_is_stays(web: Client) -> None:  # UI-2; langgenius/dify#41520; open-webui/open-webui#8777
    web.provider.next(streamed("It begins", Gate()))
    async with web.window() as window:
        page = window.page
        await say(page, "Go on for ever.")
        await expect(replies(page).get_by_text("It begins")).to_be_visible()
        await page.get_by_role("button", name="Stop").click()
        await expect(replies(page).get_by_text("Stopped.")).to_be_visible()
        await expect(replies(page).get_by_text("It begins")).to_be_visible()
        await expect(page.get_by_role("button", name="Stop")).to_be_hidden()
        await eventually(lambda: _closed(web), 5)


async def test_an_answer_goes_on_after_a_reload_and_in_a_second_window(web: Client) -> None:
    # UI-2; open-webui/open-webui#29596; cloudflare/agents#896
    gate = Gate()
    script = streamed("One, ", gate, "two.")
    web.provider.next(Script([chunk(reasoning_content="Counting."), *script.steps]))
    async with web.context() as context:
        window = await web.open(context)
        page = window.page
        await say(page, "Count.")
        await expect(replies(page).get_by_text("One,")).to_be_visible()
        await page.reload()
        await expect(replies(page).get_by_text("One,")).to_be_visible()
        second = (await web.open(context, "/" + page.url.rpartition("/#")[1][1:] + page.url.rpartition("/#")[2])).page
        await expect(replies(second).get_by_text("One,")).to_be_visible()
        await expect(second.get_by_role("button", name="Stop")).to_be_visible()
        gate.open()
        for one in (page, second):
            await expect(replies(one).get_by_text("One, two.")).to_be_visible()
            await expect(one.get_by_role("button", name="Stop")).to_be_hidden()
            await expect(replies(one).locator(".activity")).to_have_count(1)


async def test_failures_and_notices_are_told_in_plain_words(web: Client) -> None:  # open-webui/open-webui#29628
    async with web.window() as window:
        page = window.page
        web.provider.next(Script(status=400, body={"error": {"message": "no such model here"}}))
        await say(page, "Fail.")
        await expect(replies(page).get_by_text("The model's server refused the request.")).to_be_visible()
        await expect(replies(page).get_by_text("no such model here")).to_be_visible()
        web.provider.next(answer("Now it works."))
        await replies(page).get_by_role("button", name="Try again").click()
        await expect(replies(page).get_by_text("Now it works.")).to_be_visible()


async def test_code_stands_in_one_frame_line_by_line_and_is_copied_as_it_was(web: Client) -> None:  # UI-3
    web.provider.next(answer(f"So:\n\n```python\n{CODE}```\n\n~~~\nplain\n~~~\n"))
    async with web.window() as window:
        page = window.page
        await say(page, "Code, please.")
        block = replies(page).get_by_role("figure", name="Code, python")
        await expect(block.locator(".line")).to_have_count(4)
        await expect(block.locator(".hljs-keyword").first).to_be_visible()
        assert await block.locator("code").evaluate("(code) => code.textContent") == CODE
        await block.get_by_role("button", name="Copy the code").click()
        await expect(block.get_by_text("Copied")).to_be_visible()
        assert await page.evaluate("navigator.clipboard.readText()") == CODE
        await expect(replies(page).get_by_role("figure", name="Code, text")).to_be_visible()
        await window.shot("code")
        await page.get_by_role("button", name="Settings").click()
        await page.get_by_label("Line numbers").uncheck()
        await page.get_by_label("Wrap long lines").check()
        await page.get_by_label("Font size").fill("18")
        await window.shot("settings")
        await page.get_by_role("button", name="Close").click()
        await page.reload()
        style = """(code) => {
            const { whiteSpace, fontSize } = getComputedStyle(code);
            return [whiteSpace, fontSize, getComputedStyle(code.firstChild, "::before").content];
        }"""
        code = replies(page).get_by_role("figure", name="Code, python").locator("code")
        await expect(code.locator(".line")).to_have_count(4)
        assert await code.evaluate(style) == ["pre-wrap", "18px", "none"]


async def test_diagrams_and_formulas_are_drawn(web: Client) -> None:  # UI-3
    web.provider.next(
        answer(
            "Euler: $e^{i\\pi}+1=0$ costs $5 or $6.\n\n$$\\int_0^1 x\\,dx$$\n\n```mermaid\ngraph LR\n  A[Leaf] --> B[Tea cup]\n```\n\nEnd."
        )
    )
    async with web.window() as window:
        page = window.page
        await say(page, "Draw.")
        reply = replies(page)
        await expect(reply.locator(".katex")).to_have_count(2)
        await expect(reply.get_by_text("costs $5 or $6")).to_be_visible()
        block = reply.get_by_role("figure", name="Code, mermaid")
        await expect(block.locator(".diagram").get_by_text("Tea cup")).to_be_visible()
        box = await block.locator(".diagram svg").bounding_box()
        assert box is not None
        assert box["width"] > 100
        await window.shot("diagram")
        await block.get_by_role("button", name="Source").click()
        await expect(block.locator("pre")).to_be_visible()
        await expect(block.locator("pre")).to_contain_text("A[Leaf] --> B[Tea cup]")
        await block.get_by_role("button", name="Copy the code").click()
        await expect(block.get_by_text("Copied")).to_be_visible()
        assert await page.evaluate("navigator.clipboard.readText()") == "graph LR\n  A[Leaf] --> B[Tea cup]\n"


@pytest.mark.parametrize("without_policy", [False, True])
async def test_nothing_in_an_answer_or_a_note_runs_or_is_fetched(web: Client, without_policy: bool) -> None:
    # UI-3; epam/ai-dial-chat#7109. Cleaning has to suffice by itself, and the policy of content stands behind it.
    corpus = (
        "\n\n".join(f"{name}:\n\n{text}" for name, text in HOSTILE.items() if "open" not in name)
        + "\n\n"
        + HOSTILE["a fence that is left open"]
    )
    (web.vault / "Hostile.md").write_text(corpus + "\n```\n\nThe end.")
    web.provider.next(calls("tea", prefix="hostile"), answer(*(corpus[at : at + 97] for at in range(0, len(corpus), 97))))
    async with web.window(bypass_csp=without_policy) as window:
        page = window.page
        await say(page, "<script>window.pwned=1</script> <img src=http://elsewhere.invalid/q onerror='window.pwned=1'>")
        await expect(replies(page).get_by_text("in, 24 out")).to_be_visible()
        await expect(replies(page).locator(".code-block").last).to_be_visible()
        await (
            replies(page)
            .get_by_text("press me")
            .evaluate_all("(all) => all.forEach((one) => one.dispatchEvent(new MouseEvent('click', {bubbles: true})))")
        )
        text = replies(page).locator(".answer-text")
        forbidden = "script, iframe, object, embed, form, style, link, meta, base, img, video, audio, [style*=url], [href^=javascript]"
        assert await text.locator(forbidden).count() == 0
        handlers = (
            "(root) => [...root.querySelectorAll('*')].flatMap((one) => one.getAttributeNames().filter((name) => name.startsWith('on')))"
        )
        assert await text.evaluate(handlers) == []
        assert await text.locator(".approval, .cite").count() == 0  # nobody's HTML passes for ours
        await expect(replies(page).locator(".source-card")).to_have_count(0)
        await page.goto(f"{web.stack.base_url}/#/notes")
        await page.reload()
        await page.get_by_role("button", name="Hostile.md").click()
        await expect(page.get_by_role("complementary").get_by_text("The end.")).to_be_visible()
        assert await page.evaluate("window.pwned") is None
        # The cleaner's parser, whose document has the page's policy, tells of every attribute that it meets.
        told = ("Applying inline style", "Executing inline event handler", "Setting the document's base URI")
        window.errors[:] = [error for error in window.errors if not error.startswith(told)]
    (web.vault / "Hostile.md").unlink()


async def test_a_change_is_made_once_its_diff_is_approved_and_only_then(web: Client) -> None:  # UI-4, MD-5; codexmark/kram#67
    note = web.vault / "Kitchen" / "Oven.md"
    note.write_text("# Oven\n\nBake at 200 °C.\n\nFor forty minutes.\n")
    digest = await eventually(lambda: _hash_of(web, "Kitchen/Oven.md"), 15)
    patch = {"path": "Kitchen/Oven.md", "content_hash": digest, "old_text": "200 °C", "new_text": "230 °C"}
    web.provider.next(tool_calls(("notes_patch_markdown", patch), prefix="approve"), answer("Changed."))
    async with web.context() as context:
        window = await web.open(context)
        page = window.page
        await page.get_by_label("Notes to search").select_option("vault")
        await page.get_by_label("Mode").select_option("Work on notes")
        await say(page, "Hotter, please.")
        card = page.get_by_role("region", name="May this change be made?")
        await expect(card.locator(".diff-removed")).to_contain_text("Bake at 200 °C.")
        await expect(card.locator(".diff-added mark")).to_have_text("3")
        await window.shot("approval")
        assert "200 °C" in note.read_text()
        await page.reload()
        second = (await web.open(context, "/#" + page.url.partition("#")[2])).page
        await expect(second.get_by_role("region", name="May this change be made?")).to_be_visible()
        await page.get_by_role("button", name="Make this change").click()
        for one in (page, second):
            await expect(replies(one).get_by_text("Changed.")).to_be_visible()
            await expect(one.get_by_role("region", name="May this change be made?")).to_have_count(0)
    assert note.read_text() == "# Oven\n\nBake at 230 °C.\n\nFor forty minutes.\n"


async def test_a_change_of_a_note_that_was_edited_meanwhile_is_refused_and_can_be_rejected(web: Client) -> None:
    # UI-4; mario-andreschak/FLUJO#254
    note = web.vault / "Kitchen" / "Rice.md"
    note.write_text("# Rice\n\nOne cup.\n")
    await eventually(lambda: _hash_of(web, "Kitchen/Rice.md"), 15)
    web.provider.next(
        tool_calls(("notes_append", {"path": "Kitchen/Rice.md", "text": "Two cups of water."}), prefix="stale"), answer("As you like.")
    )
    async with web.window() as window:
        page = window.page
        await page.get_by_label("Notes to search").select_option("vault")
        await page.get_by_label("Mode").select_option("Work on notes")
        await say(page, "Water?")
        card = page.get_by_role("region", name="May this change be made?")
        await expect(card).to_be_visible()
        note.write_text("# Rice\n\nEdited elsewhere.\n")
        await card.get_by_role("button", name="Make this change").click()
        await expect(card.get_by_text("The note was changed meanwhile")).to_be_visible()
        await card.get_by_role("button", name="Reject").click()
        await expect(replies(page).get_by_text("As you like.")).to_be_visible()
    assert note.read_text() == "# Rice\n\nEdited elsewhere.\n"


async def test_an_exchange_is_saved_to_a_note_byte_for_byte(web: Client) -> None:  # MN-9; CherryHQ/cherry-studio#12679
    said = "A formula $x^2$ and `code`, [1] as it is.\n\n```\nfence\n```"
    web.provider.next(answer(said))
    async with web.window() as window:
        page = window.page
        await say(page, "Remember *this*.")
        await replies(page).get_by_role("button", name="Save to a note").click()
        dialog = page.get_by_role("dialog", name="Save to a note")
        await dialog.get_by_label("Workspace").select_option("vault")
        await dialog.get_by_label("Note", exact=True).fill("Kept/Answers")
        await dialog.get_by_role("button", name="Save").click()
        await expect(page.get_by_text("Saved to Kept/Answers.md.")).to_be_visible()
    text = (web.vault / "Kept" / "Answers.md").read_text()
    assert said in text
    assert "Remember *this*." in text


async def test_notes_are_mentioned_by_keyboard_and_by_click(web: Client) -> None:  # MN-11, MN-2, UI-4
    web.provider.standing = answer("Read [Bread](Kitchen/Bread.md).")
    async with web.window() as window:
        page = window.page
        await page.get_by_label("Notes to search").select_option("vault")
        field = page.get_by_label("Message", exact=True)
        await field.press_sequentially("Compare @bre")
        menu = page.get_by_role("listbox", name="Notes to mention")
        await expect(menu.get_by_role("option", name="Bread").first).to_be_visible()
        await window.shot("mention")
        await field.press("ArrowDown")
        await field.press("ArrowUp")
        await field.press("Enter")
        chips = page.get_by_role("list", name="Mentioned notes")
        await expect(chips.get_by_text("Bread")).to_be_visible()
        await field.press_sequentially("with @other")
        await menu.get_by_role("option", name="other place/").click()
        await menu.get_by_role("option", name="Bicycle").click()
        await expect(chips.get_by_role("listitem")).to_have_count(2)
        await expect(field).to_have_value(re.compile(r"^Compare with\s*$"))
        await field.press("Enter")
        await expect(chips).to_be_hidden()
        injected = page.get_by_role("article", name="You").locator("details", has_text="Put into the conversation: 2")
        await injected.locator("summary").click()
        await expect(injected.get_by_role("button", name="Bicycle")).to_be_visible()
        await expect(injected.get_by_text("linked in the answer")).to_be_visible()
        await window.shot("injected")
        await replies(page).get_by_role("link", name="Bread").click()
        await expect(page.get_by_role("complementary").get_by_text("Knead the dough")).to_be_visible()


async def test_a_missing_note_stops_the_message_and_leaves_draft_and_chips(web: Client) -> None:  # MN-5, MN-11
    note = web.vault / "Passing.md"
    note.write_text("# Passing\n\nSoon gone.\n")
    await eventually(lambda: _hash_of(web, "Passing.md"), 15)
    async with web.window() as window:
        page = window.page
        await page.get_by_label("Notes to search").select_option("vault")
        field = page.get_by_label("Message", exact=True)
        await field.press_sequentially("About @passing")
        await page.get_by_role("option", name="Passing").first.click()
        note.unlink()
        await eventually(lambda: _gone(web, "Passing.md"), 15)
        await field.press("Enter")
        await expect(page.get_by_role("alert").get_by_text("Passing cannot be found, remove the reference")).to_be_visible()
        await expect(page.get_by_role("list", name="Mentioned notes").get_by_text("Passing")).to_be_visible()
        await expect(field).to_have_value("About ")
        asked = len(web.provider.exchanges)
        await window.shot("missing-note")
        await page.get_by_role("alert").get_by_role("button", name="Remove Passing").click()
        await field.press("Enter")
        await expect(replies(page).get_by_text("Hello.")).to_be_visible()
        assert len(web.provider.exchanges) == asked + 1


async def test_everything_is_there_in_chinese_by_keyboard_and_at_360_pixels(web: Client) -> None:  # UI-5
    web.provider.next(
        calls("绿茶", prefix="zh"),
        answer("七十度【1】。\n\n| 茶 | 温度 | 时间 | 产地 | 备注 |\n|-|-|-|-|-|\n| 绿茶 | 七十度 | 两分钟 | 杭州 | 清淡可口 |\n"),
    )
    async with web.window(viewport={"width": 360, "height": 740}, color_scheme="dark", locale="zh-CN") as window:
        page = window.page
        await page.get_by_role("button", name="Menu").click()
        await page.get_by_role("button", name="Settings").click()
        await page.get_by_label("Language").select_option("中文")
        await expect(page.get_by_role("dialog", name="设置")).to_be_visible()
        await page.keyboard.press("Escape")
        assert await page.evaluate("document.documentElement.lang") == "zh-CN"
        field = page.get_by_label("消息", exact=True)
        await field.focus()
        await page.keyboard.type("绿茶用多少度的水？")
        await page.keyboard.press("Enter")
        reply = page.get_by_role("article", name="回答")
        await expect(reply.get_by_role("button", name="打开来源 1")).to_be_visible()
        await expect(reply.get_by_text("输入 80")).to_be_visible()
        assert await is_narrower_than_the_window(page)
        await window.shot("narrow-dark-zh")
        await reply.get_by_role("button", name="打开来源 1").focus()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("complementary")).to_be_visible()
        assert await is_narrower_than_the_window(page)
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("complementary")).to_be_hidden()
        await expect(reply.get_by_role("button", name="打开来源 1")).to_be_focused()
        for address in ("#/notes", "#/admin/index", "#/admin/runs", "#/admin/accounts", "#/admin/charts"):
            await page.goto(f"{web.stack.base_url}/{address}")
            await expect(page.locator(".page h1")).to_be_visible()
            await expect(page.get_by_text("加载中")).to_have_count(0)
            assert await is_narrower_than_the_window(page), address
        nameless = """(all) => all
            .filter((one) => !(one.ariaLabel || one.textContent.trim() || one.labels?.length || one.title))
            .map((one) => one.outerHTML)"""
        assert await page.locator("button, a, input, select, textarea").evaluate_all(nameless) == []
        preferences = await page.request.get(f"{web.stack.base_url}/api/preferences")
        assert (await preferences.json())["locale"] == "zh"


async def test_administrators_see_the_index_searches_contexts_and_accounts(web: Client) -> None:
    async with web.window("/#/admin/index") as window:
        page = window.page
        await expect(page.get_by_role("cell", name="vault").first).to_be_visible()
        await window.shot("admin-index")
        await page.get_by_role("link", name="Searches").click()
        await page.get_by_label("Question").fill("how long does bread bake")
        await page.get_by_label("Mode").select_option("Words, passages")
        await page.get_by_role("button", name="Search", exact=True).click()
        await expect(page.get_by_text("Bake at 230 °C for forty minutes.")).to_be_visible()
        await page.get_by_label("Model").fill("a-model")
        await page.get_by_role("button", name="Prepare a context").click()
        await expect(page.get_by_role("heading", name=re.compile("^E1 · "))).to_be_visible()
        await page.get_by_role("button", name="Check here").click()
        await expect(page.get_by_text("the body is the one that was prepared")).to_be_visible()
        web.provider.next(Script(body=response("Forty minutes [E1].")))
        await page.get_by_role("button", name="Ask the model").dblclick(delay=5)
        await expect(page.get_by_text("An answer that cites known passages")).to_be_visible()
        await expect(page.get_by_text("Forty minutes [E1].")).to_have_count(1)
        await window.shot("admin-context")
        await page.get_by_role("link", name="Accounts").click()
        await page.get_by_label("Name").fill("reader")
        await page.get_by_label(re.compile("^Password")).fill("long enough it is")
        await page.get_by_role("button", name="Make an account").click()
        await expect(page.get_by_role("group", name="Accounts").get_by_role("cell", name="reader")).to_be_visible()
        await page.get_by_role("link", name="Charts").click()
        await expect(page.get_by_role("img", name=re.compile("Time of a search"))).to_be_visible()
        await window.shot("admin-charts")


async def test_a_long_answer_is_shown_as_it_comes_and_nothing_above_it_moves(web: Client) -> None:  # CherryHQ: no layout jumps
    paragraph = "Words and **more** words, `code` and a list:\n\n- one\n- two\n\n"
    gate = Gate()
    web.provider.next(streamed(*[paragraph] * 40, gate, *[paragraph] * 40, "The last words."))
    async with web.window() as window:
        page = window.page
        await say(page, "At length.")
        await expect(replies(page).locator("ul")).to_have_count(40)
        await page.locator(".scroller").evaluate("(scroller) => (scroller.scrollTop = 300)")
        place = "() => document.querySelectorAll('.answer-text p')[6].getBoundingClientRect().top"
        await expect(page.get_by_role("button", name="To the latest")).to_be_visible()
        before = await page.evaluate(place)
        first = await page.evaluate_handle("document.querySelector('.answer-text p')")
        gate.open()
        await expect(replies(page).locator("ul")).to_have_count(80)
        await expect(replies(page).get_by_text("The last words.")).to_be_attached()
        await expect(page.get_by_role("button", name="Stop")).to_be_hidden()
        assert await page.evaluate(place) == before
        assert await first.evaluate("(one) => one.isConnected")  # what was finished was never made anew


async def test_notes_look_as_their_markdown_says(web: Client) -> None:  # UI-3
    text = (
        "> [!tip] Before you go\n> Warm the pot.\n\n- [x] leaf\n- [ ] water\n\nSee [the list][late], <b>bold</b> and a <kbd>key</kbd>.\n\n"
        "| cup | ml |\n|-----|---:|\n| small | 80 |\n\n<svg width='90' height='30'><text y='20'>a label</text></svg>\n\n"
        "![far](https://elsewhere.invalid/x.png)\n\n[late]: Kitchen/Bread.md\n"
    )
    web.provider.next(answer(*text.splitlines(keepends=True)))
    async with web.window() as window:
        page = window.page
        await page.get_by_label("Notes to search").select_option("vault")
        await say(page, "Show me.")
        reply = replies(page)
        await expect(reply.locator(".callout .callout-title")).to_have_text("Before you go")
        await expect(reply.get_by_role("checkbox", name="not done")).not_to_be_checked()
        await expect(reply.get_by_role("checkbox", name="done", exact=True)).to_be_checked()
        await expect(reply.locator("kbd")).to_have_text("key")
        await expect(reply.locator("td[align=right]")).to_have_text("80")
        await expect(reply.locator("svg text")).to_have_text("a label")
        await expect(reply.get_by_text("[picture not loaded: far]")).to_be_visible()
        await reply.get_by_role("link", name="the list").click()
        await expect(page.get_by_role("complementary").get_by_text("Knead the dough")).to_be_visible()


async def test_a_conversation_of_ten_thousand_lines_opens_at_its_end_and_scrolls(web: Client) -> None:
    lines = "\n\n".join(f"Line {number} of it, with **weight**." for number in range(50))
    messages = [{"role": role, "content": f"{role} {at}\n\n{lines}"} for at in range(100) for role in ("user", "assistant")]
    imported = await web.stack.client.http.post("/api/chat/conversations/import", json={"title": "Long", "messages": messages})
    assert imported.status_code == 201, imported.text
    async with web.window(f"/#/c/{imported.json()['id']}") as window:
        page = window.page
        await expect(replies(page)).to_have_count(100)
        await expect(replies(page).last.get_by_text("Line 49 of it")).to_be_in_viewport()
        await page.locator(".scroller").evaluate("(scroller) => (scroller.scrollTop = 0)")
        await expect(page.get_by_text("user 0", exact=True)).to_be_in_viewport()
        await page.get_by_role("button", name="To the latest").click()
        await expect(replies(page).last.get_by_text("Line 49 of it")).to_be_in_viewport()


async def _found(web: Client, query: str, path: str) -> bool:
    made = await web.stack.client.http.post("/api/retrieval/runs", json={"mode": "keyword_chunks", "query": query})
    return any(result["document"]["path"] == path for result in made.json().get("results", []))


async def _workspace(web: Client) -> str:
    items = (await web.stack.client.http.get("/api/workspaces")).json()["items"]
    return str(next(item["id"] for item in items if item["directory"] == web.vault.name))


async def _hash_of(web: Client, path: str) -> str | None:
    read = await web.stack.client.http.get(f"/api/workspaces/{await _workspace(web)}/notes/{path}")
    return read.json()["content_hash"] if read.status_code == 200 else None


async def _gone(web: Client, path: str) -> bool:
    return await _hash_of(web, path) is None


async def _closed(web: Client) -> bool:
    return web.provider.exchanges[-1].closed_early.is_set()
