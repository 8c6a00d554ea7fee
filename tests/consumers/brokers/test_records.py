"""Client messages become columns with nothing changed."""

from confluent_kafka import Message

from consumers.brokers.records import to_columns
from consumers.types import RECORD_COLUMNS


def _message(offset: int, **more: object) -> Message:
    return Message(topic="t", partition=3, offset=offset, **more)  # type: ignore[call-arg]


def test_messages_keep_key_value_headers_offset_and_timestamp() -> None:
    columns = to_columns(
        [
            _message(7, key=b"k", value=b"\xff", timestamp=(1, 1_356_998_400_123), headers=[("h", b"\0"), ("h", None)]),
            _message(9, key=None, value=None, timestamp=(0, -1)),
            _message(10, key=b"", value=b"", timestamp=(2, -1), headers=[]),
        ]
    )
    assert columns.schema == RECORD_COLUMNS
    assert columns["offset"].to_pylist() == [7, 9, 10]
    assert columns["partition"].to_pylist() == [3, 3, 3]
    assert columns["timestamp"].cast("int64").to_pylist() == [1_356_998_400_123, None, -1]
    assert columns["key"].to_pylist() == [b"k", None, b""]
    assert columns["value"].to_pylist() == [b"\xff", None, b""]
    assert columns["headers"].to_pylist() == [[{"key": "h", "value": b"\0"}, {"key": "h", "value": None}], None, None]


def test_no_messages_are_an_empty_batch() -> None:
    assert to_columns([]).num_rows == 0
