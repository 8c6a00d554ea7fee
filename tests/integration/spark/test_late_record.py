"""One late record in a year: of each shipped job's table one window or bucket is computed again, and no other file is touched."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
import yaml
from deltalake import CommitProperties, DeltaTable, write_deltalake

from consumers.staging.history import file_actions
from consumers.staging.log import METADATA_KEY, StagedCommit, WindowChange
from consumers.types import OffsetRange, TopicPartition
from orchestration.compute.config import SparkJobConfig
from orchestration.compute.job import Job
from orchestration.compute.plan import Plan, plan, request
from orchestration.compute.publish import publish
from orchestration.job_catalog import job_of
from orchestration.resources.spark import SparkResource
from orchestration.settings import PROJECT, Settings

pytestmark = pytest.mark.spark

JOBS = {
    "airport_delays": "flights",
    "carrier_delays": "flights",
    "daily_carriers": "flights",
    "hourly_routes": "flights",
    "account_balances": "transactions",
}
"""Each with the staged table that the late record comes to."""
YEAR = [(date(2013, 1, 1) + timedelta(days=day)).isoformat() for day in range(366)]
LATE = YEAR[165]
ACCOUNTS = 40

Rows = list[dict[str, Any]]


def flight(window: str, origin: str, delay: int) -> dict[str, Any]:
    hour = datetime.fromisoformat(window).replace(hour=9, tzinfo=UTC)
    return {"origin": origin, "dest": "LAX", "carrier": "UA", "dep_time": 900, "dep_delay": delay, "time_hour": hour}


def weather(window: str, origin: str) -> dict[str, Any]:
    return {"origin": origin, "temp": 50.5, "precip": 0.0, "wind_speed": 8.0, "visib": 10.0}


def transaction(number: int, cents: int) -> dict[str, Any]:
    return {"transaction_id": number, "account_id": f"A{number % ACCOUNTS:03d}", "amount_cents": cents}


@dataclass
class Staged:
    """Staged tables, with commits as ingestion makes them."""

    settings: Settings
    offset: int = 0

    def batch(self, name: str, windows: Mapping[str, Sequence[dict[str, Any]]]) -> None:
        start, rows = self.offset, []
        for window, each in windows.items():
            for row in each:
                rows.append({**row, "_offset": self.offset, "_tombstone": False, "_window": window})
                self.offset += 1
        commit = StagedCommit(
            f"c{start}",
            "batch",
            name,
            "m",
            ranges={TopicPartition(name, 0): OffsetRange(start, self.offset)},
            rows=len(rows),
            windows={window: WindowChange(len(each), 0, 1) for window, each in windows.items()},
        )
        properties = CommitProperties(custom_metadata={METADATA_KEY: commit.to_json()})
        table = pa.Table.from_pylist(rows)
        path = self.settings.staged(name)
        write_deltalake(path, table, mode="append", partition_by=["_window"], commit_properties=properties)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEIR_HOME", str(tmp_path_factory.mktemp("home")))
        patch.delenv("WEIR_TABLES", raising=False)
        yield Settings.load()


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkResource]:
    spark = SparkResource(event_logs="")
    yield spark
    spark.stop()


@pytest.fixture(scope="module")
def late(settings: Settings, spark: SparkResource) -> dict[str, Job]:
    """All jobs have computed the year; then one flight of June and one transaction come."""
    staged = Staged(settings)
    staged.batch("flights", {window: [flight(window, origin, 5) for origin in ("EWR", "JFK")] for window in YEAR})
    staged.batch("weather", {window: [weather(window, origin) for origin in ("EWR", "JFK")] for window in YEAR})
    staged.batch("transactions", {window: [transaction(day, day)] for day, window in enumerate(YEAR)})
    jobs = {name: shipped(name, settings) for name in JOBS}
    for job in jobs.values():
        compute(plan(job), spark)
    staged.batch("flights", {LATE: [flight(LATE, "JFK", 65)]})
    staged.batch("transactions", {LATE: [transaction(7, 1_000_000)]})
    return jobs


def shipped(name: str, settings: Settings) -> Job:
    definition = yaml.safe_load((PROJECT / "orchestration" / "defs" / "jobs" / name / "defs.yaml").read_text())
    return job_of(SparkJobConfig(**definition["attributes"]), settings)


def compute(todo: Plan, spark: SparkResource) -> None:
    asked = request(todo)
    result = spark.compute(dg.build_op_context(), asked)
    assert result.refused == ()
    publish(todo, asked, result)


def rows_of(job: Job) -> Rows:
    rows: Rows = DeltaTable(job.output).to_pyarrow_table().to_pylist()
    return rows


@pytest.mark.parametrize("name", JOBS)
def test_one_late_record_changes_the_files_of_its_own_window_or_bucket_alone(
    name: str, late: dict[str, Job], spark: SparkResource
) -> None:
    job = late[name]
    before, rows = DeltaTable(job.output), rows_of(job)
    files = set(before.file_uris())
    todo = plan(job)
    assert todo.stale == ((LATE,) if job.windowed else ("",))
    compute(todo, spark)
    after = DeltaTable(job.output)
    assert after.version() == before.version() + 1
    added, removed = file_actions(after, after.version())
    column = "_bucket" if job.mode == "merge" else "_window"
    (touched,) = {action["partitionValues"][column] for action in added}
    assert job.mode == "merge" or touched == LATE
    assert {action["partitionValues"][column] for action in removed} == (set() if job.mode == "incremental" else {touched})
    assert len(added) == 1 and len(files - set(after.file_uris())) == len(removed) <= 1
    untouched = [row for row in rows if row[column] != touched]
    assert len(untouched) > len(rows) / 2
    assert [row for row in rows_of(job) if row[column] != touched and row not in untouched] == []
    assert plan(job).stale == ()


def test_the_late_record_is_in_every_result(late: dict[str, Job], spark: SparkResource) -> None:
    for job in late.values():
        if (todo := plan(job)).stale:
            compute(todo, spark)
    (airport,) = [row for row in rows_of(late["airport_delays"]) if row["_window"] == LATE and row["origin"] == "JFK"]
    assert (airport["flights"], airport["mean_delay"]) == (2, 35.0)
    (carrier,) = [row for row in rows_of(late["daily_carriers"]) if row["_window"] == LATE]
    assert (carrier["flights"], carrier["worst_delay"]) == (3, 65)
    routes = [row for row in rows_of(late["hourly_routes"]) if row["_window"] == LATE]
    assert sum(row["flights"] for row in routes) == 3
    balances = {row["account_id"]: row for row in rows_of(late["account_balances"])}
    ours = [number for number in range(len(YEAR)) if number % ACCOUNTS == 7]
    assert balances["A007"]["balance_cents"] == sum(ours) + 1_000_000
    assert len(balances) == ACCOUNTS
