"""When the sensor asks for a run, for what, and what it says when it does not. Real Delta logs, a temporary
instance, no Spark.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from dagster import DagsterRun, DagsterRunStatus
from deltalake import write_deltalake
from pydantic import ValidationError

from consumers.clock import ManualClock
from consumers.staging.completeness import Progress
from orchestration.components.spark_sensor import JOB_TAG, WORK_TAG, Trigger, evaluate
from orchestration.compute.config import SparkJobConfig
from orchestration.compute.job import Input, Job
from orchestration.compute.pins import Pinned
from orchestration.compute.plan import plan, request
from orchestration.compute.publish import publish
from tests.orchestration.compute import fake

KEY = dg.AssetKey(["out"])
DAYS = dg.DailyPartitionsDefinition("2013-01-01")


def stage(path: Path, *windows: str) -> None:
    rows = [{"_window": window, "x": 1} for window in windows]
    write_deltalake(str(path), pa.Table.from_pylist(rows), partition_by=["_window"], mode="append")


def finish(job: Job, *windows: str) -> None:
    """Write the output as a run would, of all windows or these."""
    todo = plan(job, windows or None)
    asked = request(todo)
    publish(todo, asked, fake.compute(asked, fake.sums))


@dg.op
def failing() -> None:
    raise dg.Failure("as told", allow_retries=False)


@dg.job
def failing_job() -> None:
    failing()


@dg.op
def idle() -> None:
    pass


@dg.job
def idle_job() -> None:
    idle()


class Bench:
    """A job over one input, a clock that stands at the input's last commit, and a sensor's memory."""

    def __init__(self, tmp_path: Path, instance: dg.DagsterInstance) -> None:
        inputs = {"in": Input(tmp_path / "in")}
        self.job = Job("out", "spark_jobs.airport_delays.airport_delays", inputs, tmp_path / "out")
        self.instance = instance
        self.cursor: str | None = None
        self.clock = ManualClock()

    def stage(self, *windows: str) -> None:
        stage(self.job.inputs["in"].path, *windows)
        self.clock = ManualClock(self.pinned().committed)

    def pinned(self) -> Pinned:
        return plan(self.job).inputs["in"]

    def tick(self, trigger: Trigger | None = None) -> dg.SensorResult:
        context = dg.build_sensor_context(instance=self.instance, cursor=self.cursor)
        result = evaluate(context, self.job, KEY, DAYS, trigger or Trigger(), self.clock)
        self.cursor = result.cursor
        return result

    def request(self, trigger: Trigger | None = None) -> dg.RunRequest:
        requests = self.tick(trigger).run_requests
        assert requests is not None and len(requests) == 1
        return requests[0]

    def reason(self) -> str:
        result = self.tick()
        assert not result.run_requests and isinstance(result.skip_reason, dg.SkipReason)
        return str(result.skip_reason.skip_message)

    def windows(self, request: dg.RunRequest) -> list[str]:
        return request.run_config["ops"]["out"]["config"]["windows"]  # type: ignore[no-any-return]

    def fail(self, request: dg.RunRequest) -> str:
        """Let a run of this request fail; the clock stands where it ended."""
        return self._end(request, failing_job)

    def succeed(self, request: dg.RunRequest) -> str:
        """The same with a run that ends well, and computes nothing."""
        return self._end(request, idle_job)

    def _end(self, request: dg.RunRequest, job: dg.JobDefinition) -> str:
        result = job.execute_in_process(instance=self.instance, tags=request.tags, raise_on_error=False)
        record = self.instance.get_run_record_by_id(result.run_id)
        assert record is not None and record.end_time is not None
        self.clock = ManualClock(record.end_time)
        return result.run_id


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Bench(tmp_path, instance)


def test_without_an_input_table_it_says_which_is_missing(bench: Bench) -> None:
    assert bench.reason() == "no staged table yet for in"


def test_a_fresh_commit_is_waited_for_until_it_is_quiet(bench: Bench) -> None:
    bench.stage("2013-01-01")
    assert "1 of 1 windows stale at in v0; last input commit 0 s ago, waiting for 10 s of quiet" in bench.reason()
    bench.clock.advance(10)
    assert bench.windows(bench.request()) == ["2013-01-01"]


def test_an_input_that_is_never_quiet_is_waited_for_no_longer_than_the_limit(bench: Bench) -> None:
    never_quiet = Trigger(settle_seconds=3600, max_wait_seconds=60)
    bench.stage("2013-01-01")
    assert not bench.tick(never_quiet).run_requests
    bench.clock.advance(59)
    assert not bench.tick(never_quiet).run_requests
    bench.clock.advance(1)
    assert bench.windows(bench.request(never_quiet)) == ["2013-01-01"]


def test_scattered_windows_go_to_one_run_with_the_range_that_covers_them(bench: Bench) -> None:
    bench.stage("2013-01-05", "2013-03-01", "2013-02-01")
    bench.clock.advance(10)
    request = bench.request()
    assert bench.windows(request) == ["2013-01-05", "2013-02-01", "2013-03-01"]
    assert request.tags["dagster/asset_partition_range_start"] == "2013-01-05"
    assert request.tags["dagster/asset_partition_range_end"] == "2013-03-01"


def test_a_year_takes_few_runs_and_each_takes_the_oldest_windows(bench: Bench) -> None:
    year = DAYS.get_partition_keys()[:365]
    bench.stage(*year)
    bench.clock.advance(10)
    assert bench.windows(bench.request()) == year
    assert bench.windows(bench.request(Trigger(max_windows=100))) == year[:100]


def test_late_data_asks_for_its_window_alone(bench: Bench) -> None:
    bench.stage("2013-01-01", "2013-01-02", "2013-01-03")
    finish(bench.job)
    bench.stage("2013-01-02")
    bench.clock.advance(10)
    assert bench.windows(bench.request()) == ["2013-01-02"]


def test_with_nothing_to_do_it_says_at_which_versions(bench: Bench) -> None:
    bench.stage("2013-01-01")
    finish(bench.job)
    assert bench.reason() == "0 of 1 windows stale at in v0"


def test_windows_that_dagster_has_no_partition_for_are_named_and_not_requested(bench: Bench) -> None:
    bench.stage("2012-12-31")
    bench.clock.advance(10)
    assert "(1 stale windows lie outside of the asset's partitions" in bench.reason()


@pytest.mark.parametrize(
    "run",
    [
        DagsterRun("out_job", status=DagsterRunStatus.STARTED, tags={JOB_TAG: "out"}),
        DagsterRun("__ASSET_JOB", status=DagsterRunStatus.STARTED, asset_selection=frozenset({KEY})),
    ],
    ids=["its own run", "a backfill's run"],
)
def test_while_a_run_over_the_asset_is_unfinished_none_is_requested(bench: Bench, run: DagsterRun) -> None:
    bench.stage("2013-01-01")
    bench.clock.advance(10)
    bench.instance.add_run(run)
    assert bench.reason() == f"1 of 1 windows stale at in v0; run {run.run_id} is not finished"


def test_a_run_of_something_else_does_not_hold_it_up(bench: Bench) -> None:
    bench.stage("2013-01-01")
    bench.clock.advance(10)
    bench.instance.add_run(DagsterRun("other_job", status=DagsterRunStatus.STARTED, tags={JOB_TAG: "other"}))
    assert bench.request()


def test_the_same_work_has_the_same_key_and_other_work_another(bench: Bench) -> None:
    bench.stage("2013-01-01")
    bench.clock.advance(10)
    first = bench.request().run_key
    assert bench.request().run_key == first
    bench.stage("2013-01-01")
    bench.clock.advance(10)
    assert bench.request().run_key != first


def test_failed_work_is_tried_again_later_under_a_new_key_and_given_up_after_three_attempts(
    bench: Bench,
) -> None:
    bench.stage("2013-01-01")
    bench.clock.advance(10)
    keys = set()
    for pause in (30, 60, 120):
        request = bench.request()
        keys.add(request.run_key)
        failed = bench.fail(request)
        bench.clock.advance(pause - 1)
        assert failed in bench.reason()
        bench.clock.advance(1)
    assert len(keys) == 3
    assert "3 runs failed on just these windows" in bench.reason()
    bench.stage("2013-01-01")
    bench.clock.advance(200)
    assert WORK_TAG in bench.request().tags


def test_work_that_is_due_again_after_a_run_that_ended_well_waits_longer_each_time_and_says_why(bench: Bench) -> None:
    bench.stage("2013-01-01")
    bench.clock.advance(10)
    for pause in (30, 60):
        ended = bench.succeed(bench.request())
        bench.clock.advance(pause - 1)
        assert f"run {ended} of just this ended well" in bench.reason() and "reload it" in bench.reason()
        bench.clock.advance(1)
    assert bench.request()


def valid_through(bench: Bench, consumer: str, day: str) -> None:
    """As if the consumer's sensor had found out."""
    at = int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() * 1000)
    kept = {"table": "", "progress": Progress(valid_through=at).to_json(), "told": "", "at": 0}
    bench.instance.daemon_cursor_storage.set_cursor_values({f"weir/valid_through/{consumer}": json.dumps(kept)})


def waiting(*consumers: str) -> Trigger:
    return Trigger(settle_seconds=0, complete_in=consumers)


def test_a_job_that_waits_for_complete_windows_runs_those_and_says_what_the_others_wait_for(bench: Bench) -> None:
    bench.stage("2013-01-01", "2013-01-02", "2013-01-03")
    valid_through(bench, "flights", "2013-01-05")
    valid_through(bench, "weather", "2013-01-03")
    trigger = waiting("flights", "weather")
    assert bench.windows(bench.request(trigger)) == ["2013-01-01", "2013-01-02"]
    finish(bench.job, "2013-01-01", "2013-01-02")
    result = bench.tick(trigger)
    assert not result.run_requests and isinstance(result.skip_reason, dg.SkipReason)
    told = str(result.skip_reason.skip_message)
    assert "1 of 3 windows stale" in told and "1 of them are not complete yet" in told
    assert "flights is valid through 2013-01-05 00:00:00Z, weather is valid through 2013-01-03 00:00:00Z" in told


def test_a_job_that_waits_for_a_consumer_of_which_nothing_is_known_says_which_sensor_finds_out(bench: Bench) -> None:
    bench.stage("2013-01-01")
    result = bench.tick(waiting("flights"))
    assert not result.run_requests and isinstance(result.skip_reason, dg.SkipReason)
    assert "switched on, the sensor keep_flights finds out" in str(result.skip_reason.skip_message)


def test_a_complete_window_that_is_revised_is_computed_again(bench: Bench) -> None:
    bench.stage("2013-01-01")
    valid_through(bench, "flights", "2013-01-02")
    finish(bench.job)
    bench.stage("2013-01-01")
    assert bench.windows(bench.request(waiting("flights"))) == ["2013-01-01"]


@pytest.mark.parametrize(
    "changes",
    [{"windows": "none", "mode": "full"}, {"inputs": {"flights": {"table": "other"}}}],
    ids=["no windows", "no consumer"],
)
def test_a_job_cannot_wait_for_what_is_never_complete(changes: dict[str, object]) -> None:
    definition = {
        "function": "spark_jobs.hourly_routes.hourly_routes",
        "inputs": {"flights": {"consumer": "flights"}},
        "output": "out",
        "windows": "day",
        "wait_for": "complete",
    }
    with pytest.raises(ValidationError, match="wait_for: complete needs windows, and a consumer"):
        SparkJobConfig.model_validate(definition | changes)


class Followed:
    """A job that follows commits, and its sensor."""

    def __init__(self, tmp_path: Path, instance: dg.DagsterInstance) -> None:
        self.staged = fake.Staged(tmp_path / "staged" / "numbers")
        self.job = Job("out", "none.of.it", {"numbers": Input(self.staged.path)}, tmp_path / "out", "incremental", "v1")
        self.instance = instance

    def tick(self) -> dg.SensorResult:
        context = dg.build_sensor_context(instance=self.instance)
        return evaluate(context, self.job, KEY, None, Trigger(settle_seconds=0), ManualClock(2e9))

    def run(self) -> None:
        todo = plan(self.job)
        asked = request(todo)
        publish(todo, asked, fake.compute(asked, fake.rows_as_they_are))


def test_a_job_that_follows_commits_runs_for_new_ones_and_says_how_many_rows(tmp_path: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        bench = Followed(tmp_path, instance)
        bench.staged.batch(d1=[1])
        [first] = bench.tick().run_requests or []
        assert first.run_config == {}
        bench.run()
        nothing = bench.tick()
        assert isinstance(nothing.skip_reason, dg.SkipReason)
        assert nothing.skip_reason.skip_message == "unchanged: nothing new in numbers; inputs numbers v0"
        bench.staged.batch(d1=[2, 3])
        [second] = bench.tick().run_requests or []
        assert second.run_key != first.run_key
