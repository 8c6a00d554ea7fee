"""The two brokers that have to pass the contract, and what its tests do with either."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Protocol
from uuid import uuid4

from consumers.brokers.admin import KafkaAdmin
from consumers.brokers.kafka import KafkaAssignment, KafkaGroupMember
from consumers.brokers.memory import MemoryAdmin, MemoryCluster, MemoryConsumer, MemoryProducer, MemoryTransactionalProducer
from consumers.brokers.options import KafkaOptions
from consumers.brokers.producer import KafkaProducer
from consumers.brokers.protocol import BrokerAdmin, BrokerConsumer, BrokerProducer, Delivery, Partitions, TransactionalProducer
from consumers.brokers.transactions import KafkaTransactionalProducer
from consumers.clock import ManualClock, SystemClock
from consumers.membership import GroupSettings
from consumers.types import OffsetRange, Positions, RecordBatch, TopicPartition, join_ranges

PATIENCE = 30.0
POLL_SECONDS = 0.05


class Backend(Protocol):
    """A cluster, and clients of it. `writer` is a producer for everybody, since a real one takes a while to begin."""

    admin: BrokerAdmin
    writer: BrokerProducer

    def member(self, topic: str, group: str, settings: GroupSettings) -> BrokerConsumer: ...

    def reader(self, topic: str, partitions: Iterable[int] | None = None) -> BrokerConsumer: ...

    def producer(self) -> BrokerProducer: ...

    def transactional(self, transactional_id: str) -> TransactionalProducer: ...

    def close(self) -> None: ...


class Memory:
    """The in-memory broker. Nothing in it waits for time to pass."""

    def __init__(self) -> None:
        self._cluster = MemoryCluster(ManualClock(1_700_000_000.0))
        self.admin: BrokerAdmin = MemoryAdmin(self._cluster)
        self.writer = self.producer()

    def member(self, topic: str, group: str, settings: GroupSettings) -> BrokerConsumer:
        return MemoryConsumer(self._cluster, topic, group, settings=settings)

    def reader(self, topic: str, partitions: Iterable[int] | None = None) -> BrokerConsumer:
        return MemoryConsumer(self._cluster, topic, partitions=partitions)

    def producer(self) -> BrokerProducer:
        return MemoryProducer(self._cluster)

    def transactional(self, transactional_id: str) -> TransactionalProducer:
        return MemoryTransactionalProducer(self._cluster, transactional_id)

    def close(self) -> None:
        pass


class Kafka:
    """A real one, with everything that is periodic made quick."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._options = KafkaOptions(bootstrap_servers, {"fetch.wait.max.ms": "50"})
        self._writes = KafkaOptions(bootstrap_servers, {"linger.ms": "0"})
        self.admin: BrokerAdmin = KafkaAdmin(KafkaOptions(bootstrap_servers), timeout=10.0)
        self.writer = self.producer()

    def member(self, topic: str, group: str, settings: GroupSettings) -> BrokerConsumer:
        return KafkaGroupMember(self._options, topic, group, "member", settings=settings)

    def reader(self, topic: str, partitions: Iterable[int] | None = None) -> BrokerConsumer:
        named = None if partitions is None else list(partitions)
        return KafkaAssignment(self._options, topic, "reader", named, refresh_seconds=0.2)

    def producer(self) -> BrokerProducer:
        return KafkaProducer(self._writes)

    def transactional(self, transactional_id: str) -> TransactionalProducer:
        return KafkaTransactionalProducer(self._writes, transactional_id)

    def close(self) -> None:
        self.writer.close()
        self.admin.close()


class Follower:
    """A consumer with a listener that remembers: what it was told, what it holds, and what it has read."""

    def __init__(self, consumer: BrokerConsumer, name: str = "", told: list[tuple[str, str, Partitions]] | None = None) -> None:
        self.consumer = consumer
        self.name = name
        self.told = [] if told is None else told
        self.held: Partitions = frozenset()
        self.answered = False
        self.rows: list[dict[str, Any]] = []
        self.ranges: dict[TopicPartition, OffsetRange] = {}
        self.starts: Callable[[Partitions], Positions] = self._lows
        consumer.subscribe(self)

    def assigned(self, partitions: Partitions) -> Positions:
        self.told.append((self.name, "assigned", partitions))
        self.answered = True
        self.held |= partitions
        return self.starts(partitions)

    def revoked(self, partitions: Partitions) -> None:
        self._gone("revoked", partitions)

    def lost(self, partitions: Partitions) -> None:
        self._gone("lost", partitions)

    def turn(self) -> RecordBatch | None:
        """Poll once. Raises ValueError when a range does not follow the one before it."""
        batch = self.consumer.poll(1_000, POLL_SECONDS)
        if batch is not None:
            self.ranges = join_ranges(self.ranges, batch.ranges)
            self.rows += batch.records.to_pylist()
        return batch

    def seek(self, positions: Positions) -> None:
        for tp in positions:
            self.ranges.pop(tp, None)
        self.consumer.seek(positions)

    def end(self, partition: int = 0) -> int:
        """The next offset of a partition, as its ranges say; -1 before the first."""
        return next((r.end for tp, r in self.ranges.items() if tp.partition == partition), -1)

    def values(self) -> list[bytes | None]:
        return [row["value"] for row in self.rows]

    def _gone(self, how: str, partitions: Partitions) -> None:
        self.told.append((self.name, how, partitions))
        self.held -= partitions
        self.ranges = {tp: r for tp, r in self.ranges.items() if tp not in partitions}

    def _lows(self, partitions: Partitions) -> Positions:
        return {tp: marks.low for tp, marks in self.consumer.watermarks(partitions).items()}


def until(wanted: Callable[[], bool], *followers: Follower) -> None:
    """Poll everybody in turn until it is so."""
    clock = SystemClock()
    deadline = clock.monotonic() + PATIENCE
    while not wanted():
        assert clock.monotonic() < deadline, "it did not come to that: " + "; ".join(f"{f.name} {f.told}" for f in followers)
        for follower in followers:
            follower.turn()


@contextmanager
def following(*consumers: BrokerConsumer) -> Iterator[Any]:
    """Followers of consumers, closed at the end. One alone, not a list, for one consumer."""
    followers = [Follower(consumer, f"member {i}") for i, consumer in enumerate(consumers)]
    try:
        yield followers[0] if len(followers) == 1 else followers
    finally:
        for follower in followers:
            follower.consumer.close()


def quick(protocol: str = "cooperative", **more: Any) -> GroupSettings:
    """A member that notices soon."""
    times = {} if protocol == "consumer" else {"session_seconds": 6.0, "heartbeat_seconds": 0.1}
    return GroupSettings.model_validate({"protocol": protocol, "refresh_seconds": 0.2, **times, **more})


_numbers = count(1)


def name(what: str = "t") -> str:
    """A name that nobody has used, for a topic, a group or a transactional id."""
    return f"{what}-{next(_numbers)}-{uuid4().hex[:8]}"


def new_topic(backend: Backend, partitions: int = 1, values: Iterable[bytes] = ()) -> str:
    """A topic, with some records in its first partition."""
    topic = name()
    backend.admin.create_topic(topic, partitions)
    fill(backend, topic, values)
    return topic


def fill(backend: Backend, topic: str, values: Iterable[bytes], partition: int = 0) -> None:
    """Write, and wait for it."""
    failed = list[Delivery]()
    for value in values:
        backend.writer.send(topic, value, partition=partition, on_delivery=lambda d: failed.append(d) if d.error else None)
    assert backend.writer.flush(PATIENCE) == 0
    assert not failed


def numbered(first: int, end: int) -> list[bytes]:
    return [b"%d" % i for i in range(first, end)]
