"""Client messages into columns. Every call here costs per batch of thousands; a method call per message is the one exception."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from consumers.types import HEADERS, RECORD_COLUMNS


def to_columns(messages: Sequence[Message]) -> pa.RecordBatch:
    """Messages without errors as a record batch with the columns of `RECORD_COLUMNS`."""
    stamps = list(map(Message.timestamp, messages))
    times = np.fromiter((ms for _, ms in stamps), np.int64, len(stamps))
    kinds = np.fromiter((kind for kind, _ in stamps), np.int8, len(stamps))
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.fromiter(map(Message.partition, messages), np.int32, len(messages))),
            pa.array(np.fromiter(map(Message.offset, messages), np.int64, len(messages))),
            pa.array(times, mask=kinds == 0).cast(RECORD_COLUMNS.field("timestamp").type),
            pa.array(list(map(Message.key, messages)), pa.binary()),
            pa.array(list(map(Message.value, messages)), pa.binary()),
            _headers(list(map(Message.headers, messages))),
        ],
        schema=RECORD_COLUMNS,
    )


def _headers(raw: list[Any]) -> pa.Array:
    if not any(raw):
        return pa.nulls(len(raw), HEADERS)
    return pa.array([None if not h else [{"key": key, "value": _bytes(value)} for key, value in h] for h in raw], HEADERS)


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
