"""What has to hold of a staged table, stated as checks over one consistent snapshot. Knows Delta, not Dagster.

The staged table is read at the version of the last commit that the ledger has; dead letters below each position are final by
then, because they are written before the commit that passes them. So the checks hold while ingestion is running.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from deltalake import DeltaTable

from consumers.config import Consumer
from consumers.staging.log import commits
from orchestration.checks.contents import Contents, Offsets, read, windows_of
from orchestration.checks.ledger import Ledger, Life, Step, ledger, named_windows

_SHOWN = 10


@dataclass(frozen=True)
class Finding:
    """A check's outcome: `problems` in words (none: it passed), numbers for the UI; a `warning` is nothing to mend."""

    problems: tuple[str, ...] = ()
    numbers: Mapping[str, int] = field(default_factory=dict)
    warning: bool = False

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    @property
    def text(self) -> str:
        """The first problems, one a line."""
        more = len(self.problems) - _SHOWN
        return "\n".join(self.problems[:_SHOWN]) + (f"\nand {more} more" if more > 0 else "")


@dataclass(frozen=True)
class Snapshot:
    """A staged table at one version, with its dead letters as they are afterwards."""

    table: DeltaTable
    book: Ledger
    staged: Contents
    dead_letters: Contents


def snapshot(consumer: Consumer) -> Snapshot | None:
    """Read what the checks need; None while there is no table."""
    if not DeltaTable.is_deltatable(str(consumer.staged)):
        return None
    return snapshot_at(DeltaTable(consumer.staged), consumer)


def snapshot_at(table: DeltaTable, consumer: Consumer) -> Snapshot:
    """The same at the version that `table` has loaded, whatever was committed since."""
    book = ledger(commit for commit in commits(table) if commit.version <= table.version())
    staged = read(table, book.spans, tentative=False)
    dead = Contents(book.spans)
    if DeltaTable.is_deltatable(str(consumer.dead_letters)):
        dead = read(DeltaTable(consumer.dead_letters), book.spans, tentative=True)
    return Snapshot(table, book, staged, dead)


def ranges_join(book: Ledger) -> Finding:
    """Every range starts where the one before it ended, or a commit says which offsets were lost between them."""
    numbers = {"ranges": len(book.steps), "offsets": book.offsets, "lost_offsets": book.lost}
    if book.faults:
        return Finding(tuple(book.faults), numbers)
    return Finding(tuple(book.losses), numbers, warning=True)


def no_duplicates(shot: Snapshot) -> Finding:
    """No offset is in two rows, be they staged or dead letters."""
    problems = [text for life in shot.book.spans for text in _duplicates(shot, life)]
    return Finding(tuple(problems), {"rows": shot.staged.rows, "dead_letters": shot.dead_letters.rows})


def offsets_accounted_for(shot: Snapshot) -> Finding:
    """Staged rows, dead letters and offsets without a record are, commit by commit, the offsets of its ranges."""
    book = shot.book
    problems = [text for steps in _by_commit(book) for text in _unaccounted(shot, steps)]
    if shot.staged.strays:
        problems.append(f"{shot.staged.strays} staged rows are in no commit's ranges, such as {shot.staged.stray_example}")
    for what, real, logged in (
        ("staged rows", shot.staged.rows, book.rows),
        ("dead letters", shot.dead_letters.rows, book.dead_letters),
    ):
        if real != logged:
            problems.append(f"the table holds {real:,} {what}, the commits wrote {logged:,}")
    numbers = {
        "offsets": book.offsets,
        "rows": shot.staged.rows,
        "dead_letters": shot.dead_letters.rows,
        "skipped_offsets": book.skipped,
        "lost_offsets": book.lost,
    }
    return Finding(tuple(problems), numbers)


def _duplicates(shot: Snapshot, life: Life) -> list[str]:
    repeated = shot.staged.repeated(life)
    rejected = shot.dead_letters.repeated(life)
    both = np.flatnonzero((shot.staged.counts(life) > 0) & (shot.dead_letters.counts(life) > 0)) + shot.book.spans[life].start
    texts = []
    for what, offsets in (("in two staged rows", repeated), ("in staged rows and dead letters", both)):
        if len(offsets):
            windows = ", ".join(windows_of(shot.table, life, offsets[:1000]))
            texts.append(f"{life.tp}: {len(offsets)} offsets are {what}: {runs(offsets)} (windows {windows})")
    if len(rejected):
        texts.append(f"{life.tp}: {len(rejected)} offsets are in two dead letters: {runs(rejected)}")
    return texts


def _by_commit(book: Ledger) -> list[list[Step]]:
    grouped: dict[int, list[Step]] = {}
    for step in book.steps:
        grouped.setdefault(step.commit.version, []).append(step)
    return list(grouped.values())


def _unaccounted(shot: Snapshot, steps: list[Step]) -> list[str]:
    """A commit's offsets without a row, if they are not as many as it says."""
    commit = steps[0].commit
    absent = {step.life.tp: _absent(shot, step) for step in steps}
    missing = sum(len(offsets) for offsets in absent.values())
    if missing == commit.skipped:
        return []
    where = "; ".join(f"{tp} {runs(offsets)}" for tp, offsets in absent.items() if len(offsets)) or "none"
    return [
        f"version {commit.version}: {missing} of its {commit.offsets} offsets have neither row nor dead letter, it says "
        f"{commit.skipped}: {where} (windows {named_windows(commit)})"
    ]


def _absent(shot: Snapshot, step: Step) -> Offsets:
    first = shot.book.spans[step.life].start
    part = slice(step.range.start - first, step.range.end - first)
    there = (shot.staged.counts(step.life)[part] > 0) | (shot.dead_letters.counts(step.life)[part] > 0)
    return np.flatnonzero(~there) + step.range.start


def runs(offsets: Offsets, limit: int = 5) -> str:
    """Ascending offsets in words: `3, 7-9, 12 and 4 more`."""
    cuts = np.flatnonzero(np.diff(offsets) > 1) + 1
    parts = np.split(offsets, cuts)
    names = [str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts[:limit]]
    more = len(offsets) - sum(len(p) for p in parts[:limit])
    return ", ".join(names) + (f" and {more} more" if more else "")
