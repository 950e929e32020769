"""Take the pictures of the page for the README and the documentation.

Run it as `python scripts/page_pictures.py`, with a Chromium that `python -m tests.peers.install` found or installed: it
serves the agent of the demo, and writes page-….png to docs/images.
"""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

from playwright.async_api import Page, ViewportSize, async_playwright

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "images"
SIZE: ViewportSize = {"width": 1200, "height": 720}
PATIENCE = 60_000


async def take(page: Page, address: str) -> None:
    """Visit the views, and take a picture of each."""
    await page.wait_for_selector("section:has-text('Waits for a person') .row")
    await page.wait_for_selector("td:has-text('book')")
    await save(page, "now")

    await page.goto(f"{address}/#/sessions/orders/batches")
    await page.locator(".rows .row").first.wait_for()
    await page.locator(".rows .row", has_text="13 calls").last.click()
    await page.locator("tw-timeline").get_by_text("ann-3").click()
    await page.get_by_text("Where the time went").wait_for()
    await save(page, "batch")

    await page.goto(f"{address}/#/approvals")
    await page.locator(".rows .row", has_text="refund").first.click()
    await page.get_by_role("button", name=re.compile("^Edit")).click()
    await page.get_by_label("amount *").fill("60")
    await page.locator(".diff .new").wait_for()
    await page.evaluate("document.activeElement.blur()")
    await save(page, "approval", height=860)

    await page.goto(f"{address}/#/sessions/customer-ann")
    await page.locator(".message.assistant, .notice").first.wait_for()
    await save(page, "session")

    await page.goto(f"{address}/#/runs")
    await page.get_by_role("link", name="Count all shelves").click()
    await page.get_by_role("log").wait_for()
    await save(page, "run")


async def save(page: Page, name: str, height: int = SIZE["height"]) -> None:
    """Write one picture."""
    await page.set_viewport_size({"width": SIZE["width"], "height": height})
    await page.wait_for_timeout(600)  # for the last bars of a canvas; a picture proves nothing
    await page.screenshot(path=PICTURES / f"page-{name}.png")
    print(f"docs/images/page-{name}.png")


async def main() -> None:
    """Serve the demo, and take the pictures."""
    sys.path.insert(0, str(ROOT))
    from tests.peers.browser import chromium_program

    demo = await asyncio.create_subprocess_exec(
        sys.executable, str(ROOT / "examples" / "demo_page.py"), stdout=subprocess.PIPE, cwd=ROOT / "examples"
    )
    try:
        assert demo.stdout is not None
        async for line in demo.stdout:
            if found := re.search(rb"http://\S+", line):
                link = found.group().decode()
                break
        else:
            raise SystemExit("The demo ended before it said its link")
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=chromium_program(), args=["--no-sandbox"])
            context = await browser.new_context(viewport=SIZE, color_scheme="light", device_scale_factor=1.5)
            page = await context.new_page()
            page.set_default_timeout(PATIENCE)
            await page.goto(link)
            await take(page, link.partition("/login")[0])
            await browser.close()
    finally:
        demo.terminate()
        await demo.wait()


if __name__ == "__main__":
    asyncio.run(main())
