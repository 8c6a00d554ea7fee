"""What time and order do to a log. Only in memory: a real broker compacts when it sees fit, minutes later."""

import pytest

from consumers.brokers.memory import MemoryTransactionalProducer
from consumers.errors import BrokerError, OwnershipLost
from consumers.types import OffsetRange, Watermarks
from tests.consumers.brokers.memory.parts import NOW, TP, Parts, turns


def test_retention_drops_what_is_older_by_the_clock() -> None:
    parts = Parts(retention_ms="60000")
    parts.write(b"1", b"2")
    parts.clock.advance(59)
    parts.write(b"3")
    assert parts.admin.watermarks("t") == {TP: Watermarks(0, 3)}
    parts.clock.advance(2)
    assert parts.admin.watermarks("t") == {TP: Watermarks(2, 3)}
    parts.clock.advance(120)
    assert parts.admin.watermarks("t") == {TP: Watermarks(3, 3)}


def test_retention_by_bytes_drops_the_oldest() -> None:
    parts = Parts(retention_bytes="1000")
    parts.write(*[b"x" * 330] * 5)
    assert parts.admin.watermarks("t") == {TP: Watermarks(3, 5)}


def test_records_are_kept_for_ever_by_default() -> None:
    parts = Parts()
    parts.write(b"old", at=0)
    parts.clock.advance(10**9)
    assert parts.admin.watermarks("t") == {TP: Watermarks(0, 1)}


def test_compaction_keeps_the_newest_of_each_key_and_its_offset() -> None:
    parts = Parts(cleanup_policy="compact")
    for i in range(6):
        parts.write(b"%d" % i, key=b"ab"[i % 2 : i % 2 + 1])
    parts.cluster.compact("t")
    reader = parts.reader()
    turns(reader)
    assert [(row["offset"], row["value"]) for row in reader.rows] == [(4, b"4"), (5, b"5")]
    assert reader.ranges == {TP: OffsetRange(0, 6)}


def test_compaction_at_the_end_of_a_log_still_lets_positions_reach_it() -> None:
    parts = Parts(cleanup_policy="compact")
    parts.write(b"1", key=b"a")
    parts.write(None, key=b"a")
    parts.cluster.compact("t")
    parts.clock.advance(86_401)
    parts.cluster.compact("t")
    reader = parts.reader()
    turns(reader)
    assert (reader.rows, reader.ranges) == ([], {TP: OffsetRange(0, 2)})


def test_a_tombstone_outlives_its_key_for_a_while() -> None:
    parts = Parts(cleanup_policy="compact", delete_retention_ms="1000")
    parts.write(b"1", key=b"a")
    parts.write(None, key=b"a")
    parts.cluster.compact("t")
    first = parts.reader()
    turns(first)
    assert [(row["key"], row["value"]) for row in first.rows] == [(b"a", None)]
    parts.clock.advance(1)
    parts.cluster.compact("t")
    second = parts.reader()
    turns(second)
    assert second.rows == []


def test_only_a_compacted_topic_is_compacted() -> None:
    with pytest.raises(BrokerError, match="not compacted"):
        Parts().cluster.compact("t")


def test_a_log_that_was_cut_gives_its_offsets_out_again() -> None:
    parts = Parts()
    parts.write(b"1", b"2", b"3")
    reader = parts.reader()
    turns(reader)
    parts.cluster.cut_log(TP, 1)
    turns(reader)
    assert [how for _, how, _ in reader.told] == ["assigned", "revoked", "assigned"]
    parts.write(b"other")
    assert parts.admin.watermarks("t") == {TP: Watermarks(0, 2)}


def test_a_topic_with_append_time_ignores_the_time_of_creation() -> None:
    parts = Parts(message_timestamp_type="LogAppendTime")
    parts.write(b"1", at=5)
    reader = parts.reader()
    turns(reader)
    assert reader.rows[0]["timestamp"].timestamp() == NOW


def test_a_reader_of_everything_sees_aborted_and_unfinished_records_but_no_markers() -> None:

    parts = Parts()
    writer = MemoryTransactionalProducer(parts.cluster, "x")
    writer.begin()
    writer.send("t", b"aborted")
    writer.abort_transaction()
    writer.begin()
    writer.send("t", b"open")
    reader = parts.reader(isolation="read_uncommitted")
    turns(reader)
    assert reader.values() == [b"aborted", b"open"]
    assert reader.ranges == {TP: OffsetRange(0, 3)}


def test_a_transaction_that_is_open_for_too_long_is_aborted_and_its_producer_fenced() -> None:

    parts = Parts()
    writer = MemoryTransactionalProducer(parts.cluster, "x", timeout_seconds=60)
    writer.begin()
    writer.send("t", b"open")
    reader = parts.reader()
    turns(reader)
    assert reader.ranges == {}
    parts.clock.advance(60)
    turns(reader)
    assert (reader.values(), reader.ranges) == ([], {TP: OffsetRange(0, 2)})
    with pytest.raises(OwnershipLost):
        writer.commit_transaction()
