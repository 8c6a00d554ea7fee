"""The `SparkJob` component: from YAML to what its runs do, in-process, with a real session where a run
computes.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster.components.core.component_tree import ComponentTreeException
from dagster.components.testing import create_defs_folder_sandbox
from deltalake import DeltaTable, write_deltalake
from pydantic import ValidationError

from orchestration.components.spark_job import SparkJob
from orchestration.compute.config import SparkJobConfig
from orchestration.resources.spark import SparkResource, SparkRuntime
from orchestration.settings import Settings
from spark_jobs.request import Request, Result
from tests.orchestration.compute import fake

DELAYS: dict[str, Any] = {
    "function": "spark_jobs.airport_delays.airport_delays",
    "inputs": {"flights": {"consumer": "flights"}, "weather": {"consumer": "weather"}},
    "output": "airport_delays",
    "windows": "day",
    "first": "2013-01-01",
}
BALANCES: dict[str, Any] = {
    "function": "spark_jobs.account_balances.account_balances",
    "inputs": {"transactions": {"consumer": "transactions"}},
    "output": "account_balances",
    "mode": "merge",
    "keys": ["account_id"],
    "checks": {"balances_match": "orchestration.defs.jobs.account_balances.checks.balances_match"},
}
FLIGHTS = pa.schema(
    {
        "origin": pa.string(),
        "dep_time": pa.int64(),
        "dep_delay": pa.int64(),
        "_tombstone": pa.bool_(),
        "_window": pa.string(),
    }
)
WEATHER = pa.schema(
    {
        "origin": pa.string(),
        **dict.fromkeys(("temp", "precip", "wind_speed", "visib"), pa.float64()),
        "_tombstone": pa.bool_(),
        "_window": pa.string(),
    }
)


def write(path: Path, rows: Sequence[Mapping[str, Any]], schema: pa.Schema | None = None) -> None:
    full = [{**row, "_tombstone": False} for row in rows]
    table = pa.Table.from_pylist(full, schema)
    write_deltalake(str(path), table, partition_by=["_window"], mode="append")


def counted(inputs: Mapping[str, fake.Rows]) -> fake.Rows:
    """Flights by window."""
    found = Counter(row["_window"] for row in inputs["flights"])
    return [{"_window": window, "flights": flights} for window, flights in found.items()]


@dataclass
class FakeSpark:
    """A runtime without Spark; told to, it lets the audit `as_told` fail, or something happen before it returns."""

    function: fake.Function
    refuse: bool = False
    computed: int = 0
    settings: Mapping[str, str] | None = None
    meanwhile: Callable[[], object] | None = None

    def compute(self, context: object, request: Request, settings: Mapping[str, str] | None = None) -> Result:
        self.computed, self.settings = self.computed + 1, settings
        result = fake.compute(request, self.function, self.refuse)
        if self.meanwhile is not None:
            self.meanwhile, now = None, self.meanwhile
            now()
        return result

    @property
    def started(self) -> bool:
        return self.computed > 0


class Bench:
    """A component's definitions on tables of its own, run in this process."""

    def __init__(self, attributes: dict[str, Any], instance: dg.DagsterInstance, spark: SparkRuntime | None = None) -> None:
        self.settings = Settings.load()
        self.spark = spark or FakeSpark(counted)
        self.instance = instance
        self.name = attributes["output"]
        component = SparkJob(SparkJobConfig(**attributes))
        built = component.build_defs(None)  # type: ignore[arg-type]  # the context is not used
        self.defs = dg.Definitions.merge(built, dg.Definitions(resources={"spark": self.spark}))

    def flights(self, *windows: str) -> None:
        rows = [{"origin": "JFK", "dep_time": 1, "dep_delay": 5, "_window": window} for window in windows]
        write(self.settings.staged("flights"), rows, FLIGHTS)

    def weather(self, *windows: str) -> None:
        rows = [{"origin": "JFK", "temp": 50.0, "_window": window} for window in windows]
        write(self.settings.staged("weather"), rows, WEATHER)

    def run(self, start: str = "", end: str = "", windows: Sequence[str] = ()) -> dg.ExecuteInProcessResult:
        tags = {"dagster/asset_partition_range_start": start, "dagster/asset_partition_range_end": end}
        config = {"ops": {self.name: {"config": {"windows": list(windows)}}}} if windows else {}
        job = self.defs.resolve_job_def(f"{self.name}_job")
        return job.execute_in_process(instance=self.instance, tags=tags if start else {}, run_config=config, raise_on_error=False)

    def version(self) -> int:
        return DeltaTable(str(self.settings.tables / self.name)).version()

    def reported(self, result: dg.ExecuteInProcessResult) -> dict[str | None, dict[str, Any]]:
        records = self.instance.get_records_for_run(result.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION).records
        events = [record.asset_materialization for record in records if record.asset_materialization]
        return {event.partition: {name: value.value for name, value in event.metadata.items()} for event in events}


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    monkeypatch.setenv("WEIR_HOME", str(tmp_path))
    monkeypatch.delenv("WEIR_TABLES", raising=False)
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.mark.spark
def test_a_range_is_computed_once_and_a_second_run_changes_nothing_and_starts_no_session(
    instance: dg.DagsterInstance,
) -> None:
    spark = SparkResource()
    bench = Bench(DELAYS, instance, spark)
    bench.flights("2013-01-01", "2013-01-02")
    bench.weather("2013-01-01")
    first = bench.reported(bench.run("2013-01-01", "2013-01-02"))
    assert list(first) == ["2013-01-01", "2013-01-02"]
    volatile = ("seconds", "code_version", "spark_ui", "spark_application")
    assert {name: value for name, value in first["2013-01-01"].items() if name not in volatile} == {
        "rows": 1,
        "dagster/partition_row_count": 1,
        "unchanged": False,
        "windows_in_run": 2,
        "output_version": 0,
        "mode": "window",
        "reason": "unchanged: 0 windows; to compute: 2 of 2 windows",
        "published_rows": 2,
        "audits": "0 passed",
        "input_version/flights": 0,
        "input_version/weather": 0,
    }
    again = Bench(DELAYS, instance)
    second = again.reported(again.run("2013-01-01", "2013-01-02"))
    assert [metadata["unchanged"] for metadata in second.values()] == [True, True]
    assert (again.version(), again.spark.started) == (0, False)


def test_a_run_of_scattered_windows_reports_and_replaces_those_alone(instance: dg.DagsterInstance) -> None:
    bench = Bench(DELAYS, instance)
    bench.flights("2013-01-01", "2013-01-02", "2013-01-03")
    bench.weather("2013-01-01")
    bench.run("2013-01-01", "2013-01-03")
    bench.flights("2013-01-01", "2013-01-02", "2013-01-03")
    result = bench.run("2013-01-01", "2013-01-03", windows=["2013-01-01", "2013-01-03"])
    assert sorted(map(str, bench.reported(result))) == ["2013-01-01", "2013-01-03"]
    table = DeltaTable(str(bench.settings.tables / "airport_delays")).to_pyarrow_table().to_pylist()
    assert {row["_window"]: row["flights"] for row in table} == {
        "2013-01-01": 2,
        "2013-01-02": 1,
        "2013-01-03": 2,
    }


def test_windows_without_flights_are_reported_with_no_rows_and_unchanged_the_second_time(
    instance: dg.DagsterInstance,
) -> None:
    bench = Bench(DELAYS, instance)
    bench.flights("2013-01-01")
    bench.weather("2013-01-02")
    first = bench.reported(bench.run("2013-01-01", "2013-01-03"))
    assert {window: metadata["rows"] for window, metadata in first.items()} == {
        "2013-01-01": 1,
        "2013-01-02": 0,
        "2013-01-03": 0,
    }
    version = bench.version()
    second = bench.reported(bench.run("2013-01-01", "2013-01-03"))
    assert all(metadata["unchanged"] for metadata in second.values())
    assert bench.version() == version


@pytest.mark.spark
def test_the_balance_check_passes_and_finds_a_planted_duplicate(instance: dg.DagsterInstance) -> None:
    from orchestration.samples.sources import transactions_frame

    bench = Bench(BALANCES, instance, SparkResource())
    frame = transactions_frame()[:500]
    columns = ("transaction_id", "account_id", "amount_cents")
    rows = [{name: row[name] for name in columns} | {"_window": "2013-06-01"} for row in frame.to_dict("records")]
    write(bench.settings.staged("transactions"), rows)
    (good,) = bench.run().get_asset_check_evaluations()
    assert good.passed, good.description
    write(bench.settings.staged("transactions"), rows[:1])
    (bad,) = bench.run().get_asset_check_evaluations()
    assert not bad.passed
    assert rows[0]["account_id"] in str(bad.description)


AUDITED = {**DELAYS, "audits": {"as_told": {"rows": {"least": 1}}}}


def test_a_refused_result_fails_the_run_after_its_audit_was_reported_and_readers_keep_the_old_version(
    instance: dg.DagsterInstance,
) -> None:
    spark = FakeSpark(counted)
    bench = Bench(AUDITED, instance, spark)
    bench.flights("2013-01-01")
    bench.weather("2013-01-01")
    (good,) = bench.run("2013-01-01", "2013-01-01").get_asset_check_evaluations()
    assert good.passed and good.severity == dg.AssetCheckSeverity.ERROR and good.description == "1 rows"
    bench.flights("2013-01-01")
    spark.refuse = True
    result = bench.run("2013-01-01", "2013-01-01")
    (bad,) = result.get_asset_check_evaluations()
    assert not bad.passed
    (failure,) = result.filter_events(lambda event: event.is_step_failure)
    said = str(failure.step_failure_data.user_failure_data)
    assert "1 of 1 audits failed, so nothing was published and readers still see version 0" in said
    assert "as_told: 1 rows" in said
    assert bench.version() == 0
    assert bench.reported(result) == {}
    assert len(list((bench.settings.tables / "airport_delays").glob("attempt-*"))) == 1


def test_a_run_with_nothing_to_do_reports_what_the_audits_found_and_which_were_never_evaluated(
    instance: dg.DagsterInstance,
) -> None:
    bench = Bench(AUDITED, instance)
    bench.flights("2013-01-01")
    bench.weather("2013-01-01")
    bench.run("2013-01-01", "2013-01-01")
    later = {**AUDITED, "audits": {**AUDITED["audits"], "later": {"not_null": ["flights"]}}}
    found = {
        each.check_name: each for each in Bench(later, instance).run("2013-01-01", "2013-01-01").get_asset_check_evaluations()
    }
    assert found["as_told"].passed
    assert not found["later"].passed and found["later"].severity == dg.AssetCheckSeverity.WARN
    assert "not evaluated: it is newer than version 0" in str(found["later"].description)


def test_a_run_that_somebody_publishes_into_plans_again(instance: dg.DagsterInstance) -> None:
    spark, other = FakeSpark(counted), Bench(DELAYS, instance)
    bench = Bench(DELAYS, instance, spark)
    bench.flights("2013-01-01", "2013-01-02")
    bench.weather("2013-01-01")
    spark.meanwhile = lambda: other.run("2013-01-02", "2013-01-02")
    result = bench.run("2013-01-01", "2013-01-02")
    reported = bench.reported(result)
    assert [reported[window]["unchanged"] for window in ("2013-01-01", "2013-01-02")] == [False, True]
    assert (spark.computed, bench.version()) == (2, 1)


def test_a_job_that_follows_commits_adds_them_and_tells_their_offsets(instance: dg.DagsterInstance) -> None:
    routes = {
        "function": "spark_jobs.hourly_routes.hourly_routes",
        "inputs": {"flights": {"consumer": "flights"}},
        "output": "hourly_routes",
        "mode": "incremental",
        "resources": {"spark.sql.shuffle.partitions": "1"},
    }
    staged = fake.Staged(Settings.load().staged("flights"))
    spark = FakeSpark(fake.rows_as_they_are)
    bench = Bench(routes, instance, spark)
    staged.batch(d1=[1, 2])
    bench.run()
    staged.batch(d1=[3])
    [about] = bench.reported(bench.run()).values()
    assert (about["rows"], about["published_rows"], about["unchanged"]) == (3, 1, False)
    assert about["input_offsets/flights"] == "numbers/0 [2, 3)"
    assert spark.settings == {"spark.sql.shuffle.partitions": "1"}
    [about] = bench.reported(bench.run()).values()
    assert (about["unchanged"], spark.computed) == (True, 2)


def test_a_run_without_an_input_table_fails_and_says_what_to_do(instance: dg.DagsterInstance) -> None:
    bench = Bench(DELAYS, instance)
    bench.flights("2013-01-01")
    result = bench.run("2013-01-01", "2013-01-01")
    (failure,) = result.filter_events(lambda event: event.is_step_failure)
    assert "no staged table yet for weather" in str(failure.step_failure_data.user_failure_data)
    assert not bench.spark.started


def test_windows_outside_of_the_runs_range_are_refused(instance: dg.DagsterInstance) -> None:
    bench = Bench(DELAYS, instance)
    bench.flights("2013-01-01")
    bench.weather("2013-01-01")
    result = bench.run("2013-01-01", "2013-01-02", windows=["2013-02-01"])
    (failure,) = result.filter_events(lambda event: event.is_step_failure)
    assert "outside of the run's range" in str(failure.step_failure_data.user_failure_data)


def test_the_asset_depends_on_the_staged_tables_window_by_window(instance: dg.DagsterInstance) -> None:
    asset = Bench(DELAYS, instance).defs.resolve_assets_def("airport_delays")
    assert asset.dependency_keys == {dg.AssetKey(["staged", "flights"]), dg.AssetKey(["staged", "weather"])}
    assert asset.partitions_def == dg.DailyPartitionsDefinition("2013-01-01", end_offset=1)


@pytest.mark.parametrize(
    ("source", "mapping"),
    [
        ({}, dg.TimeWindowPartitionMapping(allow_nonexistent_upstream_partitions=True)),
        ({"look_back": 2}, dg.TimeWindowPartitionMapping(start_offset=-2, allow_nonexistent_upstream_partitions=True)),
        ({"windows": "hour"}, dg.TimeWindowPartitionMapping(allow_nonexistent_upstream_partitions=True)),
        ({"up_to": True}, dg.AllPartitionMapping()),
    ],
)
def test_windows_reach_in_dagster_what_they_are_computed_from(
    instance: dg.DagsterInstance, source: dict[str, Any], mapping: dg.PartitionMapping
) -> None:
    inputs = {**DELAYS["inputs"], "flights": {"consumer": "flights", **source}}
    asset = Bench({**DELAYS, "inputs": inputs}, instance).defs.resolve_assets_def("airport_delays")
    assert asset.get_partition_mapping(dg.AssetKey(["staged", "flights"])) == mapping


def test_hourly_windows_are_the_keys_of_the_staged_table(instance: dg.DagsterInstance) -> None:
    hourly = Bench({**DELAYS, "windows": "hour"}, instance).defs.resolve_assets_def("airport_delays")
    assert hourly.partitions_def is not None
    assert hourly.partitions_def.get_first_partition_key() == "2013-01-01-00"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"bogus": 1}, "bogus"),
        ({"windows": "week"}, "windows"),
        ({"max_windows_per_run": "many"}, "max_windows_per_run"),
        ({"inputs": {"flights": {"consumr": "flights"}}}, "consumr"),
        ({"first": "yesterday"}, "a day such as 2013-01-01"),
        ({"function": "spark_jobs.airport_delays.nope"}, "has no function 'nope'"),
        ({"inputs": {"flights": {"consumer": "flights"}}}, "the job has no input 'weather'"),
        ({"parameters": {"percentil": 0.5}}, "no argument for the parameter 'percentil'"),
        ({"mode": "full"}, "windows: day does not go with mode: full"),
        ({"keys": ["a"]}, "keys: mode merge needs them"),
        ({"follows": "flights"}, "follows: names an input, in mode incremental or merge"),
        ({"audits": {"a": {"rows": {"least": 1}, "sql": "x"}}}, "an audit is one of"),
        ({"audits": {"a": {"rows": {}}}}, "say least, most or both"),
        ({"audits": {"a": {"reconcile": {"input": "no", "sum": "1"}}}}, "there is no input 'no'"),
    ],
)
def test_a_wrong_attribute_is_named(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        SparkJobConfig(**{**DELAYS, **wrong})


def test_a_wrong_yaml_is_shown_with_file_and_line() -> None:
    with create_defs_folder_sandbox() as sandbox:
        attributes = {**DELAYS, "windows": "week"}
        contents = {"type": "orchestration.components.spark_job.SparkJob", "attributes": attributes}
        path = sandbox.scaffold_component(SparkJob, defs_path="delays", defs_yaml_contents=contents)
        with pytest.raises(ComponentTreeException) as caught, sandbox.load_component_and_build_defs(path):
            pass
    shown = str(caught.value.__cause__)
    assert re.search(r"attributes\.windows at .*defs\.yaml:\d+", shown)
