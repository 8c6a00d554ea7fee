"""What a reader of committed transactions finds in a topic of a real Kafka."""

import pyarrow as pa

from consumers.brokers.kafka import KafkaAssignment
from consumers.brokers.options import KafkaOptions
from consumers.brokers.protocol import Partitions
from consumers.clock import SystemClock
from consumers.types import Positions


class FromTheBeginning:
    """Assigned to partitions that are read from offset 0."""

    def assigned(self, partitions: Partitions) -> Positions:
        return dict.fromkeys(partitions, 0)

    def revoked(self, partitions: Partitions) -> None:
        """Nothing to finish."""

    def lost(self, partitions: Partitions) -> None:
        """Nothing to forget."""


def committed(kafka: str, topic: str) -> pa.Table | None:
    """The records that a reader of committed transactions gets now, up to the last stable offset; None where there are none."""
    reader, clock = KafkaAssignment(KafkaOptions(kafka), topic, "reader"), SystemClock()
    reader.subscribe(FromTheBeginning())
    left = {tp: marks.high for tp, marks in reader.watermarks(reader.partitions()).items() if marks.high}
    batches, deadline = [], clock.monotonic() + 60
    while left:
        assert clock.monotonic() < deadline, f"not read in time: {left}"
        if (batch := reader.poll(10_000, 0.5)) is not None:
            batches.append(batch.records)
            left = {tp: end for tp, end in left.items() if tp not in batch.ranges or batch.ranges[tp].end < end}
    reader.close()
    return pa.Table.from_batches(batches) if batches else None


def values(kafka: str, topic: str) -> list[bytes]:
    """Their values, in order within a partition."""
    found = committed(kafka, topic)
    return [] if found is None else found["value"].to_pylist()
