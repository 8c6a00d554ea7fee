"""What was committed to a table after a version: read from the log's files by name, so that older commits cost nothing.

Commits that change no data (compaction, vacuum, settings, a member that takes over) change nothing here either.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from consumers.staging.log import METADATA_KEY
from consumers.staging.schema import WINDOW
from orchestration.compute.record import KIND, Offsets

_APPENDS = {"batch", "replay", KIND}


class LogGap(Exception):
    """The log has no file of a version any more."""


@dataclass(frozen=True)
class Changed:
    """A file that a commit added or removed: the log's own path, its partition values, and how many rows it has."""

    path: str
    values: Mapping[str, str | None]
    rows: int = 0
    size: int = 0

    @property
    def window(self) -> str | None:
        """Its window, where the table has them."""
        return self.values.get(WINDOW)


@dataclass(frozen=True)
class DataCommit:
    """What one commit did to the data; `kept_…` are files whose rows it only stored otherwise. `told` is what its writer says."""

    version: int
    operation: str
    told: Mapping[str, Any]
    added: tuple[Changed, ...] = ()
    removed: tuple[Changed, ...] = ()
    kept_added: tuple[Changed, ...] = ()
    kept_removed: tuple[Changed, ...] = ()

    @property
    def changes_data(self) -> bool:
        """Whether the table holds other rows since."""
        return bool(self.added or self.removed)

    @property
    def kind(self) -> str:
        """`batch`, `rewrite`, `publish` and so on; empty for a commit of somebody else."""
        return str(self.told.get("kind", ""))

    @property
    def appends(self) -> bool:
        """Whether it only added rows, as we do."""
        return self.kind in _APPENDS and not self.removed

    @property
    def plain(self) -> bool:
        """Whether it added rows in the order of their offsets."""
        return self.appends and (self.kind == "batch" or bool(self.told.get("plain")))

    @property
    def name(self) -> str:
        """For people: `version 12 (rewrite)`."""
        return f"version {self.version} ({self.kind or self.operation.lower() or 'a foreign commit'})"


@dataclass(frozen=True)
class Changes:
    """What is new in a table since the version `after`, up to `version`.

    `files` were added and stand in no window of `windows`; those hold other rows than they did. `start_over` says why neither can
    be told; empty where it can. `unordered` names the first commit whose rows are not in the order of their offsets.
    `added_to` are the windows of `files`.
    """

    after: int
    version: int
    commits: int = 0
    rows: int = 0
    files: tuple[str, ...] = ()
    windows: tuple[str, ...] = ()
    start_over: str = ""
    unordered: str = ""
    added_to: tuple[str, ...] = ()
    ranges: Mapping[str, Offsets] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.files or self.windows or self.start_over)


def changes(table: Path, after: int, version: int) -> Changes:
    """What is new in the table at `version` for somebody who knows it at `after`."""
    try:
        found = list(data_commits(table, after, version))
    except LogGap as gap:
        return Changes(after, version, start_over=str(gap))
    data = [commit for commit in found if commit.changes_data]
    touched = {file.window for commit in data if not commit.appends for file in (*commit.added, *commit.removed)}
    added = [file for commit in data if commit.appends for file in commit.added]
    touched |= {file.window for file in added if not _there(table, file)}
    if None in touched:
        said = next((commit.name for commit in data if not commit.appends), "vacuum")
        return Changes(after, version, len(data), start_over=f"{said} changed rows of a table without windows")
    new = [file for file in added if file.window not in touched]
    return Changes(
        after,
        version,
        commits=len(data),
        rows=sum(file.rows for file in new),
        files=tuple(file.path for file in new),
        windows=tuple(sorted(window for window in touched if window is not None)),
        added_to=tuple(sorted({file.window for file in new if file.window is not None})),
        unordered=next((commit.name for commit in data if not commit.plain), ""),
        ranges=joined(commit.told.get("ranges", {}) for commit in found),
    )


def ranges(table: Path, after: int, version: int) -> dict[str, Offsets]:
    """The offsets that commits after a version account for; of what is still in the log."""
    return joined(commit.told.get("ranges", {}) for commit in _newest_first(table, after, version))


def data_changed(table: Path, after: int, version: int) -> str:
    """The name of the first commit after a version that changed data; empty for none. A log with gaps counts as a change."""
    try:
        found = data_commits(table, after, version)
        return next((commit.name for commit in found if commit.changes_data), "")
    except LogGap as gap:
        return str(gap)


def data_commits(table: Path, after: int, version: int) -> Iterator[DataCommit]:
    """The commits after a version, oldest first. Raises `LogGap`."""
    for number in range(after + 1, version + 1):
        try:
            text = (table / "_delta_log" / f"{number:020d}.json").read_bytes()
        except FileNotFoundError:
            raise LogGap(f"the log of {table.name} no longer has version {number}") from None
        yield parse_commit(number, text)


def _newest_first(table: Path, after: int, version: int) -> Iterator[DataCommit]:
    """The commits after a version as far back as the log goes. Loading a table only to read its log would cost more."""
    for number in range(version, after, -1):
        try:
            text = (table / "_delta_log" / f"{number:020d}.json").read_bytes()
        except FileNotFoundError:
            return
        yield parse_commit(number, text)


def joined(found: Iterable[Mapping[str, Iterable[int]]]) -> dict[str, Offsets]:
    """For each partition from the lowest to the highest offset."""
    both: dict[str, Offsets] = {}
    for each in found:
        for tp, (start, end) in each.items():
            low, high = both.get(tp, (start, end))
            both[tp] = (min(low, start), max(high, end))
    return both


def parse_commit(version: int, text: bytes) -> DataCommit:
    """A commit from its file in the log."""
    info: dict[str, Any] = {}
    files: dict[tuple[str, bool], list[Changed]] = {(name, data): [] for name in ("add", "remove") for data in (True, False)}
    for line in text.splitlines():
        action = json.loads(line) if line.strip() else {}
        info = action.get("commitInfo", info)
        for name in ("add", "remove"):
            if name in action:
                files[name, action[name].get("dataChange", True)].append(_file(action[name]))
    told = json.loads(info[METADATA_KEY]) if METADATA_KEY in info else {}
    found = (tuple(files[name, data]) for data in (True, False) for name in ("add", "remove"))
    return DataCommit(version, str(info.get("operation", "")), told, *found)


def _file(action: Mapping[str, Any]) -> Changed:
    stats = json.loads(action.get("stats") or "{}")
    return Changed(
        str(action["path"]), action.get("partitionValues") or {}, int(stats.get("numRecords") or 0), int(action.get("size") or 0)
    )


def _there(table: Path, file: Changed) -> bool:
    """Compaction replaces files, and vacuum takes them away later."""
    return (table / unquote(file.path)).exists()
