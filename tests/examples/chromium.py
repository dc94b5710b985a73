"""A real browser: Debian's Chromium, driven by playwright, with a profile that is fresh and asks nobody for anything."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

PROGRAM = Path("/usr/bin/chromium")
REMEDY = "chromium (Debian's; `make parts` as root installs it)"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
FAR_MS = 60_000.0
DESK = {"viewport": {"width": 1100, "height": 760}}
PHONE = {
    "viewport": {"width": 360, "height": 740},
    "device_scale_factor": 2,
    "has_touch": True,
    "is_mobile": True,
}


@contextmanager
def browsing() -> Iterator[Browser]:
    """The browser, for as long as the block runs; the driver gives it a folder of its own, and removes it."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=PROGRAM, headless=True, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def violations(page: Page) -> list[str]:
    """What axe-core has against a page, a line each."""
    found = Axe().run(page).response["violations"]
    return [f"{one['id']}: {one['help']}: {one['nodes'][0]['html'][:200]}" for one in found]


def is_too_wide(page: Page) -> bool:
    """Whether one must scroll sideways."""
    wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    return bool(page.evaluate(wide))
