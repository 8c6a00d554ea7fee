"""Inputs at versions that belong together, and what identifies the content of their windows.

A window's content is identified by the paths of its active files: Delta's files are never changed, so equal paths are equal rows.
Where compaction has given rows other files, the files that it replaced stand for them, so that nothing is computed again.
"""

import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from consumers.errors import StorageError
from consumers.staging.history import commit_infos
from consumers.staging.schema import WINDOW
from orchestration.compute.changes import data_changed
from orchestration.compute.job import WHOLE, Input, Job
from orchestration.compute.record import Publication, publications
from orchestration.compute.stored import before_compaction
from orchestration.compute.windows import digest


@dataclass(frozen=True)
class Pinned:
    """An input at one version: window → identity of its content, and when that version was committed (seconds since the epoch).

    `name` is the path from the tables' folder, `newest` the version that there was, `roots` the versions of the tables that it
    was computed from, by their names, `schema` its columns as the Delta log has them.
    """

    path: Path
    version: int
    contents: Mapping[str, str]
    committed: float
    name: str = ""
    table_id: str = ""
    newest: int = -1
    roots: Mapping[str, int] = field(default_factory=dict)
    schema: str = ""


def pin_together(job: Job) -> dict[str, Pinned]:
    """The inputs at their newest versions that belong together. All must exist.

    An input that another one was computed from is pinned at the version that this one saw; of two that were computed from one
    table, the newer steps back to where it had seen no more than the other.
    """
    tables = {name: DeltaTable(str(source.path)) for name, source in job.inputs.items()}
    newest = {name: table.version() for name, table in tables.items()}
    names = {name: name_of(job, source.path) for name, source in job.inputs.items()}
    roots = _step_back(tables)
    found = {}
    for name, source in job.inputs.items():
        table = tables[name]
        seen = min((known[names[name]] for known in roots.values() if names[name] in known), default=table.version())
        # Vacuum keeps no files for a version that only maintenance has come after: its rows are in the newest one, too.
        if seen < table.version() and data_changed(source.path, seen, table.version()):
            table.load_as_version(seen)
        found[name] = _pinned(job, source, table, names[name], newest[name], roots[name])
    return found


def name_of(job: Job, path: Path) -> str:
    """A table's path from the tables' folder, such as `staged/flights`."""
    return Path(os.path.relpath(path, job.output.parent)).as_posix()


def files_of(table: DeltaTable) -> list[dict[str, object]]:
    """The loaded snapshot's files with partition values and rows."""
    actions: list[dict[str, object]] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return actions


def roots_of(publication: Publication) -> dict[str, int]:
    """The tables that a result was computed from, at any distance, and the version of each."""
    found: dict[str, int] = {}
    for used in publication.inputs.values():
        for name, version in {**used.roots, used.path: used.version}.items():
            found[name] = min(version, found.get(name, version))
    return found


def _step_back(tables: Mapping[str, DeltaTable]) -> dict[str, dict[str, int]]:
    """Load older versions of inputs until no two have seen different versions of a table; what each has seen."""
    logs = {name: publications(table) for name, table in tables.items()}
    now = {name: next(log, None) for name, log in logs.items()}
    while True:
        roots = {name: roots_of(here) for name, here in now.items() if here is not None}
        least: dict[str, int] = {}
        for known in roots.values():
            for root, version in known.items():
                least[root] = min(version, least.get(root, version))
        ahead = [name for name, known in roots.items() if any(version > least[root] for root, version in known.items())]
        older = {name: next(logs[name], None) for name in ahead}
        if not any(older.values()):
            return {name: roots.get(name, {}) for name in tables}
        for name, here in older.items():
            if here is not None:
                now[name] = here
                tables[name].load_as_version(here.version)


def _pinned(job: Job, source: Input, table: DeltaTable, name: str, newest: int, roots: Mapping[str, int]) -> Pinned:
    by_window = job.windowed and not source.reach.whole
    contents: Mapping[str, str] = {}
    if not job.follows_commits:
        contents = _contents(table, by_window)
    info = next(commit_infos(table, table.version() - 1), (0, {}))[1]
    committed = int(info.get("timestamp", 0)) / 1000
    table_id, schema = str(table.metadata().id), table.schema().to_json()
    return Pinned(source.path, table.version(), contents, committed, name, table_id, newest, roots, schema)


def _contents(table: DeltaTable, by_window: bool) -> dict[str, str]:
    if by_window and WINDOW not in table.metadata().partition_columns:
        raise StorageError(
            f"table {table.table_uri} is not partitioned by {WINDOW}, so it cannot be read by window. Nothing was written. Say "
            "`windows: none` for this input, or use another mode."
        )
    held = {
        unquote(str(action["path"])): str(action[f"partition.{WINDOW}"]) if by_window else WHOLE for action in files_of(table)
    }
    files: dict[str, list[str]] = defaultdict(list)
    for path, window in before_compaction(table, held).items():
        files[window].append(path)
    return {window: digest(sorted(paths)) for window, paths in files.items()}
