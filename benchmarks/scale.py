"""Dagster's pages and ticks on a table with many windows and many events: `python -m benchmarks.scale --help`.

The table has a file for every window, the event log (SQLite) five events; a downstream table has every window, too. Each figure
is the time of one operation, asked for as the daemon or an operator does it.
"""

import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import dagster as dg
import typer
from playwright.sync_api import Page, sync_playwright
from rich.console import Console
from rich.table import Table

from benchmarks.cluster import cluster
from benchmarks.home import home_in
from benchmarks.scale_project import NAME, consumer, hours
from benchmarks.scale_table import COMMITS, compute, materialize, stage
from benchmarks.topic import create
from consumers.clock import SystemClock
from consumers.config import Consumer
from orchestration import mirror
from orchestration.checks.definitions import mirrored
from orchestration.components.consumer_assets import partitions
from orchestration.components.spark_sensor import Trigger, evaluate
from orchestration.compute.job import Input, Job
from orchestration.event_log import instance_of
from orchestration.resources.kafka import KafkaResource
from orchestration.sensors import keep, topics
from orchestration.settings import PROJECT, Settings

_ROUNDS = 5
_SHOWN = {"overview": "small_file_share", "partitions": "Materialized", "events": "delta_version"}
"""View of an asset's page → what is there once it is loaded."""
_PATIENCE_SECONDS = 120.0
_clock = SystemClock()
_out = Console(soft_wrap=True)


def main(
    windows: Annotated[int, typer.Option(min=100)] = 10_000,
    events: Annotated[int, typer.Option(min=1, help="Events for each window.")] = 5,
    folder: Annotated[Path | None, typer.Option(help="Keep the tables here, and use those that are here.")] = None,
    page: Annotated[bool, typer.Option(help="Measure the asset page in a browser, too.")] = True,
) -> None:
    """Fill a table and Dagster's storage, measure, and print a table."""
    with home_in(folder) as home, instance_of(home / "dagster") as instance, cluster(None) as servers:
        os.environ["KAFKA_BOOTSTRAP_SERVERS"] = servers
        create(servers, NAME)
        known, job = _filled(instance, windows, events)
        figures = dict(_ticks(instance, known, job, KafkaResource(bootstrap_servers=servers)))
        if page:
            figures |= _pages(home)
    _show(figures)


def _filled(instance: dg.DagsterInstance, windows: int, events: int) -> tuple[Consumer, Job]:
    staged = Settings.load().staged(NAME)
    there = sorted(path.name.partition("=")[2] for path in staged.glob("_window=*"))
    keys = there or hours(windows)
    known = consumer(keys[0])
    job = Job("daily", "", {NAME: Input(staged)}, staged.with_name("daily"), declared_version="1")
    if not there:
        step = max(1, windows // COMMITS)
        for place in range(0, windows, step):
            stage(known, keys[place : place + step], place * 4)
        _out.print(f"{materialize(instance, known, events):,} events")
    if not job.output.exists():
        compute(job)
    return known, job


def _ticks(instance: dg.DagsterInstance, known: Consumer, job: Job, kafka: KafkaResource) -> Iterator[tuple[str, list[float]]]:
    def catch_up() -> object:
        return mirror.catch_up(instance, known, instance.report_runless_asset_event, _clock)

    def spark() -> object:
        context = dg.build_sensor_context(instance=instance)
        return evaluate(context, job, dg.AssetKey(["daily"]), partitions(known), Trigger(), _clock)

    yield "mirror: everything compared", _timed(lambda: mirror.compare(instance, known, _clock))
    catch_up()
    yield "mirror: a pass without news", _timed(catch_up)
    stage(known, [hours(1)[0]], 10**6 + int(_clock.time()))
    yield "mirror: a pass with news of one window", _timed(catch_up, 1)
    yield "check `mirrored`", _timed(lambda: mirrored(instance, known, _clock))
    yield "tick of keep_<name>", _timed(lambda: keep.tick(instance, known, kafka, None, _clock))
    yield "tick of observe_topics", _timed(lambda: topics.tick(instance, [known], kafka, None, _clock))
    yield "tick of a Spark job's sensor", _timed(spark)


def _timed(work: Callable[[], object], rounds: int = _ROUNDS) -> list[float]:
    """Seconds of each round."""
    taken = []
    for _ in range(rounds):
        began = _clock.monotonic()
        work()
        taken.append(_clock.monotonic() - began)
    return taken


def _pages(home: Path) -> dict[str, list[float]]:
    with _webserver(home) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(url)
        page.wait_for_load_state("networkidle")
        figures = {f"asset page: {view}": _timed(lambda: _open(page, url, view)) for view in _SHOWN}  # noqa: B023
        page.screenshot(path=home / "asset-page.png")
        browser.close()
    return figures


def _open(page: Page, url: str, view: str) -> None:
    """Until what the view is for can be read."""
    page.goto(f"{url}/assets/staged/{NAME}?view={view}", wait_until="commit")
    page.get_by_text(_SHOWN[view]).first.wait_for(timeout=_PATIENCE_SECONDS * 1000)


@contextmanager
def _webserver(home: Path) -> Iterator[str]:
    port = 3999
    command = [sys.executable, "-m", "dagster_webserver", "-m", "benchmarks.scale_project", "-h", "127.0.0.1", "-p", str(port)]
    with (home / "webserver.log").open("w") as log:
        process = subprocess.Popen(command, cwd=PROJECT, stdout=log, stderr=log)
    try:
        while process.poll() is None and "Serving" not in (home / "webserver.log").read_text():
            _clock.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _show(figures: dict[str, list[float]]) -> None:
    table = Table("operation", "median ms", "highest ms")
    for name, taken in figures.items():
        table.add_row(name, f"{statistics.median(taken) * 1000:,.0f}", f"{max(taken) * 1000:,.0f}")
    _out.print(table)


if __name__ == "__main__":
    typer.run(main)
