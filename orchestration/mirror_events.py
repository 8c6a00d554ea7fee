"""The Dagster events that stand for Delta commits, and the asset keys that they are for. Pure: reads and writes nothing.

An event stands for several commits: rows, bytes, files and dead letters are their sums, lag and the like are the newest one's.
Tables in an event have at most `MOST_ROWS` rows, so that its size is bounded, too.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from consumers.staging.log import StagedCommit, WindowChange
from consumers.types import OffsetRange, TopicPartition

DATA_VERSION = "dagster/data_version"
MOST_ROWS = 100
SMALL_FILE_BYTES = 16 * 2**20
Event = dg.AssetMaterialization | dg.AssetObservation
Metadata = Mapping[str, dg.MetadataValue]
Value = dg.MetadataValue | int | float | str


@dataclass(frozen=True, slots=True)
class Held:
    """What a window holds now: rows and files in all, and how many of the files are small."""

    rows: int
    files: int
    small: int


def topic_key(topic: str) -> dg.AssetKey:
    """The asset of a Kafka topic. Characters that an asset key cannot have do not occur in topic names."""
    return dg.AssetKey(["kafka", topic])


def staged_key(consumer: str) -> dg.AssetKey:
    """The asset of a consumer's staged table."""
    return dg.AssetKey(["staged", consumer])


def dead_letters_key(consumer: str) -> dg.AssetKey:
    """The asset of a consumer's dead-letter table."""
    return dg.AssetKey(["dead_letters", consumer])


def data_version(commit: StagedCommit) -> str:
    """A commit's mark as Dagster's data version."""
    return mark(commit.version, commit.commit_id)


def mark(version: object, commit_id: object) -> str:
    """What names a commit: table version and the start of the commit's id."""
    return f"{version}-{str(commit_id)[:8]}"


def window_event(
    consumer: str,
    commits: Sequence[StagedCommit],
    window: str,
    held: Held | None = None,
    completeness: Metadata | None = None,
) -> dg.AssetMaterialization:
    """The commits (oldest first) that touched a window since its last event. `completeness` is put beside the numbers."""
    held_now = _held(held) if held else {}
    changed = _sum(commit.windows[window] for commit in _since_rewrite(commits))
    return dg.AssetMaterialization(
        asset_key=staged_key(consumer),
        partition=window,
        metadata={
            **_changed(changed),
            **held_now,
            **_numbers(commits),
            **_origin(commits),
            "window": window,
            **(completeness or {}),
        },
        tags={DATA_VERSION: data_version(commits[-1])},
    )


def outside_event(consumer: str, commits: Sequence[StagedCommit], windows: Sequence[str]) -> dg.AssetMaterialization:
    """The commits that touched windows for which Dagster has no partition: all of them in one event."""
    changed = _sum(commit.windows[window] for commit in commits for window in windows if window in commit.windows)
    named = ", ".join(windows[:5]) + (f" and {len(windows) - 5} more" if len(windows) > 5 else "")
    return dg.AssetMaterialization(
        asset_key=staged_key(consumer),
        description="Rows of windows before the first partition or in the future; they are staged like any other.",
        metadata={**_changed(changed), **_numbers(commits), **_origin(commits), "window": named},
        tags={DATA_VERSION: outside_version(commits[-1])},
    )


def outside_version(commit: StagedCommit) -> str:
    """The data version of an `outside_event`."""
    return f"{data_version(commit)}-outside"


def dead_letters_event(
    consumer: str, commits: Sequence[StagedCommit], summary: Metadata | None = None
) -> dg.AssetMaterialization:
    """The commits that wrote or resolved dead letters. `summary` says what the table holds now."""
    rows, dead = sum(commit.rows for commit in commits), sum(commit.dead_letters for commit in commits)
    return dg.AssetMaterialization(
        asset_key=dead_letters_key(consumer),
        metadata={
            "dead_letters": dead,
            "resolved": sum(commit.resolved for commit in commits),
            "ratio": dead / max(1, rows + dead),
            **(summary or {}),
            "ranges": _ranges(commits),
            **_origin(commits),
        },
        tags={DATA_VERSION: data_version(commits[-1])},
    )


def lost_event(consumer: str, commits: Sequence[StagedCommit]) -> dg.AssetObservation:
    """The offsets that the topic no longer held when these commits' consumer came to them."""
    return dg.AssetObservation(
        asset_key=staged_key(consumer),
        description="Offsets were gone from the topic before they were staged; on_data_loss: record let the consumer go on.",
        metadata={
            "lost_offsets": sum(len(r) for commit in commits for r in commit.lost.values()),
            "lost_ranges": _steps((commit, commit.lost) for commit in commits),
            **_origin(commits),
        },
    )


def moved_event(consumer: str, commits: Sequence[StagedCommit]) -> dg.AssetObservation:
    """The positions that somebody set, who and why."""
    newest = commits[-1]
    return dg.AssetObservation(
        asset_key=staged_key(consumer),
        description=f"Positions were moved by {newest.by or 'somebody'}: {newest.why or 'no reason given'}",
        metadata={
            "moved_offsets": sum(len(r) for commit in commits for r in commit.moved.values()),
            "removed_rows": sum(commit.removed for commit in commits),
            "by": newest.by,
            "why": newest.why,
            "moved_ranges": _steps((commit, commit.moved) for commit in commits),
            **_origin(commits),
        },
    )


def _since_rewrite(commits: Sequence[StagedCommit]) -> Sequence[StagedCommit]:
    """A rewrite says what its window holds afterwards: what was added before no longer counts."""
    rewrites = [place for place, commit in enumerate(commits) if commit.kind == "rewrite"]
    return commits[rewrites[-1] :] if rewrites else commits


def _sum(changes: Iterable[WindowChange]) -> WindowChange:
    rows, size, files = 0, 0, 0
    for change in changes:
        rows, size, files = rows + change.rows, size + change.bytes, files + change.files
    return WindowChange(rows, size, files)


def _changed(change: WindowChange) -> dict[str, Value]:
    return {"rows": change.rows, "bytes": change.bytes, "files": change.files}


def _held(held: Held) -> dict[str, Value]:
    return {
        "dagster/partition_row_count": held.rows,
        "active_files": held.files,
        "small_file_share": round(held.small / held.files, 3) if held.files else 0.0,
    }


def _numbers(commits: Sequence[StagedCommit]) -> dict[str, Value]:
    """Numbers of whole commits, flat, so that the UI plots them."""
    newest = commits[-1]
    seconds = sum(_seconds(commit) for commit in commits)
    return {
        "commits": len(commits),
        "lag": newest.lag,
        "event_age_seconds": round(_event_age(newest), 1),
        "rows_per_second": round(sum(commit.rows for commit in commits) / seconds, 1) if seconds > 0 else 0.0,
        "flush_milliseconds": round((newest.timings.decode + newest.timings.write) * 1000, 1),
        "commit_milliseconds": round(newest.timings.commit * 1000, 1),
        "dead_letters": sum(commit.dead_letters for commit in commits),
        "skipped_offsets": sum(commit.skipped for commit in commits),
        "ranges": _ranges(commits),
    }


def _seconds(commit: StagedCommit) -> float:
    took = commit.timings
    return took.age + took.decode + took.write + took.commit


def _event_age(commit: StagedCommit) -> float:
    """Seconds between the newest record's time and the commit; where that is unknown, since the batch's first record came."""
    if commit.times:
        return max(0.0, (commit.committed_at_ms - max(commit.times.values())) / 1000)
    return _seconds(commit)


def _origin(commits: Sequence[StagedCommit]) -> dict[str, Value]:
    newest = commits[-1]
    return {
        "delta_version": newest.version,
        "schema_id": newest.schema_id,
        "commit_id": newest.commit_id,
        "kind": newest.kind,
        "member": _member(newest.member),
        "committed": dg.MetadataValue.timestamp(newest.committed_at_ms / 1000),
    }


def _member(name: str) -> dg.MetadataValue:
    """A link, where the member was a run."""
    try:
        return dg.MetadataValue.dagster_run(str(uuid.UUID(name)))
    except ValueError:
        return dg.MetadataValue.text(name)


def _ranges(commits: Sequence[StagedCommit]) -> dg.TableMetadataValue:
    """From the first to the last offset of each partition that the commits account for, and how many those are."""
    spans: dict[TopicPartition, OffsetRange] = {}
    offsets: dict[TopicPartition, int] = {}
    high: dict[TopicPartition, int] = {}
    for commit in commits:
        high |= commit.high
        for tp, step in commit.ranges.items():
            spans[tp] = spans.get(tp, step).hull(step)
            offsets[tp] = offsets.get(tp, 0) + len(step)
    rows = [(str(tp), span.start, span.end, offsets[tp], high.get(tp, -1)) for tp, span in sorted(spans.items())]
    return table({"partition": "string", "start": "int", "end": "int", "offsets": "int", "high_watermark": "int"}, rows)


def _steps(steps: Iterable[tuple[StagedCommit, Mapping[TopicPartition, OffsetRange]]]) -> dg.TableMetadataValue:
    rows = [(str(tp), r.start, r.end, commit.version) for commit, ranges in steps for tp, r in sorted(ranges.items())]
    return table({"partition": "string", "start": "int", "end": "int", "delta_version": "int"}, rows)


def table(columns: Mapping[str, str], rows: Sequence[tuple[str | int | float | bool, ...]]) -> dg.TableMetadataValue:
    """A table of columns (name → type); its last row says how many are left out where there are more than `MOST_ROWS`."""
    schema = dg.TableSchema(columns=[dg.TableColumn(name, kind) for name, kind in columns.items()])
    shown = [dict(zip(columns, row, strict=True)) for row in rows[:MOST_ROWS]]
    if len(rows) > MOST_ROWS:
        shown[-1] = {**dict.fromkeys(columns, ""), next(iter(columns)): f"and {len(rows) - MOST_ROWS + 1:,} more"}
    return dg.MetadataValue.table(records=[dg.TableRecord(row) for row in shown], schema=schema)
