"""Which records some rows are, by (topic, incarnation, partition, offset), and which of them a table holds."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from consumers.staging.local import local_dataset, text
from consumers.staging.schema import PLACE
from consumers.types import OffsetRange, TopicPartition

_PIECE_BYTES = 1 << 30
_RUNS_SHOWN = 5
Offsets = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Life:
    """Rows of one incarnation of a partition: which rows they are, and their offsets."""

    tp: TopicPartition
    label: str
    rows: npt.NDArray[np.intp]
    offsets: Offsets

    @property
    def here(self) -> ds.Expression:
        """The same records, and perhaps others between them, as a filter."""
        return (
            (text("_topic") == self.tp.topic)
            & (text("_topic_id") == self.label)
            & (pc.field("_partition") == self.tp.partition)
            & (pc.field("_offset") >= int(self.offsets.min()))
            & (pc.field("_offset") <= int(self.offsets.max()))
        )


def by_life(rows: pa.Table) -> Iterator[Life]:
    """Split rows (with the columns of `PLACE`). Lives are few, rows may be many."""
    if not rows.num_rows:
        return
    topic_codes, topics = _coded(rows["_topic"])
    label_codes, labels = _coded(rows["_topic_id"])
    partitions, offsets = rows["_partition"].to_numpy(), rows["_offset"].to_numpy()
    width = int(partitions.max()) + 1
    # One number for each life, because sorting those is many times faster than sorting triples.
    lives = (topic_codes.astype(np.int64) * len(labels) + label_codes) * width + partitions
    for life in np.unique(lives).tolist():
        at = np.flatnonzero(lives == life)
        pair, partition = divmod(life, width)
        topic, label = divmod(pair, len(labels))
        yield Life(TopicPartition(topics[topic], partition), labels[label], at, offsets[at])


def _coded(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.int32], list[str]]:
    """Texts as numbers, and the text of each number; null is an empty text."""
    coded = pc.fill_null(column.cast(pa.string()), "").combine_chunks().dictionary_encode()
    return coded.indices.to_numpy(zero_copy_only=False), coded.dictionary.to_pylist()


def ranges_of(rows: pa.Table) -> dict[TopicPartition, OffsetRange]:
    """Per partition from the first offset of some rows (columns `PLACE`) to past the last."""
    found: dict[TopicPartition, OffsetRange] = {}
    for life in by_life(rows):
        span = OffsetRange(int(life.offsets.min()), int(life.offsets.max()) + 1)
        found[life.tp] = found.get(life.tp, span).hull(span)
    return dict(sorted(found.items()))


def runs(offsets: Offsets) -> str:
    """Ascending offsets in words: `3, 7-9, 12 and 4 more`."""
    parts = np.split(offsets, np.flatnonzero(np.diff(offsets) > 1) + 1)
    names = [str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts[:_RUNS_SHOWN]]
    more = len(offsets) - sum(len(p) for p in parts[:_RUNS_SHOWN])
    return ", ".join(names) + (f" and {more} more" if more else "")


def present(table: DeltaTable, rows: pa.Table) -> Mask:
    """For each of `rows` whether the loaded snapshot has a row of the same record. Reads narrow columns, a piece at a time."""
    found = np.zeros(rows.num_rows, np.bool_)
    if not rows.num_rows:
        return found
    dataset = local_dataset(table)
    for life in by_life(rows):
        wanted, which = np.unique(life.offsets, return_inverse=True)
        there = np.zeros(len(wanted), np.bool_)
        for batch in dataset.to_batches(columns=["_offset"], filter=life.here):
            # The filter lets through nothing past the last of them.
            at = np.searchsorted(wanted, offsets := batch["_offset"].to_numpy())
            there[at[wanted[at] == offsets]] = True
        found[life.rows] = there[which]
    return found


class Records:
    """The records of some rows, sorted once to be asked for many times."""

    def __init__(self, rows: pa.Table) -> None:
        self._offsets = {(life.tp, life.label): np.sort(life.offsets) for life in by_life(rows)}

    def lack(self, rows: pa.Table) -> Mask:
        """For each of `rows` whether it is of none of these records."""
        absent = np.ones(rows.num_rows, np.bool_)
        for life in by_life(rows):
            if (known := self._offsets.get((life.tp, life.label))) is not None:
                at = np.minimum(np.searchsorted(known, life.offsets), len(known) - 1)
                absent[life.rows] = known[at] != life.offsets
        return absent


def absent_from(others: pa.Table, rows: pa.Table) -> Mask:
    """For each of `rows` whether none of `others` is of the same record."""
    return Records(others).lack(rows)


def in_order(rows: pa.Table) -> pa.Table:
    """The rows sorted by what records they are, a piece at a time: Arrow sorts no column whose texts or bytes exceed 2 GiB."""
    order = pc.sort_indices(rows.select(PLACE), [(name, "ascending") for name in PLACE]).to_numpy()
    count = rows.nbytes // _PIECE_BYTES + 1
    if count == 1:
        return rows.take(pa.array(order))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order), dtype=order.dtype)
    parts = []
    for places in np.array_split(np.arange(len(order)), count):
        here = (rank >= places[0]) & (rank <= places[-1])
        parts.append(rows.filter(pa.array(here)).take(pa.array(np.argsort(rank[here]))))
    return pa.concat_tables(parts)


def distinct(rows: pa.Table) -> pa.Table:
    """The records that `rows` are of, each once: the columns of `PLACE`."""
    return rows.select(PLACE).group_by(list(PLACE)).aggregate([])
