"""Stopping and starting ingestion in the UI."""

import dagster as dg
import pytest
from playwright.sync_api import Page

from tests.browser.truth import whole
from tests.browser.ui import switch_sensor, terminate_run
from tests.integration.platform import UNFINISHED, Platform

pytestmark = [pytest.mark.browser, pytest.mark.integration, pytest.mark.timeout(600)]

SENSOR = "keep_transactions"


def members(platform: Platform) -> list[str]:
    """The runs that are members now."""
    return platform.runs("ingest_transactions", [dg.DagsterRunStatus.STARTED])


def test_a_member_that_is_terminated_stays_away_until_its_sensor_is_switched_on(page: Page, platform: Platform) -> None:
    url = platform.dagster.url
    platform.until(lambda: bool(members(platform)), "there is a member", 240)
    platform.until(lambda: platform.staged_all("transactions"), "transactions are staged", 240)
    switch_sensor(page, url, SENSOR, on=False)
    try:
        [run] = members(platform)
        terminate_run(page, url, run)
        platform.until(lambda: not platform.runs("ingest_transactions", UNFINISHED), "no run is left", 60)
        assert platform.status(run) == dg.DagsterRunStatus.CANCELED
        assert whole(platform, "transactions")
    finally:
        switch_sensor(page, url, SENSOR, on=True)
    platform.until(lambda: bool(platform.runs("ingest_transactions", UNFINISHED)), "a new member is asked for", 120)
