"""A topic in memory, a consumer of it, and its tables: what moving and repairing is tried on."""

import threading
from pathlib import Path
from random import Random
from typing import Any

from consumers.brokers.memory import MemoryAdmin, MemoryCluster, MemoryConsumer, MemoryProducer
from consumers.clock import ManualClock
from consumers.processing.context import Surroundings
from consumers.processing.ingest import stage_from
from consumers.processing.move import Moved, Mover
from consumers.processing.processor import Limits
from consumers.staging.positions import committed_positions
from consumers.types import TopicPartition
from tests.consumers.parts import consumer, offsets

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOW = 1_700_000_000
BAD = {3, 7}
"""Offsets of partition 0 whose records cannot become rows."""


class World:
    """A topic of two partitions with ten records each, a second apart, and a consumer of it."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock(float(NOW))
        self.cluster = MemoryCluster(self.clock)
        self.admin = MemoryAdmin(self.cluster)
        self.admin.create_topic("t", 2)
        self.parts = consumer(folder, batch={"max_latency_seconds": 1})
        for partition in (0, 1):
            self.produce(partition, 0, 10)

    def produce(self, partition: int, first: int, end: int) -> None:
        producer = MemoryProducer(self.cluster)
        for i in range(first, end):
            value = b"bad" if partition == 0 and i in BAD else b'{"a":%d}' % i
            producer.send("t", value, partition=partition, timestamp_ms=(NOW + i) * 1000)
        producer.flush(1)

    def member(self) -> MemoryConsumer:
        return MemoryConsumer(self.cluster, "t", self.parts.group)

    def catch_up(self) -> None:
        """One member, from start to caught up."""
        around = Surroundings(self.clock, random=Random(1))
        limits = Limits(until_caught_up=True)
        stage_from(self.member(), self.parts, "member", threading.Event(), limits, lambda commit: None, around)

    def mover(self) -> Mover:
        return Mover(self.parts, self.admin, self.clock, Random(1))

    def move(self, target: Any, partitions: Any = ()) -> Moved:
        return self.mover().move(target, partitions, by="ann", why="test", member="run")

    @property
    def positions(self) -> dict[TopicPartition, int]:
        return committed_positions(self.parts.staged, "c", "t", 2)

    @property
    def places(self) -> dict[tuple[str, int, int], int]:
        """How often each offset is anywhere, dead letters past the positions left out, which are tentative."""
        final = {
            at: n for at, n in offsets(self.parts.dead_letters).items() if at[2] < self.positions[TopicPartition("t", at[1])]
        }
        staged = offsets(self.parts.staged)
        return {at: staged[at] + final.get(at, 0) for at in staged.keys() | final.keys()}

    def once(self, zero: int = 10, one: int = 10) -> dict[tuple[str, int, int], int]:
        return {("t-1", p, o): 1 for p, end in ((0, zero), (1, one)) for o in range(end)}
