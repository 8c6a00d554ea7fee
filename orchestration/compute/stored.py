"""Sees through compaction: which files' rows a table's files hold, where somebody only stored them otherwise.

Reads the log back to the oldest compaction whose files are still active, and nothing where there is none: files that ingestion
and publishing write are known by their names.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote

from deltalake import DeltaTable

from consumers.staging.local import table_path
from orchestration.compute.changes import DataCommit, parse_commit

_WRITTEN = re.compile(r"(_window=[^/]*/)?part-[0-9a-f]{32}\.zstd\.parquet|attempt-.*")
_Group = tuple[frozenset[str], frozenset[str]]


def before_compaction(table: DeltaTable, files: Mapping[str, str]) -> dict[str, str]:
    """The same rows by the files that they were first written to: path → window, as in `files`, those of the loaded snapshot.

    A compaction whose files were changed since stays as it is: its window has other rows by now.
    """
    now = dict(files)
    sought = {path for path in now if not _WRITTEN.fullmatch(path)}
    log, version = table_path(table) / "_delta_log", table.version()
    while sought and version >= 0:
        commit = log / f"{version:020d}.json"
        if not commit.exists():
            break
        added, groups = _stored(str(commit), commit.stat().st_mtime_ns)
        for new, old in groups:
            if new <= now.keys():
                window = {now.pop(path) for path in new}.pop()
                now |= dict.fromkeys(old, window)
                sought |= {path for path in old if not _WRITTEN.fullmatch(path)}
        sought -= added
        version -= 1
    return now


@lru_cache(maxsize=50_000)
def _stored(commit: str, _changed: int) -> tuple[frozenset[str], tuple[_Group, ...]]:
    """The files that a commit added, and where it only stored rows otherwise, which files stand for which. Sensors ask often."""
    found = parse_commit(int(Path(commit).stem), Path(commit).read_bytes())
    added = frozenset(unquote(file.path) for file in (*found.added, *found.kept_added))
    return added, tuple(_groups(found))


def _groups(commit: DataCommit) -> list[_Group]:
    """By partition: compaction never moves a row from one to another."""
    new: dict[str, set[str]] = defaultdict(set)
    old: dict[str, set[str]] = defaultdict(set)
    for file in commit.kept_added:
        new[str(sorted(file.values.items()))].add(unquote(file.path))
    for file in commit.kept_removed:
        old[str(sorted(file.values.items()))].add(unquote(file.path))
    return [(frozenset(paths), frozenset(old[values])) for values, paths in new.items()]
