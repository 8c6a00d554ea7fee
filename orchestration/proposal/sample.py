"""Some records of a topic, from its beginning or its end, read without a group: nothing is committed and nobody is disturbed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from consumers.brokers.protocol import BrokerConsumer, Partitions
from consumers.clock import Clock
from consumers.types import RECORD_COLUMNS, OffsetRange, Positions, Ranges, RecordBatch, TopicPartition, Watermarks

Start = Literal["earliest", "latest"]
_POLL_SECONDS = 0.5
_POLL_RECORDS = 10_000


@dataclass(frozen=True)
class Sample:
    """Records (columns of `RECORD_COLUMNS`), the offsets that they account for, and the watermarks of all partitions."""

    topic: str
    records: pa.RecordBatch
    ranges: Ranges
    marks: Mapping[TopicPartition, Watermarks]

    @property
    def total(self) -> int:
        """Offsets that the topic holds now: its records, or a few more."""
        return sum(mark.high - mark.low for mark in self.marks.values())


class _Shares:
    """Tells the reader where to start each partition, and knows when it has enough of it."""

    def __init__(self, reader: BrokerConsumer, start: Start, count: int) -> None:
        self._reader, self._start, self._count = reader, start, count
        self.marks: dict[TopicPartition, Watermarks] = {}
        self.wanted: dict[TopicPartition, OffsetRange] = {}

    def assigned(self, partitions: Partitions) -> Positions:
        marks = dict(self._reader.watermarks(partitions))
        shares = fair_shares({tp: mark.high - mark.low for tp, mark in marks.items()}, self._count)
        if not self.marks:
            self.marks = marks
            self.wanted = {tp: _range(marks[tp], share, self._start) for tp, share in shares.items() if share}
        return {tp: self.wanted[tp].start if tp in self.wanted else marks[tp].high for tp in partitions}

    def revoked(self, partitions: Partitions) -> None:
        """There is nothing to finish."""

    def lost(self, partitions: Partitions) -> None:
        """There is nothing to forget."""


def read(reader: BrokerConsumer, topic: str, start: Start, count: int, seconds: float, clock: Clock) -> Sample:
    """At most `count` records, as many of each partition as there are; fewer when `seconds` are over before.

    Raises `BrokerError` for what the cluster refuses. The reader is left open.
    """
    shares, deadline = _Shares(reader, start, count), clock.monotonic() + seconds
    reader.subscribe(shares)
    batches: list[pa.RecordBatch] = []
    reached: dict[TopicPartition, int] = {}
    while not _complete(shares, reached) and clock.monotonic() < deadline:
        batch = reader.poll(_POLL_RECORDS, _POLL_SECONDS)
        if batch is not None:
            batches += _within(batch, shares.wanted)
            reached |= {tp: step.end for tp, step in batch.ranges.items()}
    ranges = {tp: OffsetRange(r.start, min(r.end, reached.get(tp, r.start))) for tp, r in shares.wanted.items()}
    return Sample(topic, _joined(batches), ranges, shares.marks)


def fair_shares(sizes: Mapping[TopicPartition, int], count: int) -> dict[TopicPartition, int]:
    """`count` in all, the same from each, and what small ones do not have from the others."""
    shares: dict[TopicPartition, int] = {}
    left = count
    for i, (tp, size) in enumerate(sorted(sizes.items(), key=lambda item: (item[1], item[0]))):
        shares[tp] = min(size, -(-left // (len(sizes) - i)))
        left -= shares[tp]
    return shares


def both_ends(first: Sample, last: Sample) -> pa.RecordBatch:
    """The records of two samples of one topic, each record once."""
    seen = set(_places(first.records))
    new = [place not in seen for place in _places(last.records)]
    return _joined([first.records, last.records.filter(pa.array(new, pa.bool_()))])


def _places(records: pa.RecordBatch) -> list[tuple[int, int]]:
    return list(zip(records["partition"].to_pylist(), records["offset"].to_pylist(), strict=True))


def _range(mark: Watermarks, share: int, start: Start) -> OffsetRange:
    begin = mark.low if start == "earliest" else mark.high - share
    return OffsetRange(begin, begin + share)


def _complete(shares: _Shares, reached: Mapping[TopicPartition, int]) -> bool:
    return bool(shares.marks) and all(reached.get(tp, -1) >= wanted.end for tp, wanted in shares.wanted.items())


def _within(batch: RecordBatch, wanted: Ranges) -> list[pa.RecordBatch]:
    """Of each partition, the records in its range."""
    ends = {tp.partition: wanted[tp].end if tp in wanted else -1 for tp in batch.ranges}
    places = zip(batch.records["partition"].to_pylist(), batch.records["offset"].to_pylist(), strict=True)
    return [batch.records.filter(pa.array([offset < ends[partition] for partition, offset in places], pa.bool_()))]


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    table = pa.Table.from_batches(batches, RECORD_COLUMNS).combine_chunks()
    whole = table.to_batches()
    return whole[0] if whole else pa.RecordBatch.from_pylist([], RECORD_COLUMNS)
