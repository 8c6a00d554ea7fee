"""What a table looks like now: its files, by partition. From the Delta log alone, no data is read."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from consumers.staging.schema import WINDOW

_PARTITION = "partition."
Part = tuple[tuple[str, str | None], ...]
"""A partition of a table: its columns and their values; () of a table without partitions."""


@dataclass(frozen=True, slots=True)
class File:
    """A file of the table; `path` is relative to it."""

    path: str
    part: Part
    size: int
    rows: int

    @property
    def window(self) -> str | None:
        """The window that it is of; None in a table without windows."""
        return dict(self.part).get(WINDOW)


@dataclass(frozen=True, slots=True)
class Health:
    """A table at one version. Bytes are those of its files; `over_budget` has the windows with more files than allowed."""

    version: int
    files: int
    bytes: int
    small_files: int
    windows: int
    most_files: int
    over_budget: Mapping[str, int]

    @property
    def small_file_share(self) -> float:
        """How many of the files are small, 0 to 1."""
        return round(self.small_files / self.files, 3) if self.files else 0.0


def files(table: DeltaTable) -> list[File]:
    """The files of the loaded version."""
    told: list[dict[str, Any]] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return [
        File(unquote(str(each["path"])), _part(each), int(each["size_bytes"]), int(each["num_records"] or 0)) for each in told
    ]


def health(version: int, found: Iterable[File], small_file_bytes: int, files_per_window: int) -> Health:
    """Sum up the files of a version. A table without windows counts as one."""
    known = list(found)
    counts = Counter(file.window or "" for file in known)
    over = {window: count for window, count in counts.most_common() if count > files_per_window}
    return Health(
        version=version,
        files=len(known),
        bytes=sum(file.size for file in known),
        small_files=sum(file.size < small_file_bytes for file in known),
        windows=len(counts),
        most_files=max(counts.values(), default=0),
        over_budget=over,
    )


def _part(action: Mapping[str, Any]) -> Part:
    values = {name.removeprefix(_PARTITION): value for name, value in action.items() if name.startswith(_PARTITION)}
    return tuple((name, None if value is None else str(value)) for name, value in sorted(values.items()))
