"""What an operator sees in the UI, in a real browser on a running platform."""

import pytest
from playwright.sync_api import Page, expect

from orchestration.samples import complete
from tests.browser.ui import PATIENCE_MILLISECONDS, open_asset, open_group, open_window, show_plots, value_of_event
from tests.integration.platform import Platform

pytestmark = [pytest.mark.browser, pytest.mark.integration, pytest.mark.timeout(600)]


WINDOW = "2013-01-02"


@pytest.fixture(scope="module")
def staged(platform: Platform) -> Platform:
    """The platform once `weather` is staged, some of it just now, and Dagster knows."""
    platform.until(lambda: platform.staged_all("weather"), "weather is staged", 240)
    # The plots show the last events, which may all be of windows that are complete without a row.
    there = complete.present("weather", platform.bootstrap_servers)
    complete.complete("weather", platform.bootstrap_servers, limit=there + 24)
    platform.until(lambda: platform.staged_all("weather"), "some more is staged", 120)
    platform.until(lambda: platform.mirrored("weather"), "every commit is mirrored", 120)
    return platform


def test_the_staged_asset_says_who_writes_it_and_a_windows_newest_event_has_its_numbers(page: Page, staged: Platform) -> None:
    url = staged.dagster.url
    open_asset(page, url, "staged", "weather")
    expect(page.get_by_text("ingest_weather").first).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)
    open_window(page, url, WINDOW, "staged", "weather")
    last = [event for event in staged.materializations("staged", "weather") if event.partition == WINDOW][-1]
    for name in ("dagster/partition_row_count", "lag", "window", "delta_version"):
        expect(value_of_event(page, name)).to_have_text(str(last.metadata[name].value), timeout=PATIENCE_MILLISECONDS)


def test_the_plots_show_rows_lag_and_how_long_commits_take(page: Page, staged: Platform) -> None:
    plots = show_plots(page, staged.dagster.url, "staged", "weather")
    assert {"rows", "bytes", "lag", "dead_letters", "commit_milliseconds"} <= set(plots)


def test_the_graph_reads_from_the_topic_to_the_tables(page: Page, staged: Platform) -> None:
    topic, *tables = open_group(page, staged.dagster.url, "weather", assets=3)
    assert "topic" in topic.text and all(topic.x < table.x for table in tables)
