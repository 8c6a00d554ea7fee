"""Kept bytes as records again: what a staged row or a dead letter was when Kafka delivered it."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from consumers.staging.places import in_order
from consumers.staging.schema import VALUE
from consumers.types import RECORD_COLUMNS

_MOST = 50_000
_COLUMNS = {
    "partition": "_partition",
    "offset": "_offset",
    "timestamp": "_timestamp",
    "key": "_key",
    "value": VALUE,
    "headers": "_headers",
}


def has_bytes(rows: pa.Table) -> pa.Array:
    """Which staged rows keep what they came from. A tombstone has no value to keep."""
    if VALUE not in rows.column_names:
        return pa.array([False] * rows.num_rows, pa.bool_())
    return pc.or_(rows[VALUE].is_valid(), pc.fill_null(rows["_tombstone"], False)).combine_chunks()


def records_of(rows: pa.Table) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
    """The records that rows with `_value` came from, and their `_topic_id`, in pieces of one topic id each."""
    if not rows.num_rows:
        return
    names = pc.fill_null(rows["_topic_id"].cast(pa.string()), "")
    for label in sorted(names.unique().to_pylist()):
        ours = in_order(rows.filter(pc.equal(names, label)))
        for first in range(0, ours.num_rows, _MOST):
            piece = ours.slice(first, _MOST)
            columns = [piece[_COLUMNS[f.name]].combine_chunks().cast(f.type) for f in RECORD_COLUMNS]
            labels = pa.array([label] * piece.num_rows, pa.string())
            yield pa.RecordBatch.from_arrays(columns, schema=RECORD_COLUMNS), labels
