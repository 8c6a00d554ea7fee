"""`Produce` and `ProduceInTransaction` on the in-memory cluster: what happens when the cluster does not do what it should."""

from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from consumers.brokers.memory import MemoryAdmin, MemoryCluster, MemoryConsumer, MemoryProducer, MemoryTransactionalProducer
from consumers.clock import ManualClock
from consumers.errors import BrokerError, FatalError, OwnershipLost
from consumers.processing.context import Surroundings
from consumers.processing.strategies.buffer import UpTo
from consumers.processing.strategies.commit_positions import IMMEDIATELY, CommitPositions
from consumers.processing.strategies.produce import Produce
from consumers.processing.strategies.produce_in_transaction import ProduceInTransaction
from consumers.processing.strategies.protocol import Message, MessageRejected, Rejection
from consumers.types import OffsetRange, Ranges
from tests.contracts.driver import Next
from tests.contracts.strategies import PARTITIONS, Source
from tests.contracts.strategies_produce import OUT, Member, cluster_with_topics, rows_in

TP = PARTITIONS[0]


@dataclass
class Rig:
    """A cluster whose clock stands still, and a source of messages."""

    clock: ManualClock = field(default_factory=ManualClock)
    source: Source = field(default_factory=Source)
    commits: list[Ranges] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cluster: MemoryCluster = cluster_with_topics(self.clock)
        self.around = Surroundings(self.clock)

    def message(self, *values: str) -> Message[pa.RecordBatch]:
        """The next records of partition 0, each with its origin as its key."""
        message = self.source.message(*values)
        keys = pa.array([b"0/%d" % offset for offset in message.payload["offset"].to_pylist()], pa.binary())
        return message.with_payload(pa.RecordBatch.from_arrays([message.payload["value"], keys], ["value", "key"]))


@pytest.fixture
def rig() -> Rig:
    return Rig()


def producing(rig: Rig, after: Next, **limits: int) -> Produce:
    return Produce(MemoryProducer(rig.cluster), OUT, after, around=rig.around, **limits)


def test_a_position_passes_a_record_only_when_it_was_acknowledged(rig: Rig) -> None:
    after = Next()
    step = producing(rig, after)
    rig.cluster.faults.fail("produce", times=3)
    step.submit(rig.message("a"))
    step.poll()
    step.submit(rig.message("b"))
    assert not after.done
    for _ in range(3):
        step.poll()
    assert after.committed == {TP: OffsetRange(0, 2)}


@pytest.mark.parametrize(("keep", "used"), [(True, 2), (False, 1)])
def test_the_key_decides_where_a_record_goes_unless_partitions_are_to_be_kept(rig: Rig, keep: bool, used: int) -> None:
    step = Produce(MemoryProducer(rig.cluster), OUT, Next(), keep_partitions=keep, around=rig.around)
    step.submit(rig.source.message("a", "b", partitions=(0, 1)))  # all with the same key
    assert step.flush(1.0)
    assert sum(marks.high > 0 for marks in MemoryAdmin(rig.cluster).watermarks(OUT).values()) == used


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (["a"], "is a list, and no record batch or table"),
        (pa.record_batch({"key": [b"k"]}), r"has no column 'value' \(but key\)"),
        (pa.record_batch({"value": [1]}), "has a column of a type that cannot be sent"),
    ],
)
def test_what_cannot_be_sent_is_said_with_topic_and_offsets(rig: Rig, payload: object, why: str) -> None:
    step = producing(rig, Next())
    with pytest.raises(FatalError, match=rf"to topic 'out' {why}.* partitions and offsets 0 \[0, 1\)"):
        step.submit(rig.message("a").with_payload(payload))


def test_what_waits_is_bounded_by_the_source_where_little_is_left_of_it(rig: Rig) -> None:
    step = producing(rig, Next(), max_bytes=10_000)
    rig.cluster.faults.fail("produce", times=100)
    little = [whole.with_payload(whole.payload.slice(0, 1)) for whole in (rig.message(*["x" * 200] * 20) for _ in range(4))]
    for whole in little[:2]:
        step.submit(whole)
    with pytest.raises(MessageRejected):
        step.submit(little[2])


def test_a_lost_acknowledgement_neither_loses_nor_doubles_a_record(rig: Rig) -> None:
    after = Next()
    step = producing(rig, after)
    rig.cluster.faults.lose_acknowledgement(times=2)
    step.submit(rig.message("a", "b"))
    assert step.flush(1.0)
    assert rows_in(rig.cluster) == [(0, 0), (0, 1)]


def test_a_record_that_is_not_delivered_ends_the_run_and_nothing_past_it_is_committed(rig: Rig) -> None:
    step = Produce(
        MemoryProducer(rig.cluster), OUT, CommitPositions(rig.commits.append, IMMEDIATELY, rig.clock), around=rig.around
    )
    step.submit(rig.message("a"))
    step.poll()
    rig.cluster.faults.fail("produce", fatal=True)
    step.submit(rig.message("b", "c"))
    with pytest.raises(BrokerError, match=r"not delivered to topic 'out'.* topic orders, partitions and offsets 0 \[1, 3\)"):
        step.poll()
    with pytest.raises(BrokerError, match="not delivered"):
        step.submit(rig.message("d"))
    assert rig.commits == [{TP: OffsetRange(0, 1)}]


def test_it_is_full_at_so_many_records_on_their_way_and_takes_one_message_of_any_size(rig: Rig) -> None:
    after = Next()
    step = producing(rig, after, max_records=3)
    rig.cluster.faults.fail("produce", times=100)
    step.submit(rig.message("a", "b", "c", "d"))
    refused = rig.message("e")
    with pytest.raises(MessageRejected):
        step.submit(refused)
    rig.cluster.faults.clear()
    step.submit(refused)
    assert step.flush(1.0)
    assert after.committed == {TP: OffsetRange(0, 5)}


def test_it_is_full_at_so_many_bytes_on_their_way(rig: Rig) -> None:
    step = producing(rig, Next(), max_bytes=1_000)
    rig.cluster.faults.fail("produce", times=100)
    step.submit(rig.message("a" * 600))
    with pytest.raises(MessageRejected):
        step.submit(rig.message("b" * 600))


def test_rejected_records_stay_in_the_message_for_the_step_after(rig: Rig) -> None:
    after = Next()
    step = producing(rig, after)
    message = rig.message("a").with_payload(rig.message("b").payload, (Rejection(TP, 0, "bad"),))
    step.submit(message)
    assert step.flush(1.0)
    assert after.done == [message]


def test_a_payload_without_values_is_refused_in_words(rig: Rig) -> None:
    message = rig.message("a")
    with pytest.raises(FatalError, match="has no column 'value'"):
        producing(rig, Next()).submit(message.with_payload(message.payload.select(["key"])))


@dataclass
class Transactions:
    """`ProduceInTransaction` for a member of the group."""

    rig: Rig
    name: str = "t"

    def __post_init__(self) -> None:
        self.member = Member(self.rig.cluster)
        self.producer = MemoryTransactionalProducer(self.rig.cluster, self.name)
        size = UpTo(records=2, seconds=5.0)
        metadata = self.member.consumer.group_metadata
        self.step = ProduceInTransaction(self.producer, OUT, metadata, self.rig.commits.append, size, around=self.rig.around)

    def stands(self) -> int:
        """The group's offset of partition 0."""
        return self.member.positions()[TP]


def test_records_offsets_and_the_commit_come_together_once_there_are_enough(rig: Rig) -> None:
    transactions = Transactions(rig)
    transactions.step.submit(rig.message("a"))
    transactions.step.poll()
    assert (rows_in(rig.cluster), transactions.stands(), rig.commits) == ([], 0, [])
    transactions.step.submit(rig.message("b"))
    transactions.step.poll()
    assert (rows_in(rig.cluster), transactions.stands(), rig.commits) == ([(0, 0), (0, 1)], 2, [{TP: OffsetRange(0, 2)}])


def test_a_transaction_is_committed_some_seconds_after_it_began(rig: Rig) -> None:
    transactions = Transactions(rig)
    transactions.step.submit(rig.message("a"))
    rig.clock.advance(5.0)
    transactions.step.poll()
    assert rig.commits == [{TP: OffsetRange(0, 1)}]


@pytest.mark.parametrize("call", ["send_offsets", "commit_transaction"])
def test_what_the_cluster_refuses_is_aborted_and_read_again(rig: Rig, call: str) -> None:
    transactions = Transactions(rig)
    rig.cluster.faults.fail(call, fatal=True)  # type: ignore[arg-type]
    transactions.step.submit(rig.message("a"))
    with pytest.raises(OwnershipLost, match=r"topic orders, partitions and offsets 0 \[0, 1\) was aborted"):
        transactions.step.flush(1.0)
    assert (transactions.stands(), rig.commits) == (0, [])
    rig.source.seek({TP: 0})
    transactions.step.submit(rig.message("a"))
    assert transactions.step.flush(1.0)
    assert (rows_in(rig.cluster), transactions.stands()) == ([(0, 0)], 1)


def test_a_member_that_the_group_has_put_out_commits_nothing(rig: Rig) -> None:
    zombie = Transactions(rig)
    zombie.step.submit(rig.message("a"))
    rig.clock.advance(400.0)  # longer than a member may go without a poll
    other = Transactions(rig, "other")
    with pytest.raises(OwnershipLost):
        zombie.step.flush(1.0)
    zombie.step.discard()
    assert (rows_in(rig.cluster), other.stands(), rig.commits) == ([], 0, [])


def test_a_newer_producer_with_the_same_id_ends_the_transaction_of_the_older(rig: Rig) -> None:
    older = Transactions(rig)
    older.step.submit(rig.message("a"))
    newer = Transactions(rig)
    rig.source.seek({TP: 0})
    newer.step.submit(rig.message("a"))
    with pytest.raises(OwnershipLost):
        older.step.flush(1.0)
    newer.step.flush(1.0)
    assert (rows_in(rig.cluster), rig.commits) == ([(0, 0)], [{TP: OffsetRange(0, 1)}])


def test_a_record_that_is_not_delivered_ends_the_transaction_and_the_run(rig: Rig) -> None:
    transactions = Transactions(rig)
    rig.cluster.faults.fail("produce", fatal=True)
    transactions.step.submit(rig.message("a"))
    with pytest.raises(BrokerError, match="not delivered to topic 'out'"):
        transactions.step.flush(1.0)
    transactions.step.close()
    assert (rows_in(rig.cluster), rig.commits) == ([], [])


def test_what_was_discarded_is_aborted_so_that_readers_do_not_wait_for_it(rig: Rig) -> None:
    transactions = Transactions(rig)
    transactions.step.submit(rig.message("a"))
    transactions.step.discard()
    transactions.step.poll()
    reader = MemoryConsumer(rig.cluster, OUT)
    marks = reader.watermarks(reader.partitions())
    assert max(mark.high for mark in marks.values()) == 2  # the record and the marker of its abortion
    assert rows_in(rig.cluster) == []


def test_transactions_need_a_producer_that_has_them(rig: Rig) -> None:
    with pytest.raises(TypeError, match="MemoryProducer has no transactions"):
        ProduceInTransaction(MemoryProducer(rig.cluster), OUT, object, lambda ranges: None)  # type: ignore[arg-type]
