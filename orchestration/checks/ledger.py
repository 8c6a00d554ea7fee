"""What the commits of a staged table say about offsets: which lives a partition had, which ranges each commit accounts for, and
where two ranges do not join. Pure: commits in, findings out.

A *life* is one run of offsets of a partition: a topic that is deleted and created again, or whose log is cut short, uses the same
offsets a second time. Rows name their life in `_topic_id`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from consumers.staging.log import StagedCommit
from consumers.types import OffsetRange, TopicPartition


@dataclass(frozen=True, slots=True, order=True)
class Life:
    """A partition in one incarnation; `label` is what its rows have in `_topic_id`."""

    label: str
    tp: TopicPartition


@dataclass(frozen=True, slots=True)
class Step:
    """The range of one life that one commit accounts for."""

    life: Life
    range: OffsetRange
    commit: StagedCommit


@dataclass
class _State:
    topic_id: str = ""
    epoch: int = 0
    cut: int = 0
    next: int | None = None

    @property
    def label(self) -> str:
        return f"{self.topic_id}~{self.cut}" if self.cut else self.topic_id


@dataclass
class Ledger:
    """All commits together. `faults` are gaps and overlaps in words; `lost` counts offsets that commits record as gone."""

    steps: list[Step] = field(default_factory=list)
    spans: dict[Life, OffsetRange] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    lost: int = 0
    rows: int = 0
    dead_letters: int = 0
    skipped: int = 0
    version: int = -1

    @property
    def offsets(self) -> int:
        """How many offsets the commits account for."""
        return sum(len(step.range) for step in self.steps)


def ledger(commits: Iterable[StagedCommit]) -> Ledger:
    """Read commits, oldest first."""
    book = Ledger()
    states: dict[TopicPartition, _State] = {}
    for commit in commits:
        book.version = commit.version
        book.rows += commit.rows
        book.dead_letters += commit.dead_letters
        book.skipped += commit.skipped
        for tp, start in commit.starts.items():
            _acquire(book, states.setdefault(tp, _State()), commit, tp, start)
        for tp, step in commit.ranges.items():
            _batch(book, states.setdefault(tp, _State()), commit, tp, step)
    return book


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


def _batch(book: Ledger, state: _State, commit: StagedCommit, tp: TopicPartition, step: OffsetRange) -> None:
    if state.next is not None and step.start != state.next:
        book.faults.append(_fault(commit, tp, state.next, step.start))
    state.next = step.end
    life = Life(state.label, tp)
    book.steps.append(Step(life, step, commit))
    span = book.spans.get(life, step)
    book.spans[life] = OffsetRange(min(span.start, step.start), max(span.end, step.end))


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
