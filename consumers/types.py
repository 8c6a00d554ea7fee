"""The domain as types: partitions, offset ranges, and the record batch that everything passes on.

An offset here is always Kafka's. A position is the *next* offset to read. A range is half open, `[start, end)`.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

RECORD_COLUMNS = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", "UTC")),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
    ]
)


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A partition of a Kafka topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"

    @staticmethod
    def parse(text: str) -> "TopicPartition":
        """The inverse of `str`. Raises ValueError for any other text."""
        topic, _, partition = text.rpartition("/")
        return TopicPartition(topic, int(partition))


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets `start` (included) to `end` (excluded)."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if self.end < self.start:
            raise ValueError(f"a range cannot end before it starts: [{self.start}, {self.end})")

    def __len__(self) -> int:
        return self.end - self.start

    def then(self, other: "OffsetRange") -> "OffsetRange":
        """This range and the one that follows it. Raises ValueError when they do not join."""
        if other.start != self.end:
            raise ValueError(f"[{other.start}, {other.end}) does not follow [{self.start}, {self.end})")
        return OffsetRange(self.start, other.end)

    def hull(self, other: "OffsetRange") -> "OffsetRange":
        """From the first offset of the two to the last, with what is between them."""
        return OffsetRange(min(self.start, other.start), max(self.end, other.end))


Ranges = Mapping[TopicPartition, OffsetRange]
Positions = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Position:
    """Where a partition stands, in whatever keeps its position.

    `offset` is the next to read (None before the first), `epoch` how often the partition was taken over, `cut` the epoch in
    which offsets began to be used again (0: never).
    """

    offset: int | None
    epoch: int
    cut: int = 0


def topic_hash(topic_id: str) -> int:
    """A topic's id as a number of 62 bits."""
    return int.from_bytes(hashlib.sha256(topic_id.encode()).digest()[:8], "big") >> 2


@dataclass(frozen=True, slots=True)
class Watermarks:
    """What a partition holds: `low` the first offset still there, `high` the next one to be written."""

    low: int
    high: int

    def lag(self, position: int) -> int:
        """Records from `position` (the next offset to read) to the end.

        A position past the end belongs to a log that is gone: then everything here is unread, and at least one record is said
        to be, so that nobody takes it for caught up.
        """
        if position > self.high:
            return max(1, self.high - self.low)
        return self.high - max(position, self.low)


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Records of one topic as columns, and the offset range of each partition that they account for.

    `records` has the columns of `RECORD_COLUMNS`, in offset order within a partition. A range may be longer than its
    records: offsets without a record (transaction markers, compaction) belong to the range that passes them. A batch
    without records but with ranges is such a step and nothing else.
    """

    topic: str
    records: pa.RecordBatch
    ranges: Ranges

    @property
    def nbytes(self) -> int:
        """Bytes that the columns take in memory."""
        return int(self.records.nbytes)

    def without(self, partitions: frozenset[TopicPartition]) -> "RecordBatch":
        """The same batch with nothing of these partitions."""
        if not partitions & self.ranges.keys():
            return self
        gone = pa.array([tp.partition for tp in partitions if tp.topic == self.topic], pa.int32())
        kept = pc.invert(pc.is_in(self.records["partition"], value_set=gone))
        return RecordBatch(
            topic=self.topic,
            records=self.records.filter(kept),
            ranges={tp: r for tp, r in self.ranges.items() if tp not in partitions},
        )


def join_ranges(first: Ranges, second: Ranges) -> dict[TopicPartition, OffsetRange]:
    """Both as one. Raises ValueError where a range of `second` does not follow the one in `first`."""
    joined = dict(first)
    for tp, step in second.items():
        joined[tp] = joined[tp].then(step) if tp in joined else step
    return joined


def hulls(first: Ranges, second: Ranges) -> dict[TopicPartition, OffsetRange]:
    """Per partition the hull of what the two have."""
    found = dict(first)
    for tp, step in second.items():
        found[tp] = found.get(tp, step).hull(step)
    return found
