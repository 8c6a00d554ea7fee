"""Cutting rows into windows of event time. A window's key is also its Dagster partition key: `2013-01-31` or `2013-01-31-05`."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Every = Literal["hour", "day"]
FORMATS: dict[Every, str] = {"hour": "%Y-%m-%d-%H", "day": "%Y-%m-%d"}
LENGTHS: dict[Every, timedelta] = {"hour": timedelta(hours=1), "day": timedelta(days=1)}


def window_keys(times: pa.ChunkedArray | pa.Array, every: Every) -> pa.Array:
    """The window key of each timestamp or date, in UTC; null where the time is null."""
    if isinstance(times, pa.ChunkedArray):
        times = times.combine_chunks()
    # Not in seconds: a cast cuts towards 1970, which moves what is just before midnight in 1969 and earlier.
    starts = pc.floor_temporal(times.cast(pa.timestamp("us", "UTC")), unit=every)
    distinct = starts.dictionary_encode()
    labels = pc.strftime(distinct.dictionary, format=FORMATS[every])
    return pa.DictionaryArray.from_arrays(distinct.indices, labels).cast(pa.string())


def start_of(window: str, every: Every) -> datetime:
    """When the window with this key starts. Raises ValueError for a text that is no window's key."""
    return datetime.strptime(window, FORMATS[every]).replace(tzinfo=UTC)


def split(table: pa.Table, keys: pa.Array) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each window, keys ascending, rows in their order. `keys` holds no nulls."""
    encoded = keys.dictionary_encode()
    names: list[str] = encoded.dictionary.to_pylist()
    if len(names) <= 1:
        yield from ((name, table) for name in names)
        return
    codes = encoded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    sorted_rows = table.take(pa.array(order))
    ends = np.cumsum(np.bincount(codes, minlength=len(names)))
    for code in sorted(range(len(names)), key=names.__getitem__):
        start = ends[code - 1] if code else 0
        yield names[code], sorted_rows.slice(int(start), int(ends[code] - start))
