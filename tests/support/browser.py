"""A real browser on the whole system, with a scripted model.

Where there is no Chromium, or the client is not built, the tests that need it are skipped with the reason; where `CI` is set they fail.
"""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, Request, async_playwright, expect

from services.gateway import web_client
from tests.support.chat_client import PASSWORD
from tests.support.local_stack import LocalStack, local_stack
from tests.support.scripted_provider import KEY, ScriptedProvider, answer

SCREENSHOTS = Path(__file__).parents[1] / "e2e" / "screenshots"
OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
BREAD = """---
title: Bread
tags: [kitchen]
---
# Bread

Knead the dough for ten minutes.

## Proving

Let it prove for two hours at 24 °C, until it has doubled.

## Baking

Bake at 230 °C for forty minutes.
"""
TEA = "# Tea\n\nGreen tea is brewed at 70 °C for two minutes.\n\nSee [Bread](Kitchen/Bread.md).\n"

# A loaded machine is no failure.
WITHIN_MILLISECONDS = 20_000


def missing() -> str | None:
    """Why there can be no browser test here."""
    if chromium() is None:
        return "there is no Chromium (apt-get install chromium)"
    if not (web_client.DIRECTORY / "index.html").is_file():
        return "the web client is not built (make web)"
    return None


def chromium() -> str | None:
    return next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)


@dataclass
class Window:
    """A page, and what it did that it should not have."""

    page: Page
    base_url: str
    foreign: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def listen(self) -> None:
        self.page.on("request", self._requested)
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    def _requested(self, request: Request) -> None:
        if not request.url.startswith((self.base_url, "data:", "blob:", "about:")):
            self.foreign.append(request.url)

    def _said(self, message: ConsoleMessage) -> None:
        # A refusal by the server is shown to the user; the browser writes it to the console as well.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.errors.append(f"{message.text} ({message.location})")

    async def shot(self, name: str) -> None:
        SCREENSHOTS.mkdir(exist_ok=True)
        await self.page.screenshot(path=SCREENSHOTS / f"{name}.png")


@dataclass
class Client:
    """The system, the model, the vaults, and windows on them."""

    stack: LocalStack
    provider: ScriptedProvider
    browser: Browser
    vault: Path
    windows: list[Window] = field(default_factory=list)

    @asynccontextmanager
    async def context(self, *, signed_in: bool = True, **options: Any) -> AsyncIterator[BrowserContext]:
        """Windows that share a session. Whatever they did wrong fails the test."""
        options = {"viewport": {"width": 1280, "height": 850}, "locale": "en-GB", "color_scheme": "light", **options}
        context = await self.browser.new_context(**options)
        context.set_default_timeout(WITHIN_MILLISECONDS)
        expect.set_options(timeout=WITHIN_MILLISECONDS)
        await context.grant_permissions(["clipboard-read", "clipboard-write"], origin=self.stack.base_url)
        before = len(self.windows)
        if signed_in:
            await sign_in(context, self.stack.base_url)
        try:
            yield context
            for window in self.windows[before:]:
                assert window.foreign == [], "something was fetched from elsewhere"
                assert window.errors == []
        finally:
            await context.close()

    async def open(self, context: BrowserContext, address: str = "/") -> Window:
        window = Window(await context.new_page(), self.stack.base_url)
        self.windows.append(window)
        window.listen()
        await window.page.goto(self.stack.base_url + address)
        return window

    @asynccontextmanager
    async def window(self, address: str = "/", **options: Any) -> AsyncIterator[Window]:
        """One window of its own."""
        async with self.context(**options) as context:
            yield await self.open(context, address)


@pytest.fixture(scope="module")
async def web_stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """The whole system, once for all the tests of a module."""
    if why := missing():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(why)
    home = tmp_path_factory.mktemp("web")
    vault, other = home / "vault", home / "other place"
    (vault / "Kitchen").mkdir(parents=True)
    other.mkdir()
    (vault / "Kitchen" / "Bread.md").write_text(BREAD)
    (vault / "Tea.md").write_text(TEA)
    (vault / "绿茶.md").write_text("# 绿茶\n\n绿茶用七十度的水冲泡两分钟。\n")
    (other / "Bicycle.md").write_text("# Bicycle\n\nPump the tyre to four bar.\n")
    provider = ScriptedProvider()
    await provider.start()
    environment = {
        "MARGINALIA_VAULTS": f"{vault}:{other}",
        "MODEL_BASE_URL": provider.base_url,
        "MODEL_NAME": "scripted",
        "MODEL_API_KEY": KEY,
    }
    async with local_stack(home / "home", environment) as stack, async_playwright() as playwright:
        await stack.searchable()
        browser = await playwright.chromium.launch(executable_path=chromium(), headless=True, args=OPTIONS)
        try:
            yield Client(stack, provider, browser, vault)
        finally:
            await browser.close()
            await provider.stop()


@pytest.fixture
async def web(web_stack: Client) -> Client:
    """The same, with nothing left from the test before: neither words of the model nor preferences."""
    web_stack.provider.queue.clear()
    await web_stack.stack.client.http.put("/api/preferences", json={})
    web_stack.provider.standing = answer("Hello.")
    return web_stack


async def sign_in(context: BrowserContext, base_url: str) -> None:
    """As the administrator, for all the windows of the context."""
    login = {"username": "admin", "password": PASSWORD}
    done = await context.request.post(f"{base_url}/api/auth/login", data=login, headers={"Origin": base_url})
    assert done.ok, await done.text()


async def say(page: Page, text: str) -> None:
    """Write a message, and send it by keyboard."""
    field = page.get_by_label("Message", exact=True)
    await field.fill(text)
    await field.press("Enter")


def replies(page: Page) -> Locator:
    """The answers that are shown, first to last."""
    return page.get_by_role("article", name="Answer")
