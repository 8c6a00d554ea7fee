"""Tables to publish, and what a reader of the topic makes of it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from orchestration.feed.config import Feed

SCHEMA = pa.schema([("_window", pa.string()), ("carrier", pa.string()), ("flights", pa.int64())])


def rows(*some: tuple[str, str, int]) -> pa.Table:
    """Rows of (window, carrier, flights)."""
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in some], SCHEMA)


def replace(path: Path, window: str, *some: tuple[str, int]) -> None:
    """A commit that replaces a window's rows of (carrier, flights)."""
    mode: Any = {"mode": "overwrite", "predicate": f"_window = '{window}'"} if DeltaTable.is_deltatable(str(path)) else {}
    write_deltalake(str(path), rows(*((window, *row) for row in some)), partition_by=["_window"], **mode)


def append(path: Path, *some: tuple[str, str, int]) -> None:
    """A commit that adds rows."""
    write_deltalake(str(path), rows(*some), partition_by=["_window"], mode="append")


def feed(topic: str = "summary", **more: Any) -> Feed:
    """Keyed by window and carrier."""
    return Feed.model_validate({"topic": topic, "keys": ["_window", "carrier"], **more})


def applied(records: Iterable[tuple[bytes | None, bytes | None]]) -> dict[bytes, bytes]:
    """What is left of keys and values for a reader that keeps the last of each key."""
    held: dict[bytes, bytes] = {}
    for key, value in records:
        assert key is not None
        if value is None:
            held.pop(key, None)
        else:
            held[key] = value
    return held
