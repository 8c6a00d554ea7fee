"""What a producer promises, on either broker."""

import pyarrow as pa
import pytest

from consumers.brokers.producer import UndeliveredError
from consumers.brokers.protocol import Delivery
from consumers.types import HEADERS, RECORD_COLUMNS
from tests.contracts.brokers.backends import PATIENCE, Backend, fill, following, new_topic, numbered, until

TOO_LARGE = b"x" * 2_000_000


def batch(values: list[bytes | None], **columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary()), **columns})


def test_a_delivery_tells_where_the_record_is(backend: Backend) -> None:
    topic = new_topic(backend, 2)
    fill(backend, topic, numbered(0, 3), 1)
    producer, told = backend.writer, list[Delivery]()
    producer.send(topic, b"here", partition=1, on_delivery=told.append)
    assert producer.waiting == 1
    assert producer.flush(PATIENCE) == 0
    assert told == [Delivery(topic, 1, 3)]


def test_a_poll_takes_deliveries_in(backend: Backend) -> None:
    topic, told = new_topic(backend), list[Delivery]()
    producer = backend.writer
    producer.send(topic, b"", on_delivery=told.append)
    until(lambda: producer.poll(0.1) or bool(told))
    assert producer.waiting == 0


def test_a_receipt_counts_down_to_nothing(backend: Backend) -> None:
    topic = new_topic(backend, 3)
    producer = backend.writer
    receipt = producer.send_batch(topic, batch(list(numbered(0, 5_000))))
    producer.flush(PATIENCE)
    assert (receipt.waiting, receipt.failed) == (0, [])
    assert sum(marks.high for marks in backend.admin.watermarks(topic).values()) == 5_000


def test_all_columns_of_a_batch_are_written_and_others_are_not(backend: Backend) -> None:
    topic = new_topic(backend, 2)
    sent = batch(
        [b"v", None],
        key=pa.array([None, b"k"], pa.binary()),
        partition=pa.array([1, 0], pa.int32()),
        timestamp=pa.array([1_000, 2_000], RECORD_COLUMNS.field("timestamp").type),
        headers=pa.array([None, [{"key": "h", "value": b"1"}, {"key": "n", "value": None}]], HEADERS),
        offset=pa.array([70, 80], pa.int64()),
    )
    producer = backend.writer
    producer.send_batch(topic, sent)
    producer.flush(PATIENCE)
    with following(backend.reader(topic)) as reader:
        until(lambda: len(reader.rows) == 2, reader)
    rows = sorted(reader.rows, key=lambda row: -row["partition"])
    assert [row.pop("offset") for row in rows] == [0, 0]
    assert rows == [{name: row[name] for name in rows[0]} for row in sent.to_pylist()]


def test_equal_keys_stay_in_order(backend: Backend) -> None:
    topic = new_topic(backend, 4)
    producer = backend.writer
    keys = [b"k%d" % (i % 10) for i in range(500)]
    producer.send_batch(topic, batch(list(numbered(0, 500)), key=pa.array(keys, pa.binary())))
    producer.flush(PATIENCE)
    with following(backend.reader(topic)) as reader:
        until(lambda: len(reader.rows) == 500, reader)
    for key in set(keys):
        values = [int(row["value"]) for row in reader.rows if row["key"] == key]
        assert values == sorted(values)
        assert len(values) == 50


def test_a_record_that_is_too_large_fails_alone_and_the_producer_says_so_in_the_end(backend: Backend) -> None:
    topic = new_topic(backend)
    producer, told = backend.producer(), list[Delivery]()
    receipt = producer.send_batch(topic, batch([b"1", TOO_LARGE, b"3"]))
    producer.send(topic, TOO_LARGE, partition=0, on_delivery=told.append)
    producer.flush(PATIENCE)
    assert receipt.waiting == 0
    assert [row for row, _ in receipt.failed] == [1]
    assert told[0].error
    with pytest.raises(UndeliveredError, match="2 of 4 records were not delivered"):
        producer.close()
    with following(backend.reader(topic)) as reader:
        until(lambda: reader.values() == [b"1", b"3"], reader)


def test_closing_delivers_what_was_queued(backend: Backend) -> None:
    topic = new_topic(backend)
    producer = backend.producer()
    for value in numbered(0, 100):
        producer.send(topic, value)
    producer.close()
    assert sum(marks.high for marks in backend.admin.watermarks(topic).values()) == 100
