"""Staged windows built again from a real Kafka, in runs of Dagster: beside ingestion, from before the start, after retention."""

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable

from consumers.brokers.admin import KafkaAdmin
from consumers.brokers.options import KafkaOptions
from consumers.brokers.producer import KafkaProducer
from consumers.config import Consumer, ConsumerConfig
from consumers.processing.ingest import ingest
from consumers.staging.local import local_dataset
from consumers.types import TopicPartition
from orchestration.components.consumer_assets import consumer_assets
from orchestration.mirror_events import staged_key
from orchestration.resources.kafka import KafkaResource
from tests.faults.ledger import new_topic

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

DAY_MS = 1_356_998_400_000  # 2013-01-01
DAY = 86_400_000
PARTITIONS = 3
EACH = 400
WIDER = {"id": "long", "twice": {"type": "long", "path": "id"}}


class Shop:
    """A topic of two days in three partitions, records of the days mixed, and the consumer `shop` of it."""

    def __init__(self, kafka: str, folder: Path) -> None:
        self.options = KafkaOptions(kafka)
        self.topic = new_topic(kafka, PARTITIONS)
        self.folder = folder
        self.instance = dg.DagsterInstance.ephemeral()
        self.consumer = self.defined()

    def defined(self, **changes: Any) -> Consumer:
        """The consumer with another definition."""
        given = {"topic": self.topic, "schema": {"id": "long"}, "window": {"every": "day", "first": "2013-01-01"}} | changes
        config = ConsumerConfig.model_validate({"group": f"shop-{self.topic}", **given})
        self.consumer = Consumer(name="shop", config=config, staged=self.folder / "staged", dead_letters=self.folder / "dead")
        return self.consumer

    def produce(self, first: int, count: int, days: int = 2) -> None:
        """Records `first` to `first + count` of each partition, day after day in turn."""
        producer = KafkaProducer(self.options)
        for n in range(first, first + count):
            for partition in range(PARTITIONS):
                value = json.dumps({"id": n}).encode()
                producer.send(self.topic, value, partition=partition, timestamp_ms=DAY_MS + n % days * DAY)
        producer.close()

    def stage(self, stop: threading.Event | None = None) -> None:
        """Ingest: until caught up, or until told."""
        ingest(self.consumer, self.options, member="m", stop=stop or threading.Event(), until_caught_up=stop is None)

    def backfill(self, first: str, last: str, **config: Any) -> dg.ExecuteInProcessResult:
        """A run as the backfill dialog launches it."""
        [asset] = [each for each in consumer_assets(self.consumer) if isinstance(each, dg.AssetsDefinition)]
        return dg.materialize(
            [asset],
            instance=self.instance,
            resources={"kafka": KafkaResource(bootstrap_servers=self.options.bootstrap_servers)},
            run_config={"ops": {"rebuild_shop": {"config": config}}},
            tags={"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last},
            raise_on_error=False,
        )

    def rows(self) -> list[dict[str, Any]]:
        """All staged rows."""
        rows: list[dict[str, Any]] = local_dataset(DeltaTable(self.consumer.staged)).to_table().to_pylist()
        return rows


@pytest.fixture
def shop(kafka: str, tmp_path: Path) -> Shop:
    return Shop(kafka, tmp_path)


def test_a_backfill_beside_a_member_leaves_every_record_once(shop: Shop) -> None:
    shop.produce(0, EACH)
    shop.stage()
    shop.defined(schema=WIDER, batch={"max_latency_seconds": 0.2})
    stop = threading.Event()
    member = threading.Thread(target=shop.stage, args=(stop,))
    member.start()
    try:
        for n in range(3):
            shop.produce(EACH * (n + 1), EACH)
            assert shop.backfill("2013-01-01", "2013-01-03").success
    finally:
        stop.set()
        member.join(60)
    shop.stage()
    rows = shop.rows()
    everything = Counter((p, offset) for p in range(PARTITIONS) for offset in range(4 * EACH))
    assert Counter((row["_partition"], row["_offset"]) for row in rows) == everything
    assert {row["twice"] == row["id"] == row["_offset"] for row in rows} == {True}
    events = shop.instance.fetch_materializations(staged_key("shop"), limit=100).records
    assert {"2013-01-01", "2013-01-02", "2013-01-03"} == {event.partition_key for event in events}


def test_what_is_older_than_the_start_is_loaded_and_retention_is_not_passed_over(shop: Shop) -> None:
    shop.produce(0, EACH, days=1)
    shop.defined(start="2013-01-02T00:00:00Z")
    shop.produce(EACH, EACH)
    shop.stage()
    started = len(shop.rows())
    assert started == PARTITIONS * (EACH - 1)
    assert shop.backfill("2013-01-01", "2013-01-02").success
    assert len(shop.rows()) == 2 * PARTITIONS * EACH
    KafkaAdmin(shop.options).delete_records({TopicPartition(shop.topic, 0): 10})
    shop.defined(schema=WIDER)
    assert not shop.backfill("2013-01-01", "2013-01-02").success
    assert [row["_window"] for row in shop.rows() if row["twice"] is None].count("2013-01-01") > 0
    assert shop.backfill("2013-01-01", "2013-01-01", partial=True).success
    left = [(row["_partition"], row["_offset"]) for row in shop.rows() if row["twice"] is None]
    assert sorted(left) == [(0, offset) for offset in range(10)]
