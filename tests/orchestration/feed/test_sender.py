"""What goes to the topic for a version, on the in-memory broker and real Delta tables."""

import json
import shutil
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from consumers.brokers.memory import MemoryAdmin, MemoryCluster, MemoryConsumer, MemoryTransactionalProducer
from consumers.brokers.memory.log import Entry
from consumers.clock import ManualClock
from consumers.errors import BrokerError, ConfigError, OwnershipLost
from consumers.types import TopicPartition
from orchestration.feed.config import Feed
from orchestration.feed.sender import Sent, Told, send
from tests.killing import killed
from tests.orchestration.feed.tables import append, applied, feed, replace


class Bench:
    """A cluster with the topic `summary` of two partitions, and a table."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock(1_700_000_000.0)
        self._seen: set[tuple[bytes | None, int]] = set()
        self.cluster = MemoryCluster(self.clock)
        MemoryAdmin(self.cluster).create_topic("summary", 2)

    def producer(self) -> MemoryTransactionalProducer:
        return MemoryTransactionalProducer(self.cluster, "weir-publish-t", timeout_seconds=600)

    def group(self, name: str) -> MemoryConsumer:
        return MemoryConsumer(self.cluster, "summary", name)

    def send(self, how: Feed | None = None, told: Told | None = None) -> Sent:
        """As a run does: a producer of its own, which lets go of what it left open."""
        producer = self.producer()
        try:
            return send(self.path, how or feed(), producer, self.group, self.clock, told, 5.0)
        finally:
            producer.abort_transaction()

    def records(self) -> list[Entry]:
        """What a reader of committed transactions gets, each partition in its order."""
        tps = [TopicPartition("summary", partition) for partition in (0, 1)]
        return [entry for tp in tps for entry in self.cluster.records(tp)]

    def new(self) -> dict[str, int | None]:
        """Carrier and flights of the records since it was asked last; None for a tombstone. A key comes once."""
        found = {(entry.key, entry.offset): entry.value for entry in self.records()}
        fresh = {key: value for key, value in found.items() if key not in self._seen}
        self._seen |= fresh.keys()
        named = [(json.loads(key or b"")["carrier"], value) for (key, _offset), value in fresh.items()]
        assert len({name for name, _ in named}) == len(named)
        return {name: None if value is None else json.loads(value)["flights"] for name, value in named}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """With no table yet."""
    return Bench(tmp_path / "t")


def test_the_first_time_all_rows_are_sent_with_their_version(bench: Bench) -> None:
    append(bench.path, ("2013-01-01", "UA", 1), ("2013-01-02", "AA", 2))
    sent = bench.send()
    assert (sent.version, sent.since, sent.rows, sent.tombstones) == (0, None, 2, 0)
    assert sent.whole == "no version was sent before"
    assert sum(map(len, sent.offsets.values())) == 2
    (one,) = [entry for entry in bench.records() if b"UA" in (entry.key or b"")]
    assert one.key == b'{"_window":"2013-01-01","carrier":"UA"}'
    assert one.value == b'{"carrier":"UA","flights":1}'
    assert one.headers == (("weir-version", b"0"),)


def test_rows_that_are_new_or_changed_are_sent_and_tombstones_for_keys_that_are_gone(bench: Bench) -> None:
    append(bench.path, ("2013-01-01", "UA", 1), ("2013-01-01", "AA", 2), ("2013-01-01", "B6", 3), ("2013-01-02", "DL", 4))
    bench.send()
    bench.new()
    replace(bench.path, "2013-01-01", ("UA", 1), ("AA", 20), ("US", 5))
    sent = bench.send()
    assert (sent.version, sent.since, sent.rows, sent.tombstones) == (1, 0, 2, 1)
    assert bench.new() == {"AA": 20, "US": 5, "B6": None}


def test_a_version_that_was_sent_is_not_sent_again(bench: Bench) -> None:
    append(bench.path, ("2013-01-01", "UA", 1))
    bench.send()
    bench.new()
    assert bench.send() == Sent(0, 0, bench.send().group, MemoryAdmin(bench.cluster).topic_id("summary"))
    assert bench.new() == {}


def test_versions_in_between_are_passed_over_to_what_holds_now(bench: Bench) -> None:
    append(bench.path, ("2013-01-01", "UA", 1))
    bench.send()
    bench.new()
    replace(bench.path, "2013-01-01", ("UA", 2))
    append(bench.path, ("2013-01-01", "AA", 7))
    replace(bench.path, "2013-01-01", ("UA", 1), ("B6", 1))
    sent = bench.send()
    assert (sent.version, sent.since) == (3, 0)
    assert bench.new() == {"B6": 1}


def test_compaction_sends_nothing_and_reads_nothing(bench: Bench) -> None:
    append(bench.path, ("2013-01-01", "UA", 1))
    append(bench.path, ("2013-01-01", "AA", 2))
    bench.send()
    bench.new()
    DeltaTable(str(bench.path)).optimize.compact()
    for file in bench.path.rglob("*.parquet"):
        file.write_bytes(b"not to be read")
    assert bench.send().version == 2
    assert bench.new() == {}


def test_what_was_added_before_a_compaction_and_compacted_then_is_sent(bench: Bench) -> None:
    append(bench.path, ("2013-01-01", "UA", 1))
    bench.send()
    bench.new()
    append(bench.path, ("2013-01-01", "AA", 2))
    DeltaTable(str(bench.path)).optimize.compact()
    bench.send()
    assert bench.new() == {"AA": 2}


def test_a_restored_table_takes_back_what_was_sent(bench: Bench) -> None:
    append(bench.path, ("2013-01-01", "UA", 1))
    append(bench.path, ("2013-01-02", "AA", 2))
    bench.send()
    bench.new()
    DeltaTable(str(bench.path)).restore(0)
    bench.send()
    assert bench.new() == {"AA": None}


def test_a_key_that_moves_to_another_window_is_there_in_the_end(bench: Bench) -> None:
    by_carrier = feed(keys=["carrier"])
    append(bench.path, ("2013-01-02", "UA", 1), ("2013-01-01", "AA", 1))
    bench.send(by_carrier)
    replace(bench.path, "2013-01-01", ("UA", 2))
    replace(bench.path, "2013-01-02", ("AA", 2))
    bench.send(by_carrier)
    held = applied((entry.key, entry.value) for entry in bench.records())
    assert held == {b"UA": b'{"carrier":"UA","flights":2}', b"AA": b'{"carrier":"AA","flights":2}'}


def test_only_chosen_columns_are_sent_and_compared(bench: Bench) -> None:
    chosen = feed(columns=["carrier"])
    append(bench.path, ("2013-01-01", "UA", 1))
    bench.send(chosen)
    replace(bench.path, "2013-01-01", ("UA", 2))
    assert bench.send(chosen).rows == 0
    assert [entry.value for entry in bench.records()] == [b'{"carrier":"UA"}']


def test_a_column_that_is_new_and_empty_changes_no_row(bench: Bench) -> None:
    append(bench.path, ("2013-01-01", "UA", 1), ("2013-01-01", "AA", 1))
    bench.send()
    wider = pa.table({"_window": ["2013-01-01"] * 2, "carrier": ["UA", "AA"], "flights": [1, 1], "seats": pa.array([None, 9])})
    how = {"mode": "overwrite", "predicate": "_window = '2013-01-01'", "schema_mode": "merge"}
    write_deltalake(str(bench.path), wider, partition_by=["_window"], **how)  # type: ignore[arg-type]
    assert bench.send().rows == 1


def test_from_now_sends_only_what_comes_later(bench: Bench) -> None:
    later = feed(**{"from": "now"})
    append(bench.path, ("2013-01-01", "UA", 1))
    assert bench.send(later).rows == 0
    append(bench.path, ("2013-01-01", "AA", 2))
    bench.send(later)
    assert bench.new() == {"AA": 2}


def test_other_keys_or_columns_begin_from_the_beginning(bench: Bench) -> None:
    append(bench.path, ("2013-01-01", "UA", 1))
    bench.send()
    assert bench.send(feed(keys=["carrier"])).since is None


def test_a_table_made_anew_is_sent_whole_although_its_versions_go_on_as_before(bench: Bench) -> None:
    append(bench.path, ("2013-01-01", "UA", 1))
    bench.send()
    bench.new()
    shutil.rmtree(bench.path)
    append(bench.path, ("2013-01-01", "AA", 1))
    append(bench.path, ("2013-01-02", "B6", 1))
    bench.send()
    assert bench.new() == {"AA": 1, "B6": 1}


def test_after_a_vacuum_of_the_version_sent_last_all_rows_are_sent_and_it_is_said_why(bench: Bench) -> None:
    append(bench.path, ("2013-01-01", "UA", 1), ("2013-01-02", "DL", 1))
    bench.send()
    bench.new()
    replace(bench.path, "2013-01-01", ("AA", 2))
    DeltaTable(str(bench.path)).vacuum(0, dry_run=False, enforce_retention_duration=False)
    sent = bench.send()
    assert "version 0, which was sent last, has been vacuumed: _window=2013-01-01/" in sent.whole
    assert bench.new() == {"AA": 2, "DL": 1}


def test_after_a_cleanup_of_the_log_all_rows_are_sent_and_it_is_said_why(bench: Bench) -> None:
    append(bench.path, ("2013-01-01", "UA", 1))
    bench.send()
    bench.new()
    append(bench.path, ("2013-01-01", "AA", 2))
    append(bench.path, ("2013-01-02", "DL", 3))
    table = DeltaTable(str(bench.path))
    table.create_checkpoint()
    for version in (0, 1):
        (bench.path / "_delta_log" / f"{version:020d}.json").unlink()
    assert "version 0, which was sent last, is no longer in the table's log" in bench.send().whole
    assert bench.new() == {"UA": 1, "AA": 2, "DL": 3}


def test_a_version_whose_own_commit_file_is_gone_cannot_be_compared_with(bench: Bench) -> None:
    append(bench.path, ("2013-01-01", "UA", 1))
    bench.send()
    bench.new()
    append(bench.path, ("2013-01-01", "AA", 2))
    DeltaTable(str(bench.path)).create_checkpoint()
    (bench.path / "_delta_log" / f"{0:020d}.json").unlink()
    assert "is no longer in the table's log" in bench.send().whole
    assert bench.new() == {"UA": 1, "AA": 2}


@pytest.mark.parametrize("told_topic, rows", [("", 0), ("another", 2)])
def test_a_version_that_kafka_forgot_is_believed_for_the_same_topic(bench: Bench, told_topic: str, rows: int) -> None:
    append(bench.path, ("2013-01-01", "UA", 1), ("2013-01-01", "AA", 1))
    sent = bench.send()
    fresh = Bench(bench.path)  # a cluster that knows no such group
    topic_id = told_topic or MemoryAdmin(fresh.cluster).topic_id("summary")
    assert fresh.send(told=Told(sent.version, sent.group, topic_id)).rows == rows


def test_two_rows_with_one_key_are_refused_and_nothing_is_sent(bench: Bench) -> None:
    append(bench.path, ("2013-01-01", "UA", 1), ("2013-01-01", "UA", 2))
    with pytest.raises(ConfigError, match=r"version 0 of the table has two rows in 2013-01-01 with the key .*UA"):
        bench.send()
    assert bench.records() == []


def test_a_row_without_a_key_is_refused(bench: Bench) -> None:
    append(bench.path, ("2013-01-01", None, 1))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no value in the key column carrier"):
        bench.send()


def test_a_column_that_the_table_has_not_is_named(bench: Bench) -> None:
    append(bench.path, ("2013-01-01", "UA", 1))
    with pytest.raises(ConfigError, match=r"the table has no column airline; it has .*carrier"):
        bench.send(feed(keys=["airline"]))


def test_a_refused_record_leaves_readers_on_the_old_version(bench: Bench) -> None:
    append(bench.path, ("2013-01-01", "UA", 1), ("2013-01-02", "AA", 1))
    bench.cluster.faults.fail("produce", fatal=True)
    with pytest.raises(BrokerError, match="of version 0, 1 records were refused"):
        bench.send()
    assert bench.records() == []
    assert bench.send().rows == 2


@pytest.mark.parametrize("step", ["begin", "send", "flush", "send_offsets", "commit_transaction"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_process_that_ends_at_any_step_leaves_a_version_that_is_sent_once(bench: Bench, step: str, moment: str) -> None:
    append(bench.path, ("2013-01-01", "UA", 1), ("2013-01-01", "AA", 1))
    with killed(MemoryTransactionalProducer, step, moment):
        send(bench.path, feed(), bench.producer(), bench.group, bench.clock)
    was_sent = (step, moment) == ("commit_transaction", "after")
    assert bench.send().rows == (0 if was_sent else 2)
    assert bench.new() == {"UA": 1, "AA": 1}


def test_a_slower_publisher_of_the_same_table_is_fenced(bench: Bench) -> None:
    append(bench.path, ("2013-01-01", "UA", 1))
    slow = bench.producer()

    def overtaken(name: str) -> MemoryConsumer:
        assert bench.send().rows == 1
        return bench.group(name)

    with pytest.raises(OwnershipLost):
        send(bench.path, feed(), slow, overtaken, bench.clock)
    assert bench.new() == {"UA": 1}


def test_sending_for_longer_than_a_transaction_may_last_says_what_to_raise(bench: Bench) -> None:
    append(bench.path, ("2013-01-01", "UA", 1))

    def slow(name: str) -> MemoryConsumer:
        bench.clock.advance(700)
        bench.send()
        return bench.group(name)

    with pytest.raises(BrokerError, match=r"sending took 700 s, and Kafka ends a transaction after 600 s.*transaction_seconds"):
        send(bench.path, feed(), bench.producer(), slow, bench.clock)


WINDOWS = ["2013-01-01", "2013-01-02"]
COMMITS = st.tuples(st.sampled_from(WINDOWS), st.dictionaries(st.sampled_from(["UA", "AA", "B6"]), st.integers(0, 2), min_size=1))


@given(commits=st.lists(st.tuples(COMMITS, st.booleans()), min_size=1, max_size=5))
@settings(max_examples=15, deadline=timedelta(seconds=20), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whoever_applies_the_topic_holds_the_table_at_every_version_sent(
    tmp_path_factory: pytest.TempPathFactory, commits: list[tuple[tuple[str, dict[str, int]], bool]]
) -> None:
    bench = Bench(tmp_path_factory.mktemp("feed") / "t")
    held: dict[tuple[str, str], int] = {}
    for (window, rows), sent_now in commits:
        replace(bench.path, window, *rows.items())
        before = held
        held = {key: value for key, value in held.items() if key[0] != window} | {(window, name): n for name, n in rows.items()}
        if sent_now:
            sent = bench.send()
            found = applied((entry.key, entry.value) for entry in bench.records())
            decoded = {tuple(json.loads(key).values()): json.loads(value)["flights"] for key, value in found.items()}
            assert decoded == held
            if sent.since == sent.version - 1:
                assert sent.rows == len(held.items() - before.items())
