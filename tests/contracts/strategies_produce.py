"""The strategies that produce, on the in-memory cluster, for the conformance suite."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from consumers.brokers.memory import MemoryCluster, MemoryConsumer, MemoryProducer, MemoryTransactionalProducer
from consumers.brokers.protocol import Partitions
from consumers.clock import Clock
from consumers.processing.strategies.buffer import UpTo
from consumers.processing.strategies.map import Map
from consumers.processing.strategies.produce import Produce
from consumers.processing.strategies.produce_in_transaction import ProduceInTransaction
from consumers.processing.strategies.protocol import Commit, Strategy
from consumers.types import Positions
from tests.contracts.strategies import PARTITIONS, TOPIC, Ended, Last, Middle, Opened, Room, Row

OUT = "out"


def cluster_with_topics(clock: Clock) -> MemoryCluster:
    """A cluster with the source's topic and one to produce to."""
    cluster = MemoryCluster(clock)
    cluster.create_topic(TOPIC, len(PARTITIONS))
    cluster.create_topic(OUT, len(PARTITIONS))
    return cluster


def as_table(payload: pa.RecordBatch) -> pa.Table:
    """As a table of two chunks."""
    middle = payload.num_rows // 2
    return pa.Table.from_batches([payload.slice(0, middle), payload.slice(middle)])


def keyed(payload: pa.RecordBatch) -> pa.RecordBatch:
    """The rows' origin as their keys."""
    keys = [b"%d/%d" % row for row in zip(payload["partition"].to_pylist(), payload["offset"].to_pylist(), strict=True)]
    return pa.RecordBatch.from_arrays([payload["value"], pa.array(keys, pa.binary())], ["value", "key"])


@contextmanager
def produce(room: Room, after: Strategy[Any]) -> Opened:
    yield Produce(MemoryProducer(cluster_with_topics(room.around.clock)), OUT, after, max_records=20, around=room.around)


@contextmanager
def produce_tables(room: Room, after: Strategy[Any]) -> Opened:
    inner = Produce(MemoryProducer(cluster_with_topics(room.around.clock)), OUT, after, around=room.around)
    yield Map(as_table, inner, around=room.around)


MIDDLES = [Middle("Produce", produce), Middle("Map-Produce-tables", produce_tables)]


class Member:
    """A member of the group whose offsets travel in transactions."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.consumer = MemoryConsumer(cluster, TOPIC, "group")
        self.consumer.subscribe(self)
        self.consumer.poll(1, 0)

    def assigned(self, partitions: Partitions) -> Positions:
        return dict.fromkeys(partitions, 0)

    def revoked(self, partitions: Partitions) -> None:
        """Nothing to finish."""

    def lost(self, partitions: Partitions) -> None:
        """Nothing to forget."""

    def positions(self) -> Mapping[Any, int]:
        """Where the group stands."""
        return dict.fromkeys(PARTITIONS, 0) | self.consumer.group_offsets(frozenset(PARTITIONS))


@contextmanager
def produce_in_transaction(room: Room, commit: Commit) -> Iterator[Ended]:
    cluster = cluster_with_topics(room.around.clock)
    member = Member(cluster)
    # The suite lets minutes pass between two calls.
    producer = MemoryTransactionalProducer(cluster, "t", timeout_seconds=3_600.0)
    size = UpTo(records=7, seconds=5.0)
    inner = ProduceInTransaction(producer, OUT, member.consumer.group_metadata, commit, size, around=room.around)
    yield Ended(Map(keyed, inner, around=room.around), lambda: rows_in(cluster), member.positions)


def rows_in(cluster: MemoryCluster) -> list[Row]:
    """The origins of everything that was committed to the topic."""
    reader = MemoryConsumer(cluster, OUT)
    reader.subscribe(Beginning())
    reader.poll(1, 0)  # takes its partitions
    found: list[Row] = []
    while (batch := reader.poll(1_000, 0)) is not None:
        for key in batch.records["key"].to_pylist():
            partition, offset = key.split(b"/")
            found.append((int(partition), int(offset)))
    return found


class Beginning:
    """Reads from the beginning."""

    def assigned(self, partitions: Partitions) -> Positions:
        return dict.fromkeys(partitions, 0)

    def revoked(self, partitions: Partitions) -> None:
        """Nothing to finish."""

    def lost(self, partitions: Partitions) -> None:
        """Nothing to forget."""


LASTS = [Last("Map-ProduceInTransaction", produce_in_transaction)]
