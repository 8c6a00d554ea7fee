"""The Kafka producer without a cluster: what becomes of records that nobody takes."""

import pyarrow as pa
import pytest

from consumers.brokers.options import KafkaOptions
from consumers.brokers.producer import KafkaProducer, UndeliveredError
from consumers.brokers.protocol import Delivery
from consumers.brokers.transactions import KafkaTransactionalProducer
from consumers.errors import BrokerError

NOBODY = "127.0.0.1:1"


def producer(**options: str) -> KafkaProducer:
    """One without a cluster; `delivery_timeout_ms` and the like are librdkafka's."""
    return KafkaProducer(KafkaOptions(NOBODY, {name.replace("_", "."): value for name, value in options.items()}))


def impatient(**options: str) -> KafkaProducer:
    return producer(**{"delivery_timeout_ms": "50", "linger_ms": "1"} | options)


def batch(values: list[bytes | None], **columns: list[object]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary()), **columns})


def test_what_cannot_be_delivered_is_counted_and_raised() -> None:
    sender = producer()
    for _ in range(3):
        sender.send("t", b"x")
    assert sender.flush(0.05) == 3
    with pytest.raises(UndeliveredError, match="3 of 3 records were not delivered") as raised:
        sender.close(timeout=0.05)
    assert (raised.value.report.delivered, raised.value.report.failed) == (0, 3)
    assert raised.value.report.errors


def test_closing_twice_tells_the_same_twice() -> None:
    sender = producer()
    sender.send("t", b"x")
    for _ in range(2):
        with pytest.raises(UndeliveredError, match="1 of 1"):
            sender.close(timeout=0)


def test_a_record_that_kafka_does_not_take_in_time_is_counted_with_its_reason() -> None:
    sender = impatient()
    sender.send("t", b"x")
    with pytest.raises(UndeliveredError, match="timed out"):
        sender.close(timeout=30)


def test_a_full_queue_slows_the_sender_and_loses_nothing() -> None:
    sender = impatient(queue_buffering_max_messages="10")
    for _ in range(6):
        sender.send("t", b"x")
    receipt = sender.send_batch("t", batch([b"%d" % i for i in range(8)]))
    assert sender.waiting <= 10
    assert sender.flush(30) == 0
    assert sorted(row for row, _ in receipt.failed) == list(range(8))
    with pytest.raises(UndeliveredError, match="14 of 14"):
        sender.close()


def test_a_record_that_is_too_large_fails_alone_and_keeps_its_row() -> None:
    sender = producer()
    receipt = sender.send_batch("t", batch([b"a", b"x" * 2_000_000, b"b"]))
    assert [row for row, _ in receipt.failed] == [1]
    assert "too large" in receipt.failed[0][1]
    assert receipt.waiting == 2
    sender.abandon()


def test_a_record_that_is_too_large_tells_its_own_callback() -> None:
    told: list[Delivery] = []
    sender = producer()
    sender.send("t", b"x" * 2_000_000, on_delivery=told.append)
    assert (told[0].topic, told[0].offset) == ("t", -1)
    assert "too large" in str(told[0].error)
    assert (sender.waiting, sender.failed) == (0, 1)


def test_each_failed_record_of_a_batch_names_its_row_also_among_equal_ones() -> None:
    sender = impatient()
    rows = batch([b"a", b"b", b"a", None, b"x" * 2_000_000, b"a"], key=[b"k", None, b"k", b"", b"k", b"l"])
    receipt = sender.send_batch("t", rows)
    sender.flush(30)
    assert sorted(row for row, _ in receipt.failed) == list(range(6))


def test_a_failed_record_with_a_partition_of_its_own_is_not_taken_for_an_equal_one() -> None:
    sender = impatient()
    rows = batch([b"a", b"a"], partition=pa.array([None, 3], pa.int32()))
    receipt = sender.send_batch("t", rows)
    sender.flush(30)
    assert sorted(row for row, _ in receipt.failed) == [0, 1]


def test_an_exception_in_the_block_is_not_hidden_by_what_it_left_undelivered() -> None:
    with pytest.raises(ZeroDivisionError), producer() as sender:
        sender.send("t", b"x")
        raise ZeroDivisionError
    assert sender.failed == 1


@pytest.mark.parametrize("name", ["acks", "enable.idempotence", "partitioner", "transactional.id"])
def test_options_that_would_break_its_promises_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} cannot be set for a producer"):
        KafkaProducer(KafkaOptions(NOBODY, {name: "1"}))


def test_a_partitioner_that_needs_the_number_of_partitions_says_that_nobody_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consumers.brokers.partitioners._ASK_SECONDS", 0.05)
    sender = KafkaProducer(KafkaOptions(NOBODY), partitioner=lambda _key, count: count - 1)
    with pytest.raises(BrokerError, match="did not tell the partitions of topic 't'"):
        sender.send("t", b"x")


def test_an_empty_transactional_id_is_refused() -> None:
    with pytest.raises(ValueError, match="transactional_id is empty"):
        KafkaTransactionalProducer(KafkaOptions(NOBODY), "")
