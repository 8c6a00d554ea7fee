"""Where a table's files are on this machine, and reading them without delta-rs's own file system."""

from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem


def table_path(table: DeltaTable) -> Path:
    """The table's folder."""
    uri = table.table_uri
    return Path(url2pathname(urlsplit(uri).path) if uri.startswith("file:") else uri)


def local_dataset(table: DeltaTable) -> ds.Dataset:
    """The loaded snapshot as a dataset, read through Arrow's own file system.

    With the one that delta-rs passes by default, written in Python, Arrow's threads call into an interpreter that may be
    ending: processes that had read a table so aborted at their exit, with "terminate called without an active exception".
    """
    return table.to_pyarrow_dataset(filesystem=SubTreeFileSystem(str(table_path(table)), LocalFileSystem()))
