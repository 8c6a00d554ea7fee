"""What a record batch becomes: rows, tombstones, dead letters with all that the record had."""

import pyarrow as pa
import pytest

from consumers.config import Window
from consumers.processing.decoding import decoder_for
from consumers.processing.strategies.protocol import Message, Rejection
from consumers.processing.strategies.stage.buffer import Buffer, Shaped, shape
from consumers.types import OffsetRange, TopicPartition
from tests.consumers.parts import DAY_MS, TP, config, message, records


def shaped(values: list[bytes | None], window: object = "day", schema: object = None, **more: object) -> Shaped:
    definition = config(schema=schema or {"a": "long"}, window=window)
    return shape(message(values, **more), decoder_for(definition), definition.window, {TP: "id"}, 5)


def test_a_tombstone_is_a_row_without_fields() -> None:
    rows = shaped([b'{"a":1}', None, b'{"a":3}']).rows
    assert rows["a"].to_pylist() == [1, None, 3]
    assert rows["_tombstone"].to_pylist() == [False, True, False]
    assert rows["_offset"].to_pylist() == [0, 1, 2]


def test_a_dead_letter_keeps_all_that_the_record_had() -> None:
    headers = [None, [{"key": "h", "value": None}, {"key": "h", "value": b"\xff"}], None, []]
    found = shaped([b'{"a":1}', b"\xff\0 bad ", None, b""], first=40, headers=headers, stamps=[DAY_MS, DAY_MS + 123, None, None])
    assert found.rejects is not None
    assert found.rejects.drop_columns(["_reason", "_rejected_at"]).to_pylist()[0] == {
        "_topic": "t", "_topic_id": "id", "_partition": 0, "_offset": 41, "_timestamp": found.rejects["_timestamp"][0].as_py(),
        "_key": b"k1", "_headers": headers[1], "_value": b"\xff\0 bad ", "_window": "2013-01-01",
    }  # fmt: skip
    assert found.rejects["_timestamp"].cast(pa.int64()).to_pylist() == [(DAY_MS + 123) * 1000, None, None]
    assert found.rejects["_value"].to_pylist() == [b"\xff\0 bad ", None, b""]
    assert found.rejects["_window"].to_pylist() == ["2013-01-01", None, None]


@pytest.mark.parametrize("stamp", [None, -(2**63), 2**63 - 1, -62_135_596_800_001, 253_402_300_800_000])
def test_a_record_without_a_sane_timestamp_is_a_dead_letter(stamp: int | None) -> None:
    found = shaped([b'{"a":1}', b'{"a":2}'], stamps=[stamp, 0])
    assert found.rows["a"].to_pylist() == [2]
    assert found.rejects is not None
    assert found.rejects.select(["_timestamp", "_value"]).to_pylist() == [{"_timestamp": None, "_value": b'{"a":1}'}]
    assert "no timestamp between the years 1 and 9999" in found.rejects["_reason"][0].as_py()


@pytest.mark.parametrize("kind", ["timestamp", "date"])
def test_a_row_without_its_window_field_is_a_dead_letter_and_a_tombstone_takes_its_own_time(kind: str) -> None:
    own = b'{"a":"2020-02-02T00:00:00Z"}' if kind == "timestamp" else b'{"a":"2020-02-02"}'
    found = shaped([own, None, b"{}", b'{"a":null}'], {"every": "day", "field": "a"}, {"a": kind})
    assert found.rows["_window"].to_pylist() == ["2020-02-02", "2013-01-01"]
    assert found.rejects is not None
    assert found.rejects["_offset"].to_pylist() == [2, 3]


def test_rows_of_partitions_with_different_topic_ids_keep_theirs() -> None:
    other = TopicPartition("t", 1)
    mixed = pa.Table.from_batches([records([b"{}", b"x"]), records([b"{}"], 7, 1)]).combine_chunks().to_batches()[0]
    ranges = {TP: OffsetRange(0, 2), other: OffsetRange(7, 8)}
    found = shape(Message(mixed, ranges, (mixed,)), decoder_for(config()), Window(every="day"), {TP: "id~2", other: "id"}, 0)
    assert found.rows["_topic_id"].to_pylist() == ["id~2", "id"]
    assert found.rejects is not None
    assert found.rejects["_topic_id"].to_pylist() == ["id~2"]


def test_a_buffer_joins_ranges_and_refuses_gaps() -> None:
    buffer = Buffer()
    buffer.add(shaped([b"{}"] * 3), 1.0)
    buffer.add(shaped([b"{}"] * 2, first=3), 2.0)
    assert (buffer.ranges, buffer.rows, buffer.since) == ({TP: OffsetRange(0, 5)}, 5, 1.0)
    with pytest.raises(ValueError, match="does not follow"):
        buffer.add(shaped([b"{}"], first=9), 3.0)


def test_a_record_that_an_earlier_strategy_rejected_becomes_a_dead_letter_with_its_own_bytes() -> None:
    definition = config()
    came = message([b'{"a":1}', b'{"a":2}', b"junk"], first=7)
    filtered = came.with_payload(came.payload.filter(pa.array([True, False, True])), (Rejection(TP, 8, "no such flight"),))
    found = shape(filtered, decoder_for(definition), definition.window, {TP: "id"}, 5)
    assert found.rows["_offset"].to_pylist() == [7]
    assert found.rejects is not None
    assert found.rejects.select(["_offset", "_value", "_topic_id"]).to_pylist() == [
        {"_offset": 8, "_value": b'{"a":2}', "_topic_id": "id"},
        {"_offset": 9, "_value": b"junk", "_topic_id": "id"},
    ]
    assert found.rejects["_reason"][0].as_py() == "no such flight"
    assert found.records == 3


def test_dead_letters_of_this_step_and_of_earlier_ones_are_written_together() -> None:
    definition = config()
    late, early = message([b"junk"]), message([b'{"a":2}'], first=1)
    early = early.with_payload(early.payload.slice(0, 0), (Rejection(TP, 1, "no such flight"),))
    buffer = Buffer()
    for came in (late, early):
        buffer.add(shape(came, decoder_for(definition), definition.window, {TP: "id"}, 5), 0.0)
    together = buffer.rejects()
    assert together is not None
    assert together.select(["_topic", "_topic_id", "_offset"]).to_pylist() == [
        {"_topic": "t", "_topic_id": "id", "_offset": 0},
        {"_topic": "t", "_topic_id": "id", "_offset": 1},
    ]
