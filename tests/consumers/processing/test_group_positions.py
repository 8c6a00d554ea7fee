"""Kafka's group offsets as the truth of a chain that ends in `CommitPositions`: the whole engine on the in-memory broker."""

import random
import threading
from collections.abc import Iterable, Mapping
from typing import Literal

import pytest

from consumers.brokers.memory import MemoryCluster, MemoryConsumer, MemoryProducer
from consumers.clock import ManualClock
from consumers.errors import OwnershipLost
from consumers.metrics import NoMetrics
from consumers.processing.context import Build, Context, Surroundings
from consumers.processing.group_positions import GroupPositions
from consumers.processing.processor import Limits, Processor
from consumers.processing.starts import Start
from consumers.processing.strategies.commit_positions import CommitPositions
from consumers.processing.strategies.each import Record, each
from consumers.processing.strategies.run_task import RunTask
from consumers.processing.subscription import Subscription
from consumers.processing.takeover import Takeover
from consumers.types import Position, TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster(ManualClock(1_700_000_000.0))
    made.create_topic("orders", 2)
    return made


def produce(cluster: MemoryCluster, values: Iterable[bytes], partition: int) -> None:
    producer = MemoryProducer(cluster)
    for value in values:
        producer.send("orders", value, partition=partition)
    producer.close()


def offsets(cluster: MemoryCluster) -> dict[TopicPartition, int]:
    return dict(MemoryConsumer(cluster, "orders", "g").group_offsets(frozenset({P0, P1})))


def consume(
    cluster: MemoryCluster, start: str = "earliest", on_data_loss: Literal["fail", "record"] = "fail"
) -> list[bytes | None]:
    """What a member of the group reads until it has caught up."""
    seen: list[bytes | None] = []

    def take(record: Record) -> None:
        seen.append(record.value)

    def chain(context: Context) -> RunTask[object, list[None]]:
        return RunTask(each(take), CommitPositions(context.commit, clock=context.around.clock), around=context.around)

    build: Build = chain
    broker = MemoryConsumer(cluster, "orders", "g")
    around = Surroundings(cluster.clock, NoMetrics(), random.Random(0))
    subscription = Subscription("c", "orders", start=start, on_data_loss=on_data_loss)
    member = Processor(subscription, broker, GroupPositions(broker), build, around)
    assert member.run(threading.Event(), Limits(until_caught_up=True)) == "caught up"
    broker.close()
    member.end()
    return seen


def test_a_chain_goes_on_where_the_group_stands(cluster: MemoryCluster) -> None:
    produce(cluster, [b"a", b"b"], 0)
    assert consume(cluster) == [b"a", b"b"]
    assert offsets(cluster) == {P0: 2, P1: 0}
    produce(cluster, [b"c"], 1)
    assert consume(cluster) == [b"c"]
    assert consume(cluster) == []


def test_the_first_member_pins_the_start_of_every_partition(cluster: MemoryCluster) -> None:
    produce(cluster, [b"before"] * 3, 1)
    broker = MemoryConsumer(cluster, "orders", "g")
    store = GroupPositions(broker)
    assert store.known_topic("orders") is None
    consume(cluster, start="latest")
    assert offsets(cluster) == {P0: 0, P1: 3}
    assert store.known_topic("orders") is not None


@pytest.mark.parametrize(("start", "pinned"), [("earliest", {P0}), ("latest", {P0, P1})])
def test_partitions_of_others_are_pinned_only_where_the_start_is_not_the_beginning(
    cluster: MemoryCluster, start: str, pinned: set[TopicPartition]
) -> None:
    broker = MemoryConsumer(cluster, "orders", "g")
    around = Surroundings(cluster.clock, NoMetrics(), random.Random(0))
    store = Noting(broker)
    Takeover(Subscription("c", "orders", start=start), broker, store, around).take(frozenset({P0}))
    assert store.pinned == pinned


class Noting(GroupPositions):
    """Notes what is taken over."""

    def acquire(self, seen: Mapping[TopicPartition, Position], starts: Mapping[TopicPartition, Start], topic_id: str) -> None:
        self.pinned = set(starts)


def test_a_start_that_the_group_did_not_take_is_not_read_from(cluster: MemoryCluster) -> None:
    produce(cluster, [b"before"], 0)
    cluster.faults.fail("commit")
    store = GroupPositions(MemoryConsumer(cluster, "orders", "g"))
    with pytest.raises(OwnershipLost, match="did not take the starts of orders/0"):
        store.acquire(store.positions([P0]), {P0: Start(1)}, "id")


def test_a_start_that_could_not_be_pinned_is_pinned_by_the_next_attempt(cluster: MemoryCluster) -> None:
    produce(cluster, [b"before"], 0)
    cluster.faults.fail("commit", times=3)
    assert consume(cluster, start="latest") == []
    assert offsets(cluster) == {P0: 1, P1: 0}


def test_without_a_group_no_start_is_remembered(cluster: MemoryCluster) -> None:
    store = GroupPositions(MemoryConsumer(cluster, "orders", partitions=[0]))
    store.acquire(store.positions([P0]), {P0: Start(1)}, "id")
    assert store.positions([P0]) == {P0: Position(None, 0)}


def test_offsets_that_are_gone_and_let_pass_are_told(cluster: MemoryCluster, caplog: pytest.LogCaptureFixture) -> None:
    produce(cluster, [b"a", b"b"], 0)
    consume(cluster)
    produce(cluster, [b"gone"] * 3, 0)
    cluster.delete_records({P0: 5})
    assert consume(cluster, on_data_loss="record") == []
    assert "orders/0: offsets 2 to 4 are gone; going on from 5" in caplog.text


def test_partitions_that_are_added_later_are_read_from_their_beginning(cluster: MemoryCluster) -> None:
    consume(cluster, start="latest")
    cluster.add_partitions("orders", 3)
    produce(cluster, [b"new"], 2)
    assert consume(cluster, start="latest") == [b"new"]


def test_an_offset_that_moves_during_the_takeover_stops_it(cluster: MemoryCluster) -> None:
    produce(cluster, [b"a"], 0)
    broker = MemoryConsumer(cluster, "orders", "g")
    store = GroupPositions(broker)
    seen = store.positions([P0, P1])
    assert seen == {P0: Position(None, 0), P1: Position(None, 0)}
    consume(cluster)
    with pytest.raises(OwnershipLost, match="orders/0, orders/1 moved"):
        store.acquire(seen, {P0: Start(0), P1: Start(0)}, "id")
    assert offsets(cluster) == {P0: 1, P1: 0}


def test_a_topic_that_is_created_again_under_a_running_member_is_read_from_its_beginning(cluster: MemoryCluster) -> None:
    seen: list[bytes | None] = []

    def take(record: Record) -> None:
        seen.append(record.value)

    def build(context: Context) -> RunTask[object, list[None]]:
        return RunTask(each(take), CommitPositions(context.commit, clock=context.around.clock), around=context.around)

    def turns(count: int) -> None:
        for _ in range(count):
            member.step()
            cluster.clock.sleep(1.0)

    broker = MemoryConsumer(cluster, "orders", "g")
    around = Surroundings(cluster.clock, NoMetrics(), random.Random(0))
    member = Processor(Subscription("c", "orders"), broker, GroupPositions(broker, cluster.clock), build, around)
    member.start()
    produce(cluster, [b"old"] * 3, 0)
    turns(5)
    cluster.delete_topic("orders")
    cluster.create_topic("orders", 2)
    new = [b"new %d" % number for number in range(5)]
    produce(cluster, new, 0)
    turns(40)
    assert seen[:3] == [b"old"] * 3
    assert seen[-5:] == new
    assert offsets(cluster)[P0] == 5


def test_offsets_of_a_topic_that_was_created_again_are_not_put_into_a_transaction(cluster: MemoryCluster) -> None:
    broker = MemoryConsumer(cluster, "orders", "g")
    store = GroupPositions(broker, cluster.clock)
    store.acquire({}, {}, broker.topic_id())
    cluster.delete_topic("orders")
    cluster.create_topic("orders", 2)
    with pytest.raises(OwnershipLost, match="deleted and created again"):
        store.group_metadata()
