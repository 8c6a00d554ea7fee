"""What the topics' sensor remembers of a consumer between its ticks, in Dagster's storage: how long records have waited, and
whether the topic is about to lose some. It gives the checks `time_lag` and `retention` their outcomes, seldom enough for a log.
"""

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import dagster as dg

from consumers.clock import Clock
from consumers.config import Consumer
from consumers.types import Positions, TopicPartition, Watermarks
from orchestration.checks import time_lag
from orchestration.checks.time_lag import Level, Sightings, Verdict
from orchestration.sensors import retention
from orchestration.sensors.facts import Watermarked, total_lag
from orchestration.sensors.retention import Keeps, Pace

BAD_AGAIN_SECONDS = 600.0
GOOD_AGAIN_SECONDS = 3600.0
"""A check's outcome is told when its level changes, and otherwise as seldom as this."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A consumer as it was seen last. `time_lag` is in seconds; None while nobody has looked."""

    time_lag: float | None = None
    urgent: bool = False
    sightings: Mapping[TopicPartition, Sightings] = field(default_factory=dict)
    pace: Mapping[TopicPartition, Pace] = field(default_factory=dict)
    told: Mapping[str, tuple[Level, float]] = field(default_factory=dict)


def urgent(instance: dg.DagsterInstance, consumer: str) -> bool:
    """Whether the topic's retention is about to take what the consumer has not staged: its runs go first then."""
    return recall(instance, consumer).urgent


def watch(
    instance: dg.DagsterInstance,
    consumer: Consumer,
    kafka: Watermarked,
    marks: Mapping[TopicPartition, Watermarks],
    positions: Positions,
    keeps: Mapping[str, Keeps],
    clock: Clock,
) -> list[dg.AssetCheckEvaluation]:
    """Look at a consumer, remember it, and return the outcomes of its two checks that are due. Raises BrokerError.

    `keeps` says what each of its topics keeps.
    """
    before, now = recall(instance, consumer.name), clock.time()
    after, verdicts = look(before, consumer, kafka, marks, positions, keeps, now)
    due = [verdict for verdict in verdicts if _due(verdict, before.told.get(verdict.name), now)]
    told = {**before.told, **{verdict.name: (verdict.level, now) for verdict in due}}
    _remember(instance, consumer.name, Waiting(after.time_lag, after.urgent, after.sightings, after.pace, told))
    return [verdict.evaluation(consumer.name) for verdict in due]


def look(
    before: Waiting,
    consumer: Consumer,
    kafka: Watermarked,
    marks: Mapping[TopicPartition, Watermarks],
    positions: Positions,
    keeps: Mapping[str, Keeps],
    now: float,
) -> tuple[Waiting, list[Verdict]]:
    """The consumer as it is now, and both checks' outcomes; remembers nothing. Raises BrokerError."""
    sightings = time_lag.sighted(before.sightings, marks, positions, now)
    pace = retention.paced(before.pace, marks, now)
    seconds = time_lag.waited(sightings, now)
    late = time_lag.judge(seconds, total_lag(marks, positions), consumer.config.lag)
    kept = _kept(kafka, marks, positions, pace, keeps, now)
    return Waiting(seconds, kept.level != "pass", sightings, pace, before.told), [late, kept]


def _kept(
    kafka: Watermarked,
    marks: Mapping[TopicPartition, Watermarks],
    positions: Positions,
    pace: Mapping[TopicPartition, Pace],
    keeps: Mapping[str, Keeps],
    now: float,
) -> Verdict:
    """Of all topics, the outcome of the one that loses a record first."""
    worst: tuple[float, Verdict] | None = None
    for topic, kept in keeps.items():
        ours = {tp: mark for tp, mark in marks.items() if tp.topic == topic}
        first_since = functools.partial(_first_since, kafka, topic)
        found = retention.danger(ours, positions, pace, kept, first_since, now)
        share = math.inf if found is None else found.share
        if worst is None or share < worst[0]:
            worst = share, retention.judge(found, kept)
    return worst[1] if worst is not None else retention.judge(None, Keeps())


def _first_since(kafka: Watermarked, topic: str, at: float) -> Positions:
    return kafka.offsets_at(topic, int(at * 1000))


def recall(instance: dg.DagsterInstance, consumer: str) -> Waiting:
    """What is remembered; nothing where nobody has looked, or somebody else wrote it."""
    text = instance.daemon_cursor_storage.get_cursor_values({_key(consumer)}).get(_key(consumer), "")
    try:
        raw = json.loads(text)
        return Waiting(
            raw["time_lag"],
            bool(raw["urgent"]),
            {
                TopicPartition.parse(tp): tuple((float(at), int(high)) for at, high in seen)
                for tp, seen in raw["sightings"].items()
            },
            {TopicPartition.parse(tp): Pace(*numbers) for tp, numbers in raw["pace"].items()},
            {str(name): (level, float(at)) for name, (level, at) in raw["told"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return Waiting()


def _remember(instance: dg.DagsterInstance, consumer: str, seen: Waiting) -> None:
    text = json.dumps(
        {
            "time_lag": seen.time_lag,
            "urgent": seen.urgent,
            "sightings": {str(tp): each for tp, each in seen.sightings.items()},
            "pace": {str(tp): [p.old_at, p.old_low, p.new_at, p.new_low] for tp, p in seen.pace.items()},
            "told": seen.told,
        },
        separators=(",", ":"),
    )
    instance.daemon_cursor_storage.set_cursor_values({_key(consumer): text})


def _due(verdict: Verdict, told: tuple[Level, float] | None, now: float) -> bool:
    if told is None or told[0] != verdict.level:
        return True
    return now - told[1] >= (GOOD_AGAIN_SECONDS if verdict.level == "pass" else BAD_AGAIN_SECONDS)


def _key(consumer: str) -> str:
    return f"weir/waiting/{consumer}"
