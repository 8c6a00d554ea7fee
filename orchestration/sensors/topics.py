"""The sensor that looks at the topics: watermarks and every consumer's lag, how long records wait, and whether some are about to
be lost. It also keeps the table of all consumers.

One sensor for all, so that a topic with several consumers is asked once, at most once a minute. It starts nothing, and is on from
the beginning: lag matters most while nothing is running.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import dagster as dg

from consumers.brokers.options import KafkaOptions
from consumers.clock import Clock, SystemClock
from consumers.config import Consumer
from consumers.errors import BrokerError, WeirError
from consumers.types import TopicPartition, Watermarks
from orchestration.local.errors import LocalError
from orchestration.mirror_events import DATA_VERSION, table, topic_key
from orchestration.platform_asset import consumers_table, running
from orchestration.resources.kafka import KafkaResource
from orchestration.sensors.facts import Watermarked, admin, next_offsets, total_lag
from orchestration.sensors.retention import Keeps
from orchestration.sensors.waiting import watch
from orchestration.status import consumer_status

INTERVAL_SECONDS = 60
_COLUMNS = {"consumer": "string", "partition": "int", "low": "int", "high": "int", "position": "int", "lag": "int"}
_ALL = ""
"""In the cursor, beside the topics: the table of all consumers."""
AssetEvent = dg.AssetObservation | dg.AssetMaterialization | dg.AssetCheckEvaluation


class Asked(Watermarked, Protocol):
    """What the sensor asks of a cluster."""

    def topic_config(self, topic: str) -> Mapping[str, str]: ...


@dataclass(frozen=True)
class Observed:
    """A topic as it was seen: watermarks, by consumer the next offsets, and what the topic keeps."""

    topic: str
    marks: Mapping[TopicPartition, Watermarks]
    positions: Mapping[str, Mapping[TopicPartition, int]]
    keeps: Keeps = field(default_factory=Keeps)

    @property
    def data_version(self) -> str:
        """Changes exactly when a high watermark does."""
        return _digest([(str(tp), self.marks[tp].high) for tp in sorted(self.marks)])

    @property
    def state(self) -> str:
        """Changes when anything that an observation shows does."""
        marks = [(str(tp), m.low, m.high) for tp, m in sorted(self.marks.items())]
        return _digest([marks, [(c, sorted((str(tp), o) for tp, o in p.items())) for c, p in sorted(self.positions.items())]])


@dataclass
class _Seen:
    """What a tick has found so far: events to write, words to say, what is shown of each topic, those that cannot be asked."""

    events: list[AssetEvent] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    shown: dict[str, str] = field(default_factory=dict)
    failed: dict[str, WeirError] = field(default_factory=dict)
    found: dict[str, Observed] = field(default_factory=dict)


def topics_sensor(consumers: Iterable[Consumer]) -> dg.SensorDefinition:
    """The sensor `observe_topics`."""
    known = list(consumers)

    @dg.sensor(
        name="observe_topics",
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Observes the topics, judges how long records wait and what retention is about to take, shows all consumers.",
    )
    def observe(context: dg.SensorEvaluationContext, kafka: KafkaResource) -> dg.SensorResult:
        return tick(context.instance, known, kafka, context.cursor, SystemClock())

    return observe


def tick(
    instance: dg.DagsterInstance,
    consumers: Sequence[Consumer],
    kafka: KafkaResource,
    cursor: str | None,
    clock: Clock,
    ask: Callable[[KafkaOptions], Asked] = admin,
) -> dg.SensorResult:
    """One evaluation: an observation of every topic that moved, check outcomes that are due, and the lag of all in words."""
    before, seen = _parse(cursor), _Seen()
    try:
        client: Asked | WeirError = ask(kafka.connection())
    except (BrokerError, LocalError) as error:
        client = error
    readers = _readers(client, consumers, seen)
    for topic in sorted(readers):
        try:
            _topic(client, topic, readers[topic], before, seen)
        except (BrokerError, LocalError) as error:
            seen.failed[topic] = error
            seen.words.append(str(error))
            # A second question without an answer is enough to know; the others would cost a timeout each.
            client = error if len(seen.failed) > 1 else client
    for consumer in consumers:
        _watch(instance, client, consumer, readers, seen, clock)
    known = running(instance, consumers, clock)
    found = [consumer_status(each, _failure(each, readers, seen) or client, known[each.name]) for each in consumers]
    event, seen.shown[_ALL] = consumers_table(found)
    seen.events += [event] if before.get(_ALL) != seen.shown[_ALL] else []
    reason = "; ".join(dict.fromkeys(seen.words)) or "no consumers"
    return dg.SensorResult(asset_events=seen.events, skip_reason=dg.SkipReason(reason), cursor=json.dumps(before | seen.shown))


def look(client: Asked, topic: str, readers: Sequence[Consumer]) -> Observed:
    """Ask Kafka and the tables. Raises BrokerError."""
    marks = client.watermarks(topic)
    positions = {consumer.name: next_offsets(client, consumer, marks) for consumer in readers}
    return Observed(topic, marks, positions, Keeps.of(client.topic_config(topic)))


def of_consumer(
    consumer: Consumer, seen: Iterable[Observed]
) -> tuple[dict[TopicPartition, Watermarks], dict[TopicPartition, int], dict[str, Keeps]]:
    """Watermarks and next offsets of all that a consumer reads, and by topic what is kept."""
    topics = list(seen)
    marks = {tp: mark for each in topics for tp, mark in each.marks.items()}
    positions = {tp: offset for each in topics for tp, offset in each.positions[consumer.name].items()}
    return marks, positions, {each.topic: each.keeps for each in topics}


def observation(seen: Observed) -> dg.AssetObservation:
    """The event. `lag` is that of the consumer that is furthest behind; each has its own number beside it."""
    lags = {name: total_lag(seen.marks, positions) for name, positions in seen.positions.items()}
    each = {f"lag_{name}": lag for name, lag in lags.items()} if len(lags) > 1 else {}
    return dg.AssetObservation(
        asset_key=topic_key(seen.topic),
        metadata={
            "records": sum(mark.high - mark.low for mark in seen.marks.values()),
            "lag": max(lags.values(), default=0),
            **each,
            "high_watermark": sum(mark.high for mark in seen.marks.values()),
            "low_watermark": sum(mark.low for mark in seen.marks.values()),
            "partitions": len(seen.marks),
            "positions": table(_COLUMNS, _rows(seen)),
        },
        tags={DATA_VERSION: seen.data_version},
    )


def _readers(client: Asked | WeirError, consumers: Iterable[Consumer], seen: _Seen) -> dict[str, list[Consumer]]:
    """The topics, and who reads each. A pattern that nobody can look up has none."""
    found: dict[str, list[Consumer]] = {}
    for consumer in consumers:
        try:
            topics = consumer.config.topics_among(tuple if isinstance(client, WeirError) else client.topics)
        except BrokerError as error:
            # Nobody else is asked either, who would cost a timeout each.
            client, topics = error, []
        if isinstance(client, WeirError) and consumer.config.topic_pattern is not None:
            seen.failed[consumer.config.source] = client
            seen.words.append(str(client))
        for topic in topics:
            found.setdefault(topic, []).append(consumer)
    return found


def _topic(client: Asked | WeirError, topic: str, readers: Sequence[Consumer], before: Mapping[str, str], seen: _Seen) -> None:
    """One topic and its readers. Raises BrokerError."""
    if isinstance(client, WeirError):
        raise client
    found = seen.found[topic] = look(client, topic, readers)
    seen.shown[topic] = found.state
    seen.words.append(f"{topic}: {_summary(found)}")
    seen.events += [observation(found)] if before.get(topic) != found.state else []


def _watch(
    instance: dg.DagsterInstance,
    client: Asked | WeirError,
    consumer: Consumer,
    readers: Mapping[str, Sequence[Consumer]],
    seen: _Seen,
    clock: Clock,
) -> None:
    """The checks of a consumer, if all its topics were seen."""
    topics = [topic for topic, known in readers.items() if consumer in known]
    if isinstance(client, WeirError) or not topics or not seen.found.keys() >= set(topics):
        return
    try:
        seen.events += watch(instance, consumer, client, *of_consumer(consumer, [seen.found[topic] for topic in topics]), clock)
    except BrokerError as error:
        seen.words.append(str(error))


def _failure(consumer: Consumer, readers: Mapping[str, Sequence[Consumer]], seen: _Seen) -> WeirError | None:
    """Why what a consumer reads could not be asked for."""
    names = [consumer.config.source, *(topic for topic, known in readers.items() if consumer in known)]
    return next((seen.failed[name] for name in names if name in seen.failed), None)


def _rows(seen: Observed) -> list[tuple[str | int, ...]]:
    return [
        (name, tp.partition, mark.low, mark.high, positions[tp], mark.high - positions[tp])
        for name, positions in sorted(seen.positions.items())
        for tp, mark in sorted(seen.marks.items())
    ]


def _summary(seen: Observed) -> str:
    return ", ".join(f"lag of {name} {total_lag(seen.marks, p):,}" for name, p in sorted(seen.positions.items()))


def _parse(cursor: str | None) -> dict[str, str]:
    try:
        raw = json.loads(cursor or "{}")
    except ValueError:
        return {}
    return {str(topic): str(state) for topic, state in raw.items()} if isinstance(raw, dict) else {}


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]
