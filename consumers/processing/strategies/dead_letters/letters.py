"""Dead letters as columns: the exact records as the broker gave them, and why; and what a place to keep them must do."""

from collections.abc import Callable
from typing import Protocol

import numpy as np
import pyarrow as pa

from consumers.errors import FatalError
from consumers.processing.strategies.protocol import Message, Rejection
from consumers.types import RECORD_COLUMNS

LETTERS = pa.schema([pa.field("topic", pa.string(), nullable=False), *RECORD_COLUMNS, pa.field("reason", pa.string())])
"""The columns of dead letters: the record's topic, the record, the reason."""

Durable = Callable[[], bool]
"""Whether some dead letters are durable by now. Raises `FatalError` when they never will be."""


class DeadLetterSink(Protocol):
    """Where dead letters are kept. Used by the polling thread."""

    def submit(self, letters: pa.RecordBatch) -> Durable:
        """Take dead letters (columns of `LETTERS`); what comes back tells when they are durable."""
        ...

    def poll(self) -> None:
        """Do what is due."""
        ...

    def flush(self, timeout: float) -> bool:
        """Make durable what was taken; False when that takes longer than `timeout` seconds."""
        ...

    def discard(self) -> None:
        """Forget what was taken and is not on its way yet; it is submitted again."""
        ...

    def close(self) -> None:
        """`discard`, and let go of what the sink itself opened."""
        ...


def letters_of(message: Message[object]) -> pa.RecordBatch:
    """The rejected records of a message, in the order of its source; one letter for a record, with the first reason.

    Raises `FatalError` when a rejection names a record that the message does not have.
    """
    wanted: dict[tuple[int, int], Rejection] = {}
    for rejection in message.rejected:
        wanted.setdefault((rejection.partition.partition, rejection.offset), rejection)
    parts = [part for records in message.source if (part := _take(records, wanted)).num_rows]
    if wanted:
        missing = next(iter(wanted.values()))
        raise FatalError(
            f"{missing.partition}: offset {missing.offset} was rejected ({missing.reason}), but the message that says so has no "
            "such record. Nothing from that message on was committed. The function that raised InvalidRecord named another "
            "record than the one that it was given."
        )
    return pa.Table.from_batches(parts, LETTERS).combine_chunks().to_batches()[0]


def _take(records: pa.RecordBatch, wanted: dict[tuple[int, int], Rejection]) -> pa.RecordBatch:
    """The records that are wanted, with topic and reason. Takes them out of `wanted`."""
    partitions, offsets = records["partition"].to_numpy(), records["offset"].to_numpy()
    numbers = list({partition for partition, _ in wanted})
    near = np.flatnonzero(np.isin(partitions, numbers) & np.isin(offsets, [offset for _, offset in wanted]))
    found = [
        (int(row), rejection)
        for row in near
        if (rejection := wanted.pop((int(partitions[row]), int(offsets[row])), None)) is not None
    ]
    taken = records.take(pa.array([row for row, _ in found], pa.int64()))
    topics = pa.array([rejection.partition.topic for _, rejection in found], pa.string())
    reasons = pa.array([rejection.reason for _, rejection in found], pa.string())
    return pa.RecordBatch.from_arrays([topics, *taken.columns, reasons], schema=LETTERS)
