"""A topic with two days of records in the in-memory broker, a consumer that stages it, and backfills of its windows."""

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from consumers.brokers.memory import MemoryCluster, MemoryConsumer, MemoryProducer
from consumers.clock import ManualClock
from consumers.config import Consumer
from consumers.processing.backfill.window import Backfill, Choices, Rebuilt
from consumers.processing.context import Surroundings
from consumers.processing.ingest import stage_from
from consumers.processing.processor import Limits
from consumers.staging.local import local_dataset
from tests.consumers.parts import DAY_MS, config

DAY = 86_400_000
FIRST, SECOND, THIRD = "2013-01-01", "2013-01-02", "2013-01-03"
NOW = DAY_MS / 1000 + 10 * 86_400


class Topic:
    """Topic `t` of `partitions`, and the consumer `c` of it."""

    def __init__(self, folder: Path, partitions: int = 1, **changes: Any) -> None:
        self.folder = folder
        self.clock = ManualClock(NOW)
        self.cluster = MemoryCluster(self.clock)
        self.partitions = partitions
        self.cluster.create_topic("t", partitions)
        self.consumer = self.defined(**changes)

    def defined(self, **changes: Any) -> Consumer:
        """The consumer with another definition."""
        self.consumer = Consumer(
            name="c", config=config(**changes), staged=self.folder / "staged", dead_letters=self.folder / "dead"
        )
        return self.consumer

    def produce(self, *values: Any, day: int = 0, partition: int = 0) -> None:
        """Write records of a day; a number n is the record {"a": n}, None a tombstone."""
        producer = MemoryProducer(self.cluster)
        for value in values:
            text = json.dumps({"a": value}).encode() if isinstance(value, int) else value
            producer.send("t", text, b"k", timestamp_ms=DAY_MS + day * DAY, partition=partition)
        producer.close()

    def stage(self) -> None:
        """Ingest until nothing is left."""
        stage_from(
            MemoryConsumer(self.cluster, "t", self.consumer.group),
            self.consumer,
            "m",
            threading.Event(),
            Limits(until_caught_up=True),
            lambda commit: None,
            Surroundings(clock=self.clock),
        )

    def rebuild(self, window: str, **choices: Any) -> Rebuilt:
        """Build a window again."""
        backfill = Backfill(self.consumer, lambda: MemoryConsumer(self.cluster, "t"), self.clock, Choices(**choices))
        try:
            return backfill.window(window)
        finally:
            backfill.close()

    def rows(self, window: str, *columns: str) -> list[Any]:
        """Sorted values of one column (default `_offset`), or tuples of several, of a window's rows."""
        names = columns or ("_offset",)
        table = local_dataset(DeltaTable(self.consumer.staged)).to_table().to_pylist()
        found = [tuple(row[name] for name in names) for row in table if row["_window"] == window]
        return sorted((each[0] for each in found) if len(names) == 1 else found)

    def places(self) -> Counter[tuple[int, int]]:
        """How often each (partition, offset) is a row."""
        table = local_dataset(DeltaTable(self.consumer.staged)).to_table(columns=["_partition", "_offset"]).to_pylist()
        return Counter((row["_partition"], row["_offset"]) for row in table)

    def dead(self) -> list[tuple[int, bool]]:
        """Offset of each dead letter, and whether it is resolved."""
        table = local_dataset(DeltaTable(self.consumer.dead_letters)).to_table().to_pylist()
        return sorted((row["_offset"], row["_resolved_at"] is not None) for row in table)

    @property
    def version(self) -> int:
        return DeltaTable(self.consumer.staged).version()
