"""What the topics' sensor shows and judges, on a Kafka in memory: topics, lag, waiting records, retention, all consumers."""

import json
from pathlib import Path

import dagster as dg
import pytest

from consumers.brokers.memory import MemoryAdmin, MemoryCluster, MemoryProducer
from consumers.brokers.options import KafkaOptions
from consumers.clock import ManualClock
from consumers.config import Consumer
from consumers.errors import BrokerError
from consumers.types import TopicPartition
from orchestration.platform_asset import KEY
from orchestration.resources.kafka import KafkaResource
from orchestration.sensors import topics
from orchestration.sensors.waiting import recall, urgent
from tests.orchestration.staged_tables import TP, consumer_in

NOW = 1_700_000_000.0
HOUR = 3600.0


class Bench:
    """A topic `orders` of one partition, a consumer that stands where `stage` said, and the sensor's memory."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance, **config: str) -> None:
        self.clock = ManualClock(NOW)
        self.cluster = MemoryCluster(self.clock)
        self.admin = MemoryAdmin(self.cluster)
        self.admin.create_topic("orders", 1, config)
        self.instance = instance
        self.consumers: list[Consumer] = [consumer_in(folder)]
        self.cursor: str | None = None
        self.reason = ""

    def send(self, count: int, at: float | None = None) -> None:
        producer = MemoryProducer(self.cluster)
        for _ in range(count):
            producer.send("orders", b"x", partition=0, timestamp_ms=int((at or self.clock.time()) * 1000))
        assert producer.flush(1.0) == 0

    def stage(self, end: int) -> None:
        """The group stands there, which counts while the table has no position."""
        assert self.admin.set_group_offsets(self.consumers[0].group, {TP: end})

    def tick(self) -> list[topics.AssetEvent]:
        kafka = KafkaResource(bootstrap_servers="x")
        result = topics.tick(self.instance, self.consumers, kafka, self.cursor, self.clock, self.ask)
        self.cursor = result.cursor
        assert isinstance(result.skip_reason, dg.SkipReason)
        self.reason = result.skip_reason.skip_message or ""
        return list(result.asset_events)

    def ask(self, options: KafkaOptions) -> MemoryAdmin:
        return self.admin

    def checks(self, name: str) -> list[dg.AssetCheckEvaluation]:
        return [e for e in self.tick() if isinstance(e, dg.AssetCheckEvaluation) and e.check_name == name]


def observations(events: list[topics.AssetEvent]) -> list[dg.AssetObservation]:
    return [event for event in events if isinstance(event, dg.AssetObservation)]


@pytest.fixture
def bench(tmp_path: Path, instance: dg.DagsterInstance) -> Bench:
    return Bench(tmp_path, instance)


def test_a_topic_is_observed_when_it_moved_and_not_otherwise(bench: Bench) -> None:
    bench.send(3)
    [event] = observations(bench.tick())
    assert event.metadata["lag"].value == 3 and event.metadata["records"].value == 3
    assert not observations(bench.tick())
    bench.send(1)
    [later] = observations(bench.tick())
    assert later.tags != event.tags


def test_a_topic_that_two_consumers_read_is_observed_once_with_the_lag_of_each(bench: Bench) -> None:
    bench.send(3)
    first = bench.consumers[0]
    latest = first.config.model_copy(update={"start": "latest"})
    bench.consumers.append(first.model_copy(update={"name": "again", "config": latest}))
    [event] = observations(bench.tick())
    numbers = {name: event.metadata[name].value for name in ("lag", "lag_orders", "lag_again")}
    assert numbers == {"lag": 3, "lag_orders": 3, "lag_again": 0}


def test_without_kafka_nothing_is_observed_and_the_table_says_why(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(topic: str) -> dict[TopicPartition, object]:
        raise BrokerError("Kafka at localhost:1 did not tell topic 'orders': timed out")

    monkeypatch.setattr(bench.admin, "watermarks", unreachable)
    [event] = bench.tick()
    assert isinstance(event, dg.AssetMaterialization) and event.asset_key == KEY
    assert "did not tell" in bench.reason and "did not tell" in str(event.metadata["problems"].value)


def test_a_topic_that_does_not_exist_hides_no_other(bench: Bench) -> None:
    bench.send(1)
    first = bench.consumers[0]
    absent = first.config.model_copy(update={"only_topic": "absent"})
    bench.consumers.insert(0, first.model_copy(update={"name": "absent", "config": absent}))
    assert len(observations(bench.tick())) == 1
    assert "absent" in bench.reason and "lag of orders 1" in bench.reason


def test_records_that_wait_are_a_warning_and_then_a_failure(bench: Bench) -> None:
    bench.send(2)
    [fine] = bench.checks("time_lag")
    bench.clock.advance(600)
    [warned] = bench.checks("time_lag")
    bench.clock.advance(3000)
    [failed] = bench.checks("time_lag")
    assert [fine.passed, warned.passed, failed.passed] == [True, False, False]
    assert (warned.severity, failed.severity) == (dg.AssetCheckSeverity.WARN, dg.AssetCheckSeverity.ERROR)
    assert (failed.metadata["time_lag_seconds"].value, failed.metadata["lag"].value) == (3600.0, 2)


def test_what_was_staged_no_longer_waits_and_what_came_later_waits_for_less(bench: Bench) -> None:
    bench.send(2)
    bench.tick()
    bench.clock.advance(500)
    bench.send(1)
    bench.tick()
    bench.stage(2)
    bench.clock.advance(100)
    bench.tick()
    assert recall(bench.instance, "orders").time_lag == 100
    bench.stage(3)
    bench.tick()
    assert recall(bench.instance, "orders").time_lag == 0


def test_records_with_old_timestamps_have_waited_only_since_they_were_seen(bench: Bench) -> None:
    bench.send(1, at=NOW - 10 * 365 * 24 * HOUR)
    bench.tick()
    bench.clock.advance(60)
    bench.tick()
    assert recall(bench.instance, "orders").time_lag == 60


def test_an_outcome_that_stays_the_same_is_told_seldom(bench: Bench) -> None:
    bench.send(1)
    bench.tick()
    told = 0
    for _ in range(120):
        bench.clock.advance(60)
        told += len(bench.checks("time_lag"))
    # Warned of once, failed since then: at most every ten minutes of two hours.
    assert told <= 13


def test_records_that_retention_is_about_to_take_are_warned_of_and_make_the_consumer_urgent(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    bench = Bench(tmp_path, instance, **{"retention.ms": str(int(10 * HOUR * 1000))})
    bench.send(5)
    [fine] = bench.checks("retention")
    assert fine.passed and not urgent(instance, "orders")
    bench.clock.advance(5.5 * HOUR)
    [warned] = bench.checks("retention")
    assert (warned.passed, warned.severity) == (False, dg.AssetCheckSeverity.WARN) and urgent(instance, "orders")
    bench.clock.advance(3 * HOUR)
    [failed] = bench.checks("retention")
    assert failed.severity == dg.AssetCheckSeverity.ERROR
    assert failed.metadata["hours_left"].value == pytest.approx(1.5, abs=0.2)
    assert failed.description is not None and "offset 0" in failed.description
    bench.stage(5)
    [saved] = bench.checks("retention")
    assert saved.passed and not urgent(instance, "orders")


def test_a_topic_that_keeps_everything_puts_nobody_in_danger(bench: Bench) -> None:
    bench.send(5, at=NOW - 10 * 365 * 24 * HOUR)
    [fine] = bench.checks("retention")
    assert fine.passed and fine.description == "the topic keeps everything"


def test_the_table_of_all_consumers_is_written_when_it_changed_and_not_otherwise(bench: Bench) -> None:
    bench.send(2)
    [first] = [event for event in bench.tick() if event.asset_key == KEY]
    assert isinstance(first, dg.AssetMaterialization)
    table = first.metadata["consumers"]
    assert isinstance(table, dg.TableMetadataValue)
    [line] = [record.data for record in table.records]
    assert (line["consumer"], line["lag"], line["state"]) == ("orders", 2, "records wait, sensor switched off")
    bench.clock.advance(60)
    assert not [event for event in bench.tick() if event.asset_key == KEY], "only the time lag has changed"
    bench.send(1)
    assert [event for event in bench.tick() if event.asset_key == KEY]


@pytest.mark.parametrize("memory", ["", "[]", "nonsense", '{"time_lag": 1}'])
def test_a_foreign_memory_is_a_fresh_start(bench: Bench, memory: str) -> None:
    bench.instance.daemon_cursor_storage.set_cursor_values({"weir/waiting/orders": memory})
    bench.cursor = memory
    bench.send(1)
    bench.tick()
    assert recall(bench.instance, "orders").time_lag == 0 and json.loads(bench.cursor)
