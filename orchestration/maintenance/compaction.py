"""Making few files of many small ones, partition by partition, beside whoever appends and reads.

A compaction changes no row: its commit says `dataChange: false`, carries no position, and nothing that reads the log for what
happened takes notice of it. Appends that come meanwhile stay. Whoever replaces or removes files at the same moment wins: the
partition is then left for the next run.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from deltalake import CommitProperties, DeltaTable, WriterProperties
from deltalake.exceptions import CommitFailedError

from consumers.maintenance import Maintenance
from consumers.staging.local import table_path
from consumers.staging.turns import compacting
from consumers.staging.writing import HOOKS
from orchestration.maintenance.health import File, Part, files

_RETRIES = 100
_WRITER = WriterProperties(compression="ZSTD", compression_level=1, max_row_group_size=128 * 1024)


@dataclass(frozen=True, slots=True)
class Piece:
    """The small files of one partition: how many, and their bytes."""

    part: Part
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Compacted:
    """What was done: partitions, bytes read, files before and after, and partitions that others changed meanwhile."""

    partitions: int = 0
    bytes: int = 0
    removed: int = 0
    added: int = 0
    conflicts: int = 0


def plan(found: Iterable[File], settings: Maintenance) -> list[Piece]:
    """The partitions worth it, those with most small files first, as many as a run may read. Pure.

    The newest windows are left alone, because they are being written; a partition with one small file is as good as it gets.
    """
    known = list(found)
    windows = sorted({file.window for file in known if file.window is not None})
    newest = set(windows[len(windows) - settings.newest_windows :]) if settings.newest_windows else set()
    small: dict[Part, list[File]] = {}
    for file in known:
        if file.size < settings.small_file_bytes and file.window not in newest:
            small.setdefault(file.part, []).append(file)
    pieces = [Piece(part, len(each), sum(file.size for file in each)) for part, each in small.items() if len(each) > 1]
    return _affordable(sorted(pieces, key=lambda piece: (-piece.files, piece.part)), settings.bytes_per_run)


def _affordable(pieces: Sequence[Piece], limit: int) -> list[Piece]:
    """The first ones that together stay below the limit; one that is past it alone is taken alone."""
    chosen: list[Piece] = []
    for piece in pieces:
        if chosen and sum(each.bytes for each in chosen) + piece.bytes > limit:
            continue
        chosen.append(piece)
    return chosen


def compact(table: DeltaTable, settings: Maintenance) -> Compacted:
    """Compact what `plan` says, a commit for each partition."""
    partitions = size = removed = added = conflicts = 0
    for piece in plan(files(table), settings):
        with compacting(table_path(table)) as alone:
            done = _alone(table, piece.part, settings) if alone else None
        if done is None:
            conflicts += 1
            continue
        if done["numFilesRemoved"]:
            partitions, size = partitions + 1, size + piece.bytes
            removed, added = removed + int(done["numFilesRemoved"]), added + int(done["numFilesAdded"])
    return Compacted(partitions, size, removed, added, conflicts)


def _alone(table: DeltaTable, part: Part, settings: Maintenance) -> dict[str, int] | None:
    """What was done; None where somebody else changed these files first."""
    try:
        return _compact(table, part, settings)
    except CommitFailedError:
        table.update_incremental()
        return None


def _compact(table: DeltaTable, part: Part, settings: Maintenance) -> dict[str, int]:
    where = [(name, "=", value) for name, value in part if value is not None]
    how: dict[str, Any] = {
        "partition_filters": where or None,
        "target_size": settings.target_file_bytes,
        "max_concurrent_tasks": 1,
        "writer_properties": _WRITER,
        "commit_properties": CommitProperties(max_commit_retries=_RETRIES),
        "post_commithook_properties": HOOKS,
    }
    return table.optimize.z_order(settings.z_order, **how) if settings.z_order else table.optimize.compact(**how)
