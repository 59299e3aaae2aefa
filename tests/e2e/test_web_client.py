from playwright.async_api import expect

from tests.support.browser import Client
from tests.support.chat_client import PASSWORD
from tests.support.scripted_provider import Gate, Script, answer, calls, chunk, usage_chunk, DONE


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


async def test_an_answer_streams_with_its_steps_in_order_and_cards_for_what_it_cites(web: Client) -> None:  # UI-1
    half, whole = Gate(), Gate()
    web.provider.next(
        calls("how to prove dough", thinking="The notes will know.", prefix="ui1"),
        Script([
            chunk(reasoning_content="Found it."), chunk(content="Prove it for two hours [1"), half, chunk(content="]. "),
            chunk(content="A `dp[1]` is code, and [99] nothing.\n\n"), whole, chunk(content="That is all."), chunk(finish_reason="stop"), usage_chunk(), DONE,
        ]),
    )
    async with web.window() as window:
        page = window.page
        await page.get_by_label("Message", exact=True).fill("How long does dough prove?")
        await page.keyboard.press("Enter")
        reply = page.get_by_role("article", name="Answer")
        await expect(reply.get_by_text("Prove it for two hours [1")).to_be_visible()
        await expect(reply.locator(".source-card")).to_have_count(0)
        half.open()
        await expect(reply.locator(".source-card")).to_have_count(1)
        whole.open()
        await expect(reply.get_by_text("That is all.")).to_be_visible()
        await window.shot("answer")
        await reply.locator("summary", has_text="Thoughts").click()
        await window.shot("answer-open")
        await reply.locator(".cite").click()
        await expect(page.locator("[data-passage]").first).to_be_visible()
        await window.shot("source")
