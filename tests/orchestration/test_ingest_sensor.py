from collections.abc import Iterable
from pathlib import Path

import dagster as dg
import pytest

from consumers.clock import ManualClock, SystemClock
from consumers.config import Consumer
from consumers.errors import BrokerError
from consumers.types import TopicPartition, Watermarks
from orchestration.mirror_events import staged_key
from orchestration.resources.kafka import KafkaResource
from orchestration.sensors import facts, keep
from orchestration.sensors.facts import next_offsets, total_lag
from orchestration.sensors.keep import Memory, Told, checks_due
from tests.orchestration.staged_tables import TP, Tables, consumer_in
from tests.orchestration.stored import on_disk  # noqa: F401 - it is the fixture `instance`


class Cluster:
    """A cluster that answers from a dictionary."""

    def __init__(self, marks: dict[TopicPartition, Watermarks], groups: dict[TopicPartition, int] | None = None) -> None:
        self.marks = marks
        self.groups = groups or {}
        self.first_young: dict[TopicPartition, int] = {}

    def topics(self) -> list[str]:
        return sorted({tp.topic for tp in self.marks})

    def watermarks(self, topic: str) -> dict[TopicPartition, Watermarks]:
        return self.marks

    def stable_watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        return {tp: self.marks[tp] for tp in partitions}

    def offsets_at(self, topic: str, timestamp_ms: int) -> dict[TopicPartition, int]:
        return self.first_young

    def group_offsets(self, group: str, topic: str) -> dict[TopicPartition, int]:
        return self.groups


class NoCluster(Cluster):
    def watermarks(self, topic: str) -> dict[TopicPartition, Watermarks]:
        raise BrokerError("Kafka at localhost:1 did not tell topic 'orders': timed out")


def use(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> KafkaResource:
    monkeypatch.setattr(keep, "admin", lambda options: cluster)
    return KafkaResource(bootstrap_servers="localhost:1")


def test_a_partition_without_a_position_starts_at_the_groups_offset_or_the_definitions_start(consumer: Consumer) -> None:
    marks = {TP: Watermarks(5, 100), TopicPartition("orders", 1): Watermarks(0, 10)}
    offsets = next_offsets(Cluster(marks, {TP: 40}), consumer, marks)
    assert list(offsets.values()) == [40, 0] and total_lag(marks, offsets) == 70
    latest = consumer.model_copy(update={"config": consumer.config.model_copy(update={"start": "latest"})})
    assert list(next_offsets(Cluster(marks), latest, marks).values()) == [100, 10]


def test_a_tick_starts_members_with_their_configuration(
    instance: dg.DagsterInstance, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = use(Cluster({TP: Watermarks(0, 3)}), monkeypatch)
    result = keep.tick(instance, consumer, kafka, None, SystemClock())
    assert [r.job_name for r in result.run_requests or []] == ["ingest_orders", "ingest_orders"]
    assert {limit.name: limit.limit for limit in instance.event_log_storage.get_pool_limits()} == {"ingest_orders": 4}


def test_without_kafka_a_tick_says_so_and_still_mends_the_mirror(
    instance: dg.DagsterInstance, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = Tables(consumer)
    tables.acquire(0)
    tables.batch(0, 1, {"2024-01-01": [0]})
    cursor = Memory(tables.batch(1, 2, {"2024-01-01": [1]}).commit_id, at=SystemClock().time()).to_json()
    result = keep.tick(instance, consumer, use(NoCluster({}), monkeypatch), cursor, SystemClock())
    assert not result.run_requests and result.skip_reason is not None
    assert "Kafka cannot be reached" in str(result.skip_reason.skip_message)
    assert len(instance.fetch_materializations(staged_key("orders"), limit=9).records) == 1


def test_runs_go_first_while_retention_is_about_to_take_what_waits(
    instance: dg.DagsterInstance, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = use(Cluster({TP: Watermarks(0, 3)}), monkeypatch)
    said: list[str] = []
    calm = keep.tick(instance, consumer, kafka, None, SystemClock())
    monkeypatch.setattr(keep, "urgent", lambda instance, name: name == "orders")
    hurried = keep.tick(instance, consumer, kafka, None, SystemClock(), say=said.append)
    assert [r.tags.get("dagster/priority") for r in [*(calm.run_requests or []), *(hurried.run_requests or [])]] == [
        None,
        None,
        "10",
        "10",
    ]
    assert "they go first, because the topic's retention is about to take" in said[0]


def test_a_consumer_on_lag_starts_when_enough_waits_or_something_waits_for_too_long(
    instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lazy = consumer_in(tmp_path, mode="on_lag", on_lag={"records": 100, "seconds": 60.0})
    cluster = Cluster({TP: Watermarks(0, 3)})
    kafka = use(cluster, monkeypatch)
    cluster.first_young = {TP: 0}
    waits = keep.tick(instance, lazy, kafka, None, SystemClock())
    assert not waits.run_requests and "starting from 100 records or 60 s of waiting on" in str(waits.skip_reason)
    cluster.first_young = {TP: 1}
    [request] = keep.tick(instance, lazy, kafka, None, SystemClock()).run_requests or []
    assert request.run_config["ops"]["stage_orders"]["config"]["until_caught_up"] is True


def test_a_scheduled_consumer_remembers_its_plan_from_tick_to_tick(
    instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nightly = consumer_in(tmp_path, mode="scheduled", schedule="0 3 * * *")
    kafka = use(Cluster({TP: Watermarks(0, 3)}), monkeypatch)
    clock = ManualClock(1_700_000_000.0)
    first = keep.tick(instance, nightly, kafka, None, clock)
    assert "waiting for 2023-11-15 03:00 UTC" in str(first.skip_reason)
    clock.advance(86_400)
    assert len(keep.tick(instance, nightly, kafka, first.cursor, clock).run_requests or []) == 1


def test_checks_run_once_for_a_settled_state_and_now_and_then_under_load(consumer: Consumer) -> None:
    tables = Tables(consumer)
    tables.acquire(0)
    newest = tables.batch(0, 1, {"2024-01-01": [0]})
    at = newest.committed_at_ms / 1000
    young, settled = ManualClock(at + 1), ManualClock(at + keep.SETTLED_SECONDS)
    recently = Memory("earlier", at=at - 5)
    assert checks_due(consumer, [newest], Told(), recently, young) == ([], recently)
    [request], memory = checks_due(consumer, [newest], Told(), recently, settled)
    assert request.job_name == "check_orders" and newest.commit_id in str(request.run_key)
    assert checks_due(consumer, [newest], Told(), memory, settled)[0] == []
    assert checks_due(consumer, [newest], Told(), Memory("earlier", at=at - keep.CHECK_AT_LEAST_SECONDS), young)[0]


def test_checks_run_again_when_later_events_have_settled_since_dagster_counts_them_for_earlier_ones_only(
    consumer: Consumer,
) -> None:
    tables = Tables(consumer)
    tables.acquire(0)
    newest = tables.batch(0, 1, {"2024-01-01": [0]})
    clock = ManualClock(newest.committed_at_ms / 1000 + keep.SETTLED_SECONDS)
    [first], memory = checks_due(consumer, [newest], Told(7, clock.time()), Memory(), clock)
    told = Told(8, clock.time() + 1)
    clock.advance(keep.TOLD_SECONDS)
    assert checks_due(consumer, [newest], told, memory, clock) == ([], memory)
    clock.advance(1)
    [again], memory = checks_due(consumer, [newest], told, memory, clock)
    assert again.run_key != first.run_key
    assert checks_due(consumer, [newest], told, memory, clock)[0] == []


@pytest.mark.parametrize("cursor", [None, "", "[]", "{}", "nonsense", '{"commit_id": "x"}'])
def test_a_foreign_cursor_is_a_fresh_start(cursor: str | None) -> None:
    assert Memory.parse(cursor) == Memory()


def test_an_unreachable_cluster_is_given_up_within_seconds(consumer: Consumer) -> None:
    clock = SystemClock()
    started = clock.monotonic()
    with pytest.raises(BrokerError):
        facts.admin(KafkaResource(bootstrap_servers="127.0.0.1:1").connection()).watermarks("orders")
    assert clock.monotonic() - started < 12
