"""What an operator sees in the UI, in a real browser on a running platform."""

import pytest
from playwright.sync_api import Page, expect

from tests.browser.ui import PATIENCE_MILLISECONDS, open_asset, open_group, show_plots, value_of
from tests.integration.platform import Platform

pytestmark = [pytest.mark.browser, pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.fixture
def staged(platform: Platform) -> Platform:
    """The platform once `weather` is staged, and Dagster knows."""
    platform.until(lambda: platform.staged_all("weather"), "weather is staged", 180)
    platform.until(lambda: platform.mirrored("weather"), "every commit is mirrored", 120)
    return platform


def test_the_staged_assets_page_shows_rows_and_lag(page: Page, staged: Platform) -> None:
    last = staged.materializations("staged", "weather")[-1]
    open_asset(page, staged.dagster.url, "staged", "weather")
    for name in ("rows", "lag", "window", "delta_version"):
        expect(value_of(page, name)).to_have_text(str(last.metadata[name].value), timeout=PATIENCE_MILLISECONDS)
    expect(page.get_by_text("ingest_weather").first).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_the_plots_show_rows_lag_and_how_long_commits_take(page: Page, staged: Platform) -> None:
    plots = show_plots(page, staged.dagster.url, "staged", "weather")
    assert {"rows", "bytes", "lag", "dead_letters", "commit_milliseconds"} <= set(plots)


def test_the_graph_reads_from_the_topic_to_the_tables(page: Page, staged: Platform) -> None:
    topic, *tables = open_group(page, staged.dagster.url, "weather", assets=3)
    assert "topic" in topic.text and all(topic.x < table.x for table in tables)
