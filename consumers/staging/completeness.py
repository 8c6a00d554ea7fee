"""How far event time has come in a consumer's partitions, and which windows are complete by that. Pure: numbers in, numbers out.

A partition's *watermark* is the latest event time among its rows. A partition that has had nothing to read for `idle_seconds`
counts as having reached the wall clock less that time, so that one quiet partition holds no window open. The table is *valid
through* the lowest of the watermarks less `grace_seconds`, and a window is complete when it ends by then. No watermark is ahead
of the wall clock: a record that is dated in the future completes nothing.

Times are milliseconds since the epoch.
"""

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from consumers.config import Window
from consumers.staging.log import StagedCommit
from consumers.staging.windows import FORMATS, LENGTHS, Every, start_of
from consumers.types import Positions, TopicPartition, Watermarks

_STEPS = 100


@dataclass(frozen=True, slots=True)
class Idle:
    """A partition that is read to its end: where that is, and since when."""

    high: int
    since: int


@dataclass(frozen=True, slots=True)
class Progress:
    """What is known of a consumer up to a table `version`.

    `reached` are the latest event times of rows, `idle` the partitions that are read to their end, `first` the first window that
    has a row. `steps` are (table version, valid through) as they came: what was complete before which commit.
    """

    version: int = -1
    reached: Mapping[TopicPartition, int] = field(default_factory=dict)
    idle: Mapping[TopicPartition, Idle] = field(default_factory=dict)
    first: str | None = None
    valid_through: int | None = None
    steps: tuple[tuple[int, int], ...] = ()

    def complete(self, window: str, every: Every) -> bool:
        """Whether no record of this window is expected any more. False for a key that is no window."""
        ends = end_of(window, every)
        return ends is not None and self.valid_through is not None and ends <= self.valid_through

    def late_by(self, window: str, version: int, every: Every) -> float | None:
        """Seconds by which event time had passed the window's end before this commit came; None when the window was open."""
        ends = end_of(window, every)
        before = bisect_left(self.steps, (version, 0)) - 1
        if ends is None or before < 0 or self.steps[before][1] < ends:
            return None
        return (self.steps[before][1] - ends) / 1000

    def to_json(self) -> str:
        """For keeping."""
        return json.dumps(
            {
                "version": self.version,
                "reached": {str(tp): at for tp, at in self.reached.items()},
                "idle": {str(tp): [idle.high, idle.since] for tp, idle in self.idle.items()},
                "first": self.first,
                "valid_through": self.valid_through,
                "steps": self.steps,
            },
            separators=(",", ":"),
        )

    @staticmethod
    def from_json(text: str) -> "Progress":
        """The inverse of `to_json`; nothing known where the text is something else, since all of it can be found out again."""
        try:
            raw = json.loads(text)
            return Progress(
                version=int(raw["version"]),
                reached={TopicPartition.parse(tp): int(at) for tp, at in raw["reached"].items()},
                idle={TopicPartition.parse(tp): Idle(int(high), int(since)) for tp, (high, since) in raw["idle"].items()},
                first=raw["first"],
                valid_through=raw["valid_through"],
                steps=tuple((int(version), int(at)) for version, at in raw["steps"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return Progress()


def fold(progress: Progress, commits: Iterable[StagedCommit], every: Every) -> Progress:
    """Take commits in, oldest first. One that moves a position back makes windows incomplete until they are read again."""
    reached, first, version, back = dict(progress.reached), progress.first, progress.version, False
    for commit in commits:
        version = max(version, commit.version)
        for tp, at in commit.times.items():
            reached[tp] = max(at, reached.get(tp, at))
        for tp in _moved_back(commit):
            back = True
            reached.pop(tp, None)
        windows = [window for window in commit.windows if end_of(window, every) is not None]
        first = min([*windows, *([first] if first else [])], default=None)
    folded = replace(progress, version=version, reached=reached, first=first)
    return replace(folded, valid_through=None, steps=(), idle={}) if back else folded


def look(
    progress: Progress, marks: Mapping[TopicPartition, Watermarks], positions: Positions, window: Window, now: int
) -> Progress:
    """Compare the positions (next offsets) with every partition's watermarks, seen at `now`, and say what is complete by that.

    What was complete stays so, also while a new partition has not told anything yet; but not what a clock that ran ahead saw
    complete.
    """
    since = {(tp, idle.high): idle.since for tp, idle in progress.idle.items()}
    idle = {
        tp: Idle(mark.high, min(since.get((tp, mark.high), now), now))
        for tp, mark in marks.items()
        if mark.lag(positions.get(tp, mark.low)) == 0
    }
    seen = replace(progress, idle=idle)
    known = [at for at in watermarks(seen, marks, window, now).values() if at is not None]
    if not marks or len(known) < len(marks):
        return seen
    through = max(min(known) - int(window.grace_seconds * 1000), min(progress.valid_through or 0, now))
    return replace(seen, valid_through=through, steps=_stepped(progress.steps, progress.version, through))


def watermarks(
    progress: Progress, partitions: Iterable[TopicPartition], window: Window, now: int
) -> dict[TopicPartition, int | None]:
    """The event time that each partition has reached; None where nothing is known."""
    quiet = int(window.idle_seconds * 1000)
    found: dict[TopicPartition, int | None] = {}
    for tp in partitions:
        reached = [progress.reached[tp]] if tp in progress.reached else []
        idle = progress.idle.get(tp)
        if idle is not None and now - idle.since >= quiet:
            reached.append(now - quiet)
        found[tp] = min(max(reached), now) if reached else None
    return found


def complete_windows(progress: Progress, window: Window, after: str = "") -> Iterator[str]:
    """The complete windows after the key `after`, oldest first: from the first with a row, within `window.first` and `.last`."""
    if progress.first is None or progress.valid_through is None:
        return
    first, last = max(progress.first, first_window(window)), last_window(window)
    begin = _start(max(first, after), window.every)
    while begin is not None:
        key = begin.strftime(FORMATS[window.every])
        begin += LENGTHS[window.every]
        if begin.timestamp() * 1000 > progress.valid_through or (last is not None and key > last):
            return
        if key > after:
            yield key


def first_window(window: Window) -> str:
    """The key of the first window that is shown."""
    day = window.first or ("2020-01-01" if window.every == "hour" else "2000-01-01")
    return f"{day}-00" if window.every == "hour" else day


def last_window(window: Window) -> str | None:
    """The key of the last window that is shown; None where data does not end."""
    if window.last is None:
        return None
    return f"{window.last}-23" if window.every == "hour" else window.last


def end_of(window: str, every: Every) -> int | None:
    """When a window ends; None for a text that is no window's key."""
    start = _start(window, every)
    return None if start is None else int((start.timestamp() + LENGTHS[every].total_seconds()) * 1000)


def _start(window: str, every: Every) -> datetime | None:
    try:
        return start_of(window, every)
    except ValueError:
        return None


def _moved_back(commit: StagedCommit) -> list[TopicPartition]:
    if commit.kind != "move":
        return []
    return [tp for tp, moved in commit.moved.items() if len(moved) and moved.start == commit.starts.get(tp, moved.end)]


def _stepped(steps: tuple[tuple[int, int], ...], version: int, through: int) -> tuple[tuple[int, int], ...]:
    """One step a version: the last word before the next commit."""
    kept = steps[:-1] if steps and steps[-1][0] >= version else steps
    return (*kept, (version, through))[-_STEPS:]
