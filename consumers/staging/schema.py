"""The columns of staged and dead-letter tables."""

from collections.abc import Mapping

import pyarrow as pa

from consumers.config import Column
from consumers.types import HEADERS

WINDOW = "_window"
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
        pa.field("_value", pa.binary()),
        pa.field("_reason", pa.string()),
        pa.field(WINDOW, pa.string()),
        pa.field("_rejected_at", _STAMP),
    ]
)


def staged_schema(columns: Mapping[str, Column]) -> pa.Schema:
    """Declared columns, where each row came from, whether it is a tombstone, and its window.

    Every declared column is nullable in the table, because a tombstone has none of them; `nullable: false` is enforced when
    a record is decoded.
    """
    declared = [pa.field(name, column.arrow) for name, column in columns.items()]
    return pa.schema([*declared, *ORIGIN, pa.field("_tombstone", pa.bool_()), pa.field(WINDOW, pa.string())])
