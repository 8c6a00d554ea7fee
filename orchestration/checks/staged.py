"""What has to hold of a staged table, stated as checks over one consistent snapshot. Knows Delta, not Dagster.

The staged table is read at the version of the last commit that the ledger has; dead letters below each position are final by
then, because they are written before the commit that passes them. So the checks hold while ingestion is running. A rewrite or a
replay changes both tables: the snapshot is taken again if there was one, and while there is no moment without one, what needs
both tables is not judged.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from deltalake import DeltaTable

from consumers.config import Consumer
from consumers.staging.log import commits
from consumers.staging.places import runs
from consumers.staging.restore import restores
from orchestration.checks.contents import Contents, Offsets, read, read_letters, windows_of
from orchestration.checks.ledger import Ledger, Life, Step, ledger, named_windows

_SHOWN = 10
_ATTEMPTS = 3
_CHANGES = ("rewrite", "replay", "move")


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
    """A staged table at one version, with its dead letters as they are afterwards: those that wait, and those resolved.

    `disturbed` where rows became dead letters, or the other way round, between the two.
    """

    table: DeltaTable
    book: Ledger
    staged: Contents
    waiting: Contents
    resolved: Contents
    disturbed: bool = False

    def recorded(self, life: Life) -> npt.NDArray[np.bool_]:
        """Which offsets of a life have a staged row or a dead letter."""
        return (self.staged.counts(life) > 0) | (self.waiting.counts(life) > 0) | (self.resolved.counts(life) > 0)

    @property
    def dead_letters(self) -> int:
        """Records that are dead letters and not rows."""
        return sum(int((self.recorded(life) & (self.staged.counts(life) == 0)).sum()) for life in self.book.extent)


def snapshot(consumer: Consumer) -> Snapshot | None:
    """Read what the checks need; None while there is no table."""
    if not DeltaTable.is_deltatable(str(consumer.staged)):
        return None
    for _ in range(_ATTEMPTS - 1):
        shot = snapshot_at(DeltaTable(consumer.staged), consumer)
        if not shot.disturbed:
            return shot
    return snapshot_at(DeltaTable(consumer.staged), consumer)


def snapshot_at(table: DeltaTable, consumer: Consumer) -> Snapshot:
    """The same at the version that `table` has loaded, whatever was committed since."""
    log = [commit for commit in commits(table) if commit.version <= table.version()]
    book = ledger(log, restores(table, log))
    staged = read(table, book.extent)
    waiting, resolved = Contents(book.extent), Contents(book.extent)
    if DeltaTable.is_deltatable(str(consumer.dead_letters)):
        waiting, resolved = read_letters(DeltaTable(consumer.dead_letters), book.extent, book.rewrites)
    since = commits(consumer.staged, book.version)
    return Snapshot(table, book, staged, waiting, resolved, any(commit.kind in _CHANGES for commit in since))


def ranges_join(book: Ledger) -> Finding:
    """Every range starts where the one before it ended, or a commit says which offsets were lost or skipped between them."""
    numbers = {
        "ranges": len(book.steps),
        "offsets": book.offsets,
        "lost_offsets": book.lost,
        "skipped_by_a_move": book.moved_over,
    }
    if book.faults:
        return Finding(tuple(book.faults), numbers)
    return Finding((*book.losses, *book.moves), numbers, warning=True)


def no_duplicates(shot: Snapshot) -> Finding:
    """No offset is in two rows, be they staged or dead letters that are not resolved."""
    problems = [text for life in shot.book.extent for text in _duplicates(shot, life)]
    numbers = {"rows": shot.staged.rows, "dead_letters": shot.dead_letters, "resolved_dead_letters": shot.resolved.rows}
    return Finding(tuple(problems), numbers)


def offsets_accounted_for(shot: Snapshot) -> Finding:
    """Staged rows, dead letters and offsets without a record are, commit by commit, the offsets of its ranges."""
    book = shot.book
    problems = [] if shot.disturbed else [text for steps in _by_commit(book) for text in _unaccounted(shot, steps)]
    if shot.staged.strays:
        problems.append(f"{shot.staged.strays} staged rows are in no commit's ranges, such as {shot.staged.stray_example}")
    if shot.staged.rows != book.rows:
        problems.append(f"the table holds {shot.staged.rows:,} staged rows, the commits wrote {book.rows:,}")
    if book.dead_letters is not None and not shot.disturbed and shot.dead_letters != book.dead_letters:
        problems.append(f"the table holds {shot.dead_letters:,} dead letters, the commits wrote {book.dead_letters:,}")
    numbers = {
        "offsets": book.offsets,
        "rows": shot.staged.rows,
        "dead_letters": shot.dead_letters,
        "skipped_offsets": book.skipped,
        "lost_offsets": book.lost,
    }
    return Finding(tuple(problems), numbers)


def _duplicates(shot: Snapshot, life: Life) -> list[str]:
    first = shot.book.extent[life].start
    both = np.flatnonzero((shot.staged.counts(life) > 0) & (shot.waiting.counts(life) > 0)) + first
    # What a rewrite or replay has staged is about to be marked.
    both = both[[not (shot.disturbed or shot.book.changed(life, int(offset))) for offset in both]]
    rejected = shot.waiting.repeated(life)
    texts = []
    for what, offsets in (("in two staged rows", shot.staged.repeated(life)), ("in staged rows and dead letters", both)):
        if len(offsets):
            windows = ", ".join(windows_of(shot.table, life, offsets[:1000]))
            texts.append(f"{life.tp}: {len(offsets)} offsets are {what}: {runs(offsets)} (windows {windows})")
    if len(rejected) and not shot.disturbed:
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
    # Where positions were moved back into the commit, nobody knows how many of those that it skipped were before that.
    whole = len(steps) == len(commit.ranges) and all(step.whole for step in steps)
    drift = sum(shot.book.drift(step) for step in steps)
    if (commit.skipped if whole else 0) - drift <= missing <= commit.skipped + drift:
        return []
    where = "; ".join(f"{tp} {runs(offsets)}" for tp, offsets in absent.items() if len(offsets)) or "none"
    return [
        f"version {commit.version}: {missing} of its {commit.offsets} offsets have neither row nor dead letter, it says "
        f"{commit.skipped}: {where} (windows {named_windows(commit)})"
    ]


def _absent(shot: Snapshot, step: Step) -> Offsets:
    first = shot.book.extent[step.life].start
    part = slice(step.range.start - first, step.range.end - first)
    return np.flatnonzero(~shot.recorded(step.life)[part]) + step.range.start
