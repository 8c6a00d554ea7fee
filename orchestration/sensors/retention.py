"""How long until a topic's retention takes records that are not staged yet. Asks only what it is handed, and keeps nothing.

Two things tell it. By time: a record that is older than the retention is about to go, and the first offset after a moment says
how old the record at a position is. By pace: where the log's beginning has been moving, it reaches the position at some time.
Kafka deletes whole segments, so what is left may be a little more.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import dagster as dg

from consumers.config import Consumer
from consumers.types import Positions, TopicPartition, Watermarks
from orchestration.checks.time_lag import Level, Verdict
from orchestration.mirror_events import staged_key

NAME = "retention"
WARN_HOURS, FAIL_HOURS = 24.0, 6.0
WARN_SHARE, FAIL_SHARE = 0.5, 0.2
"""A consumer is in danger when less is left than both: these hours, and this share of what the topic keeps."""
_HOUR = 3600.0
_PACE_SECONDS = 1800.0
_HALVINGS = 5


@dataclass(frozen=True, slots=True)
class Keeps:
    """For how long, and how much of a partition, a topic keeps; None: without end."""

    seconds: float | None = None
    nbytes: int | None = None

    @staticmethod
    def of(config: Mapping[str, str]) -> "Keeps":
        """From Kafka's settings of the topic. A topic that is only compacted loses no key's last record."""
        if "delete" not in config.get("cleanup.policy", "delete"):
            return Keeps()
        kept_ms, kept_bytes = int(config.get("retention.ms", -1)), int(config.get("retention.bytes", -1))
        return Keeps(kept_ms / 1000 if kept_ms >= 0 else None, kept_bytes if kept_bytes >= 0 else None)

    @property
    def all(self) -> bool:
        """Whether nothing is ever taken."""
        return self.seconds is None and self.nbytes is None


@dataclass(frozen=True, slots=True)
class Pace:
    """Where a partition's log began at two moments (seconds since the epoch): one half an hour to an hour ago, one since."""

    old_at: float
    old_low: int
    new_at: float
    new_low: int


@dataclass(frozen=True, slots=True)
class Danger:
    """A partition that loses its next record in so many seconds, which is this share of what the topic keeps."""

    tp: TopicPartition
    position: int
    low: int
    seconds: float
    share: float

    @property
    def level(self) -> Level:
        """How bad it is."""
        hours = self.seconds / _HOUR
        if hours <= FAIL_HOURS and self.share <= FAIL_SHARE:
            return "fail"
        return "warn" if hours <= WARN_HOURS and self.share <= WARN_SHARE else "pass"


def paced(
    before: Mapping[TopicPartition, Pace], marks: Mapping[TopicPartition, Watermarks], now: float
) -> dict[TopicPartition, Pace]:
    """What is remembered of where the logs began."""
    found = {}
    for tp, mark in marks.items():
        last = before.get(tp)
        if last is None or mark.low < last.new_low:
            last = Pace(now, mark.low, now, mark.low)
        elif now - last.new_at >= _PACE_SECONDS:
            last = Pace(last.new_at, last.new_low, now, mark.low)
        found[tp] = last
    return found


def danger(
    marks: Mapping[TopicPartition, Watermarks],
    positions: Positions,
    pace: Mapping[TopicPartition, Pace],
    keeps: Keeps,
    first_since: Callable[[float], Positions],
    now: float,
) -> Danger | None:
    """Which partition loses its next record first; None while nothing that waits is in danger.

    `first_since` tells the first offset of each partition at or after a moment (seconds since the epoch).
    """
    waiting = {tp: positions.get(tp, mark.low) for tp, mark in marks.items() if mark.lag(positions.get(tp, mark.low)) > 0}
    if keeps.all or not waiting:
        return None
    found = [_by_pace(tp, position, marks[tp], pace.get(tp), now) for tp, position in waiting.items()]
    found += _by_time(waiting, marks, keeps, first_since, now)
    return min((each for each in found if each is not None), key=lambda each: each.share, default=None)


def judge(found: Danger | None, keeps: Keeps) -> Verdict:
    """The check's outcome."""
    if found is None:
        return Verdict(NAME, "pass", "the topic keeps everything" if keeps.all else "nothing that waits is about to be taken", {})
    hours = found.seconds / _HOUR
    text = (
        f"{found.tp}: the topic's retention takes offset {found.position}, which is not staged, in about {hours:,.1f} hours "
        f"(the topic holds offsets from {found.low} on)"
    )
    if found.level != "pass":
        text += ". Start the consumer, give it more members, or raise the topic's retention.ms or retention.bytes."
    numbers = {"hours_left": round(hours, 2), "share_left": round(found.share, 3), "position": found.position, "low": found.low}
    return Verdict(NAME, found.level, text, numbers)


def spec(consumer: Consumer) -> dg.AssetCheckSpec:
    """The check as it is declared."""
    return dg.AssetCheckSpec(
        NAME,
        asset=staged_key(consumer.name),
        description=f"What is not staged yet is not about to be taken by the retention of {consumer.config.reads}.",
    )


def _by_pace(tp: TopicPartition, position: int, mark: Watermarks, pace: Pace | None, now: float) -> Danger | None:
    if position < mark.low:
        return Danger(tp, position, mark.low, 0.0, 0.0)
    if pace is None or mark.low <= pace.old_low or now <= pace.old_at or position > mark.high:
        return None
    rate = (mark.low - pace.old_low) / (now - pace.old_at)
    return Danger(tp, position, mark.low, (position - mark.low) / rate, (position - mark.low) / (mark.high - mark.low))


def _by_time(
    waiting: Positions,
    marks: Mapping[TopicPartition, Watermarks],
    keeps: Keeps,
    first_since: Callable[[float], Positions],
    now: float,
) -> list[Danger]:
    """The partitions whose next record is the oldest, if it is old enough to warn of; one question says that none is."""
    if not keeps.seconds:
        return []
    begin, kept = now - keeps.seconds, keeps.seconds
    most = min(WARN_HOURS * _HOUR, WARN_SHARE * kept)
    old = _older(waiting, first_since(begin + most))
    least, left = 0.0, most
    for _ in range(_HALVINGS if old else 0):
        middle = (least + left) / 2
        if sooner := _older(old, first_since(begin + middle)):
            old, left = sooner, middle
        else:
            least = middle
    return [Danger(tp, position, marks[tp].low, left, left / kept) for tp, position in old.items()]


def _older(positions: Positions, first: Positions) -> dict[TopicPartition, int]:
    """Those whose next record is from before the moment that `first` was asked for."""
    return {tp: position for tp, position in positions.items() if first.get(tp, position) > position}
