"""What a job's tables hold, read from their Delta logs alone: no Spark, no data, milliseconds.

A window's content in an input is identified by the paths of its active files at the pinned version: Delta's
files are never changed, so equal paths are equal rows. (Compaction gives the same rows other paths; that
costs one recomputation.)

A window's *fingerprint* is a hash of the job's code version and parameters and that content in every input.
The output carries it in its partition column `_inputs` (see `spark_jobs.runner`), atomic with the rows. A
window whose result has no rows has nothing to carry it: a Delta application transaction `<job>/<window>`
records it after the commit instead. That is safe in any order and after any crash, because the mark is
believed only while the window has no rows, and states just that: from these inputs and this code come no
rows.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction

from spark_jobs.runner import INPUTS
from spark_jobs.staged import WINDOW

WHOLE = ""
"""The one "window" of a job that is not computed by window."""


@dataclass(frozen=True)
class Pinned:
    """An input at one version: window → identity of its content, and when the last commit landed (seconds
    since the epoch).
    """

    path: Path
    version: int
    contents: Mapping[str, str]
    committed: float


@dataclass(frozen=True)
class Output:
    """An output table as it is: window → fingerprint and rows of the windows that have rows; -1 is no table
    yet.
    """

    version: int = -1
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    table: DeltaTable | None = None

    def holds(self, job: str, window: str, fingerprint: str) -> bool:
        """Whether the window is what this fingerprint gives."""
        if window in self.fingerprints:
            return self.fingerprints[window] == fingerprint
        return self.table is not None and self.table.transaction_version(_mark(job, window)) == _mark_version(fingerprint)


def exists(path: Path) -> bool:
    """Whether there is a Delta table."""
    return DeltaTable.is_deltatable(str(path))


def pin(path: Path, windowed: bool) -> Pinned:
    """The newest version of an input. Raises deltalake's `TableNotFoundError` if there is none."""
    table = DeltaTable(str(path))
    files: dict[str, list[str]] = defaultdict(list)
    for action in _files(table):
        files[str(action[f"partition.{WINDOW}"]) if windowed else WHOLE].append(str(action["path"]))
    contents = {window: _digest(sorted(paths)) for window, paths in files.items()}
    return Pinned(path, table.version(), contents, table.history(1)[0]["timestamp"] / 1000)


def read_output(path: Path, windowed: bool) -> Output:
    """What the output holds now."""
    if not exists(path):
        return Output()
    table = DeltaTable(str(path))
    marks: dict[str, set[str]] = defaultdict(set)
    rows: dict[str, int] = defaultdict(int)
    for action in _files(table):
        window = str(action[f"partition.{WINDOW}"]) if windowed else WHOLE
        marks[window].add(str(action[f"partition.{INPUTS}"]))
        rows[window] += int(str(action["num_records"] or 0))
    # Two fingerprints in one window were not written by a job: they match nothing, so the window is computed
    # again.
    fingerprints = {window: "|".join(sorted(found)) for window, found in marks.items()}
    return Output(table.version(), fingerprints, dict(rows), table)


def fingerprint(code_version: str, inputs: Mapping[str, Pinned], window: str) -> str:
    """16 hex digits that change when the code, or the window's content in any input, changes."""
    contents = (f"{name}={pinned.contents.get(window, '')}" for name, pinned in sorted(inputs.items()))
    return _digest([code_version, *contents])


def record_empty(output: Output, job: str, fingerprints: Mapping[str, str]) -> None:
    """Record that these windows were computed and have no rows: one commit without files."""
    if not fingerprints or output.table is None:
        return
    marks = [Transaction(_mark(job, window), _mark_version(print_)) for window, print_ in fingerprints.items()]
    table = output.table
    table.create_write_transaction(
        [],
        "append",
        table.schema(),
        list(table.metadata().partition_columns),
        commit_properties=CommitProperties(app_transactions=marks),
    )


def _files(table: DeltaTable) -> list[dict[str, object]]:
    actions: list[dict[str, object]] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return actions


def _mark(job: str, window: str) -> str:
    return f"{job}/{window}"


def _mark_version(fingerprint_: str) -> int:
    return int(fingerprint_, 16) >> 1  # an application transaction's version is a signed 64-bit number


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
