"""A real browser for the tests of the page. Owns finding or installing one, and opening windows that fail the test when
the page does: an error of a script, a breach of its security policy, a request to anywhere else.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, ConsoleMessage, Page, Request, async_playwright

from bench.peers.install import InstallError

AXE = "4.14.0"
SYSTEM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
PICTURES = Path(__file__).parents[2] / "build" / "page"
"""Where screenshots are left for a person to look at."""
_INSTALL_SECONDS = 600
_DEBIAN = ("apt-get", "install", "-y", "-q", "--no-install-recommends", "chromium", "fonts-dejavu-core")


def chromium_program() -> str:
    """A browser: that of the system, else Playwright's own, else Debian's package.

    Raises:
        InstallError: there is none, and none could be installed.
    """
    problems = []
    for attempt in (_system, _own, _debian):
        try:
            return attempt()
        except (InstallError, OSError, subprocess.SubprocessError) as error:
            problems.append(str(getattr(error, "stderr", None) or error)[-200:])
    raise InstallError("No Chromium: " + "; ".join(problems) + ". Install one, and put it on the PATH")


def _system() -> str:
    for name in (os.environ.get("TOOLWRIGHT_CHROMIUM", ""), *SYSTEM):
        if name and (found := shutil.which(name)):
            return found
    raise InstallError("the system has none")


def _own() -> str:
    driver = [sys.executable, "-m", "playwright"]
    subprocess.run(
        [*driver, "install", "chromium"], capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=True
    )
    told = subprocess.run(
        [sys.executable, "-c", _WHERE], capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=True
    )
    if not Path(told.stdout.strip()).exists():
        raise InstallError("Playwright has installed none")
    return told.stdout.strip()


_WHERE = """
from playwright.sync_api import sync_playwright
with sync_playwright() as made:
    print(made.chromium.executable_path)
"""


def _debian() -> str:
    apt = shutil.which("apt-get")
    if apt is None:
        raise InstallError("this is no Debian")
    before = [] if os.geteuid() == 0 else ["sudo", "-n"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (("apt-get", "update", "-q"), _DEBIAN):
        subprocess.run(
            [*before, *words], capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=True, env=environment
        )
    return _system()


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """A browser without windows on the screen, which ends with the block."""
    async with async_playwright() as playwright:
        # A container has no namespaces to give away; what the browser opens is our own page.
        options = ["--no-sandbox", "--disable-dev-shm-usage", "--enable-precise-memory-info"]
        opened = await playwright.chromium.launch(executable_path=chromium_program(), args=options)
        try:
            yield opened
        finally:
            await opened.close()


class Window:
    """A window of a browser. `faults` collects what must not happen on the page."""

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        self.address = address
        self.faults: list[str] = []
        page.set_default_timeout(30_000)
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("console", self._said)
        page.on("request", self._asked)
        page.on("dialog", lambda dialog: self.faults.append(f"dialog: {dialog.message}"))

    def _said(self, message: ConsoleMessage) -> None:
        # The browser itself tells of each answer that is no success; a test looks at what the page makes of it.
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            self.faults.append(f"console: {message.text}")

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((self.address, "data:", "blob:")):
            self.faults.append(f"request to {request.url}")

    async def go(self, view: str) -> None:
        """Open a view by its address."""
        await self.page.goto(f"{self.address}/#/{view}")

    async def heading(self) -> str:
        """The title of the view that is shown."""
        return await self.page.locator("main h1").inner_text()

    async def picture(self, name: str) -> None:
        """Leave a screenshot."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        await self.page.screenshot(path=PICTURES / f"{name}.png")


@asynccontextmanager
async def window(opened: Browser, link: str, **options: Any) -> AsyncIterator[Window]:
    """A window of its own, logged in by a link; at its end nothing may have gone wrong on the page."""
    context = await opened.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
    address = link.partition("/login")[0]
    made = Window(await context.new_page(), address)
    try:
        await made.page.goto(link)
        await made.page.wait_for_selector("main h1")
        yield made
        assert made.faults == []
    finally:
        await context.close()
