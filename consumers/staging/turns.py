"""Whoever rewrites a window and whoever compacts its files take turns.

delta-rs compares the files that an overwrite replaces with concurrent removals of rows, not with those of a compaction: landing
after one, a rewrite would leave the compacted file beside its own, every row twice. A lock on a file in the table's folder keeps
the two apart; the system releases it when its holder dies.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LOCK = "_turns.lock"


@contextmanager
def rewriting(table: Path) -> Iterator[None]:
    """From the look at the files that are to be replaced until the commit. Waits for a compaction, and for nobody else."""
    with (table / _LOCK).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


@contextmanager
def compacting(table: Path) -> Iterator[bool]:
    """Whether this is the moment for it: no while somebody rewrites a window of the table, or compacts it."""
    with (table / _LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
