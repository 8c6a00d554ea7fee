"""`Batch`: record batches become larger ones."""

import pyarrow as pa

from consumers.processing.context import Surroundings
from consumers.processing.strategies.buffer import Buffer, UpTo
from consumers.processing.strategies.protocol import Strategy
from consumers.processing.strategies.step import DEFAULT


class Batch(Buffer[pa.RecordBatch, list[pa.RecordBatch], pa.RecordBatch]):
    """Concatenates record batches, or tables, of one schema until `size` says that they are enough.

    Tables become a table without a copy; record batches are copied once into one. Messages are not divided: a batch has the rows
    of whole messages, at least as many as `size` says unless time or a flush ended it.
    """

    def __init__(self, size: UpTo, next_step: Strategy[pa.RecordBatch], *, around: Surroundings = DEFAULT) -> None:
        super().__init__(_appended, list, _joined, size, next_step, around=around)


def _appended(parts: list[pa.RecordBatch], part: pa.RecordBatch) -> list[pa.RecordBatch]:
    parts.append(part)
    return parts


def _joined(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(parts) == 1:
        return parts[0]
    return pa.concat_tables(parts) if isinstance(parts[0], pa.Table) else pa.concat_batches(parts)
