"""Batches, and a next step that keeps what it is given, for the tests of parallel strategies."""

from typing import Any

import pyarrow as pa

from consumers.processing.strategies.protocol import Message, MessageRejected
from consumers.types import OffsetRange, TopicPartition

TP = TopicPartition("orders", 0)


def columns(start: int, end: int, size: int = 8) -> pa.RecordBatch:
    """Records of partition 0 with these offsets."""
    values = [f"{offset:0{size}d}".encode() for offset in range(start, end)]
    return pa.record_batch(
        {
            "partition": pa.array([0] * (end - start), pa.int32()),
            "offset": pa.array(range(start, end), pa.int64()),
            "value": pa.array(values, pa.binary()),
        }
    )


def message(payload: Any, start: int, end: int) -> Message[Any]:
    """A message that accounts for these offsets."""
    return Message(payload, {TP: OffsetRange(start, end)})


class Kept:
    """Takes everything, unless it is full, and counts what else it is told."""

    def __init__(self) -> None:
        self.full = False
        self.messages: list[Message[Any]] = []
        self.flushed = self.discarded = self.closed = 0

    def submit(self, taken: Message[Any]) -> None:
        if self.full:
            raise MessageRejected
        self.messages.append(taken)

    def poll(self) -> None:
        """Nothing is due."""

    def flush(self, timeout: float) -> bool:
        self.flushed += 1
        return True

    def discard(self) -> None:
        self.discarded += 1

    def close(self) -> None:
        self.closed += 1

    @property
    def ends(self) -> list[int]:
        """Up to where each message goes, in the order in which they came."""
        return [taken.ranges[TP].end for taken in self.messages]
