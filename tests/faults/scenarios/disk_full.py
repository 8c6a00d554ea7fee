"""The tables' file system has no room left in the middle of staging, and is given some again."""

import errno
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.lab import Lab
from tests.faults.scenario import Outcome, scenario

_BYTES = 64 * 2**20
_FAILED = 3


@scenario("disk full", times=50)
def run(lab: Lab, times: int, records: int, seed: int) -> Outcome:
    """A member stages a part and has nothing to do; the disk is filled, and records come; it must say so and end."""
    part = records // times
    batch = max(1, part // 4)
    with small_disk(lab.folder / "disk") as disk:
        lab.set_up(batch, tables=disk)
        with lab.faults():
            for _ in range(times):
                lab.produce(part // 2)
                lab.catch_up(batch)
                lab.produce(part // 2)
                filler = fill(disk, leave=lab.chance.randrange(0, 16) * 1024)
                with lab.child(lab.order(batch)) as member:
                    if member.end() == _FAILED and "StorageError" in member.said[-1]:
                        lab.struck()
                filler.unlink()
                lab.catch_up(batch)
                lab.watch.look()
        return lab.outcome(times)


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of its own, in memory. Making one is root's right."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_BYTES}", "tmpfs", str(folder)]
    made = subprocess.run(mount, check=False, capture_output=True, text=True)
    assert made.returncode == 0, f"a small file system cannot be mounted here: {made.stderr.strip()}"
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(disk: Path, leave: int) -> Path:
    """Write a file until there is no room but for `leave` bytes."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(2**20)) == 2**20:
                pass
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
        file.truncate(max(0, file.tell() - leave))
    return filler
