"""Every fault that can be ordered does what its order says, and no more."""

from collections.abc import Callable

import pytest

from consumers.brokers.memory import (
    MemoryAdmin,
    MemoryCluster,
    MemoryConsumer,
    MemoryProducer,
    MemoryTransactionalProducer,
)
from consumers.brokers.producer import UndeliveredError
from consumers.brokers.protocol import Delivery
from consumers.errors import BrokerError, DataLoss
from consumers.types import Watermarks
from tests.consumers.brokers.memory.parts import NOW, TP, Parts, turns


def test_a_lost_acknowledgement_leaves_one_record_behind_an_idempotent_producer() -> None:
    parts, told = Parts(), list[Delivery]()
    parts.faults.lose_acknowledgement("produce", times=3)
    parts.producer.send("t", b"1", on_delivery=told.append)
    parts.producer.send("t", b"2", on_delivery=told.append)
    assert parts.producer.waiting == 2
    assert parts.producer.flush(10) == 0
    assert [d.offset for d in told] == [0, 1]
    reader = parts.reader()
    turns(reader)
    assert reader.values() == [b"1", b"2"]


def test_without_idempotence_a_lost_acknowledgement_repeats_the_record() -> None:
    parts = Parts()
    producer = MemoryProducer(parts.cluster, idempotent=False)
    parts.faults.lose_acknowledgement("produce")
    producer.send("t", b"1")
    producer.flush(10)
    reader = parts.reader()
    turns(reader)
    assert reader.values() == [b"1", b"1"]


def test_a_write_that_fails_for_a_while_arrives_in_order() -> None:
    parts = Parts()
    parts.faults.fail("produce", times=4)
    parts.write(b"1", b"2", b"3")
    reader = parts.reader()
    turns(reader)
    assert reader.values() == [b"1", b"2", b"3"]


def test_a_write_that_fails_for_too_long_is_reported() -> None:
    parts = Parts()
    producer = MemoryProducer(parts.cluster, delivery_seconds=2.0)
    parts.faults.fail("produce", times=1_000)
    producer.send("t", b"1")
    with pytest.raises(UndeliveredError, match="not acknowledged within 2 s"):
        producer.close()


def test_a_write_that_is_refused_is_reported_and_the_next_is_not() -> None:
    parts, told = Parts(), list[Delivery]()
    parts.faults.fail("produce", fatal=True)
    parts.producer.send("t", b"1", on_delivery=told.append)
    parts.producer.send("t", b"2", on_delivery=told.append)
    parts.producer.flush(1)
    assert [bool(d.error) for d in told] == [True, False]


def test_a_full_queue_makes_a_producer_wait() -> None:
    parts = Parts()
    producer = MemoryProducer(parts.cluster, max_waiting=10)
    parts.faults.fail("produce", times=30)
    for i in range(100):
        producer.send("t", b"%d" % i)
        assert producer.waiting <= 10
    producer.close()
    assert parts.admin.watermarks("t") == {TP: Watermarks(0, 100)}


def test_a_poll_that_fails_transiently_gives_nothing_once() -> None:
    parts = Parts()
    parts.write(b"1")
    reader = parts.reader()
    reader.turn()
    parts.faults.fail("poll")
    assert reader.turn() is None
    assert reader.turn() is not None


def test_a_poll_that_fails_fatally_says_so() -> None:
    parts = Parts()
    reader = parts.reader()
    parts.faults.fail("poll", fatal=True)
    with pytest.raises(BrokerError, match="as the test ordered"):
        reader.turn()


def test_a_commit_that_fails_is_logged_and_not_made(caplog: pytest.LogCaptureFixture) -> None:
    parts = Parts()
    member = parts.member()
    turns(member)
    parts.faults.fail("commit")
    member.consumer.commit({TP: 1}, wait=True)
    assert "were not committed" in caplog.text
    assert parts.admin.group_offsets("g", "t") == {}
    member.consumer.commit({TP: 1}, wait=True)
    assert parts.admin.group_offsets("g", "t") == {TP: 1}


def test_a_commit_whose_answer_is_lost_is_made(caplog: pytest.LogCaptureFixture) -> None:
    parts = Parts()
    member = parts.member()
    turns(member)
    parts.faults.lose_acknowledgement("commit")
    member.consumer.commit({TP: 1}, wait=True)
    assert "were not committed" in caplog.text
    assert parts.admin.group_offsets("g", "t") == {TP: 1}


def test_a_position_that_is_said_to_be_out_of_range_is_data_loss_once_that_lasts() -> None:
    parts = Parts()
    parts.write(b"1")
    reader = parts.reader()
    parts.faults.put_out_of_range(times=3)
    turns(reader, rounds=10)
    assert reader.values() == [b"1"]
    assert [how for _, how, _ in reader.told] == ["assigned", *["revoked", "assigned"] * 3]
    parts.faults.put_out_of_range(times=4)
    with pytest.raises(DataLoss, match="t/0: offset 0 is not in the topic any more"):
        turns(reader, rounds=10)


QUESTIONS: dict[str, Callable[[MemoryConsumer], object]] = {
    "watermarks": lambda c: c.watermarks(frozenset({TP})),
    "group_offsets": lambda c: c.group_offsets(frozenset({TP})),
    "offsets_at": lambda c: c.offsets_at(frozenset({TP}), 0),
    "partitions": lambda c: c.partitions(),
    "topic_id": lambda c: c.topic_id(),
}


@pytest.mark.parametrize("call", QUESTIONS)
def test_a_question_that_fails_is_asked_again_until_it_lasts_too_long(call: str) -> None:
    parts = Parts()
    consumer = MemoryConsumer(parts.cluster, "t", "g")
    answer = QUESTIONS[call](consumer)
    parts.faults.fail(call, times=3)  # type: ignore[arg-type]
    assert QUESTIONS[call](consumer) == answer
    parts.faults.fail(call, times=1_000)  # type: ignore[arg-type]
    with pytest.raises(BrokerError, match=f"refused '{call}'"):
        QUESTIONS[call](consumer)
    parts.faults.clear()
    assert QUESTIONS[call](consumer) == answer


def test_a_delay_takes_time_and_nothing_else() -> None:
    parts = Parts()
    parts.faults.delay("topic_id", 5.0)
    assert parts.admin.topic_id("t") == "t-1"
    assert parts.clock.time() == NOW + 5.0


def test_a_fault_for_one_client_leaves_the_others_alone() -> None:
    parts = Parts()
    parts.faults.fail("topic_id", fatal=True, client="other")
    assert parts.admin.topic_id("t") == "t-1"
    assert parts.faults.left == 1
    with pytest.raises(BrokerError, match="client 'other'"):
        MemoryConsumer(parts.cluster, "t", client_id="other").topic_id()
    assert parts.faults.left == 0


def test_a_transaction_whose_commit_was_not_acknowledged_is_committed_once() -> None:
    parts = Parts()
    writer = MemoryTransactionalProducer(parts.cluster, "x")
    writer.begin()
    writer.send("t", b"1")
    parts.faults.lose_acknowledgement("commit_transaction", times=2)
    writer.commit_transaction()
    assert parts.admin.watermarks("t") == {TP: Watermarks(0, 2)}


def test_a_cluster_without_topic_ids_tells_none() -> None:
    admin = MemoryAdmin(MemoryCluster(topic_ids=False))
    admin.create_topic("t")
    assert admin.topic_id("t") == ""


def test_an_order_that_would_never_happen_is_refused() -> None:
    with pytest.raises(ValueError, match="never happen"):
        Parts().faults.fail("poll", times=0)
