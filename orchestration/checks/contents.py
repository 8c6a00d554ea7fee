"""Which offsets the rows of a table hold, by life: one byte for each accounted-for offset, whatever the size of the rows.

Reads three narrow columns in batches, so that memory is bounded by the number of offsets (100 MB for 100 million).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from consumers.staging.local import local_dataset
from consumers.types import OffsetRange, TopicPartition
from orchestration.checks.ledger import Life

Offsets = npt.NDArray[np.int64]
_COLUMNS = ["_topic", "_topic_id", "_partition", "_offset"]


@dataclass
class Contents:
    """`seen[life][offset - span.start]` counts the rows with that offset (up to 255); `strays` are rows outside every span."""

    spans: dict[Life, OffsetRange]
    seen: dict[Life, npt.NDArray[np.uint8]] = field(default_factory=dict)
    rows: int = 0
    strays: int = 0
    stray_example: str = ""

    def counts(self, life: Life) -> npt.NDArray[np.uint8]:
        """The counts of a life; zeros where the table has no row of it."""
        if life not in self.seen:
            # Zeros are not touched until rows come: a wide, sparse span costs no memory.
            self.seen[life] = np.zeros(len(self.spans[life]), np.uint8)
        return self.seen[life]

    def repeated(self, life: Life) -> Offsets:
        """The offsets that more than one row holds, ascending."""
        return np.flatnonzero(self.counts(life) > 1) + self.spans[life].start


def read(table: DeltaTable, spans: dict[Life, OffsetRange], tentative: bool) -> Contents:
    """Count the offsets of a table's rows.

    With `tentative`, rows at or past a life's end are left out: dead letters are written before the commit that passes them.
    """
    contents = Contents(spans)
    for batch in local_dataset(table).to_batches(columns=_COLUMNS):
        for life, offsets in _by_life(batch):
            _count(contents, life, offsets, tentative)
    return contents


def windows_of(table: DeltaTable, life: Life, offsets: Offsets) -> list[str]:
    """The windows of the rows with these offsets. Reads the table again; for naming what is wrong, not for looking for it."""
    wanted = (
        (pc.field("_topic_id") == life.label)
        & (pc.field("_partition") == life.tp.partition)
        & pc.field("_offset").isin(pa.array(offsets))
    )
    found = local_dataset(table).to_table(columns=["_window"], filter=wanted)
    return sorted(str(window) for window in set(found["_window"].to_pylist()))


def _count(contents: Contents, life: Life, offsets: Offsets, tentative: bool) -> None:
    span = contents.spans.get(life)
    if tentative:
        offsets = offsets[offsets < span.end] if span is not None else offsets[:0]
    inside = offsets[(offsets >= span.start) & (offsets < span.end)] if span is not None else offsets[:0]
    contents.rows += len(inside)
    if len(inside) < len(offsets):
        contents.strays += len(offsets) - len(inside)
        example = np.setdiff1d(offsets, inside)
        contents.stray_example = f"{life.tp} of topic {life.label or 'unknown'}, offset {example[0] if len(example) else '?'}"
    if span is not None and len(inside):
        places, times = np.unique(inside - span.start, return_counts=True)
        counts = contents.counts(life)
        counts[places] = np.minimum(counts[places] + times.astype(np.int64), 255).astype(np.uint8)


def _by_life(batch: pa.RecordBatch) -> Iterator[tuple[Life, Offsets]]:
    """Split a batch; within a batch topics and incarnations are few, partitions may be many."""
    if not batch.num_rows:
        return
    table = pa.Table.from_batches([batch])
    for pair in table.group_by(["_topic", "_topic_id"]).aggregate([]).to_pylist():
        topic, label = str(pair["_topic"]), str(pair["_topic_id"])
        rows = table.filter((pc.field("_topic") == topic) & (pc.field("_topic_id") == label))
        partitions = rows["_partition"].to_numpy()
        offsets = rows["_offset"].to_numpy()
        order = np.argsort(partitions, kind="stable")
        present, starts = np.unique(partitions[order], return_index=True)
        for partition, part in zip(present, np.split(offsets[order], starts[1:]), strict=True):
            yield Life(label, TopicPartition(topic, int(partition))), part.astype(np.int64)
