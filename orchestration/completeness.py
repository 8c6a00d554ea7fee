"""Which windows of a consumer are complete, kept in Dagster's storage and told in its events.

All that is kept can be found out again: from the staged table's log, and by looking at Kafka for a while.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

import dagster as dg
from dagster import DagsterEventType
from deltalake import DeltaTable

from consumers.clock import Clock, moment
from consumers.config import Consumer
from consumers.staging.completeness import Progress, complete_windows, fold, look, watermarks
from consumers.staging.local import windows_of
from consumers.staging.log import StagedCommit, commits
from consumers.types import Positions, TopicPartition, Watermarks
from orchestration.mirror_events import DATA_VERSION, staged_key

MOST_EVENTS = 400
"""Windows that are told of at once..."""
APART_SECONDS = 60.0
"""...and how long later the next; nor has a window two events in less than this."""
EMPTY = "empty"
"""The data version of a window in which nothing happened."""
_LOOK_AHEAD = 500
_ROWS = "dagster/partition_row_count"
Marks = Callable[[str, StagedCommit], dict[str, dg.MetadataValue]]


@dataclass(frozen=True, slots=True)
class Kept:
    """What is remembered: of which table, how far it is, up to which window every complete one has an event that says so, and
    when events were last written (seconds since the epoch).
    """

    table: str = ""
    progress: Progress = field(default_factory=Progress)
    told: str = ""
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Advanced:
    """What a tick found: the events of windows that became complete, and how far the table is valid, in words."""

    events: tuple[dg.AssetMaterialization, ...]
    sentence: str


def marks(instance: dg.DagsterInstance, consumer: Consumer) -> Marks:
    """What a window's event says beside its numbers, as known now: (window, commit) → metadata.

    `complete`: no record of the window is expected any more. `valid_through`: the event time up to which all are there.
    `revised`: it was complete before this commit, which came `late_by_seconds`.
    """
    every = consumer.config.window.every
    now = kept(instance, consumer.name).progress

    def mark(window: str, commit: StagedCommit) -> dict[str, dg.MetadataValue]:
        late = now.late_by(window, commit.version, every)
        told = _told(now, window, consumer)
        if late is not None:
            told |= {"revised": dg.MetadataValue.bool(True), "late_by_seconds": dg.MetadataValue.float(late)}
        return told

    return mark


def valid_through(instance: dg.DagsterInstance, consumer: str) -> float | None:
    """The event time (seconds since the epoch) up to which every record of a consumer is staged; None where it is not known."""
    through = kept(instance, consumer).progress.valid_through
    return None if through is None else through / 1000


def advance(
    instance: dg.DagsterInstance,
    consumer: Consumer,
    watermarks: Mapping[TopicPartition, Watermarks],
    positions: Positions,
    clock: Clock,
) -> Advanced:
    """Find out what is complete now, remember it, and return the events that say so of windows which no commit will tell of.

    `watermarks` were asked for before the `positions` (next offsets). The events are the caller's to write; those that get lost
    are returned again. Windows without rows are told of once, between the first with a row and the last that is complete.
    """
    if not DeltaTable.is_deltatable(str(consumer.staged)):
        return Advanced((), "nothing is staged yet")
    table = DeltaTable(consumer.staged)
    before = kept(instance, consumer.name)
    if before.table != str(table.metadata().id) or before.progress.version > table.version():
        before = Kept(str(table.metadata().id))
    window, now = consumer.config.window, int(clock.time() * 1000)
    folded = fold(before.progress, commits(table, before.progress.version), window.every)
    progress = look(folded, watermarks, positions, window, now)
    # Where a position went back, or a clock that ran ahead is right again, windows are told of again.
    told = before.told if folded.valid_through is not None and progress.complete(before.told, window.every) else ""
    wrote_at = before.at
    events: tuple[dg.AssetMaterialization, ...] = ()
    if not 0 <= clock.time() - before.at < APART_SECONDS:
        due = list(islice(complete_windows(progress, window, after=told), _LOOK_AHEAD))
        done, events = _announced(instance, consumer, progress, due, table, clock) if due else (told, ())
        told, wrote_at = max(done, told), clock.time() if events else wrote_at
    _keep(instance, consumer, Kept(before.table, progress, told, wrote_at))
    return Advanced(events, _sentence(progress, consumer, watermarks, now))


def kept(instance: dg.DagsterInstance, consumer: str) -> Kept:
    """What is remembered of a consumer; nothing where it was never looked at."""
    text = instance.daemon_cursor_storage.get_cursor_values({_key(consumer)}).get(_key(consumer), "")
    try:
        raw = json.loads(text)
        return Kept(str(raw["table"]), Progress.from_json(raw["progress"]), str(raw["told"]), float(raw["at"]))
    except (ValueError, KeyError, TypeError):
        return Kept()


def at(seconds: float | None) -> str:
    """A moment in words."""
    return "not known yet" if seconds is None else moment(seconds)


def _keep(instance: dg.DagsterInstance, consumer: Consumer, found: Kept) -> None:
    text = json.dumps({"table": found.table, "progress": found.progress.to_json(), "told": found.told, "at": found.at})
    instance.daemon_cursor_storage.set_cursor_values({_key(consumer.name): text})


def _key(consumer: str) -> str:
    return f"weir/valid_through/{consumer}"


def _announced(
    instance: dg.DagsterInstance, consumer: Consumer, progress: Progress, due: list[str], table: DeltaTable, clock: Clock
) -> tuple[str, tuple[dg.AssetMaterialization, ...]]:
    """The last window up to which all of `due` have an event that says complete, and events for those that lack one."""
    last, rows = _last_events(instance, consumer, due), set(windows_of(table))
    events: list[dg.AssetMaterialization] = []
    done, open_ = "", False
    for window in due:
        record = last.get(window)
        seen = record.asset_materialization if record is not None else None
        if seen is not None and _says_complete(seen):
            done = done if open_ else window
            continue
        open_ = True
        young = record is not None and clock.time() - record.timestamp < APART_SECONDS
        # Rows that Dagster has no event of yet are the mirror's to tell of, and it will say complete.
        if not young and (seen is not None or window not in rows) and len(events) < MOST_EVENTS:
            events.append(_complete_event(consumer, progress, window, seen))
    return done, tuple(events)


def _last_events(instance: dg.DagsterInstance, consumer: Consumer, windows: Collection[str]) -> dict[str, dg.EventLogRecord]:
    key = staged_key(consumer.name)
    ids = instance.event_log_storage.get_latest_storage_id_by_partition(key, DagsterEventType.ASSET_MATERIALIZATION, set(windows))
    if not ids:
        return {}
    wanted = dg.AssetRecordsFilter(asset_key=key, storage_ids=list(ids.values()))
    found = instance.fetch_materializations(wanted, limit=len(ids)).records
    return {record.partition_key: record for record in found if record.partition_key is not None}


def _says_complete(event: dg.AssetMaterialization) -> bool:
    told = event.metadata.get("complete")
    return told is not None and told.value is True


def _complete_event(
    consumer: Consumer, progress: Progress, window: str, last: dg.AssetMaterialization | None
) -> dg.AssetMaterialization:
    """Says that a window is complete: its last event once more, with the data version that it has, so that nothing downstream is
    computed again, and with its numbers, which the plots show.
    """
    version = EMPTY if last is None else (last.tags or {}).get(DATA_VERSION, EMPTY)
    numbers = last.metadata if last is not None else {"rows": 0, "bytes": 0, "files": 0, _ROWS: 0}
    return dg.AssetMaterialization(
        asset_key=staged_key(consumer.name),
        partition=window,
        description="Complete: no record of this window is expected any more." + (" It has none." if last is None else ""),
        metadata={**numbers, "window": window, **_told(progress, window, consumer)},
        tags={DATA_VERSION: version},
    )


def _told(progress: Progress, window: str, consumer: Consumer) -> dict[str, dg.MetadataValue]:
    told: dict[str, dg.MetadataValue] = {
        "complete": dg.MetadataValue.bool(progress.complete(window, consumer.config.window.every))
    }
    if progress.valid_through is not None:
        told["valid_through"] = dg.MetadataValue.timestamp(progress.valid_through / 1000)
    return told


def _sentence(progress: Progress, consumer: Consumer, partitions: Iterable[TopicPartition], now: int) -> str:
    """How far, and which partition is the last to come."""
    reached = watermarks(progress, partitions, consumer.config.window, now)
    unknown = sorted(tp for tp, seen in reached.items() if seen is None)
    if progress.valid_through is None:
        verbs = ("has", "is") if len(unknown) == 1 else ("have", "are")
        holding = f": {', '.join(map(str, unknown[:5]))} {verbs[0]} no row and {verbs[1]} not idle" if unknown else ""
        return f"valid through: not known yet{holding}"
    behind = min(((seen, tp) for tp, seen in reached.items() if seen is not None), default=None)
    holding = f", the last is {behind[1]}" if behind is not None and len(reached) > 1 else ""
    return f"valid through {at(progress.valid_through / 1000)}{holding}"
