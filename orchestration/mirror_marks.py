"""What Dagster has of a staged table's commits: by part, the data versions that say up to which commit it is mirrored.

A *part* is what one event is about: a window, or one of the names below. Reads Dagster's storage with one question for all
windows, however many there are.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

import dagster as dg

from consumers.clock import Clock
from consumers.config import Consumer
from consumers.staging.completeness import first_window, last_window
from consumers.staging.log import StagedCommit
from consumers.staging.windows import FORMATS
from orchestration.mirror_events import DATA_VERSION, data_version, dead_letters_key, mark, outside_version, staged_key

OUTSIDE = "windows without a partition"
DEAD_LETTERS = "dead letters"
LOST = "lost offsets"
MOVED = "moved positions"

Parts = Mapping[str, Sequence[StagedCommit]]
"""Part → its commits, oldest first."""
_OBSERVED = {"lost_offsets": LOST, "moved_offsets": MOVED}
_ASKED_BY_NAME = 500
_PAGE = 1000
_CLOCK_SKEW_SECONDS = 600.0


def by_part(consumer: Consumer, commits: Iterable[StagedCommit], clock: Clock) -> dict[str, list[StagedCommit]]:
    """The commits of each part."""
    first, last = first_window(consumer.config.window), _current_partition(consumer, clock)
    parts: dict[str, list[StagedCommit]] = {}
    for commit in commits:
        names = dict.fromkeys(window if first <= window <= last else OUTSIDE for window in commit.windows)
        there = {DEAD_LETTERS: commit.dead_letters or commit.resolved, LOST: commit.lost, MOVED: commit.kind == "move"}
        for name in (*names, *(part for part, is_there in there.items() if is_there)):
            parts.setdefault(name, []).append(commit)
    return parts


def has_partition(consumer: Consumer, window: str, clock: Clock) -> bool:
    """Whether Dagster has a partition for the window: none is before the first one, after the last, or in the future."""
    return first_window(consumer.config.window) <= window <= _current_partition(consumer, clock)


def _current_partition(consumer: Consumer, clock: Clock) -> str:
    now = datetime.fromtimestamp(clock.time(), UTC).strftime(FORMATS[consumer.config.window.every])
    return min(now, last_window(consumer.config.window) or now)


def marks(instance: dg.DagsterInstance, consumer: Consumer, parts: Parts) -> dict[str, frozenset[str]]:
    """Part → data versions of commits that its events stand for. A part without such an event is absent."""
    found: dict[str, frozenset[str]] = {}
    windows = parts.keys() - {OUTSIDE, DEAD_LETTERS, *_OBSERVED.values()}
    for window, version in _versions(instance, consumer, windows).items():
        found[window] = frozenset([version])
    if OUTSIDE in parts and _has_outside(instance, consumer, parts[OUTSIDE][-1]):
        found[OUTSIDE] = frozenset([data_version(parts[OUTSIDE][-1])])
    if DEAD_LETTERS in parts and (version := _newest(instance, dead_letters_key(consumer.name))):
        found[DEAD_LETTERS] = frozenset([version])
    observed = [commit for part in _OBSERVED.values() for commit in parts.get(part, ())]
    return found | (_observed(instance, consumer, observed) if observed else {})


def _versions(instance: dg.DagsterInstance, consumer: Consumer, windows: Iterable[str]) -> dict[str, str]:
    """The data version of each window's newest event, whoever wrote it."""
    wanted = sorted(windows)
    if not wanted:
        return {}
    tags = instance.event_log_storage.get_latest_tags_by_partition(
        staged_key(consumer.name),
        dg.DagsterEventType.ASSET_MATERIALIZATION,
        [DATA_VERSION],
        # All of them at once is quicker than naming many, and databases limit how many can be named.
        asset_partitions=wanted if len(wanted) <= _ASKED_BY_NAME else None,
    )
    return {window: found[DATA_VERSION] for window, found in tags.items() if DATA_VERSION in found}


def _has_outside(instance: dg.DagsterInstance, consumer: Consumer, newest: StagedCommit) -> bool:
    wanted = {DATA_VERSION: outside_version(newest)}
    return bool(instance.event_log_storage.get_event_tags_for_asset(staged_key(consumer.name), filter_tags=wanted))


def _newest(instance: dg.DagsterInstance, key: dg.AssetKey) -> str:
    records = instance.fetch_materializations(key, limit=1).records
    event = records[0].asset_materialization if records else None
    return (event.tags or {}).get(DATA_VERSION, "") if event else ""


def _observed(instance: dg.DagsterInstance, consumer: Consumer, commits: Iterable[StagedCommit]) -> dict[str, frozenset[str]]:
    since = min(commit.committed_at_ms for commit in commits) / 1000 - _CLOCK_SKEW_SECONDS
    found: dict[str, set[str]] = {part: set() for part in _OBSERVED.values()}
    for event in _observations(instance, staged_key(consumer.name), since):
        for name, part in _OBSERVED.items():
            if name in event.metadata:
                found[part].add(mark(event.metadata["delta_version"].value, event.metadata["commit_id"].value))
    return {part: frozenset(versions) for part, versions in found.items()}


def _observations(instance: dg.DagsterInstance, key: dg.AssetKey, since: float) -> Iterator[dg.AssetObservation]:
    cursor: str | None = None
    while True:
        wanted = dg.AssetRecordsFilter(asset_key=key, after_timestamp=since)
        page = instance.fetch_observations(wanted, limit=_PAGE, cursor=cursor)
        yield from (record.asset_observation for record in page.records if record.asset_observation)
        if not page.has_more:
            return
        cursor = page.cursor
