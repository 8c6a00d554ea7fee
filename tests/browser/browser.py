"""A headless Chromium for tests: the machine's own, driven by Playwright."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Page, sync_playwright

HOW_TO_GET_ONE = "no Chromium on the path: install one, on Debian and Ubuntu with `apt-get install chromium`"
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = [
    "--no-sandbox",  # as root, in CI, there is none
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


def executable() -> str:
    """The browser's path. Without one the test is skipped, and fails in CI, where nobody reads what was skipped."""
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(HOW_TO_GET_ONE)
    return found


@contextmanager
def open_page(width: int = 1440, height: int = 900) -> Iterator[Page]:
    """An empty page of a fresh browser that talks to loopback only."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=_FLAGS)
        try:
            context = browser.new_context(viewport={"width": width, "height": height}, timezone_id="UTC", locale="en-US")
            yield context.new_page()
        finally:
            browser.close()
