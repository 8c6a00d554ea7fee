"""Reading named offsets of a topic without a group: what is there of them, in batches, whatever else the topic holds.

Only committed records are seen. Memory is bounded by the client's fetch buffers and one batch.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from consumers.brokers.kafka import KafkaAssignment
from consumers.brokers.options import KafkaOptions
from consumers.brokers.protocol import BrokerConsumer, Partitions
from consumers.clock import Clock
from consumers.config import Consumer
from consumers.errors import BrokerError
from consumers.processing.incarnation import Incarnation
from consumers.types import OffsetRange, Positions, RecordBatch, TopicPartition, Watermarks

Segments = Mapping[TopicPartition, Sequence[OffsetRange]]
PATIENCE_SECONDS = 60.0
_POLL_SECONDS = 1.0
_RECORDS = 10_000


@dataclass
class _Wanted:
    """What is still to be read of one partition: the range at hand and those after it."""

    ranges: deque[OffsetRange]
    position: int

    def after(self, low: int) -> "_Wanted":
        """The same without what is before `low`."""
        kept = deque(OffsetRange(max(r.start, low), r.end) for r in self.ranges if r.end > low)
        return _Wanted(kept, max(self.position, low))

    def passed(self, end: int) -> int | None:
        """Everything before `end` was read. Returns where to go on, if that is somewhere else; None to read on."""
        self.position = end
        while self.ranges and self.ranges[0].end <= end:
            self.ranges.popleft()
        if self.ranges and self.ranges[0].start > end:
            self.position = self.ranges[0].start
            return self.position
        return None


class Source:
    """Reads segments of one topic from a broker's consumer that is in no group. Used by one thread; close it at the end."""

    def __init__(self, broker: BrokerConsumer, clock: Clock) -> None:
        self._broker = broker
        self._clock = clock
        self._left: dict[TopicPartition, _Wanted] = {}
        self._marks: dict[TopicPartition, Watermarks] = {}
        self._topic_id = broker.topic_id()
        self._incarnation = Incarnation(broker.topic_id, clock)
        self._assigned: Partitions = frozenset()
        broker.subscribe(self)

    @property
    def topic_id(self) -> str:
        """The id of the topic that is read; empty where the brokers know none."""
        return self._topic_id

    def require_topic(self) -> None:
        """Raise `OwnershipLost` when the topic was deleted and created again since this source was made."""
        self._incarnation.require(self._topic_id)

    def watermarks(self) -> Mapping[TopicPartition, Watermarks]:
        """Of every partition, asked now."""
        return self._broker.watermarks(self._broker.partitions())

    def span(self, start_ms: int, end_ms: int) -> dict[TopicPartition, OffsetRange]:
        """Per partition, from the first record at or after `start_ms` to the first at or after `end_ms`.

        No record before the span is as young as `start_ms`. Records after it may be older than `end_ms` all the same: a topic is
        not in the order of its timestamps.
        """
        every = self._broker.partitions()
        starts, ends = self._broker.offsets_at(every, start_ms), self._broker.offsets_at(every, end_ms)
        return {tp: OffsetRange(start, max(start, ends[tp])) for tp, start in sorted(starts.items())}

    def read(self, segments: Segments) -> Iterator[RecordBatch]:
        """The records of `segments` (ascending in a partition), and of nothing else. What the topic no longer holds is absent.

        Raises `BrokerError` when nothing arrives for a minute, and `OwnershipLost` when the topic was replaced meanwhile.
        """
        self._marks = dict(self.watermarks())
        self._left = {tp: wanted for tp, ranges in segments.items() if (wanted := self._clipped(tp, ranges)) is not None}
        if not self._left:
            return
        self._go()
        heard = self._clock.monotonic()
        while self._left:
            batch = self._broker.poll(_RECORDS, _POLL_SECONDS)
            if batch is None:
                self._require_patience(heard)
                continue
            heard = self._clock.monotonic()
            found = self._within(batch)
            self._step(batch)
            if found.num_rows:
                yield RecordBatch(batch.topic, found, batch.ranges)
        self.require_topic()

    def close(self) -> None:
        """Let go of the broker."""
        self._broker.close()

    def assigned(self, partitions: Partitions) -> Positions:
        """Partitions are read from where they are wanted; the others wait at their ends."""
        self._assigned |= partitions
        self._marks |= self._broker.watermarks(partitions)
        # Retention may have passed a range since reading began: what is gone is absent, as if it had been gone then.
        left = {tp: wanted.after(self._marks[tp].low) if tp in partitions else wanted for tp, wanted in self._left.items()}
        self._left = {tp: wanted for tp, wanted in left.items() if wanted.ranges}
        return {tp: self._place(tp) for tp in partitions}

    def revoked(self, partitions: Partitions) -> None:
        """Nothing is held."""
        self._assigned -= partitions

    def lost(self, partitions: Partitions) -> None:
        """Nothing is held."""
        self._assigned -= partitions

    def _clipped(self, tp: TopicPartition, ranges: Sequence[OffsetRange]) -> _Wanted | None:
        marks = self._marks.get(tp)
        if marks is None:
            return None
        bounds = [(max(r.start, marks.low), min(r.end, marks.high)) for r in ranges]
        inside = [OffsetRange(start, end) for start, end in bounds if start < end]
        return _Wanted(deque(inside), inside[0].start) if inside else None

    def _place(self, tp: TopicPartition) -> int:
        """Where to read a partition now."""
        wanted = self._left.get(tp)
        return self._marks[tp].high if wanted is None else wanted.position

    def _go(self) -> None:
        known = {tp: self._place(tp) for tp in self._assigned if tp in self._marks}
        if known:
            self._broker.seek(known)

    def _within(self, batch: RecordBatch) -> pa.RecordBatch:
        partitions, offsets = batch.records["partition"].to_numpy(), batch.records["offset"].to_numpy()
        kept = np.zeros(len(offsets), np.bool_)
        for tp in batch.ranges:
            if (wanted := self._left.get(tp)) is not None:
                ours = partitions == tp.partition
                for step in wanted.ranges:
                    if step.start >= batch.ranges[tp].end:
                        break
                    kept |= ours & (offsets >= max(step.start, wanted.position)) & (offsets < step.end)
        return batch.records.filter(pa.array(kept))

    def _step(self, batch: RecordBatch) -> None:
        moves: dict[TopicPartition, int] = {}
        for tp, passed in batch.ranges.items():
            wanted = self._left.get(tp)
            if wanted is None or passed.end <= wanted.position:
                continue
            target = wanted.passed(passed.end)
            if not wanted.ranges:
                del self._left[tp]
                target = max(self._marks[tp].high, passed.end)
            if target is not None:
                moves[tp] = target
        if moves:
            self._broker.seek(moves)

    def _require_patience(self, heard: float) -> None:
        if self._clock.monotonic() - heard > PATIENCE_SECONDS:
            waiting = ", ".join(f"{tp} from offset {wanted.position}" for tp, wanted in sorted(self._left.items()))
            raise BrokerError(
                f"nothing arrived for {PATIENCE_SECONDS:.0f} s of {waiting}. The table is as it was. Look at the brokers, then "
                "try again."
            )


def reader(kafka: KafkaOptions, consumer: Consumer, clock: Clock) -> KafkaAssignment:
    """A reader of the consumer's topic that is in no group. Raises `BrokerError` where the cluster or the topic is not there."""
    return KafkaAssignment(kafka, consumer.config.topic, f"weir-rebuild-{consumer.name}", clock=clock)
