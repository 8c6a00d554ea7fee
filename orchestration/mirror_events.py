"""The Dagster events that stand for a Delta commit, and the asset keys that they are for. Pure: reads and writes nothing."""

from collections.abc import Mapping

import dagster as dg

from consumers.staging.log import StagedCommit
from consumers.types import OffsetRange, TopicPartition

DATA_VERSION = "dagster/data_version"
Event = dg.AssetMaterialization | dg.AssetObservation

_RANGES = dg.TableSchema(
    columns=[
        dg.TableColumn("partition", "string"),
        dg.TableColumn("start", "int"),
        dg.TableColumn("end", "int"),
        dg.TableColumn("high_watermark", "int"),
    ]
)


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
    """A commit's mark as Dagster's data version: table version and the start of the commit's id."""
    return f"{commit.version}-{commit.commit_id[:8]}"


def window_event(
    consumer: str, commit: StagedCommit, window: str, partition: str | None, version: str
) -> dg.AssetMaterialization:
    """One window that a commit touched. Numbers without a unit in their name are of this window, `lag` is of the commit."""
    change = commit.windows[window]
    return dg.AssetMaterialization(
        asset_key=staged_key(consumer),
        partition=partition,
        metadata={
            "rows": change.rows,
            "bytes": change.bytes,
            "files": change.files,
            **_numbers(commit),
            "ranges": _table(commit.ranges, commit.high),
            "window": window,
            **_origin(commit),
        },
        tags={DATA_VERSION: version},
    )


def dead_letters_event(consumer: str, commit: StagedCommit) -> dg.AssetMaterialization:
    """The dead letters of a commit."""
    return dg.AssetMaterialization(
        asset_key=dead_letters_key(consumer),
        metadata={
            "dead_letters": commit.dead_letters,
            "ratio": commit.dead_letters / max(1, commit.rows + commit.dead_letters),
            "ranges": _table(commit.ranges, commit.high),
            **_origin(commit),
        },
        tags={DATA_VERSION: data_version(commit)},
    )


def lost_event(consumer: str, commit: StagedCommit) -> dg.AssetObservation:
    """The offsets that the topic no longer held when this commit's consumer came to them."""
    return dg.AssetObservation(
        asset_key=staged_key(consumer),
        description="Offsets were gone from the topic before they were staged; on_data_loss: record let the consumer go on.",
        metadata={
            "lost_offsets": sum(len(r) for r in commit.lost.values()),
            "lost_ranges": _table(commit.lost, commit.high),
            **_origin(commit),
        },
    )


def _numbers(commit: StagedCommit) -> dict[str, int | float]:
    """Numbers of the whole commit, flat, so that the UI plots them."""
    took = commit.timings
    seconds = took.age + took.decode + took.write + took.commit
    return {
        "lag": commit.lag,
        "rows_per_second": round(commit.rows / seconds, 1) if seconds > 0 else 0.0,
        "flush_milliseconds": round((took.decode + took.write) * 1000, 1),
        "commit_milliseconds": round(took.commit * 1000, 1),
        "commit_rows": commit.rows,
        "dead_letters": commit.dead_letters,
        "skipped_offsets": commit.skipped,
    }


def _origin(commit: StagedCommit) -> dict[str, int | str | dg.TimestampMetadataValue]:
    return {
        "delta_version": commit.version,
        "commit_id": commit.commit_id,
        "member": commit.member,
        "committed": dg.MetadataValue.timestamp(commit.committed_at_ms / 1000),
    }


def _table(ranges: Mapping[TopicPartition, OffsetRange], high: Mapping[TopicPartition, int]) -> dg.TableMetadataValue:
    records = [
        dg.TableRecord({"partition": str(tp), "start": r.start, "end": r.end, "high_watermark": high.get(tp, -1)})
        for tp, r in sorted(ranges.items())
    ]
    return dg.MetadataValue.table(records=records, schema=_RANGES)
