"""Which offsets the rows of a table hold, by life: one byte for each accounted-for offset, whatever the size of the rows.

Reads narrow columns in batches, so that memory is bounded by the number of offsets (100 MB for 100 million).
"""

from collections.abc import Iterator, Set
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from consumers.staging.local import local_dataset, text
from consumers.staging.places import by_life
from consumers.staging.schema import DEAD_LETTERS, PLACE, filled
from consumers.types import OffsetRange
from orchestration.checks.ledger import Life

Offsets = npt.NDArray[np.int64]
_COLUMNS = list(PLACE)
_MARKS = ("_commit_id", "_resolved_at")
_LETTERS = pa.schema([DEAD_LETTERS.field(name) for name in (*PLACE, *_MARKS)])


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


def read(table: DeltaTable, spans: dict[Life, OffsetRange]) -> Contents:
    """Count the offsets of a staged table's rows."""
    contents = Contents(spans)
    for batch in local_dataset(table).to_batches(columns=_COLUMNS):
        for life, offsets in _by_life(pa.Table.from_batches([batch])):
            _count(contents, life, offsets)
    return contents


def read_letters(table: DeltaTable, spans: dict[Life, OffsetRange], rewrites: Set[str]) -> tuple[Contents, Contents]:
    """Count the offsets of final dead letters: those that wait, and those that are marked as resolved.

    Final is what stands before its life's end, and is of ingestion or of one of the committed `rewrites`.
    """
    waiting, resolved = Contents(spans), Contents(spans)
    dataset = local_dataset(table)
    marks = [name for name in _MARKS if name in dataset.schema.names]
    for batch in dataset.to_batches(columns=[*_COLUMNS, *marks]):
        letters = filled(pa.Table.from_batches([batch]), _LETTERS)
        known = pc.or_(
            letters["_commit_id"].is_null(), pc.is_in(letters["_commit_id"], value_set=pa.array(rewrites, pa.string()))
        )
        marked = letters["_resolved_at"].is_valid()
        for contents, which in ((waiting, pc.and_not(known, marked)), (resolved, pc.and_(known, marked))):
            for life, offsets in _by_life(letters.filter(which)):
                if (span := spans.get(life)) is not None:
                    _count(contents, life, offsets[offsets < span.end])
    return waiting, resolved


def windows_of(table: DeltaTable, life: Life, offsets: Offsets) -> list[str]:
    """The windows of the rows with these offsets. Reads the table again; for naming what is wrong, not for looking for it."""
    wanted = (
        (text("_topic_id") == life.label)
        & (pc.field("_partition") == life.tp.partition)
        & pc.field("_offset").isin(pa.array(offsets))
    )
    found = local_dataset(table).to_table(columns=["_window"], filter=wanted)
    return sorted(str(window) for window in set(found["_window"].to_pylist()))


def _count(contents: Contents, life: Life, offsets: Offsets) -> None:
    span = contents.spans.get(life)
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


def _by_life(rows: pa.Table) -> Iterator[tuple[Life, Offsets]]:
    return ((Life(life.label, life.tp), life.offsets) for life in by_life(rows))
