"""The columns of staged and dead-letter tables."""

import hashlib
from collections.abc import Mapping

import pyarrow as pa

from consumers.config import Column
from consumers.types import HEADERS

WINDOW = "_window"
VALUE = "_value"
"""The record's exact bytes: of every dead letter, and of the rows of consumers that keep them."""
_STAMP = pa.timestamp("us", "UTC")

ORIGIN = (
    pa.field("_topic", pa.string()),
    pa.field("_topic_id", pa.string()),
    pa.field("_partition", pa.int32()),
    pa.field("_offset", pa.int64()),
    pa.field("_timestamp", _STAMP),
    pa.field("_key", pa.binary()),
    pa.field("_headers", HEADERS),
)

DEAD_LETTERS = pa.schema(
    [
        *ORIGIN,
        pa.field(VALUE, pa.binary()),
        pa.field("_reason", pa.string()),
        pa.field(WINDOW, pa.string()),
        pa.field("_rejected_at", _STAMP),
        pa.field("_commit_id", pa.string()),
        pa.field("_attempts", pa.int32()),
        pa.field("_resolved_at", _STAMP),
        pa.field("_resolved_by", pa.string()),
    ]
)
"""`_commit_id` is null, or names the rewrite that the row waits for. `_attempts` counts replays in vain; `_resolved_at` is when
the record became a row, and `_resolved_by` the schema that made it one."""

PLACE = ("_topic", "_topic_id", "_partition", "_offset")
"""Which record a row or dead letter is."""


def staged_schema(columns: Mapping[str, Column], keep_raw: bool = False) -> pa.Schema:
    """Declared columns, where each row came from (with `keep_raw` its bytes, too), whether it is a tombstone, and its window.

    Every declared column is nullable in the table, because a tombstone has none of them; `nullable: false` is enforced when
    a record is decoded.
    """
    declared = [pa.field(name, column.arrow) for name, column in columns.items()]
    bytes_ = [pa.field(VALUE, pa.binary())] if keep_raw else []
    return pa.schema([*declared, *ORIGIN, *bytes_, pa.field("_tombstone", pa.bool_()), pa.field(WINDOW, pa.string())])


def filled(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of `schema`, in its order and types; nulls in those that `rows` lacks."""
    there = set(rows.column_names)
    return pa.table(
        [rows[f.name].cast(f.type) if f.name in there else pa.nulls(rows.num_rows, f.type) for f in schema],
        schema=schema,
    )


def schema_id(columns: Mapping[str, Column]) -> str:
    """8 hex digits that change when what is declared of the columns does."""
    declared = [f"{name} {column.model_dump_json()}" for name, column in columns.items()]
    return hashlib.sha256("\n".join(declared).encode()).hexdigest()[:8]
