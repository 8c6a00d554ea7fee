"""The sensor that observes the topics: watermarks, and the lag of every consumer, when any of them moved.

One sensor for all, so that a topic with several consumers is observed once, at most once a minute.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from consumers.config import Consumer
from consumers.errors import BrokerError
from consumers.types import TopicPartition, Watermarks
from orchestration.local.errors import LocalError
from orchestration.mirror_events import DATA_VERSION, topic_key
from orchestration.resources.kafka import KafkaResource
from orchestration.sensors.facts import Watermarked, admin, next_offsets, total_lag

INTERVAL_SECONDS = 60
_COLUMNS = ("consumer", "partition", "low", "high", "position", "lag")


@dataclass(frozen=True)
class Observed:
    """A topic as it was seen: watermarks, and by consumer the next offsets."""

    topic: str
    marks: Mapping[TopicPartition, Watermarks]
    positions: Mapping[str, Mapping[TopicPartition, int]]

    @property
    def data_version(self) -> str:
        """Changes exactly when a high watermark does."""
        return _digest([(str(tp), self.marks[tp].high) for tp in sorted(self.marks)])

    @property
    def state(self) -> str:
        """Changes when anything that an observation shows does."""
        marks = [(str(tp), m.low, m.high) for tp, m in sorted(self.marks.items())]
        return _digest([marks, [(c, sorted((str(tp), o) for tp, o in p.items())) for c, p in sorted(self.positions.items())]])


def topics_sensor(consumers: Iterable[Consumer]) -> dg.SensorDefinition:
    """The sensor `observe_topics`. It is on by default: lag matters most while nothing is running."""
    known = list(consumers)

    @dg.sensor(
        name="observe_topics",
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Observes the Kafka topics when their watermarks or the consumers' positions moved.",
    )
    def observe(context: dg.SensorEvaluationContext, kafka: KafkaResource) -> dg.SensorResult:
        return tick(known, kafka, context.cursor)

    return observe


def tick(consumers: Sequence[Consumer], kafka: KafkaResource, cursor: str | None) -> dg.SensorResult:
    """One evaluation: an observation of every topic that moved, and the lag of all in the skip reason."""
    try:
        client = admin(kafka.connection())
    except LocalError as error:
        return dg.SensorResult(skip_reason=dg.SkipReason(str(error)), cursor=cursor)
    before, after = _parse(cursor), {}
    events, words = [], []
    for topic in sorted({consumer.config.topic for consumer in consumers}):
        try:
            seen = look(client, topic, [c for c in consumers if c.config.topic == topic])
        except BrokerError as error:
            # One that does not answer is enough to know; the others would cost a timeout each.
            words.append(str(error))
            break
        after[topic] = seen.state
        words.append(f"{topic}: {_summary(seen)}")
        if before.get(topic) != seen.state:
            events.append(observation(seen))
    return dg.SensorResult(
        asset_events=events, skip_reason=dg.SkipReason("; ".join(words) or "no consumers"), cursor=json.dumps(before | after)
    )


def look(client: Watermarked, topic: str, readers: Sequence[Consumer]) -> Observed:
    """Ask Kafka and the tables. Raises BrokerError."""
    marks = client.watermarks(topic)
    return Observed(topic, marks, {c.name: next_offsets(client, c, marks) for c in readers})


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
            "positions": dg.MetadataValue.table(_records(seen), _schema()),
        },
        tags={DATA_VERSION: seen.data_version},
    )


def _records(seen: Observed) -> list[dg.TableRecord]:
    return [
        dg.TableRecord(
            dict(zip(_COLUMNS, (name, tp.partition, mark.low, mark.high, positions[tp], mark.high - positions[tp]), strict=True))
        )
        for name, positions in sorted(seen.positions.items())
        for tp, mark in sorted(seen.marks.items())
    ]


def _schema() -> dg.TableSchema:
    return dg.TableSchema(columns=[dg.TableColumn(name, "string" if name == "consumer" else "int") for name in _COLUMNS])


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
