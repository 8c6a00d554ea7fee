from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from consumers.clock import ManualClock, SystemClock
from consumers.config import Consumer
from consumers.errors import BrokerError
from consumers.types import TopicPartition, Watermarks
from orchestration.catalog import CONSUMER_TAG
from orchestration.mirror_events import staged_key
from orchestration.resources.kafka import KafkaResource
from orchestration.sensors import facts, keep, topics
from orchestration.sensors.decision import Facts, decide, pause
from orchestration.sensors.facts import next_offsets, runs_of, total_lag
from orchestration.sensors.keep import Checked, checks_due
from tests.orchestration.staged_tables import TP, Tables, consumer_in

RUNNING = Facts(wanted=2, mode="continuous", alive=2, lag=1234, version=56, newest_run="r9")


class Cluster:
    """A cluster that answers from a dictionary."""

    def __init__(self, marks: dict[TopicPartition, Watermarks], groups: dict[TopicPartition, int] | None = None) -> None:
        self.marks = marks
        self.groups = groups or {}

    def watermarks(self, topic: str) -> dict[TopicPartition, Watermarks]:
        return self.marks

    def group_offsets(self, group: str, topic: str) -> dict[TopicPartition, int]:
        return self.groups


class NoCluster(Cluster):
    def watermarks(self, topic: str) -> dict[TopicPartition, Watermarks]:
        raise BrokerError("Kafka at localhost:1 did not tell topic 'orders': timed out")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as instance:
        yield instance


@pytest.fixture
def consumer(tmp_path: Path) -> Consumer:
    return consumer_in(tmp_path, members=2)


def use(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> KafkaResource:
    monkeypatch.setattr(keep, "admin", lambda options: cluster)
    monkeypatch.setattr(topics, "admin", lambda options: cluster)
    return KafkaResource(bootstrap_servers="localhost:1")


def run(instance: dg.DagsterInstance, status: dg.DagsterRunStatus, consumer: str = "orders") -> str:
    @dg.job(name=f"ingest_{consumer}")
    def job() -> None: ...

    return instance.create_run_for_job(job, status=status, tags={CONSUMER_TAG: consumer}).run_id


@pytest.mark.parametrize(
    ("changes", "started", "words"),
    [
        ({}, 0, "2 of 2 members alive, lag 1,234 records, committed version 56"),
        ({"alive": 1}, 1, "starting 1"),
        ({"alive": 0}, 2, "starting 2"),
        ({"alive": 3}, 0, "3 of 2"),
        ({"alive": 0, "lag": 0}, 2, "starting 2"),
        ({"alive": 0, "lag": 0, "mode": "on_lag"}, 0, "nothing to read"),
        ({"alive": 0, "lag": 1, "mode": "on_lag"}, 2, "starting 2"),
        (
            {"alive": 0, "failures": 1, "seconds_since_failure": 14.0, "last_error": "disk full"},
            0,
            "next try in 1 s. Last error: disk",
        ),
        ({"alive": 0, "failures": 1, "seconds_since_failure": 16.0}, 2, "starting 2"),
        ({"alive": 0, "failures": 3, "seconds_since_failure": 16.0}, 0, "3 runs failed in a row"),
        ({"alive": 0, "failures": 90, "seconds_since_failure": 301.0}, 2, "starting 2"),
    ],
)
def test_the_sensor_starts_what_is_missing_and_says_why_not(changes: dict[str, object], started: int, words: str) -> None:
    decision = decide("orders", replace(RUNNING, **changes))  # type: ignore[arg-type]
    assert len(decision.run_keys) == started
    assert words in decision.reason


def test_a_repeated_tick_asks_for_the_same_runs_and_a_later_one_for_others() -> None:
    dead = replace(RUNNING, alive=0)
    assert decide("orders", dead) == decide("orders", dead)
    assert not set(decide("orders", dead).run_keys) & set(decide("orders", replace(dead, newest_run="r10")).run_keys)


def test_pauses_double_up_to_five_minutes() -> None:
    assert [pause(n) for n in range(7)] == [0, 15, 30, 60, 120, 240, 300]


def test_a_partition_without_a_position_starts_at_the_groups_offset_or_the_definitions_start(consumer: Consumer) -> None:
    marks = {TP: Watermarks(5, 100), TopicPartition("orders", 1): Watermarks(0, 10)}
    offsets = next_offsets(Cluster(marks, {TP: 40}), consumer, marks)
    assert list(offsets.values()) == [40, 0] and total_lag(marks, offsets) == 70
    latest = consumer.model_copy(update={"config": consumer.config.model_copy(update={"start": "latest"})})
    assert list(next_offsets(Cluster(marks), latest, marks).values()) == [100, 10]


def test_runs_of_the_consumer_are_counted_and_those_of_others_are_not(instance: dg.DagsterInstance, consumer: Consumer) -> None:
    run(instance, dg.DagsterRunStatus.STARTED, "others")
    run(instance, dg.DagsterRunStatus.NOT_STARTED)
    newest = run(instance, dg.DagsterRunStatus.STARTED)
    seen = runs_of(instance, consumer, "ingest_orders", frozenset(), SystemClock())
    assert (seen.alive, seen.newest, seen.failures) == (2, newest, 0)


def test_failures_count_until_a_run_that_committed_or_ended_well(instance: dg.DagsterInstance, consumer: Consumer) -> None:
    run(instance, dg.DagsterRunStatus.FAILURE)
    working = run(instance, dg.DagsterRunStatus.FAILURE)
    run(instance, dg.DagsterRunStatus.FAILURE)
    run(instance, dg.DagsterRunStatus.FAILURE)
    clock = SystemClock()
    assert runs_of(instance, consumer, "ingest_orders", frozenset({working}), clock).failures == 2
    assert runs_of(instance, consumer, "ingest_orders", frozenset(), clock).failures == 4
    run(instance, dg.DagsterRunStatus.SUCCESS)
    assert runs_of(instance, consumer, "ingest_orders", frozenset(), clock).failures == 0


def test_the_last_error_is_the_innermost_one(instance: dg.DagsterInstance, consumer: Consumer) -> None:
    @dg.op
    def fails() -> None:
        raise ValueError("offsets 3 to 7 are gone")

    @dg.job(name="ingest_orders", run_tags={CONSUMER_TAG: "orders"})
    def job() -> None:
        fails()

    job.execute_in_process(instance=instance, raise_on_error=False)
    seen = runs_of(instance, consumer, "ingest_orders", frozenset(), SystemClock())
    assert seen.failures == 1 and "offsets 3 to 7 are gone" in seen.last_error


def test_a_tick_starts_members_with_their_configuration(
    instance: dg.DagsterInstance, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = use(Cluster({TP: Watermarks(0, 3)}), monkeypatch)
    result = keep.tick(instance, consumer, kafka, None, SystemClock())
    assert [r.job_name for r in result.run_requests or []] == ["ingest_orders", "ingest_orders"]
    assert {limit.name: limit.limit for limit in instance.event_log_storage.get_pool_limits()} == {"ingest_orders": 2}


def test_without_kafka_a_tick_says_so_and_still_mends_the_mirror(
    instance: dg.DagsterInstance, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = Tables(consumer)
    tables.acquire(0)
    tables.batch(0, 1, {"2024-01-01": [0]})
    cursor = Checked(tables.batch(1, 2, {"2024-01-01": [1]}).commit_id, 0).to_json()
    result = keep.tick(instance, consumer, use(NoCluster({}), monkeypatch), cursor, SystemClock())
    assert not result.run_requests and result.skip_reason is not None
    assert "Kafka cannot be reached" in str(result.skip_reason.skip_message)
    assert len(instance.fetch_materializations(staged_key("orders"), limit=9).records) == 2


def test_checks_run_once_for_a_settled_state_and_now_and_then_under_load(consumer: Consumer) -> None:
    tables = Tables(consumer)
    tables.acquire(0)
    newest = tables.batch(0, 1, {"2024-01-01": [0]})
    at = newest.committed_at_ms / 1000
    young, settled = ManualClock(at + 1), ManualClock(at + keep.SETTLED_SECONDS)
    recently = Checked("earlier", at - 5)
    assert checks_due(consumer, [newest], recently, young) == ([], recently)
    [request], checked = checks_due(consumer, [newest], recently, settled)
    assert request.job_name == "check_orders" and newest.commit_id in str(request.run_key)
    assert checks_due(consumer, [newest], checked, settled)[0] == []
    assert checks_due(consumer, [newest], Checked("earlier", at - keep.CHECK_AT_LEAST_SECONDS), young)[0]


@pytest.mark.parametrize("cursor", [None, "", "[]", "{}", "nonsense", '{"commit_id": "x"}'])
def test_a_foreign_cursor_is_a_fresh_start(cursor: str | None) -> None:
    assert Checked.parse(cursor) == Checked()


def test_topics_are_observed_when_they_moved_and_not_otherwise(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = use(cluster := Cluster({TP: Watermarks(0, 3)}), monkeypatch)
    first = topics.tick([consumer], kafka, None)
    [event] = first.asset_events
    assert isinstance(event, dg.AssetObservation)
    assert event.metadata["lag"].value == 3 and event.metadata["records"].value == 3
    assert not topics.tick([consumer], kafka, first.cursor).asset_events
    cluster.marks = {TP: Watermarks(0, 4)}
    [later] = topics.tick([consumer], kafka, first.cursor).asset_events
    assert isinstance(later, dg.AssetObservation) and later.tags != event.tags


def test_a_topic_that_two_consumers_read_is_observed_once_with_the_lag_of_each(
    consumer: Consumer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = use(Cluster({TP: Watermarks(0, 3)}), monkeypatch)
    other = consumer.model_copy(update={"name": "again", "config": consumer.config.model_copy(update={"start": "latest"})})
    [event] = topics.tick([consumer, other], kafka, None).asset_events
    numbers = {name: event.metadata[name].value for name in ("lag", "lag_orders", "lag_again")}
    assert numbers == {"lag": 3, "lag_orders": 3, "lag_again": 0}


def test_without_kafka_topics_are_not_observed(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    result = topics.tick([consumer], use(NoCluster({}), monkeypatch), '{"orders": "x"}')
    assert not result.asset_events and result.cursor == '{"orders": "x"}'
    assert "did not tell" in str(result.skip_reason)


def test_an_unreachable_cluster_is_given_up_within_seconds(consumer: Consumer) -> None:
    clock = SystemClock()
    started = clock.monotonic()
    with pytest.raises(BrokerError):
        facts.admin(KafkaResource(bootstrap_servers="127.0.0.1:1").connection()).watermarks("orders")
    assert clock.monotonic() - started < 12
