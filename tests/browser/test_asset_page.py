"""What an operator sees in the UI, in a real browser on a running platform."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.browser import open_page
from tests.integration.platform import Platform

pytestmark = [pytest.mark.browser, pytest.mark.integration, pytest.mark.timeout(600)]

PATIENCE_MILLISECONDS = 60_000


@pytest.fixture
def page() -> Iterator[Page]:
    """An empty page of a fresh browser."""
    with open_page() as opened:
        yield opened


def test_the_staged_assets_page_shows_rows_and_lag(page: Page, platform: Platform, tmp_path: Path) -> None:
    platform.until(lambda: platform.staged_all("weather"), "weather is staged", 180)
    platform.until(lambda: platform.mirrored("weather"), "every commit is mirrored", 60)
    last = platform.materializations("staged", "weather")[-1]
    page.goto(f"{platform.dagster.url}/assets/staged/weather")
    try:
        for name in ("rows", "lag", "window", "delta_version"):
            expect(value_of(page, name)).to_have_text(str(last.metadata[name].value), timeout=PATIENCE_MILLISECONDS)
        expect(page.get_by_text("ingest_weather")).to_be_visible()
        expect(page.get_by_role("dialog")).to_have_count(0)
    finally:
        page.screenshot(path=tmp_path / "staged-asset.png", full_page=True)


def value_of(page: Page, name: str) -> Locator:
    """The cell beside a metadata key."""
    return page.get_by_role("row").filter(has=page.get_by_text(name, exact=True)).get_by_role("cell").last
