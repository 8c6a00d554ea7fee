"""What an operator does to data in the UI, and what the tables hold afterwards: windows built again, dead letters replayed,
positions moved, a shadow cast and made the table.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from playwright.sync_api import Page, expect

from consumers.brokers.options import KafkaOptions
from consumers.config import Column
from consumers.processing.backfill.shadow import Shadow
from consumers.processing.ingest import ingest
from consumers.staging.local import local_dataset
from consumers.staging.log import StagedCommit, commits
from consumers.types import OffsetRange, TopicPartition
from orchestration.samples import complete
from tests.browser.truth import whole
from tests.browser.ui import PATIENCE_MILLISECONDS, launch_backfill, launch_job, open_asset, output_of, value_of
from tests.integration.platform import UNFINISHED, Platform

pytestmark = [pytest.mark.browser, pytest.mark.integration, pytest.mark.timeout(600)]

NAME = "weather"
UNTOUCHED, DAMAGED = "2013-01-02", "2013-01-03"
AGAIN = 50
"""So many offsets are read a second time."""


@pytest.fixture(autouse=True)
def staged(platform: Platform) -> Iterator[None]:
    """All of the topic is staged, and Spark leaves the machine to the browser."""
    platform.until(lambda: whole(platform, NAME), f"{NAME} is staged", 180)
    with platform.without_sensor("airport_delays_sensor"):
        yield


def test_a_backfill_in_the_dialog_mends_a_damaged_window_and_leaves_the_others_alone(page: Page, platform: Platform) -> None:
    before, seen = rows(platform), len(platform.materializations("staged", NAME))
    DeltaTable(platform.consumer(NAME).staged).update(predicate=f"_window = '{DAMAGED}'", updates={"temp": "-99.0"})
    assert rows(platform) != before

    def unchanged() -> dict[str | None, bool]:
        """What a backfill said of windows since."""
        events = platform.materializations("staged", NAME)[seen:]
        return {event.partition: bool(event.metadata["unchanged"].value) for event in events if "unchanged" in event.metadata}

    launch_backfill(page, platform.dagster.url, f"[{UNTOUCHED}...{DAMAGED}]", "staged", NAME)
    platform.until(lambda: len(unchanged()) == 2, "both windows are built again", 240)
    assert unchanged() == {UNTOUCHED: True, DAMAGED: False}
    assert rows(platform) == before


def test_a_replay_makes_rows_of_the_dead_letters_that_are_valid_today(page: Page, platform: Platform) -> None:
    url = platform.dagster.url
    dead = by_an_older_definition(platform, "wind_gust")
    run = launch_job(page, url, f"replay_{NAME}", f"ops: {{replay_dead_letters_of_{NAME}: {{config: {{reason: wind_gust}}}}}}")
    succeeded(platform, run)
    assert whole(platform, NAME)
    assert [(commit.kind, commit.rows) for commit in done_by(platform, run)] == [("replay", dead)]
    open_asset(page, url, "dead_letters", NAME)
    expect(value_of(page, "unresolved")).to_have_text("0", timeout=PATIENCE_MILLISECONDS)
    expect(value_of(page, "resolved_in_all")).to_have_text(str(dead), timeout=PATIENCE_MILLISECONDS)


def test_a_position_is_moved_back_after_a_dry_run_and_what_is_read_again_is_staged_once(page: Page, platform: Platform) -> None:
    url, tp = platform.dagster.url, TopicPartition(NAME, 0)
    end = platform.marks(NAME)[tp].high
    where = f"to: offsets, offsets: {{'0': {end - AGAIN}}}, why: the browser's test"
    before = rows(platform)

    dry = launch_job(page, url, f"move_{NAME}", config_of_move(where))
    succeeded(platform, dry)
    assert done_by(platform, dry) == [] and rows(platform) == before

    run = launch_job(page, url, f"move_{NAME}", config_of_move(f"{where}, dry_run: false, confirm: {NAME}"))
    succeeded(platform, run)
    [move] = done_by(platform, run)
    assert (move.kind, move.removed, move.why) == ("move", AGAIN, "the browser's test")
    assert move.moved == {tp: OffsetRange(end - AGAIN, end)}
    platform.until(lambda: whole(platform, NAME), "what was removed is staged again", 120)
    assert rows(platform) == before


def test_a_shadow_shows_what_differs_and_its_swap_makes_it_the_table(page: Page, platform: Platform) -> None:
    url, consumer = platform.dagster.url, platform.consumer(NAME)
    before = rows(platform)
    DeltaTable(consumer.staged).update(predicate=f"_window = '{DAMAGED}'", updates={"temp": "-99.0"})
    damaged = rows(platform)
    differ = sum(old != new for old, new in zip(before, damaged, strict=True))
    assert differ > 0

    config = f"id: mended, first: '{UNTOUCHED}', last: '{DAMAGED}'"
    built = launch_job(page, url, f"shadow_{NAME}", f"ops: {{cast_shadow_of_{NAME}: {{config: {{{config}}}}}}}")
    succeeded(platform, built)
    told = output_of(page, url, built)
    assert {"id": "mended", "added": "0", "removed": "0", "changed": str(differ)}.items() <= told.items()
    assert rows(platform) == damaged

    config = f"id: mended, confirm: {NAME}"
    swapped = launch_job(page, url, f"swap_{NAME}", f"ops: {{swap_shadow_of_{NAME}: {{config: {{{config}}}}}}}")
    succeeded(platform, swapped)
    assert rows(platform) == before
    assert not Shadow(consumer, "mended").tables.staged.exists()


def config_of_move(config: str) -> str:
    """The launchpad's."""
    return f"ops: {{set_positions_of_{NAME}: {{config: {{{config}}}}}}}"


def rows(platform: Platform) -> list[dict[str, object]]:
    """Everything in the staged table, in the order of the topic."""
    table: pa.Table = local_dataset(DeltaTable(platform.consumer(NAME).staged)).to_table()
    found: list[dict[str, object]] = table.sort_by([("_partition", "ascending"), ("_offset", "ascending")]).to_pylist()
    return found


def succeeded(platform: Platform, run: str) -> None:
    """Wait until the run is over; it has succeeded."""
    platform.until(lambda: platform.status(run) not in UNFINISHED, "the run is over", 240)
    assert platform.status(run) == dg.DagsterRunStatus.SUCCESS


def done_by(platform: Platform, run: str) -> list[StagedCommit]:
    """The commits of a run."""
    return [commit for commit in commits(platform.consumer(NAME).staged) if commit.member == run]


def by_an_older_definition(platform: Platform, required: str) -> int:
    """Stage some more records by a definition that requires a column which today's does not; how many became dead letters."""
    consumer = platform.consumer(NAME)
    columns = {**consumer.config.columns, required: Column(type="double", nullable=False)}
    config = consumer.config.model_copy(update={"columns": columns})
    strict = consumer.model_copy(update={"config": config})
    with without_members(platform):
        there = complete.present(NAME, platform.bootstrap_servers)
        complete.complete(NAME, platform.bootstrap_servers, limit=there + 200)
        options = KafkaOptions(platform.bootstrap_servers)
        result = ingest(strict, options, member="an older definition", stop=threading.Event(), until_caught_up=True)
    assert result.dead_letters > 0 and not whole(platform, NAME)
    return result.dead_letters


@contextmanager
def without_members(platform: Platform) -> Iterator[None]:
    """Nobody else stages meanwhile."""
    job = f"ingest_{NAME}"
    with platform.without_sensor(f"keep_{NAME}"):
        for run in platform.runs(job, UNFINISHED):
            platform.terminate(run)
        platform.until(lambda: not platform.runs(job, UNFINISHED), "the members are gone", 60)
        yield
