"""What the commits of a staged table say about offsets: which lives a partition had, which ranges each commit accounts for, and
where two ranges do not join. Pure: commits in, findings out.

A *life* is one run of offsets of a partition: a topic that is deleted and created again, or whose log is cut short, uses the same
offsets a second time. Rows name their life in `_topic_id`.

Only batches account for offsets, and only those must join. A rewrite or a replay changes what became of offsets that were
accounted for, or loads older ones; a move says where the next batch starts. After a RESTORE the book is again what it was at the
restored version, and the move that follows it says from where on offsets are accounted for again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from consumers.clock import moment
from consumers.staging.log import StagedCommit
from consumers.staging.positions import label
from consumers.staging.restore import BY, Restore
from consumers.types import OffsetRange, TopicPartition

_NAMED = 5


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
        return label(self.topic_id, self.cut)


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
    unfollowed: Restore | None = None
    """A RESTORE that no move has followed yet."""
    faults_before: int = 0
    """How many faults there were before it."""

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


_States = dict[TopicPartition, _State]


def ledger(commits: Iterable[StagedCommit], restores: Sequence[Restore] = ()) -> Ledger:
    """Read commits, oldest first, and the restores between them."""
    book = _read(list(commits), restores)[0]
    if (open_ := book.unfollowed) is not None:
        book.moves.append(
            f"the table was restored to version {open_.target} (version {open_.version}), and no member has run since: the next "
            "one reads again what came after"
        )
    return book


def _read(log: Sequence[StagedCommit], restores: Sequence[Restore]) -> tuple[Ledger, _States]:
    book, states = Ledger(), _States()
    events: list[StagedCommit | Restore] = [*log, *restores]
    for event in sorted(events, key=lambda event: event.version):
        if isinstance(event, Restore):
            book = _restore(book, states, event, log, restores)
        else:
            _enter(book, states, event)
    return book, states


def _restore(book: Ledger, states: _States, restore: Restore, log: Sequence[StagedCommit], restores: Sequence[Restore]) -> Ledger:
    """The book as it was at the restored version. Which incarnations and epochs there were since does not go back."""
    target = restore.target
    past, then = _read([each for each in log if each.version <= target], [each for each in restores if each.version <= target])
    for tp, state in states.items():
        state.next = then[tp].next if tp in then else None
    past.rewrites |= book.rewrites
    past.unfollowed, past.faults_before = restore, len(past.faults)
    past.version, past.dead_letters = book.version, None
    return past


def _followed(book: Ledger) -> None:
    """A move has followed the restore: what was staged in between is taken back, and with it the gaps before it."""
    if book.unfollowed is not None:
        del book.faults[book.faults_before :]
        book.unfollowed = None


def _enter(book: Ledger, states: _States, commit: StagedCommit) -> None:
    book.version = commit.version
    book.rows += commit.rows - commit.removed
    if book.dead_letters is not None:
        book.dead_letters += commit.dead_letters - commit.resolved
    if commit.by == BY:
        _followed(book)
    for tp, start in commit.starts.items():
        _start(book, states.setdefault(tp, _State()), commit, tp, start)
    for tp, step in commit.ranges.items():
        (_batch if commit.kind == "batch" else _change)(book, states.setdefault(tp, _State()), commit, tp, step)
    if commit.kind == "batch":
        book.skipped += commit.skipped
    elif commit.kind == "rewrite":
        book.rewrites.add(commit.commit_id)
        book.losses += [_unread(commit, tp, lost) for tp, lost in commit.lost.items()]


def _start(book: Ledger, state: _State, commit: StagedCommit, tp: TopicPartition, start: int) -> None:
    if commit.kind == "move" and commit.by == BY:
        state.epoch, state.next = state.epoch + 1, start
        _take_back(book, Life(state.label, tp), start)
    elif commit.kind == "move":
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
    spans[life] = spans.get(life, step).hull(step)


def _told(commit: StagedCommit) -> str:
    at = moment(commit.committed_at_ms / 1000)
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


def named_windows(commit: StagedCommit) -> str:
    """The windows of a commit in words, the first few by name."""
    names = sorted(commit.windows)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more if names else "none"
