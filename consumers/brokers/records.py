"""Client messages into columns. Every call here costs per batch of thousands; a method call per message is the one exception."""

import gc
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, Message

from consumers.types import HEADERS, RECORD_COLUMNS, OffsetRange, RecordBatch, TopicPartition

UNREADABLE = "\N{REPLACEMENT CHARACTER}"
"""The name of a header whose own is not UTF-8, which the client does not tell."""


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
            _headers(_told(messages)),
        ],
        schema=RECORD_COLUMNS,
    )


def sift(messages: list[Message]) -> tuple[list[Message], dict[TopicPartition, int], list[Message]]:
    """Records; the ends that partitions were read to; and events that are errors."""
    if not any(map(Message.error, messages)):
        return messages, {}, []
    records, ends, errors = [], {}, []
    for message in messages:
        error = message.error()
        if error is None:
            records.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            ends[TopicPartition(message.topic() or "", message.partition() or 0)] = message.offset() or 0
        else:
            errors.append(message)
    return records, ends, errors


def to_batch(
    topic: str, messages: list[Message], ends: Mapping[TopicPartition, int], known: Mapping[TopicPartition, int]
) -> RecordBatch | None:
    """The records at or past their partition's next offset in `known`, and how far they and `ends` bring each partition.

    Records of a partition that is not in `known` are left out. None when no partition gets on.
    """
    records = to_columns(messages)
    offsets = records["offset"].to_numpy()
    partitions = records["partition"].to_numpy()
    found, last = np.unique(partitions[::-1], return_index=True)
    reached = {TopicPartition(topic, int(p)): int(offsets[::-1][i]) + 1 for p, i in zip(found, last, strict=True)}
    if repeated := _repeated(partitions, offsets, known):
        records = records.filter(pa.array(repeated))
    for tp, end in ends.items():
        reached[tp] = max(end, reached.get(tp, 0))
    ranges = {tp: OffsetRange(known[tp], end) for tp, end in reached.items() if tp in known and end > known[tp]}
    return RecordBatch(topic, records, ranges) if ranges else None


def _repeated(partitions: np.ndarray, offsets: np.ndarray, known: Mapping[TopicPartition, int]) -> list[bool] | None:
    """Which rows to keep, where some are below their partition's next offset or of no partition of ours; else None."""
    floor = np.full(int(partitions.max(initial=0)) + 1, np.iinfo(np.int64).max)
    for tp, offset in known.items():
        if tp.partition < len(floor):
            floor[tp.partition] = offset
    kept = offsets >= floor[partitions]
    return None if kept.all() else [bool(k) for k in kept]


def _told(messages: Sequence[Message]) -> list[Any]:
    """The headers of each message, None or (name, value) pairs."""
    try:
        return list(map(Message.headers, messages))
    except SystemError:
        for message in messages:
            message.set_headers(_readable(message))
        return list(map(Message.headers, messages))


def _readable(message: Message) -> list[tuple[str, str | bytes | None]]:
    """The headers of a message, some of which may have names that are not UTF-8.

    Of those confluent-kafka makes tuples with a null pointer for a name: the first question raises SystemError, every later one
    returns them, and the process dies where they are unpacked. The garbage collector tells what is there and passes nulls over.
    `map` calls as C does: a call that the interpreter has specialised would leave the error pending.
    """
    with suppress(SystemError):
        list(map(Message.headers, [message]))
    pairs: list[tuple[str, str | bytes | None]] = []
    for pair in next(map(Message.headers, [message])) or ():
        there = gc.get_referents(pair)
        name = next((part for part in there if isinstance(part, str)), UNREADABLE)
        pairs.append((name, next((part for part in there if isinstance(part, bytes)), None)))
    return pairs


def _headers(raw: list[Any]) -> pa.Array:
    if not any(raw):
        return pa.nulls(len(raw), HEADERS)
    return pa.array([None if not h else [{"key": key, "value": _bytes(value)} for key, value in h] for h in raw], HEADERS)


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
