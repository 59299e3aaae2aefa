"""How long a browser's main thread is held up at a stretch while an answer of 20,000 tokens streams in as fast as it can.

For an answer of usual make and for four of one block each (a paragraph, a list, a code block, a table): the longest tasks of the page's
main thread, in milliseconds of its own CPU time and on the clock. The clock belongs to the machine and to what else it does.

`python -m bench.web_client` (needs Chromium and `make web`)
"""

import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.async_api import Browser, Page, async_playwright, expect

from tests.support.browser import OPTIONS, chromium, missing, say, sign_in
from tests.support.local_stack import LocalStack, local_stack
from tests.support.scripted_provider import DONE, KEY, Script, ScriptedProvider, chunk, usage_chunk

CHARACTERS = 80_000
# What models send at a time.
TOKEN_CHARACTERS = 4
SENTENCE = "The quick brown fox **jumps** over the `lazy` dog and reads on. "
CODE = "```python\ndef f(x):\n    return x + 1\n```"
USUAL = f"## A heading\n\n{SENTENCE * 4}\n\n- one\n- two **b**\n\n{CODE}\n\n| a | b |\n|-|-|\n| 1 | 2 |\n\n"
SHAPES: Mapping[str, Callable[[], str]] = {
    "usual": lambda: USUAL * (CHARACTERS // len(USUAL)),
    "paragraph": lambda: SENTENCE * (CHARACTERS // len(SENTENCE)),
    "list": lambda: f"- {SENTENCE}\n" * (CHARACTERS // (len(SENTENCE) + 3)),
    "code": lambda: "```python\n" + "    value = compute(first, second)  # why\n" * (CHARACTERS // 43) + "```\n",
    "table": lambda: "|a|b|\n|-|-|\n" + f"| {SENTENCE} | x |\n" * (CHARACTERS // (len(SENTENCE) + 9)),
}
CATEGORIES = ["disabled-by-default-devtools.timeline"]
LONGEST = 3


def tasks(trace: dict[str, Any]) -> tuple[list[float], list[float]]:
    """The longest tasks of main threads: CPU milliseconds, and milliseconds on the clock."""
    events = trace["traceEvents"]
    named = (event for event in events if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain")
    threads = {(event["pid"], event["tid"]) for event in named}
    run = [event for event in events if event["name"] == "RunTask" and (event["pid"], event["tid"]) in threads and "dur" in event]

    def longest(field: str) -> list[float]:
        return sorted((event.get(field, 0) / 1000 for event in run), reverse=True)[:LONGEST]

    return longest("tdur"), longest("dur")


async def measure(browser: Browser, page: Page, provider: ScriptedProvider, text: str) -> tuple[list[float], list[float]]:
    """One answer in one window."""
    pieces = [chunk(content=text[at : at + TOKEN_CHARACTERS]) for at in range(0, len(text), TOKEN_CHARACTERS)]
    provider.next(Script([chunk(role="assistant", content=""), *pieces, chunk(finish_reason="stop"), usage_chunk(), DONE]))
    await page.get_by_label("Message", exact=True).wait_for()
    await browser.start_tracing(page=page, categories=CATEGORIES)
    await say(page, "At length.")
    await expect(page.get_by_role("article", name="Answer").get_by_text("in, 12 out")).to_be_visible(timeout=90_000)
    await page.wait_for_timeout(1000)  # what is done once it is whole
    return tasks(json.loads(await browser.stop_tracing()))


async def table(stack: LocalStack, provider: ScriptedProvider) -> None:
    """A line for each shape."""
    print(f"{'answer':<12}{'longest tasks, CPU ms':<28}on the clock")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), headless=True, args=OPTIONS)
        for name, text in SHAPES.items():
            context = await browser.new_context(locale="en-GB")
            await sign_in(context, stack.base_url)
            page = await context.new_page()
            await page.goto(stack.base_url)
            cpu, clock = await measure(browser, page, provider, text())
            print(f"{name:<12}{'  '.join(f'{one:.0f}' for one in cpu):<28}{'  '.join(f'{one:.0f}' for one in clock)}")
            await context.close()
        await browser.close()


async def main() -> None:
    """Start the system, and measure."""
    if why := missing():
        sys.exit(why)
    provider = ScriptedProvider()
    await provider.start()
    with TemporaryDirectory() as home:
        environment = {"MODEL_BASE_URL": provider.base_url, "MODEL_NAME": "scripted", "MODEL_API_KEY": KEY}
        async with local_stack(Path(home) / "home", environment) as stack:
            await table(stack, provider)
    await provider.stop()


if __name__ == "__main__":
    asyncio.run(main())
