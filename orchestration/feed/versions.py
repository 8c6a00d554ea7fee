"""What changed in a table between two versions, by its Delta log: the files of the windows or buckets that a commit touched.

Compaction and the like (`dataChange` is false) touch nothing. Knows no Kafka.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import fs

from consumers.staging.history import file_actions

_PARTS = ("_window", "_bucket")
"""Partition columns whose values are rewritten as a whole, and are read one after the other."""


@dataclass(frozen=True)
class Part:
    """A window or a bucket ("" for a table without): rows of files that only the old version has, and of those that are new."""

    name: str
    old: ds.Dataset
    new: ds.Dataset


@dataclass(frozen=True)
class Snapshot:
    """A table at a version, and its files: window or bucket → path → file."""

    version: int
    table_id: str
    schema: pa.Schema
    files: Mapping[str, Mapping[str, ds.ParquetFileFragment]]
    table: DeltaTable

    @staticmethod
    def of(path: Path, version: int | None = None) -> "Snapshot":
        """The version, or the newest. Raises what deltalake raises where there is none."""
        table = DeltaTable(str(path), version=version)
        found = table.to_pyarrow_dataset(filesystem=fs.SubTreeFileSystem(str(path), fs.LocalFileSystem()))
        by = _part_column(table.metadata().partition_columns)
        files: dict[str, dict[str, ds.ParquetFileFragment]] = defaultdict(dict)
        for fragment in found.get_fragments():
            files[_part_of(ds.get_partition_keys(fragment.partition_expression), by)][fragment.path] = fragment
        return Snapshot(table.version(), str(table.metadata().id), found.schema, dict(files), table)

    def part(self, name: str, but: Mapping[str, object]) -> ds.Dataset:
        """The rows of a window or bucket, without those of the files `but`."""
        chosen = [file for path, file in self.files.get(name, {}).items() if path not in but]
        if not chosen:
            return ds.dataset(self.schema.empty_table())
        return ds.FileSystemDataset(chosen, self.schema, ds.ParquetFileFormat(), chosen[0].filesystem)


@dataclass(frozen=True)
class Span:
    """What there is to compare. `whole` says why all rows count as new; empty where they do not."""

    parts: Sequence[Part]
    whole: str = ""


def between(path: Path, since: int | None, now: Snapshot) -> Span:
    """What changed after the version `since` up to `now`; all of it where that version is none, or cannot be read any more."""
    if since is None:
        return _everything(now, "no version was sent before")
    if since > now.version:
        return _everything(now, f"version {since} was sent, and the table is at {now.version}: it was made anew")
    try:
        touched = set(_touched(now, since))
        old = Snapshot.of(path, since)
    except (FileNotFoundError, DeltaError) as error:
        return _everything(now, f"version {since}, which was sent last, is no longer in the table's log ({_first_line(error)})")
    parts = [_compared(name, old, now) for name in sorted(touched & {*old.files, *now.files})]
    if missing := _missing(path, old, now, touched):
        return _everything(now, f"version {since}, which was sent last, has been vacuumed: {missing} is gone")
    return Span(parts)


def _everything(now: Snapshot, why: str) -> Span:
    nothing = ds.dataset(now.schema.empty_table())
    return Span([Part(name, nothing, now.part(name, but={})) for name in sorted(now.files)], why)


def _compared(name: str, old: Snapshot, now: Snapshot) -> Part:
    return Part(name, old.part(name, now.files.get(name, {})), now.part(name, old.files.get(name, {})))


def _touched(now: Snapshot, since: int) -> Iterator[str]:
    """The windows or buckets in which a commit added or removed rows. Raises FileNotFoundError after a clean-up of the log."""
    by = _part_column(now.table.metadata().partition_columns)
    for version in range(since + 1, now.version + 1):
        added, removed = file_actions(now.table, version)
        for action in (*added, *removed):
            if action["dataChange"]:
                yield _part_of(action["partitionValues"], by)


def _missing(path: Path, old: Snapshot, now: Snapshot, touched: set[str]) -> str:
    """A file that only the old version has, and that is not there any more."""
    for name in touched:
        for file in old.files.get(name, {}).keys() - now.files.get(name, {}).keys():
            if not (path / file).exists():
                return file
    return ""


def _part_column(partition_columns: Sequence[str]) -> str | None:
    return next((name for name in _PARTS if name in partition_columns), None)


def _part_of(values: Mapping[str, object], by: str | None) -> str:
    return "" if by is None else str(values.get(by))


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
