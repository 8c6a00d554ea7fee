"""Dagster's mirror of a staged table: an event for every window that a Delta commit touched, written again if it was lost.

The Delta log is the truth; nothing here is read to decide what to ingest. An event carries the commit's id and its window, and
comparing those with the log finds what a crash between commit and event lost.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import dagster as dg
from deltalake import DeltaTable

from consumers.clock import Clock, SystemClock
from consumers.config import Consumer
from consumers.staging.log import StagedCommit, commits
from orchestration.mirror_events import (
    DATA_VERSION,
    Event,
    data_version,
    dead_letters_event,
    dead_letters_key,
    lost_event,
    staged_key,
    window_event,
)

GRACE_SECONDS = 120.0
"""How long the events of a commit are left to the member that wrote it, while its run is alive."""
_PAGE = 1000
_CLOCK_SKEW_SECONDS = 600.0
_ACTIVE = (dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING)
DEAD_LETTERS = "dead letters"
LOST = "lost offsets"


@dataclass(frozen=True, slots=True)
class Missing:
    """What one commit lacks in Dagster: windows (or `DEAD_LETTERS`, `LOST`), and data versions that differ from its own.

    `newer` has, for windows that a later commit touched and mirrored, that commit's data version: an event written afterwards
    repeats it, so that nothing downstream sees the window go back.
    """

    commit: StagedCommit
    parts: frozenset[str]
    newer: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Repaired:
    """`events` were written again for `commits`; everything up to table version `verified` is mirrored."""

    verified: int
    commits: int
    events: int


def log(consumer: Consumer, commit: StagedCommit, emit: Callable[[Event], None], clock: Clock | None = None) -> int:
    """Write all of a commit's events with `emit`; returns how many. The same commit gives the same events again."""
    return _write(consumer, Missing(commit, parts_of(commit)), emit, clock or SystemClock())


def parts_of(commit: StagedCommit) -> frozenset[str]:
    """What a commit's events are about: its windows, and `DEAD_LETTERS` and `LOST` where it has any."""
    extra = {DEAD_LETTERS: commit.dead_letters > 0, LOST: bool(commit.lost)}
    return frozenset(commit.windows) | {part for part, there in extra.items() if there}


def partition_of(consumer: Consumer, window: str, clock: Clock) -> str | None:
    """The window as a Dagster partition; None when it is before the first one or in the future.

    Such windows are staged like any other. Dagster has no partition to show for them, so their events have none and name
    the window in their metadata.
    """
    every = consumer.config.window.every
    now = datetime.fromtimestamp(clock.time(), UTC).strftime(partition_format(every))
    return window if first_partition(consumer) <= window <= now else None


def partition_format(every: str) -> str:
    """How a window's key is written."""
    return "%Y-%m-%d-%H" if every == "hour" else "%Y-%m-%d"


def first_partition(consumer: Consumer) -> str:
    """The key of the first window that Dagster has a partition for."""
    window = consumer.config.window
    day = window.first or ("2020-01-01" if window.every == "hour" else "2000-01-01")
    return f"{day}-00" if window.every == "hour" else day


def missing(
    instance: dg.DagsterInstance, consumer: Consumer, after_version: int = -1, clock: Clock | None = None
) -> list[Missing]:
    """The commits above a table version whose events are not all there, oldest first.

    A young commit of a run that is still alive is left out: its member is about to write them.
    """
    found, _ = _compare(instance, consumer, commits(consumer.staged, after_version), clock or SystemClock())
    return found


def repair(instance: dg.DagsterInstance, consumer: Consumer, clock: Clock | None = None) -> Repaired:
    """Write the events that are missing, from where the last repair ended. Cheap when nothing is missing."""
    clock = clock or SystemClock()
    if not DeltaTable.is_deltatable(str(consumer.staged)):
        return Repaired(-1, 0, 0)
    table = DeltaTable(consumer.staged)
    after = _verified(instance, consumer, table)
    lacking, waiting = _compare(instance, consumer, commits(table, after), clock)
    written = sum(_write(consumer, lack, instance.report_runless_asset_event, clock) for lack in lacking)
    verified = min(waiting) - 1 if waiting else table.version()
    if verified != after:
        _set_verified(instance, consumer, table, verified)
    return Repaired(verified, len(lacking), written)


def distrust(instance: dg.DagsterInstance, consumer: Consumer, version: int) -> None:
    """Make the next repair look at everything from this table version on."""
    table = DeltaTable(consumer.staged)
    if _verified(instance, consumer, table) >= version:
        _set_verified(instance, consumer, table, version - 1)


def _compare(
    instance: dg.DagsterInstance, consumer: Consumer, log: list[StagedCommit], clock: Clock
) -> tuple[list[Missing], list[int]]:
    """What is missing, and the versions that are not missed yet because their member is alive."""
    wanted = [commit for commit in log if parts_of(commit)]
    if not wanted:
        return [], []
    since = min(commit.committed_at_ms for commit in wanted) / 1000 - _CLOCK_SKEW_SECONDS
    seen = _Seen(instance, consumer, since)
    lacking: list[Missing] = []
    waiting: list[int] = []
    for commit in wanted:
        parts = parts_of(commit) - seen.parts[commit.commit_id]
        if not parts:
            continue
        if clock.time() - commit.committed_at_ms / 1000 < GRACE_SECONDS and _is_active(instance, commit.member):
            waiting.append(commit.version)
        else:
            lacking.append(Missing(commit, parts, seen.newer_than(commit, parts)))
    return lacking, waiting


class _Seen:
    """The events that Dagster has: the parts of each commit, and the newest commit of each window."""

    def __init__(self, instance: dg.DagsterInstance, consumer: Consumer, since: float) -> None:
        self.parts: dict[str, set[str]] = defaultdict(set)
        self._newest: dict[str, tuple[int, str]] = {}
        for event in _events(instance.fetch_materializations, staged_key(consumer.name), since):
            self._add(event, _text(event, "window"))
        for event in _events(instance.fetch_materializations, dead_letters_key(consumer.name), since):
            self._add(event, DEAD_LETTERS)
        for event in _events(instance.fetch_observations, staged_key(consumer.name), since):
            self._add(event, LOST)

    def _add(self, event: dg.AssetMaterialization | dg.AssetObservation, part: str) -> None:
        self.parts[_text(event, "commit_id")].add(part)
        version = event.metadata.get("delta_version")
        if isinstance(version, dg.IntMetadataValue) and version.value is not None:
            mark = (version.value, (event.tags or {}).get(DATA_VERSION, ""))
            self._newest[part] = max(mark, self._newest.get(part, (-1, "")))

    def newer_than(self, commit: StagedCommit, parts: Iterable[str]) -> dict[str, str]:
        marks = {part: self._newest.get(part, (-1, "")) for part in parts}
        return {part: mark for part, (version, mark) in marks.items() if version > commit.version}


def _events(
    fetch: Callable[..., dg.EventRecordsResult], key: dg.AssetKey, since: float
) -> Iterator[dg.AssetMaterialization | dg.AssetObservation]:
    cursor: str | None = None
    while True:
        page = fetch(dg.AssetRecordsFilter(asset_key=key, after_timestamp=since), limit=_PAGE, cursor=cursor)
        for record in page.records:
            if event := record.asset_materialization or record.asset_observation:
                yield event
        if not page.has_more:
            return
        cursor = page.cursor


def _text(event: dg.AssetMaterialization | dg.AssetObservation, key: str) -> str:
    value = event.metadata.get(key)
    return str(value.value) if value is not None else ""


def _write(consumer: Consumer, lack: Missing, emit: Callable[[Event], None], clock: Clock) -> int:
    commit = lack.commit
    for part in sorted(lack.parts):
        if part == DEAD_LETTERS:
            emit(dead_letters_event(consumer.name, commit))
        elif part == LOST:
            emit(lost_event(consumer.name, commit))
        else:
            version = lack.newer.get(part) or data_version(commit)
            emit(window_event(consumer.name, commit, part, partition_of(consumer, part, clock), version))
    return len(lack.parts)


def _is_active(instance: dg.DagsterInstance, member: str) -> bool:
    run = instance.get_run_by_id(member)
    return run is not None and run.status in _ACTIVE


def _cursor_key(consumer: Consumer) -> str:
    return f"weir/mirrored/{consumer.name}"


def _verified(instance: dg.DagsterInstance, consumer: Consumer, table: DeltaTable) -> int:
    # Kept beside the events, in Dagster's own storage: whoever wipes that gets a full comparison.
    key = _cursor_key(consumer)
    table_id, _, version = instance.daemon_cursor_storage.get_cursor_values({key}).get(key, "").rpartition("@")
    return int(version) if table_id == str(table.metadata().id) and int(version) <= table.version() else -1


def _set_verified(instance: dg.DagsterInstance, consumer: Consumer, table: DeltaTable, version: int) -> None:
    instance.daemon_cursor_storage.set_cursor_values({_cursor_key(consumer): f"{table.metadata().id}@{version}"})
