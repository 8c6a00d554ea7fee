"""Where a table's files are on this machine, and reading them without delta-rs's own file system and its guesses."""

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from consumers.errors import StorageError
from consumers.staging.schema import WINDOW

_PARTITION = "partition."
_FOREIGN = {"deletionVectors", "columnMapping"}
_BOUNDED = ("_partition", "_offset")
_TOLD = {"path", *(f"{bound}.{column}" for bound in ("min", "max") for column in _BOUNDED)}


def table_path(table: DeltaTable) -> Path:
    """The table's folder."""
    uri = table.table_uri
    return Path(url2pathname(urlsplit(uri).path) if uri.startswith("file:") else uri)


def local_dataset(table: DeltaTable, window: str | None = None) -> ds.Dataset:
    """The loaded snapshot as a dataset, read through Arrow's own file system. Filters skip files by partition and offset.

    With `window` it has that window's files only. Raises `StorageError` for a table whose files alone do not tell its rows.

    With the file system that delta-rs passes by default, written in Python, Arrow's threads call into an interpreter that may be
    ending: processes that had read a table so aborted at their exit, with "terminate called without an active exception". What
    delta-rs tells Arrow of each file is not used either: it takes a bound that the log does not have for a null one, so that
    every filter on a column skips the files from before that column was added.
    """
    if foreign := _FOREIGN & set(table.protocol().reader_features or ()):
        raise StorageError(
            f"table {table.table_uri} uses {', '.join(sorted(foreign))}, which cannot be read here. Nothing was written."
        )
    files = SubTreeFileSystem(str(table_path(table)), LocalFileSystem())
    schema, parquet = pa.schema(table.schema().to_arrow(as_large_types=False)), ds.ParquetFileFormat()
    told = pa.table(table.get_add_actions(flatten=True))
    told = told.select([name for name in told.column_names if name in _TOLD or name.startswith(_PARTITION)])
    if window is not None and told.num_rows:
        told = told.filter(pc.equal(told[f"{_PARTITION}{WINDOW}"], window))
    fragments = [
        parquet.make_fragment(unquote(file["path"]), filesystem=files, partition_expression=_holds(file, schema))
        for file in told.to_pylist()
    ]
    return ds.FileSystemDataset(fragments, schema, parquet, files)


def windows_of(table: DeltaTable) -> list[str]:
    """The windows that the loaded snapshot has rows of, ascending."""
    return sorted({str(each[WINDOW]) for each in table.partitions()})


def text(column: str) -> ds.Expression:
    """A column of texts, for filters.

    delta-rs writes texts as views, whose bounds Arrow cannot compare: a plain filter fails on a file with several texts.
    """
    return ds.field(column).cast(pa.string())


def _holds(file: dict[str, Any], schema: pa.Schema) -> ds.Expression:
    """What is true of all rows of a file: its partition values, and the bounds of partition and offset."""
    true = ds.scalar(True)
    for name, value in file.items():
        if name.startswith(_PARTITION):
            column = name.removeprefix(_PARTITION)
            field = ds.field(column)
            true = true & (field.is_null() if value is None else field == pa.scalar(value, schema.field(column).type))
    for column in _BOUNDED:
        low, high = file.get(f"min.{column}"), file.get(f"max.{column}")
        if column in schema.names and low is not None and high is not None:
            true = true & (pc.field(column) >= low) & (pc.field(column) <= high)
    return true
