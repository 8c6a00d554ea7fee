"""Computes requests without Spark: reads what a request names, and writes the attempt with pyarrow, as the runner would."""

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, write_deltalake

from consumers.staging.local import local_dataset
from consumers.staging.log import METADATA_KEY, StagedCommit, WindowChange
from consumers.types import OffsetRange, TopicPartition
from spark_jobs.request import AuditResult, Request, Result, Source

Rows = list[dict[str, Any]]
Function = Callable[[Mapping[str, Rows]], Rows]
_STAGED = pa.schema(
    {"key": pa.string(), "x": pa.int64(), "_offset": pa.int64(), "_tombstone": pa.bool_(), "_window": pa.string()}
)
_PARTITIONS = {"window": ["_window", "_inputs"], "full": ["_inputs"], "merge": ["_bucket"]}


@dataclass
class Staged:
    """A staged table of topic `numbers`, one partition, with commits as ingestion makes them."""

    path: Path
    offset: int = 0

    def batch(self, kind: str = "batch", **windows: Sequence[int | tuple[str, int | None]]) -> None:
        """A commit; `d1=[1, ("a", 2), ("a", None)]` gives the window d1 a value, one with the key a, and a tombstone of a."""
        rows, start = [], self.offset
        for window, values in windows.items():
            for each in values:
                key, x = each if isinstance(each, tuple) else (f"k{each}", each)
                rows.append({"key": key, "x": x, "_offset": self.offset, "_tombstone": x is None, "_window": window})
                self.offset += 1
        touched = {window: WindowChange(len(values), 0, 1) for window, values in windows.items()}
        ranges = {TopicPartition("numbers", 0): OffsetRange(start, self.offset)}
        self._write(rows, StagedCommit(f"c{start}", kind, "numbers", "m", ranges=ranges, rows=len(rows), windows=touched))  # type: ignore[arg-type]

    def rewrite(self, window: str, *values: int) -> None:
        """Replace a window, as a rewrite does."""
        rows = [{"key": f"k{x}", "x": x, "_offset": x, "_tombstone": False, "_window": window} for x in values]
        self._write(rows, StagedCommit("r", "rewrite", "numbers", "m", rows=len(rows)), f"_window = '{window}'")

    def foreign(self, window: str, x: int) -> None:
        """Append a row, as somebody else would."""
        self._write([{"key": f"k{x}", "x": x, "_offset": 0, "_tombstone": False, "_window": window}], None)

    def compact(self) -> None:
        """Compaction, which must find something to do."""
        assert DeltaTable(self.path).optimize.compact()["numFilesRemoved"] > 1

    @property
    def version(self) -> int:
        """The newest."""
        return DeltaTable(self.path).version()

    def _write(self, rows: Rows, commit: StagedCommit | None, predicate: str | None = None) -> None:
        properties = CommitProperties(custom_metadata={METADATA_KEY: commit.to_json()}) if commit else None
        table = pa.Table.from_pylist(rows, _STAGED)
        how: dict[str, Any] = {"mode": "overwrite", "predicate": predicate} if predicate else {"mode": "append"}
        write_deltalake(self.path, table, partition_by=["_window"], commit_properties=properties, **how)


def sums(inputs: Mapping[str, Rows]) -> Rows:
    """The sum of x of each window, over all inputs."""
    found: dict[str, int] = {}
    for row in (row for rows in inputs.values() for row in rows):
        found[row["_window"]] = found.get(row["_window"], 0) + int(row.get("x", row.get("s")) or 0)
    return [{"_window": window, "s": s} for window, s in found.items()]


def total(inputs: Mapping[str, Rows]) -> Rows:
    """The sum of all x."""
    return [{"s": sum(row["x"] or 0 for rows in inputs.values() for row in rows)}]


def rows_as_they_are(inputs: Mapping[str, Rows]) -> Rows:
    """Every record of every input."""
    return [{"_window": row["_window"], "x": row["x"]} for rows in inputs.values() for row in rows]


def newest(inputs: Mapping[str, Rows]) -> Rows:
    """The rows, for a merge to take the newest of each key."""
    return [{name: row[name] for name in ("key", "x", "_offset", "_tombstone")} for rows in inputs.values() for row in rows]


def compute(request: Request, function: Function, refuse: bool = False) -> Result:
    """Write the attempt. With `refuse`, an audit that blocks has failed."""
    rows = function({name: read(source) for name, source in request.inputs.items()})
    audits = (AuditResult("as_told", not refuse, True, f"{len(rows)} rows"),)
    if request.mode in {"window", "full"}:
        rows = [row | {"_inputs": request.fingerprints[row.get("_window", "")]} for row in rows]
    buckets: set[str] = set()
    if request.mode == "merge":
        rows, buckets = _merged(request, rows)
    schema = _schema(rows, function, request)
    by = _PARTITIONS.get(request.mode) or (["_window"] if "_window" in schema.names else [])
    write_deltalake(request.attempt, pa.Table.from_pylist(rows, schema), partition_by=by)
    return Result(audits, tuple(sorted(buckets)))


def read(source: Source) -> Rows:
    """What a source names, and nothing else."""
    table = DeltaTable(source.path, version=source.version)
    rows: Rows = local_dataset(table).to_table().to_pylist()
    if source.files is not None:
        found = [row for row in rows if row["_window"] in (source.windows or ())]
        return found + [
            row | _values(file)
            for file in source.files
            for row in pq.read_table(f"{source.path}/{unquote(file)}", partitioning=None).to_pylist()
        ]
    return [row for row in rows if source.windows is None or row["_window"] in source.windows]


def contents(table: Path) -> list[tuple[object, ...]]:
    """The rows of a table that a reader sees, without the columns that say what they were computed from."""
    if not DeltaTable.is_deltatable(str(table)):
        return []
    rows = local_dataset(DeltaTable(table)).to_table().to_pylist()
    kept = [{name: row[name] for name in sorted(row) if name not in {"_inputs", "_bucket"}} for row in rows]
    return sorted((tuple(row.values()) for row in kept), key=str)


def _merged(request: Request, rows: Rows) -> tuple[Rows, set[str]]:
    latest: dict[str, dict[str, Any]] = {}
    touched = {_bucket(row["key"], request.buckets) for row in rows}
    if request.output_version >= 0:
        held = local_dataset(DeltaTable(request.output, version=request.output_version)).to_table().to_pylist()
        latest = {row["key"]: row | {"_tombstone": False} for row in held if row["_bucket"] in touched}
    for row in sorted(rows, key=lambda row: row["_offset"]):
        latest[row["key"]] = row
    kept = [
        {"key": row["key"], "x": row["x"], "_offset": row["_offset"], "_bucket": _bucket(row["key"], request.buckets)}
        for row in latest.values()
        if not row["_tombstone"]
    ]
    return kept, touched


def _bucket(key: str, buckets: int) -> str:
    return str(zlib.crc32(key.encode()) % buckets)


def _values(file: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in unquote(file).split("/")[:-1] if "=" in part)


def _schema(rows: Rows, function: Function, request: Request) -> pa.Schema:
    if rows:
        return pa.Table.from_pylist(rows).schema
    texts = {"_window", "_inputs", "_bucket", "key"}
    names = {"window": ["_window", "s", "_inputs"], "full": ["s", "_inputs"], "incremental": ["_window", "x"]}
    chosen = names.get(request.mode, ["key", "x", "_offset", "_bucket"])
    return pa.schema({name: pa.string() if name in texts else pa.int64() for name in chosen})
