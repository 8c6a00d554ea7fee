"""Parquet files of a staged table, and what the Delta log must know about each."""

import json
import math
import sys
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
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

    zstd, row groups of 128 Ki rows, statistics for every column, so that a reader skips what it does not need. Raises OSError
    when the storage does not take it; no part of the file is left behind then.
    """
    folder = f"{WINDOW}={window}/" if window is not None else ""
    path = f"{folder}part-{uuid.uuid4().hex}.zstd.parquet"
    target = table / path
    target.parent.mkdir(parents=True, exist_ok=True)
    written: list[pq.FileMetaData] = []
    try:
        pq.write_table(
            rows,
            target,
            compression="zstd",
            compression_level=1,
            row_group_size=_ROW_GROUP,
            store_schema=False,
            metadata_collector=written,
        )
    except (OSError, RuntimeError) as error:
        # A disk that fills while the footer is written shows as a RuntimeError about metadata that is not there.
        target.unlink(missing_ok=True)
        raise OSError(f"{target} could not be written: {error}") from error
    return NewFile(
        path=path,
        window=window,
        rows=rows.num_rows,
        size=target.stat().st_size,
        stats=_stats(written[0], rows.schema),
        modified_ms=int(clock.time() * 1000),
    )


def _stats(meta: pq.FileMetaData, schema: pa.Schema) -> str:
    """Delta's file statistics from the footer: rows, and per column minimum, maximum and nulls, as JSON.

    A column with values has both bounds, whatever its length or type: delta-rs's datasets take a missing bound for a null
    one, and skip the file whenever the column is asked for.
    """
    low: dict[str, str] = {}
    high: dict[str, str] = {}
    nulls: dict[str, str] = {}
    for name, parts in _column_statistics(meta):
        if name not in schema.names or not parts or any(p is None or p.null_count is None for p in parts):
            continue
        nulls[name] = str(sum(p.null_count for p in parts))
        valued = [p for p in parts if p.has_min_max]
        if valued and all(p.has_min_max or p.null_count == p.num_values + p.null_count for p in parts):
            least, most = _bound(min(p.min for p in valued), False), _bound(max(p.max for p in valued), True)
            if least is not None and most is not None:
                low[name], high[name] = least, most
    rows = str(meta.num_rows)
    return _object({"numRecords": rows, "minValues": _object(low), "maxValues": _object(high), "nullCount": _object(nulls)})


def _object(texts: Mapping[str, str]) -> str:
    """A JSON object of values that are JSON already."""
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in texts.items()) + "}"


def _column_statistics(meta: pq.FileMetaData) -> Iterator[tuple[str, list[pq.Statistics]]]:
    groups = [meta.row_group(i) for i in range(meta.num_row_groups)]
    for index in range(meta.num_columns):
        yield meta.schema.column(index).path, [group.column(index).statistics for group in groups]


def _bound(value: Any, upper: bool) -> str | None:
    """A bound as the log's JSON, never inside of what it bounds; None for bytes, which have none."""
    if isinstance(value, datetime):
        return json.dumps(_moment(value, upper))
    if isinstance(value, date):
        return json.dumps(value.isoformat())
    if isinstance(value, str):
        # Unescaped: delta-rs misreads the escaped form of characters past U+FFFFF.
        return json.dumps(_above(value) if upper else value[:_LONGEST_TEXT], ensure_ascii=False)
    if isinstance(value, Decimal):
        return f"{value:f}"
    return json.dumps(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _moment(value: datetime, upper: bool) -> str:
    """In milliseconds, as Delta has it, rounded outwards; exact where the calendar ends before that."""
    rest = timedelta(microseconds=value.microsecond % 1000)
    plain = value.replace(tzinfo=None)
    if upper and rest:
        step = timedelta(milliseconds=1) - rest
        if plain > datetime.max - step:
            return plain.isoformat() + "Z"
        return (plain + step).isoformat(timespec="milliseconds") + "Z"
    return plain.isoformat(timespec="milliseconds") + "Z"


def _above(text: str) -> str:
    """A short text that no text with the same beginning is greater than."""
    if len(text) <= _LONGEST_TEXT:
        return text
    start = text[:_LONGEST_TEXT].rstrip(chr(sys.maxunicode))
    if not start:
        return text
    following = ord(start[-1]) + 1
    return start[:-1] + chr(0xE000 if 0xD800 <= following <= 0xDFFF else following)
