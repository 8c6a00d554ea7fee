"""How long records have waited to be staged, as the check `time_lag` of a staged table. Pure.

The age of the oldest record that waits is counted from when its offset was first seen in the topic, not from its timestamp: a
replay of last year's records is not a year behind. What waited before anybody looked counts from the first look.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import dagster as dg

from consumers.config import Consumer, LagLimits
from consumers.types import Positions, TopicPartition, Watermarks
from orchestration.mirror_events import staged_key

Level = Literal["pass", "warn", "fail"]
Sightings = tuple[tuple[float, int], ...]
"""When (seconds since the epoch) a partition's high watermark was first seen to be what; both ascending."""
NAME = "time_lag"
_MOST_SIGHTINGS = 32


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a check: how bad, in words, and the numbers behind it."""

    name: str
    level: Level
    text: str
    numbers: Mapping[str, int | float]

    def evaluation(self, consumer: str) -> dg.AssetCheckEvaluation:
        """As the event that Dagster keeps."""
        return dg.AssetCheckEvaluation(
            asset_key=staged_key(consumer),
            check_name=self.name,
            passed=self.level == "pass",
            severity=dg.AssetCheckSeverity.WARN if self.level == "warn" else dg.AssetCheckSeverity.ERROR,
            description=self.text,
            metadata=dict(self.numbers),
        )

    def result(self, consumer: str) -> dg.AssetCheckResult:
        """As what a check returns that is run by hand."""
        told = self.evaluation(consumer)
        return dg.AssetCheckResult(
            asset_key=told.asset_key,
            check_name=told.check_name,
            passed=told.passed,
            severity=told.severity,
            description=told.description,
            metadata=told.metadata,
        )


def sighted(
    before: Mapping[TopicPartition, Sightings], marks: Mapping[TopicPartition, Watermarks], positions: Positions, now: float
) -> dict[TopicPartition, Sightings]:
    """The sightings that still matter: of watermarks that the positions (next offsets) have not reached."""
    found = {}
    for tp, mark in marks.items():
        # A position past the end belongs to a log that is gone: all of this one waits.
        position = positions.get(tp, mark.low) if positions.get(tp, mark.low) <= mark.high else mark.low
        seen = [(at, high) for at, high in before.get(tp, ()) if position < high <= mark.high]
        if mark.high > max(position, seen[-1][1] if seen else mark.low):
            seen.append((now, mark.high))
        if seen:
            found[tp] = _thinned(tuple(seen))
    return found


def waited(sightings: Mapping[TopicPartition, Sightings], now: float) -> float:
    """Seconds that the oldest record has waited, at least; 0 when none waits."""
    return max((now - seen[0][0] for seen in sightings.values() if seen), default=0.0)


def judge(seconds: float, lag: int, limits: LagLimits) -> Verdict:
    """The check's outcome for records that have waited so long."""
    level: Level = "pass"
    if lag > 0 and seconds >= limits.warn_seconds:
        level = "fail" if seconds >= limits.fail_seconds else "warn"
    limit = limits.fail_seconds if level == "fail" else limits.warn_seconds
    text = f"{lag:,} records wait, the oldest for {seconds:,.0f} s" if lag > 0 else "nothing waits"
    if level != "pass":
        text += f", which is {limit:g} s or more. Is the consumer running, and are there members enough? Its sensor's ticks say."
    return Verdict(NAME, level, text, {"time_lag_seconds": round(seconds, 1) if lag > 0 else 0.0, "lag": lag})


def spec(consumer: Consumer) -> dg.AssetCheckSpec:
    """The check as it is declared."""
    limits = consumer.config.lag
    return dg.AssetCheckSpec(
        NAME,
        asset=staged_key(consumer.name),
        description=f"No record waits for {limits.warn_seconds:g} s (a warning) or {limits.fail_seconds:g} s (a failure).",
    )


def _thinned(seen: Sightings) -> Sightings:
    """At most so many: every second of the later ones is forgotten, which makes a wait seem shorter by one of their distances."""
    return seen if len(seen) <= _MOST_SIGHTINGS else (seen[0], *seen[1:-1:2], seen[-1])
