"""What transactions promise to those who write them and to those who read, on either broker."""

import pytest

from consumers.errors import BrokerError, OwnershipLost
from consumers.types import OffsetRange, TopicPartition, Watermarks
from tests.contracts.brokers.backends import (
    PATIENCE,
    Backend,
    fill,
    following,
    name,
    new_topic,
    numbered,
    quick,
    until,
)


def test_committed_records_are_read_and_aborted_ones_only_move_the_position(backend: Backend) -> None:
    topic = new_topic(backend)
    writer = backend.transactional(name("x"))
    for values, commit in ((numbered(0, 3), True), (numbered(3, 6), False), (numbered(6, 8), True)):
        writer.begin()
        for value in values:
            writer.send(topic, value, partition=0)
        writer.flush(PATIENCE)
        writer.commit_transaction() if commit else writer.abort_transaction()
    writer.close()
    with following(backend.reader(topic)) as reader:
        until(lambda: reader.end() == 11, reader)
    assert reader.values() == numbered(0, 3) + numbered(6, 8)
    assert [row["offset"] for row in reader.rows] == [0, 1, 2, 8, 9]


def test_markers_alone_move_a_position_without_rows(backend: Backend) -> None:
    topic = new_topic(backend)
    tp = TopicPartition(topic, 0)
    writer = backend.transactional(name("x"))
    writer.begin()
    writer.send(topic, b"never", partition=0)
    writer.flush(PATIENCE)
    writer.abort_transaction()
    writer.close()
    with following(backend.reader(topic)) as reader:
        until(lambda: reader.ranges == {tp: OffsetRange(0, 2)}, reader)
    assert not reader.rows


def test_an_open_transaction_holds_readers_at_its_beginning(backend: Backend) -> None:
    topic = new_topic(backend, values=[b"before"])
    tp = TopicPartition(topic, 0)
    writer = backend.transactional(name("x"))
    writer.begin()
    writer.send(topic, b"within", partition=0)
    writer.flush(PATIENCE)
    fill(backend, topic, [b"after"])
    with following(backend.reader(topic)) as reader:
        until(lambda: reader.end() == 1, reader)
        assert reader.consumer.watermarks(frozenset({tp})) == {tp: Watermarks(0, 1)}
        assert backend.admin.watermarks(topic) == {tp: Watermarks(0, 3)}
        assert reader.consumer.high_watermarks(frozenset({tp})) == {tp: 3}
        assert reader.turn() is None
        writer.commit_transaction()
        until(lambda: reader.end() == 4, reader)
        assert reader.consumer.watermarks(frozenset({tp})) == {tp: Watermarks(0, 4)}
    assert reader.values() == [b"before", b"within", b"after"]
    writer.close()


def test_records_and_offsets_become_visible_together_or_not_at_all(backend: Backend) -> None:
    source, target, group = new_topic(backend, values=numbered(0, 5)), new_topic(backend), name("g")
    tp, here = TopicPartition(source, 0), TopicPartition(target, 0)
    writer = backend.transactional(name("x"))
    with following(backend.member(source, group, quick())) as member:
        until(lambda: member.end() == 5, member)
        for end, commit in ((2, True), (4, False)):
            writer.begin()
            writer.send(target, b"to %d" % end, partition=0)
            writer.send_offsets({tp: end}, member.consumer.group_metadata())
            assert backend.admin.watermarks(target)[here].high <= (1 if end == 2 else 3)
            writer.commit_transaction() if commit else writer.abort_transaction()
        assert member.consumer.group_offsets(member.held) == {tp: 2}
    writer.close()
    with following(backend.reader(target)) as reader:
        until(lambda: reader.end() >= 2, reader)
    assert reader.values() == [b"to 2"]


def test_a_newer_producer_with_the_same_id_fences_the_older_and_ends_its_transaction(backend: Backend) -> None:
    topic, same = new_topic(backend), name("x")
    older, newer = backend.transactional(same), backend.transactional(same)
    older.begin()
    older.send(topic, b"older", partition=0)
    older.flush(PATIENCE)
    newer.begin()
    newer.send(topic, b"newer", partition=0)
    with pytest.raises(OwnershipLost):
        older.commit_transaction()
    with pytest.raises(OwnershipLost):
        older.abort_transaction()
    with pytest.raises(BrokerError, match=r"taken over|has it"):
        older.begin()
    newer.commit_transaction()
    with following(backend.reader(topic)) as reader:
        until(lambda: reader.end() == 4, reader)
    assert reader.values() == [b"newer"]
    newer.close()
    older.close()


def test_a_member_of_an_older_generation_cannot_put_offsets_into_a_transaction(backend: Backend) -> None:
    topic, group = new_topic(backend, 2, values=numbered(0, 5)), name("g")
    tp = TopicPartition(topic, 0)
    writer = backend.transactional(name("x"))
    with following(backend.member(topic, group, quick())) as member:
        until(lambda: len(member.held) == 2, member)
        before = member.consumer.group_metadata()
        with following(backend.member(topic, group, quick())) as other:
            until(lambda: len(member.held) == len(other.held) == 1, member, other)
            writer.begin()
            with pytest.raises(OwnershipLost):
                writer.send_offsets({tp: 5}, before)
            writer.abort_transaction()
            writer.begin()
            writer.send_offsets({tp: 3}, member.consumer.group_metadata())
            writer.commit_transaction()
            assert member.consumer.group_offsets(frozenset({tp})) == {tp: 3}
    writer.close()


def test_a_record_that_failed_keeps_its_transaction_from_committing(backend: Backend) -> None:
    topic = new_topic(backend)
    writer = backend.transactional(name("x"))
    writer.begin()
    writer.send(topic, b"fine", partition=0)
    writer.send(topic, b"nowhere", partition=7)
    with pytest.raises(BrokerError):
        writer.commit_transaction()
    writer.abort_transaction()
    writer.begin()
    writer.send(topic, b"again", partition=0)
    writer.commit_transaction()
    with following(backend.reader(topic)) as reader:
        until(lambda: bool(reader.rows), reader)
    assert reader.values() == [b"again"]
    writer.close()
