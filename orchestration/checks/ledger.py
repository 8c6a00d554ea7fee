"""What the commits of a staged table say about offsets: which lives a partition had, which ranges each commit accounts for, and
where two ranges do not join. Pure: commits in, findings out.

A *life* is one run of offsets of a partition: a topic that is deleted and created again, or whose log is cut short, uses the same
offsets a second time. Rows name their life in `_topic_id`.

Only batches account for offsets, and only those must join. A rewrite or a replay changes what became of offsets that were
accounted for, or loads older ones; a move says where the next batch starts.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from consumers.staging.log import StagedCommit
from consumers.types import OffsetRange, TopicPartition


@dataclass(frozen=True, slots=True, order=True)
class Life:
    """A partition in one incarnation; `label` is what its rows have in `_topic_id`."""

    label: str
    tp: TopicPartition


@dataclass(frozen=True, slots=True)
class Step:
    """The range of one life that one commit accounts for; not `whole` where its end is read again."""

    life: Life
    range: OffsetRange
    commit: StagedCommit
    whole: bool = True


@dataclass
class _State:
    topic_id: str = ""
    epoch: int = 0
    cut: int = 0
    next: int | None = None

    @property
    def label(self) -> str:
        return f"{self.topic_id}~{self.cut}" if self.cut else self.topic_id


@dataclass(frozen=True, slots=True)
class Change:
    """A rewrite or replay of offsets of one life; of `drift` of them it may have changed whether there is a record."""

    life: Life
    range: OffsetRange
    drift: int

    def meets(self, step: Step) -> bool:
        """Whether it was about offsets of a step."""
        return self.life == step.life and self.range.start < step.range.end and step.range.start < self.range.end


@dataclass
class Ledger:
    """All commits together.

    `faults` are gaps and overlaps in words, `losses` and `moves` what is missing for a reason that is known. `extent` has the
    offsets of each life, also those that were loaded later. `rows` and `dead_letters` are what the tables should hold; the latter
    is unknown (None) once positions were moved back.
    """

    steps: list[Step] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    drifting: list[Change] = field(default_factory=list)
    rewrites: set[str] = field(default_factory=set)
    extent: dict[Life, OffsetRange] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    moves: list[str] = field(default_factory=list)
    lost: int = 0
    moved_over: int = 0
    rows: int = 0
    dead_letters: int | None = 0
    skipped: int = 0
    version: int = -1

    @property
    def offsets(self) -> int:
        """How many offsets the commits account for."""
        return sum(len(step.range) for step in self.steps)

    def drift(self, step: Step) -> int:
        """Of how many of a step's offsets later commits may have changed whether there is a record."""
        return sum(change.drift for change in self.drifting if change.meets(step))

    def changed(self, life: Life, offset: int) -> bool:
        """Whether a rewrite or replay was about this offset."""
        return any(change.life == life and change.range.start <= offset < change.range.end for change in self.changes)


def ledger(commits: Iterable[StagedCommit]) -> Ledger:
    """Read commits, oldest first."""
    book = Ledger()
    states: dict[TopicPartition, _State] = {}
    for commit in commits:
        book.version = commit.version
        book.rows += commit.rows - commit.removed
        if book.dead_letters is not None:
            book.dead_letters += commit.dead_letters - commit.resolved
        for tp, start in commit.starts.items():
            _start(book, states.setdefault(tp, _State()), commit, tp, start)
        for tp, step in commit.ranges.items():
            (_batch if commit.kind == "batch" else _change)(book, states.setdefault(tp, _State()), commit, tp, step)
        if commit.kind == "batch":
            book.skipped += commit.skipped
        elif commit.kind == "rewrite":
            book.rewrites.add(commit.commit_id)
            book.losses += [_unread(commit, tp, lost) for tp, lost in commit.lost.items()]
    return book


def _start(book: Ledger, state: _State, commit: StagedCommit, tp: TopicPartition, start: int) -> None:
    if commit.kind == "move":
        state.epoch += 1
        _move(book, state, commit, tp, start)
    else:
        _acquire(book, state, commit, tp, start)


def _acquire(book: Ledger, state: _State, commit: StagedCommit, tp: TopicPartition, start: int) -> None:
    lost = commit.lost.get(tp)
    topic_id = commit.topic_ids.get(tp.topic, state.topic_id)
    recreated = bool(state.topic_id) and topic_id != state.topic_id
    state.epoch += 1
    # A log cut short is continued at its new end, which is where the lost range starts.
    cut = lost is not None and len(lost) > 0 and lost.start == start and not recreated
    if lost is not None:
        book.lost += len(lost)
        book.losses.append(_lost(commit, tp, lost, recreated))
    explained = recreated or cut or (lost is not None and lost == OffsetRange(min(state.next or 0, start), start))
    if state.next is not None and start != state.next and not explained:
        book.faults.append(_fault(commit, tp, state.next, start))
    state.topic_id, state.next = topic_id, start
    if cut:
        state.cut = state.epoch


def _move(book: Ledger, state: _State, commit: StagedCommit, tp: TopicPartition, start: int) -> None:
    before, moved = state.next, commit.moved.get(tp)
    state.next = start
    if before is None or before == start:
        return
    if moved != OffsetRange(min(before, start), max(before, start)):
        book.faults.append(_fault(commit, tp, before, start))
    elif start > before:
        book.moved_over += len(moved)
        book.moves.append(f"{tp}: offsets {before} to {start - 1} were skipped {_told(commit)}")
    else:
        _take_back(book, Life(state.label, tp), start)


def _take_back(book: Ledger, life: Life, start: int) -> None:
    """Rows and dead letters of a life from an offset on are gone, and are accounted for again by what follows."""
    book.dead_letters = None
    steps = [step for step in book.steps if step.life != life or step.range.start < start]
    book.steps = [_cut(step, start) if step.life == life and step.range.end > start else step for step in steps]
    book.changes = [change for change in book.changes if change.life != life or change.range.start < start]
    if life in book.extent and book.extent[life].end > start:
        book.extent[life] = OffsetRange(min(book.extent[life].start, start), start)


def _cut(step: Step, end: int) -> Step:
    return replace(step, range=OffsetRange(step.range.start, end), whole=False)


def _batch(book: Ledger, state: _State, commit: StagedCommit, tp: TopicPartition, step: OffsetRange) -> None:
    if state.next is not None and step.start != state.next:
        book.faults.append(_fault(commit, tp, state.next, step.start))
    state.next = step.end
    life = Life(state.label, tp)
    book.steps.append(Step(life, step, commit))
    _widen(book.extent, life, step)


def _change(book: Ledger, state: _State, commit: StagedCommit, tp: TopicPartition, step: OffsetRange) -> None:
    life = Life(state.label, tp)
    gained = commit.rows - commit.removed + commit.dead_letters - commit.resolved + commit.skipped
    change = Change(life, step, max(0, gained) + commit.skipped)
    book.changes.append(change)
    if change.drift:
        book.drifting.append(change)
    _widen(book.extent, life, step)


def _widen(spans: dict[Life, OffsetRange], life: Life, step: OffsetRange) -> None:
    span = spans.get(life, step)
    spans[life] = OffsetRange(min(span.start, step.start), max(span.end, step.end))


def _told(commit: StagedCommit) -> str:
    at = datetime.fromtimestamp(commit.committed_at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    return f"by {commit.by or 'somebody'} on {at}: {commit.why or 'no reason given'} (version {commit.version})"


def _unread(commit: StagedCommit, tp: TopicPartition, lost: OffsetRange) -> str:
    windows = named_windows(commit)
    return f"{tp}: offsets {lost.start} to {lost.end - 1} could not all be read again for windows {windows} {_told(commit)}"


def _fault(commit: StagedCommit, tp: TopicPartition, expected: int, found: int) -> str:
    what = (
        f"offsets {expected} to {found - 1} are in no range"
        if found > expected
        else f"offsets {found} to {expected - 1} are in two ranges"
    )
    return f"{tp}: {what} (version {commit.version}, windows {named_windows(commit)})"


def _lost(commit: StagedCommit, tp: TopicPartition, lost: OffsetRange, recreated: bool) -> str:
    if recreated:
        return f"{tp}: the topic was created again after offset {lost.start} (version {commit.version})"
    return f"{tp}: offsets {lost.start} to {lost.end - 1} were lost (version {commit.version})"


def named_windows(commit: StagedCommit, limit: int = 5) -> str:
    """The windows of a commit in words, the first few by name."""
    names = sorted(commit.windows)
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more if names else "none"
