"""Dagster's mirror of a staged table: brings its events up to date with the Delta log, at most one a window and minute.

The Delta log is the truth; nothing here is read to decide what to ingest. A *pass* reads the commits since the last one and
writes one event for each window that they touched, whatever their number. Passes of one table are at least a minute apart,
whoever makes them, which bounds the events; only one process makes one at a time. The next one goes on after a pass that was cut
off, and skips what is there already.
"""

import fcntl
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from consumers.clock import Clock
from consumers.config import Consumer
from consumers.staging.log import StagedCommit, commits
from consumers.staging.schema import WINDOW
from orchestration import completeness
from orchestration.dead_letters import summary_metadata
from orchestration.mirror_events import (
    SMALL_FILE_BYTES,
    Event,
    Held,
    data_version,
    dead_letters_event,
    lost_event,
    moved_event,
    outside_event,
    window_event,
)
from orchestration.mirror_marks import DEAD_LETTERS, LOST, MOVED, OUTSIDE, by_part, has_partition, marks

EVERY_SECONDS = 60.0
"""How far passes over one table are apart."""
GRACE_SECONDS = 2 * EVERY_SECONDS
"""How old a commit is when its events are missed."""
SENSOR_SECONDS = 2.0
"""How long a sensor's tick writes events; the next one goes on."""


@dataclass(frozen=True, slots=True)
class Behind:
    """A part (a window, or a name of `mirror_marks`) whose newest event is not of its newest commit.

    `commits` are those that no event stands for, oldest first. `found` is the data version that Dagster has; empty: none.
    """

    part: str
    commits: tuple[StagedCommit, ...]
    found: str = ""


@dataclass(frozen=True, slots=True)
class Pass:
    """What a call did: `events` written for `commits`. Everything up to table version `verified` is mirrored.

    `again_in` is how many seconds later there is more to do; None when nothing is left.
    """

    verified: int
    commits: int = 0
    events: int = 0
    again_in: float | None = None


@dataclass(frozen=True, slots=True)
class _Cursor:
    """How far the mirror is, kept beside the events: whoever wipes Dagster's storage gets a full comparison.

    `goal` is the table version that an unfinished pass is to reach, `at` when the last event was written, `stamp` that of the
    log's file of `version`: another one is of a table that was restored to an older version, and went on from there.
    """

    table: str = ""
    version: int = -1
    goal: int = -1
    at: float = 0.0
    stamp: int = 0


def catch_up(
    instance: dg.DagsterInstance,
    consumer: Consumer,
    emit: Callable[[Event], None],
    clock: Clock,
    seconds: float | None = None,
    full: bool = False,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Pass:
    """Write the events that are missing with `emit`, unless somebody did within the last minute or is doing it.

    Costs milliseconds when there is nothing new. Stops after `seconds`, and after an interruption of any kind the next call goes
    on at once. `full` compares every window that the log names, which finds events that were wiped or reported by hand.
    `progress` is told after each event how many of how many are written.
    """
    if not DeltaTable.is_deltatable(str(consumer.staged)):
        return Pass(-1)
    if full:
        distrust(instance, consumer)
    elif not _has_news(consumer.staged, known := _load(instance, consumer)):
        return Pass(known.version)
    with _turn(consumer.staged) as ours:
        cursor = _load(instance, consumer)
        wait = cursor.at + EVERY_SECONDS - clock.time()
        if not ours:
            return Pass(cursor.version, again_in=EVERY_SECONDS)
        # A time in the future is another clock's: it holds nobody up.
        if cursor.goal <= cursor.version and 0 < wait <= EVERY_SECONDS:
            return Pass(cursor.version, again_in=wait)
        return _pass(instance, consumer, emit, clock, cursor, seconds, progress)


def compare(
    instance: dg.DagsterInstance, consumer: Consumer, clock: Clock, log: Sequence[StagedCommit] | None = None
) -> list[Behind]:
    """Every part whose newest event is not of its newest commit, longest behind first. `log` are all commits, where at hand.

    Events of the last two minutes may be on their way: those who ask after faults leave out what is `young`.
    """
    return _behind(instance, consumer, commits(consumer.staged) if log is None else log, clock)


def young(behind: Behind, clock: Clock) -> bool:
    """Whether the next pass may still be about to write this, so that nothing is wrong yet."""
    return clock.time() - behind.commits[0].committed_at_ms / 1000 < GRACE_SECONDS


def wrote(instance: dg.DagsterInstance, consumer: Consumer, clock: Clock) -> None:
    """Events of the windows were written elsewhere: the next pass is a minute from now."""
    _save(instance, consumer, replace(_load(instance, consumer), at=clock.time()))


def distrust(instance: dg.DagsterInstance, consumer: Consumer) -> None:
    """Make the next pass compare everything."""
    _save(instance, consumer, replace(_load(instance, consumer), version=-1, goal=-1))


def _pass(
    instance: dg.DagsterInstance,
    consumer: Consumer,
    emit: Callable[[Event], None],
    clock: Clock,
    cursor: _Cursor,
    seconds: float | None,
    progress: Callable[[int, int], None],
) -> Pass:
    table = DeltaTable(consumer.staged)
    cursor = _aimed(consumer.staged, cursor, table)
    # What came after an unfinished pass began waits for the next one: a window that has its event already gets no second one.
    log = [commit for commit in commits(table, cursor.version) if commit.version <= cursor.goal]
    behind = _behind(instance, consumer, log, clock)
    held, told = _held(table, [each.part for each in behind]), completeness.marks(instance, consumer)
    began, done = clock.monotonic(), 0
    while done < len(behind) and (seconds is None or clock.monotonic() - began < seconds):
        if not done:
            _save(instance, consumer, replace(cursor, at=clock.time()))
        emit(_event(consumer, behind[done], held, told, clock))
        done += 1
        progress(done, len(behind))
    unfinished = done < len(behind)
    version = cursor.version if unfinished else cursor.goal
    cursor = replace(cursor, version=version, at=clock.time() if done else cursor.at, stamp=_stamp(consumer.staged, version))
    _save(instance, consumer, cursor)
    versions = {commit.version for each in behind[:done] for commit in each.commits}
    return Pass(cursor.version, len(versions), done, _left(cursor, table, unfinished))


def _aimed(path: Path, cursor: _Cursor, table: DeltaTable) -> _Cursor:
    """The cursor of this table with a goal: that of a pass which was not finished, else the loaded version."""
    table_id, newest = str(table.metadata().id), table.version()
    if cursor.table != table_id or cursor.stamp != _stamp(path, cursor.version):
        return _Cursor(table_id, -1, newest, cursor.at)
    return cursor if cursor.version < cursor.goal <= newest else replace(cursor, goal=newest)


def _left(cursor: _Cursor, table: DeltaTable, unfinished: bool) -> float | None:
    if unfinished:
        return 0.0
    return EVERY_SECONDS if cursor.goal < table.version() else None


def _behind(instance: dg.DagsterInstance, consumer: Consumer, log: Sequence[StagedCommit], clock: Clock) -> list[Behind]:
    parts = by_part(consumer, log, clock)
    found = marks(instance, consumer, parts)
    lacking = []
    for part, touched in parts.items():
        mirrored = found.get(part, frozenset())
        places = [place for place, commit in enumerate(touched) if data_version(commit) in mirrored]
        rest = touched[places[-1] + 1 :] if places else touched
        if rest:
            lacking.append(Behind(part, tuple(rest), max(mirrored, default="")))
    return sorted(lacking, key=lambda each: each.commits[-1].version)


def _event(consumer: Consumer, behind: Behind, held: Mapping[str, Held], told: completeness.Marks, clock: Clock) -> Event:
    name, part, since = consumer.name, behind.part, behind.commits
    if part == DEAD_LETTERS:
        return dead_letters_event(name, since, summary_metadata(consumer))
    if part == LOST:
        return lost_event(name, since)
    if part == MOVED:
        return moved_event(name, since)
    if part == OUTSIDE:
        windows = sorted({w for commit in since for w in commit.windows if not has_partition(consumer, w, clock)})
        return outside_event(name, since, windows)
    return window_event(name, since, part, held.get(part), told(part, since[-1]))


def _held(table: DeltaTable, windows: Sequence[str]) -> dict[str, Held]:
    """What the active files of these windows are, from the loaded snapshot alone."""
    added = pa.table(table.get_add_actions(flatten=True))
    files = pa.table(
        {
            "window": added[f"partition.{WINDOW}"],
            "rows": added["num_records"],
            "small": pc.cast(pc.less(added["size_bytes"], SMALL_FILE_BYTES), pa.int64()),
        }
    )
    files = files.filter(pc.is_in(files["window"], pa.array(windows, files["window"].type)))
    sums = files.group_by("window").aggregate([("rows", "sum"), ("small", "count"), ("small", "sum")]).to_pylist()
    return {row["window"]: Held(row["rows_sum"] or 0, row["small_count"], row["small_sum"]) for row in sums}


def _has_news(table: Path, cursor: _Cursor) -> bool:
    """Whether there is a commit after the cursor's, or that one is not of this table. Looks at two files' names and times."""
    return _stamp(table, cursor.version + 1) != 0 or _stamp(table, cursor.version) != cursor.stamp


def _stamp(table: Path, version: int) -> int:
    """When a version's file in the log was written (nanoseconds); 0 where there is none."""
    try:
        return (table / "_delta_log" / f"{version:020d}.json").stat().st_mtime_ns
    except FileNotFoundError:
        return 0


@contextmanager
def _turn(table: Path) -> Iterator[bool]:
    """Whether it is ours to make a pass; ends with the process."""
    with (table / "_mirror.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _load(instance: dg.DagsterInstance, consumer: Consumer) -> _Cursor:
    key = _key(consumer)
    text = instance.daemon_cursor_storage.get_cursor_values({key}).get(key, "")
    try:
        raw = json.loads(text or "{}")
        return _Cursor(str(raw["table"]), int(raw["version"]), int(raw["goal"]), float(raw["at"]), int(raw["stamp"]))
    except (ValueError, KeyError, TypeError):
        return _Cursor()


def _save(instance: dg.DagsterInstance, consumer: Consumer, cursor: _Cursor) -> None:
    instance.daemon_cursor_storage.set_cursor_values({_key(consumer): json.dumps(asdict(cursor))})


def _key(consumer: Consumer) -> str:
    return f"weir/mirrored/{consumer.name}"
