"""Removing files that no version needs that anybody may still read: what dead runs left, and what later versions replaced.

Three things keep a file: the newest version has it; it is younger than the safe age, as every file is that a run at work has
written or is reading; or a reader that lags behind may still ask for it (`protected`).
"""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from consumers.clock import Clock
from consumers.errors import StorageError
from consumers.staging.history import commit_info, file_actions
from consumers.staging.local import table_path
from consumers.staging.writing import HOOKS

_ATTEMPT = "attempt-*"
_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """How many files went, and their bytes."""

    files: int = 0
    bytes: int = 0


def vacuum(table: DeltaTable, keep_hours: int, clock: Clock, protected: int | None = None) -> Reclaimed:
    """Remove what is older than `keep_hours` and needed neither by the newest version nor from `protected` on.

    `protected` is the version that the slowest reader has read last: whatever was in the table since then stays.
    """
    keep = (
        sorted(_needed_since(table, protected)) if protected is not None and _old(table, protected, keep_hours, clock) else None
    )
    folder = table_path(table)
    going = table.vacuum(keep_hours, dry_run=True, enforce_retention_duration=False, full=True, keep_versions=keep)
    _require_inside(folder, going)
    sizes = {path: _size(folder / path) for path in going}
    if not sizes:
        return Reclaimed()
    _vacuumed(table, keep_hours, keep)
    _remove_empty(folder)
    gone = [size for path, size in sizes.items() if not (folder / path).exists()]
    return Reclaimed(len(gone), sum(gone))


def _vacuumed(table: DeltaTable, keep_hours: int, keep: list[int] | None) -> None:
    """Vacuum notes in the log what it does; whoever replaces rows meanwhile is first, and the note is tried again.

    What others removed since is younger than the safe age, so `keep` still names all that is needed.
    """
    for left in reversed(range(_ATTEMPTS)):
        try:
            table.vacuum(
                keep_hours,
                dry_run=False,
                enforce_retention_duration=False,
                full=True,
                keep_versions=keep,
                post_commithook_properties=HOOKS,
            )
            return
        except CommitFailedError:
            if not left:
                raise
            table.update_incremental()


def _needed_since(table: DeltaTable, version: int) -> Iterable[int]:
    """Versions whose files together are all that were in the table since `version`: it, and each before a commit that removes."""
    yield version
    for each in range(version + 1, table.version() + 1):
        if file_actions(table, each)[1]:
            yield each - 1


def _old(table: DeltaTable, version: int, keep_hours: int, clock: Clock) -> bool:
    """Whether the age alone does not protect a version's files. Who has read a version that the log lost starts over anyway."""
    info = commit_info(table, version) if version < table.version() else None
    return info is not None and int(info.get("timestamp", 0)) / 1000 < clock.time() - keep_hours * 3600


def _require_inside(folder: Path, paths: Iterable[str]) -> None:
    """Raise StorageError where a link leads out of the table: vacuum goes through it, and would delete what is no table's."""
    home = folder.resolve()
    if outside := next((path for path in paths if not (folder / path).resolve().is_relative_to(home)), None):
        raise StorageError(
            f"{folder / outside} is outside of the table {folder}, behind a symbolic link. Nothing was removed. Take the link "
            "out of the table's folder, then start again."
        )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _remove_empty(folder: Path) -> None:
    """Folders of attempts that have no file left."""
    for attempt in folder.glob(_ATTEMPT):
        if not any(path.is_file() for path in attempt.rglob("*")):
            shutil.rmtree(attempt, ignore_errors=True)
