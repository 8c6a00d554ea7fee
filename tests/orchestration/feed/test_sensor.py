"""When the sensor asks for a run that publishes, and what it says when it does not."""

from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterRunStatus
from deltalake import DeltaTable

from consumers.clock import ManualClock, SystemClock
from orchestration.feed.asset import feed_definitions
from orchestration.feed.config import Feed
from orchestration.feed.sensor import WORK_TAG, evaluate
from orchestration.resources.kafka import KafkaResource
from tests.orchestration.feed.tables import append, feed

KEY = dg.AssetKey(["topic", "summary"])
JOB = "publish_t_job"


class Bench:
    """A table `t`, and a clock that stands where Dagster's does."""

    def __init__(self, path: Path, instance: dg.DagsterInstance) -> None:
        self.path = path
        self.instance = instance
        self.clock = ManualClock(SystemClock().time())

    def tick(self, how: Feed | None = None) -> dg.SensorResult:
        return evaluate(self.instance, self.path, how or feed(), KEY, JOB, self.clock)

    def request(self, how: Feed | None = None) -> dg.RunRequest:
        (request,) = self.tick(how).run_requests or []
        return request

    def reason(self) -> str:
        result = self.tick()
        assert not result.run_requests and isinstance(result.skip_reason, dg.SkipReason)
        return result.skip_reason.skip_message or ""

    def sent(self, version: int) -> None:
        """As a run reports it."""
        group = feed().group("t", str(DeltaTable(str(self.path)).metadata().id))
        metadata = {"version": version, "group": group, "topic_id": "x"}
        self.instance.report_runless_asset_event(dg.AssetMaterialization(KEY, metadata=metadata))

    def run(self, status: DagsterRunStatus, request: dg.RunRequest) -> str:
        run = self.instance.create_run_for_job(job_def=nothing_job, tags=request.tags, status=status)
        return run.run_id


@dg.job(name=JOB)
def nothing_job() -> None:
    pass


@pytest.fixture
def bench(tmp_path: Path, instance: dg.DagsterInstance) -> Bench:
    """At version 0."""
    append(tmp_path / "t", ("2013-01-01", "UA", 1))
    return Bench(tmp_path / "t", instance)


def test_without_a_table_there_is_nothing_to_send(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    assert Bench(tmp_path / "none", instance).reason() == "none has no table yet"


def test_a_version_that_was_not_sent_gets_a_run_and_one_that_was_gets_none(bench: Bench) -> None:
    assert bench.request().tags[WORK_TAG].endswith("@0")
    bench.sent(0)
    assert bench.reason().startswith("version 0 of t was sent to summary ")
    append(bench.path, ("2013-01-01", "AA", 1))
    assert bench.request().tags[WORK_TAG].endswith("@1")


def test_other_keys_get_a_run_for_the_same_version(bench: Bench) -> None:
    bench.sent(0)
    assert bench.request(feed(keys=["carrier"]))


def test_a_quiet_table_gets_a_run_a_day_so_that_kafka_does_not_forget(bench: Bench) -> None:
    bench.sent(0)
    bench.clock.advance(86_500)
    assert bench.request()


def test_while_a_run_is_not_finished_there_is_no_other(bench: Bench) -> None:
    run = bench.run(DagsterRunStatus.STARTED, bench.request())
    assert bench.reason() == f"t is at version 0; run {run} is not finished"


def test_a_failed_run_is_tried_again_later_and_as_another_run(bench: Bench) -> None:
    first = bench.request()
    run = bench.run(DagsterRunStatus.NOT_STARTED, first)
    bench.instance.report_run_failed(bench.instance.get_run_by_id(run))  # type: ignore[arg-type]
    assert f"version 0 of t is not sent; run {run} failed, trying again in " in bench.reason()
    bench.clock.advance(31)
    assert bench.request().run_key != first.run_key


def test_the_asset_stands_downstream_of_the_table(tmp_path: Path) -> None:
    key = dg.AssetKey(["topic", "carriers.by-day"])
    definitions = feed_definitions(tmp_path / "t", feed("carriers.by-day"), owners=["team:data"])
    whole = dg.Definitions.merge(definitions, dg.Definitions(resources={"kafka": KafkaResource()}))
    spec = whole.resolve_assets_def(key).specs_by_key[key]
    assert (spec.kinds, spec.owners) == ({"kafka"}, ["team:data"])
    assert [dep.asset_key for dep in spec.deps] == [dg.AssetKey(["t"])]
    assert whole.resolve_sensor_def("publish_t_sensor").job_name == JOB
