"""What a commit tells of event time: the latest of each partition, nothing from the future, and which columns it has."""

import pyarrow as pa

from consumers.processing.decoding import decoder_for
from consumers.processing.strategies.protocol import Message
from consumers.processing.strategies.stage.buffer import Buffer, Shaped, shape
from consumers.staging.schema import schema_id
from consumers.types import OffsetRange, TopicPartition
from tests.consumers.parts import DAY_MS, config, records

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
FIELD = {"every": "day", "field": "at"}
NOW = DAY_MS + 1_000_000


def shaped(batches: dict[TopicPartition, list[tuple[bytes | None, int | None]]], window: object = "day") -> Shaped:
    definition = config(schema={"at": "timestamp"}, window=window)
    parts = [
        records([value for value, _ in found], partition=tp.partition, stamps=[stamp for _, stamp in found])
        for tp, found in batches.items()
    ]
    payload = pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
    message = Message(payload, {tp: OffsetRange(0, len(found)) for tp, found in batches.items()}, (payload,))
    return shape(message, decoder_for(definition), definition.window, {}, NOW)


def test_each_partition_tells_the_latest_of_its_records_also_of_rejected_ones() -> None:
    found = shaped({ZERO: [(b"{}", DAY_MS + 7), (b"{}", DAY_MS)], ONE: [(b"bad", DAY_MS + 3), (None, None)]})
    assert found.times == {ZERO: DAY_MS + 7, ONE: DAY_MS + 3}


def test_with_a_window_field_the_rows_tell_the_time_and_tombstones_tell_none() -> None:
    found = shaped({ZERO: [(b'{"at":"2013-01-01T00:00:01.5Z"}', 0), (None, DAY_MS + 9000)], ONE: [(None, DAY_MS)]}, FIELD)
    assert found.times == {ZERO: DAY_MS + 1500}


def test_a_record_that_is_dated_in_the_future_tells_no_time() -> None:
    found = shaped({ZERO: [(b"{}", DAY_MS), (b"{}", NOW + 1)], ONE: [(b"{}", NOW + 1)]})
    assert found.times == {ZERO: DAY_MS}


def test_a_commits_time_is_the_latest_of_its_batches() -> None:
    buffer = Buffer()
    first, second = shaped({ZERO: [(b"{}", DAY_MS + 7)]}), shaped({ZERO: [(b"{}", DAY_MS)]})
    buffer.add(first, 0.0)
    buffer.add(Shaped(second.rows, None, {ZERO: OffsetRange(1, 2)}, 1, 1, second.times), 0.0)
    assert buffer.times == {ZERO: DAY_MS + 7}


def test_the_schemas_id_changes_with_what_is_declared() -> None:
    ids = [schema_id(config(schema=schema).columns) for schema in ({"a": "long"}, {"a": "string"}, {"b": "long"})]
    assert len({*ids}) == 3 and ids[0] == schema_id(config(schema={"a": {"type": "long"}}).columns)
