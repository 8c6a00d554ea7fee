"""Spark jobs: a year of hours from nothing beside one plain Spark job; what new commits cost. `python -m benchmarks.jobs --help`

The backfill is its runs of the shipped component, one after the other in this process: a Spark session each, and all events in
Dagster's storage (SQLite). The plain job has the same session settings, reads all, and writes the same rows at once. Both take
turns.
"""

import json
import os
import shutil
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import dagster as dg
import psutil
import pyarrow as pa
import typer
from deltalake import DeltaTable
from rich.console import Console

from benchmarks.home import home_in
from benchmarks.jobs_table import hours, per_sensor, stage, stage_one_by_one
from consumers.clock import SystemClock
from orchestration.components.spark_job import SparkJob
from orchestration.compute.config import SparkJobConfig
from orchestration.compute.job import Input, Job
from orchestration.compute.plan import plan, request
from orchestration.compute.publish import publish
from orchestration.compute.record import publications
from orchestration.event_log import instance_of
from orchestration.job_catalog import job_of
from orchestration.resources.spark import SparkResource
from orchestration.resources.spark.adjust import adjusted
from orchestration.resources.spark.session import forget_jvm
from orchestration.resources.spark.sizes import bytes_of, sized
from orchestration.settings import Settings
from spark_jobs.request import Request, Source
from spark_jobs.staged import WINDOW

_FUNCTION = "benchmarks.jobs_table.per_sensor"
_OUTPUT = "per_sensor"
_NEW = 10
_OLD = (100, 10_000)
_clock = SystemClock()
_out = Console(soft_wrap=True)


def main(
    windows: Annotated[int, typer.Option(min=24)] = 8_760,
    rounds: Annotated[int, typer.Option(min=0, help="Of the backfill.")] = 3,
    commits: Annotated[int, typer.Option(min=100, help="Old ones of the larger table.")] = _OLD[1],
    times: Annotated[int, typer.Option(min=0, help="How often new commits are computed on each table.")] = 7,
    rows: Annotated[int, typer.Option(min=1, help="Of a window.")] = 2_000,
    folder: Annotated[Path | None, typer.Option(help="Keep the tables here, and use those that are here.")] = None,
    run_windows: Annotated[int | None, typer.Option(help="max_windows_per_run; default: the component's.")] = None,
) -> None:
    """Fill tables, measure, and print the figures with the machine's load."""
    with home_in(folder):
        if rounds:
            _backfill(windows, rows, rounds, run_windows)
        if times:
            _new_commits(commits, times)


def _backfill(windows: int, rows: int, rounds: int, run_windows: int | None) -> None:
    keys = hours(windows)
    staged = Settings.load().staged("readings")
    _filled(staged, lambda: _stage_days(staged, keys, rows))
    config = _config(keys, run_windows)
    turns: dict[str, Callable[[], str]] = {"weir": lambda: _product(config, keys), "plain": lambda: _plain(staged)}
    ratios = []
    for number in range(rounds):
        taken = {}
        for name in sorted(turns, reverse=number % 2 == 0):
            began = _clock.monotonic()
            told = turns[name]()
            taken[name] = _clock.monotonic() - began
            _out.print(f"round {number + 1}: {told}: {taken[name]:.1f} s; load {_load()}")
        ratios.append(taken["weir"] / taken["plain"])
    same = _rows(Settings.load().tables / _OUTPUT) == _rows(_plain_table())
    told = f"{statistics.median(ratios):.2f} times as long as the plain job ({min(ratios):.2f} to {max(ratios):.2f})"
    _out.print(f"{windows:,} windows of {rows:,} rows: {told}; the same rows: {same}")


def _config(keys: list[str], run_windows: int | None) -> SparkJobConfig:
    attributes: dict[str, Any] = {
        "function": _FUNCTION,
        "inputs": {"readings": {"consumer": "readings"}},
        "output": _OUTPUT,
        "windows": "hour",
        "first": keys[0][:10],
        "last": keys[-1][:10],
    }
    return SparkJobConfig(**attributes if run_windows is None else {**attributes, "max_windows_per_run": run_windows})


def _product(config: SparkJobConfig, keys: list[str]) -> str:
    """A backfill, cut into runs as Dagster does it."""
    job = job_of(config, Settings.load())
    shutil.rmtree(job.output, ignore_errors=True)
    step = config.max_windows_per_run
    with instance_of(Path(os.environ["DAGSTER_HOME"])) as instance:
        for place in range(0, len(keys), step):
            _run(config, instance, keys[place : place + step])
    sessions = {made.application for made in publications(DeltaTable(job.output))}
    return f"a backfill in {len(sessions)} Spark sessions"


def _run(config: SparkJobConfig, instance: dg.DagsterInstance, keys: Sequence[str]) -> None:
    tags = {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[-1]}
    built = SparkJob(config).build_defs(None)  # type: ignore[arg-type]  # the context is not used
    with _session() as spark:
        defs = dg.Definitions.merge(built, dg.Definitions(resources={"spark": spark}))
        defs.resolve_job_def(f"{_OUTPUT}_job").execute_in_process(instance=instance, tags=tags)


def _stage_days(staged: Path, keys: list[str], rows: int) -> None:
    offset = 0
    for place in range(0, len(keys), 24):
        offset = stage(staged, keys[place : place + 24], offset, rows)


def _plain(staged: Path) -> str:
    """What somebody would write who needs none of the rest, with one file a window as ours has."""
    output = _plain_table()
    shutil.rmtree(output, ignore_errors=True)
    source = Source(str(staged), DeltaTable(staged).version())
    with _session() as resource:
        spark = resource.spark_session
        read = bytes_of(Request("plain", "", "full", {"readings": source}, "", "")) or 0
        with adjusted(spark, sized(read, spark.sparkContext.defaultParallelism)):
            found = per_sensor(spark.read.format("delta").load(str(staged)))
            found.hint("rebalance", WINDOW).write.format("delta").partitionBy(WINDOW).save(str(output))
    return "one plain Spark job"


def _plain_table() -> Path:
    return Settings.load().tables / "plain"


@contextmanager
def _session() -> Iterator[SparkResource]:
    """A resource whose session ends with the block, as it does with a run's process."""
    try:
        yield SparkResource()
    finally:
        forget_jvm()


def _new_commits(commits: int, times: int) -> None:
    jobs = {old: _followed(old) for old in (_OLD[0], commits)}
    taken: dict[int, list[dict[str, float]]] = {old: [] for old in jobs}
    with _session() as spark:
        for job in jobs.values():
            _timed(job, spark)
        for number in range(times):
            for old in sorted(jobs, reverse=bool(number % 2)):
                _more(jobs[old])
                taken[old].append(_timed(jobs[old], spark))
    for old, job in jobs.items():
        _more(job)
        with _session() as spark:
            cold = _timed(job, spark)
        parts = {name: statistics.median(each[name] for each in taken[old]) for name in cold}
        told = ", ".join(f"{name} {seconds:.2f}" for name, seconds in parts.items())
        _out.print(f"{_NEW} new commits after {old:,}: {told} s; from session start {cold['all']:.1f} s; load {_load()}")
    few, many = (statistics.median(each["all"] for each in taken[old]) for old in jobs)
    _out.print(f"{commits:,} old commits: {many / few:.2f} times as long as with {_OLD[0]}, {times} times each in turn")


def _followed(old: int) -> Job:
    """A job that follows the commits of a table with so many of them."""
    staged = Settings.load().staged(f"old_{old}")
    _filled(staged, lambda: stage_one_by_one(staged, hours(old), 20))
    output = Settings.load().tables / f"followed_{old}"
    shutil.rmtree(output, ignore_errors=True)
    return Job(f"followed_{old}", _FUNCTION, {"readings": Input(staged)}, output, "incremental", "1")


def _filled(staged: Path, fill: Callable[[], object]) -> None:
    if DeltaTable.is_deltatable(str(staged)):
        return
    began = _clock.monotonic()
    fill()
    _out.print(f"{staged.name}: {DeltaTable(staged).version() + 1:,} commits staged in {_clock.monotonic() - began:.0f} s")


def _more(job: Job) -> None:
    staged = job.inputs["readings"].path
    offset = 10**9 + int(_clock.time() * 1000)
    for window in hours(_NEW):
        offset = stage(staged, [window], offset, 20)


def _timed(job: Job, spark: SparkResource) -> dict[str, float]:
    """Seconds from nothing known to everything published."""
    began = _clock.monotonic()
    todo = plan(job)
    planned = _clock.monotonic()
    asked = request(todo)
    result = spark.compute(dg.build_op_context(), asked)
    computed = _clock.monotonic()
    done = publish(todo, asked, result)
    ended = _clock.monotonic()
    if done.whole and todo.output.version >= 0:
        raise SystemExit(f"started over: {todo.reason}")
    return {"plan": planned - began, "compute": computed - planned, "publish": ended - computed, "all": ended - began}


def _rows(table: Path) -> pa.Table:
    rows = DeltaTable(table).to_pyarrow_table(columns=[WINDOW, "sensor", "readings", "total", "highest"])
    return rows.sort_by([(WINDOW, "ascending"), ("sensor", "ascending")])


def _load() -> str:
    return json.dumps([round(each, 1) for each in psutil.getloadavg()])


if __name__ == "__main__":
    typer.run(main)
