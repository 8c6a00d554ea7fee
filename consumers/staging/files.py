"""Parquet files of a staged table, and what the Delta log must know about each."""

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from consumers.clock import Clock
from consumers.staging.schema import WINDOW

_ROW_GROUP = 128 * 1024
_LONGEST_TEXT = 64


@dataclass(frozen=True, slots=True)
class NewFile:
    """A Parquet file that no commit has taken yet. `path` is relative to the table."""

    path: str
    window: str | None
    rows: int
    size: int
    stats: str
    modified_ms: int

    def action(self) -> AddAction:
        """The log entry that makes the file part of the table."""
        values = {} if self.window is None else {WINDOW: self.window}
        return AddAction(self.path, self.size, values, self.modified_ms, True, self.stats)


def write_file(table: Path, rows: pa.Table, window: str | None, clock: Clock) -> NewFile:
    """Write `rows` (without the window column when `window` is given) as one file.

    zstd, row groups of 128 Ki rows, statistics for every column, so that a reader skips what it does not need.
    """
    folder = f"{WINDOW}={window}/" if window is not None else ""
    path = f"{folder}part-{uuid.uuid4().hex}.zstd.parquet"
    target = table / path
    target.parent.mkdir(parents=True, exist_ok=True)
    written: list[pq.FileMetaData] = []
    pq.write_table(
        rows,
        target,
        compression="zstd",
        compression_level=1,
        row_group_size=_ROW_GROUP,
        store_schema=False,
        metadata_collector=written,
    )
    return NewFile(
        path=path,
        window=window,
        rows=rows.num_rows,
        size=target.stat().st_size,
        stats=json.dumps(_stats(written[0], rows.schema)),
        modified_ms=int(clock.time() * 1000),
    )


def _stats(meta: pq.FileMetaData, schema: pa.Schema) -> dict[str, Any]:
    """Delta's file statistics from the footer: rows, and per column minimum, maximum and nulls."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name, parts in _column_statistics(meta):
        if name not in schema.names or not parts or any(p is None or p.null_count is None for p in parts):
            continue
        nulls[name] = sum(p.null_count for p in parts)
        valued = [p for p in parts if p.has_min_max]
        if valued and all(p.has_min_max or p.null_count == p.num_values + p.null_count for p in parts):
            least, most = _plain(min(p.min for p in valued), False), _plain(max(p.max for p in valued), True)
            if least is not None and most is not None:
                low[name], high[name] = least, most
    return {"numRecords": meta.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}


def _column_statistics(meta: pq.FileMetaData) -> Iterator[tuple[str, list[pq.Statistics]]]:
    groups = [meta.row_group(i) for i in range(meta.num_row_groups)]
    for index in range(meta.num_columns):
        yield meta.schema.column(index).path, [group.column(index).statistics for group in groups]


def _plain(value: Any, upper: bool) -> Any:
    """A bound as the log's JSON holds it, or None where it cannot. Times are truncated to milliseconds, as Delta does."""
    if isinstance(value, datetime):
        millis = value.microsecond // 1000 + (1 if upper and value.microsecond % 1000 else 0)
        if millis == 1000:
            return None
        # Not strftime: it writes the year 1 as "1".
        return f"{value.replace(microsecond=0, tzinfo=None).isoformat()}.{millis:03d}Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
