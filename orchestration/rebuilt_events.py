"""The Dagster event of a window that was built again. To the mirror it stands for the commit, as its own events do."""

from collections.abc import Mapping

import dagster as dg

from consumers.config import Consumer
from consumers.processing.backfill.window import Made, Rebuilt
from consumers.staging.log import StagedCommit, commits
from consumers.types import OffsetRange, TopicPartition
from orchestration import completeness
from orchestration.mirror_events import DATA_VERSION, SMALL_FILE_BYTES, Held, staged_key, table, window_event

_SINCE_LAST = ("rows", "bytes", "files", "commits", "dead_letters", "skipped_offsets")
"""Numbers of a window's event that count what came since the event before: nothing, where nothing changed."""


def rebuilt_event(instance: dg.DagsterInstance, consumer: Consumer, rebuilt: Rebuilt) -> dg.AssetMaterialization:
    """The event of a window. One that was not changed keeps its data version, so that nothing downstream is computed again."""
    if rebuilt.commit is not None:
        event = _changed(instance, consumer, rebuilt.window, rebuilt.made, rebuilt.commit)
    else:
        event = _unchanged(instance, consumer, rebuilt.window)
    return event._replace(metadata={**event.metadata, **_numbers(rebuilt)})


def in_words(rebuilt: Rebuilt) -> str:
    """What became of a window, for a run's log."""
    made = rebuilt.made
    extra = {
        "new dead letters": made.rejects.num_rows if rebuilt.commit is not None else 0,
        "rows could not be read again and stay": made.kept,
        "rows belong to another window by today's definition and stay (a shadow moves them)": made.left,
    }
    told = [f"{made.rows.num_rows} rows, {made.added} added, {made.removed} removed, {made.seen} records read"]
    told += [f"{count} {what}" for what, count in extra.items() if count]
    return ", ".join([*told, *(["unchanged"] if rebuilt.commit is None else [])])


def _changed(
    instance: dg.DagsterInstance, consumer: Consumer, window: str, made: Made, commit: StagedCommit
) -> dg.AssetMaterialization:
    change = commit.windows[window]
    held = Held(made.rows.num_rows, change.files, change.files if change.bytes < SMALL_FILE_BYTES else 0)
    return window_event(consumer.name, [commit], window, held, completeness.marks(instance, consumer)(window, commit))


def _unchanged(instance: dg.DagsterInstance, consumer: Consumer, window: str) -> dg.AssetMaterialization:
    last = _last(instance, consumer, window)
    if last is not None:
        nothing = {name: dg.MetadataValue.int(0) for name in _SINCE_LAST if name in last.metadata}
        return last._replace(metadata={**last.metadata, **nothing})
    # Dagster knows nothing of the window: this event stands for all of its commits, as the mirror's would.
    log = [commit for commit in commits(consumer.staged) if window in commit.windows]
    if log:
        return window_event(consumer.name, log, window, completeness=completeness.marks(instance, consumer)(window, log[-1]))
    return dg.AssetMaterialization(
        asset_key=staged_key(consumer.name),
        partition=window,
        metadata={"window": window},
        tags={DATA_VERSION: completeness.EMPTY},
    )


def _last(instance: dg.DagsterInstance, consumer: Consumer, window: str) -> dg.AssetMaterialization | None:
    wanted = dg.AssetRecordsFilter(asset_key=staged_key(consumer.name), asset_partitions=[window])
    records = instance.fetch_materializations(wanted, limit=1).records
    return records[0].asset_materialization if records else None


def _numbers(rebuilt: Rebuilt) -> dict[str, dg.MetadataValue]:
    made = rebuilt.made
    return {
        "dagster/partition_row_count": dg.MetadataValue.int(made.rows.num_rows),
        "unchanged": dg.MetadataValue.bool(rebuilt.commit is None),
        "added": dg.MetadataValue.int(made.added),
        "removed": dg.MetadataValue.int(made.removed),
        "records_read": dg.MetadataValue.int(made.seen),
        "rows_not_read_again": dg.MetadataValue.int(made.kept),
        "rows_of_another_window": dg.MetadataValue.int(made.left),
        "offsets_read": _ranges(made.ranges),
        **({"offsets_lost": _ranges(made.lost)} if made.lost else {}),
    }


def _ranges(ranges: Mapping[TopicPartition, OffsetRange]) -> dg.TableMetadataValue:
    rows = [(str(tp), r.start, r.end) for tp, r in sorted(ranges.items())]
    return table({"partition": "string", "start": "int", "end": "int"}, rows)
