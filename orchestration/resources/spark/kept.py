"""Folders of logs that do not grow without end."""

import shutil
from dataclasses import dataclass
from pathlib import Path

_BEING_WRITTEN_SECONDS = 3600.0


@dataclass(frozen=True)
class Kept:
    """How long, and how much of it."""

    days: float
    megabytes: float


def prune(folder: Path, kept: Kept, now: float) -> None:
    """Delete entries of `folder` that are older than `kept.days`, then the oldest until `kept.megabytes` are left.

    `now` is in seconds since the epoch. What was written within the last hour stays: its writer may still run. Safe to race.
    """
    left = kept.megabytes * 2**20
    for entry in sorted(folder.iterdir(), key=_written, reverse=True) if folder.is_dir() else ():
        age = now - _written(entry)
        left -= _size(entry)
        if age > kept.days * 86400 or (left < 0 and age > _BEING_WRITTEN_SECONDS):
            _delete(entry)


def _written(entry: Path) -> float:
    """When it was last written; a folder when any of its files was. 0 for what is gone already."""
    return max((_stat(path)[0] for path in (entry, *entry.rglob("*"))), default=0.0)


def _size(entry: Path) -> int:
    return sum(_stat(path)[1] for path in (entry, *entry.rglob("*")))


def _stat(path: Path) -> tuple[float, int]:
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0.0, 0
    return status.st_mtime, status.st_size


def _delete(entry: Path) -> None:
    if entry.is_dir():
        shutil.rmtree(entry, ignore_errors=True)
    else:
        entry.unlink(missing_ok=True)
