"""What these tests have in common: a cluster with a manual clock, and its clients."""

from collections.abc import Iterable
from typing import Any

from consumers.brokers.memory import MemoryAdmin, MemoryCluster, MemoryConsumer, MemoryProducer
from consumers.clock import ManualClock
from consumers.membership import GroupSettings
from consumers.types import TopicPartition
from tests.contracts.brokers.backends import Follower

TP = TopicPartition("t", 0)
NOW = 1_700_000_000.0


class Parts:
    """A cluster with the topic `t`."""

    def __init__(self, partitions: int = 1, **config: str) -> None:
        self.clock = ManualClock(NOW)
        self.cluster = MemoryCluster(self.clock)
        self.faults = self.cluster.faults
        self.admin = MemoryAdmin(self.cluster)
        self.admin.create_topic("t", partitions, {key.replace("_", "."): value for key, value in config.items()})
        self.producer = MemoryProducer(self.cluster)

    def write(self, *values: bytes | None, key: bytes | None = None, at: float | None = None) -> None:
        """Into the first partition; `at` is in seconds."""
        for value in values:
            self.producer.send("t", value, key, partition=0, timestamp_ms=None if at is None else int(at * 1000))
        self.producer.flush(10)

    def member(self, client_id: str = "m", **settings: Any) -> Follower:
        consumer = MemoryConsumer(self.cluster, "t", "g", client_id, settings=GroupSettings.model_validate(settings))
        return Follower(consumer, client_id)

    def reader(self, partitions: Iterable[int] | None = None, **more: Any) -> Follower:
        return Follower(MemoryConsumer(self.cluster, "t", partitions=partitions, **more))


def turns(*followers: Follower, rounds: int = 6) -> None:
    """Everybody polls in turn, often enough for every rebalance to end."""
    for _ in range(rounds):
        for follower in followers:
            follower.turn()


def hows(follower: Follower) -> list[str]:
    """What a follower was told, without the empty assignments."""
    return [how for _, how, partitions in follower.told if partitions]
