"""A record batch's columns as the arguments that the client sends records with: the way back of `records`."""

from collections.abc import Iterable
from itertools import repeat

import pyarrow as pa

from consumers.types import RECORD_COLUMNS


def sendable(records: pa.RecordBatch) -> pa.RecordBatch:
    """The columns that are sent, typed as in `RECORD_COLUMNS`. Raises ValueError where there are none, or they cannot be."""
    names = records.schema.names
    if "value" not in names:
        raise ValueError(f"records to send need a column 'value'; these have {', '.join(names) or 'none'}")
    kept = [field for field in RECORD_COLUMNS if field.name in names and field.name != "offset"]
    return pa.RecordBatch.from_arrays([records[field.name].cast(field.type) for field in kept], [field.name for field in kept])


def keys_of(rows: pa.RecordBatch) -> Iterable[bytes | None]:
    """The keys; without a column, none."""
    return rows["key"].to_pylist() if "key" in rows.schema.names else repeat(None)


def stamps_of(rows: pa.RecordBatch) -> Iterable[int]:
    """Milliseconds since the epoch; 0 is now."""
    if "timestamp" not in rows.schema.names:
        return repeat(0)
    return rows["timestamp"].cast(pa.int64()).fill_null(0).to_pylist()  # type: ignore[no-any-return]


def headers_of(rows: pa.RecordBatch) -> Iterable[list[tuple[str, bytes | None]] | None]:
    """The headers as the client takes them; None where a record has none."""
    if "headers" not in rows.schema.names or rows["headers"].null_count == len(rows):
        return repeat(None)
    return [None if not h else [(each["key"], each["value"]) for each in h] for h in rows["headers"].to_pylist()]
