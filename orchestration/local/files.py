"""Small promises about files: locks between processes, and writes that are there whole or not at all."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestration.local.errors import LocalError


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on `path` (created when missing); waits for whoever holds it.

    Ends with the process.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def write_whole(path: Path, text: str) -> None:
    """Replace `path` by `text` so that a reader or a crash sees the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    Path(name).replace(path)


@contextmanager
def folder_appearing_whole(target: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes `target` when the block ends well and vanishes when it does not.

    Whoever comes first wins: a `target` that another process made meanwhile is kept and ours is dropped.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield making
        making.chmod(0o755)
        try:
            making.rename(target)
        except OSError:
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(making, ignore_errors=True)


def require_free_space(folder: Path, needed: int) -> None:
    """Raise LocalError when the file system that holds `folder` has fewer than `needed` bytes free."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise LocalError(
            f"not enough disk: {existing} has {free / 2**20:,.0f} MiB free and "
            f"{needed / 2**20:,.0f} MiB are needed; "
            "free some space, or point WEIR_HOME and WEIR_CACHE at a bigger disk"
        )
