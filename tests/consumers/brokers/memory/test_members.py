"""Members that freeze, are expelled, are late, or come back. Only in memory: a real session takes seconds to end."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from consumers.brokers.memory import MemoryAdmin, MemoryCluster, MemoryConsumer, MemoryProducer, MemoryTransactionalProducer
from consumers.brokers.protocol import Partitions
from consumers.errors import BrokerError, OwnershipLost
from consumers.types import Positions
from tests.consumers.brokers.memory.parts import TP, Parts, hows, turns
from tests.contracts.brokers.backends import Follower, until

PROTOCOLS = ("eager", "cooperative", "consumer")


def session(protocol: str) -> dict[str, Any]:
    return {"protocol": protocol} | ({} if protocol == "consumer" else {"session_seconds": 10.0})


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_frozen_member_loses_its_partitions_after_its_session_and_joins_again(protocol: str) -> None:
    parts = Parts(4)
    one, two = parts.member("one", **session(protocol)), parts.member("two", **session(protocol))
    turns(one, two)
    one.consumer.freeze()
    before = one.held
    parts.clock.advance(9)
    turns(two)
    assert len(two.held) == 2
    parts.clock.advance(50)
    turns(two)
    assert len(two.held) == 4
    turns(one, two)
    assert ("one", "lost", before) in one.told
    assert len(one.held) == len(two.held) == 2
    assert not one.held & two.held


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_does_not_poll_is_out_after_its_poll_interval(protocol: str) -> None:
    parts = Parts(2)
    slow, other = parts.member("slow", protocol=protocol), parts.member("other", protocol=protocol)
    turns(slow, other)
    for _ in range(4):
        parts.clock.advance(100)
        turns(other)
    assert len(other.held) == 2
    turns(slow, other)
    assert "lost" in hows(slow)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_expelled_member_cannot_commit(protocol: str) -> None:
    parts = Parts()
    parts.write(b"1", b"2")
    member = parts.member("m", protocol=protocol)
    turns(member)
    member.consumer.commit({TP: 1}, wait=True)
    member.consumer.expel()
    member.consumer.commit({TP: 2}, wait=True)
    assert parts.admin.group_offsets("g", "t") == {TP: 1}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_partitions_that_a_member_is_about_to_take_are_nobody_elses(protocol: str) -> None:
    parts = Parts(2)
    one, others = parts.member("one", protocol=protocol), list[Follower]()
    lows = one.starts

    def slowly(partitions: Partitions) -> Positions:
        if not others:
            others.append(parts.member("two", protocol=protocol))
        turns(*others)
        assert not partitions & others[0].held
        return lows(partitions)

    one.starts = slowly
    turns(one, *others)
    turns(one, *others)
    assert len(one.held) == len(others[0].held) == 1


def test_an_expelled_member_that_is_unaware_goes_on_reading_what_is_not_its_own() -> None:
    parts = Parts()
    parts.write(b"1")
    zombie = parts.member("zombie")
    turns(zombie)
    zombie.consumer.expel(unaware_polls=2)
    other = parts.member("other")
    turns(other)
    parts.write(b"2")
    zombie.turn()
    turns(other)
    assert zombie.values() == other.values() == [b"1", b"2"]
    zombie.consumer.commit({TP: 2}, wait=True)
    assert parts.admin.group_offsets("g", "t") == {}
    zombie.turn()
    zombie.turn()
    assert hows(zombie) == ["assigned", "lost"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_ordered_rebalance_moves_nothing_that_need_not_move(protocol: str) -> None:
    parts = Parts(4)
    one, two = parts.member("one", protocol=protocol), parts.member("two", protocol=protocol)
    turns(one, two)
    held, told = (one.held, two.held), len(hows(one))
    parts.cluster.rebalance("g")
    turns(one, two)
    assert (one.held, two.held) == held
    assert hows(one)[told:] == (["revoked", "assigned"] if protocol == "eager" else [])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_static_member_that_comes_back_within_its_session_keeps_its_partitions(protocol: str) -> None:
    parts = Parts(4)
    one, two = parts.member("one", protocol=protocol, instance_id="i"), parts.member("two", protocol=protocol)
    turns(one, two)
    held, told = one.held, len(two.told)
    one.consumer.close()
    again = parts.member("again", protocol=protocol, instance_id="i")
    turns(again, two)
    assert again.held == held
    assert len(two.told) == told


def test_a_static_member_that_stays_away_is_out_after_its_session() -> None:
    parts = Parts(4)
    one, two = parts.member("one", instance_id="i"), parts.member("two")
    turns(one, two)
    one.consumer.close()
    parts.clock.advance(44)
    turns(two)
    assert len(two.held) == 2
    parts.clock.advance(1)
    turns(two)
    assert len(two.held) == 4


def test_an_eager_group_waits_for_everybody_before_it_deals() -> None:
    parts = Parts(2)
    one = parts.member("one", protocol="eager")
    turns(one)
    two = parts.member("two", protocol="eager")
    turns(two)
    assert not two.answered
    turns(one, two)
    assert len(one.held) == len(two.held) == 1


def test_members_of_one_group_need_one_protocol() -> None:
    parts = Parts()
    turns(parts.member("one", protocol="eager"))
    with pytest.raises(BrokerError, match="the same protocol"):
        parts.member("two", protocol="consumer")


def test_the_offsets_of_an_expelled_member_stay_out_of_transactions() -> None:
    parts = Parts()
    member = parts.member("m")
    turns(member)
    writer = MemoryTransactionalProducer(parts.cluster, "x")
    writer.begin()
    metadata = member.consumer.group_metadata()
    member.consumer.expel()
    with pytest.raises(OwnershipLost, match="generation 1 is over"):
        writer.send_offsets({TP: 1}, metadata)


def test_offsets_in_an_open_transaction_are_waited_for() -> None:
    parts = Parts()
    member = parts.member("m")
    turns(member)
    writer = MemoryTransactionalProducer(parts.cluster, "x")
    writer.begin()
    writer.send_offsets({TP: 1}, member.consumer.group_metadata())
    with pytest.raises(BrokerError, match="wait for a transaction"):
        member.consumer.group_offsets(frozenset({TP}))
    writer.commit_transaction()
    assert member.consumer.group_offsets(frozenset({TP})) == {TP: 1}


def test_a_poll_in_another_thread_wakes_when_a_record_arrives() -> None:
    cluster = MemoryCluster()
    MemoryAdmin(cluster).create_topic("t")
    reader = Follower(MemoryConsumer(cluster, "t"))
    reader.turn()
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(reader.consumer.poll, 10, 60.0)
        producer = MemoryProducer(cluster)
        producer.send("t", b"1")
        batch = waiting.result(30)
    assert batch is not None
    assert batch.records["value"].to_pylist() == [b"1"]


def test_members_in_threads_of_their_own_read_every_record_once() -> None:
    cluster = MemoryCluster()
    MemoryAdmin(cluster).create_topic("t", 6)
    members = [Follower(MemoryConsumer(cluster, "t", "g")) for _ in range(3)]
    until(lambda: all(len(member.held) == 2 for member in members), *members)
    producer = MemoryProducer(cluster)

    def read(member: Follower) -> None:
        until(lambda: sum(r.end for r in member.ranges.values()) == 1_000, member)

    with ThreadPoolExecutor(len(members)) as threads:
        reading = [threads.submit(read, member) for member in members]
        for i in range(3_000):
            producer.send("t", b"%d" % i, partition=i % 6)
        for each in reading:
            each.result(60)
    assert sorted(int(value or b"") for member in members for value in member.values()) == list(range(3_000))
