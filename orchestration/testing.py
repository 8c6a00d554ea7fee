"""For tests of your own consumers: a definition run over records of your own, with no Kafka, no JVM and no Dagster instance.

The records go through the real engine, from an in-memory broker into Delta tables in a folder that is gone afterwards.
"""

import json
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypedDict

import pyarrow as pa
from deltalake import DeltaTable

from consumers.brokers.memory import MemoryAdmin, MemoryCluster, MemoryConsumer, MemoryProducer
from consumers.clock import ManualClock
from consumers.config import Consumer
from consumers.errors import ConfigError
from consumers.processing.context import Surroundings
from consumers.processing.ingest import stage_from
from consumers.processing.processor import Limits
from orchestration.catalog import consumers, read_folder
from orchestration.settings import Settings

NOW = datetime(2024, 1, 1, tzinfo=UTC)
"""The time by the test's clock, and the timestamp of records that are given none."""


class GivenRecord(TypedDict, total=False):
    """A record of a test. `topic` is the consumer's only or first one unless given.

    A dict or list as `value` is written as JSON; None, or no value, is a tombstone.
    """

    value: Any
    key: str | bytes | None
    timestamp: datetime | str | None
    topic: str
    headers: Mapping[str, str | bytes | None] | Sequence[tuple[str, bytes | None]]
    partition: int


@dataclass(frozen=True)
class Staged:
    """What a consumer made of records.

    `rows` are the declared columns of each row, `table` all columns, both in the order of partitions and offsets; `dead_letters`
    are all columns of each dead letter, among them `_reason` and `_value`.
    """

    table: pa.Table
    dead_letters: list[dict[str, Any]]
    columns: tuple[str, ...]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A dict for each row."""
        found: list[dict[str, Any]] = self.table.select(self.columns).to_pylist()
        return found

    @property
    def windows(self) -> dict[str, int]:
        """How many rows each window has."""
        return dict(sorted(Counter(self.table["_window"].to_pylist()).items()))

    @property
    def reasons(self) -> list[str]:
        """Why each dead letter is one."""
        return [letter["_reason"] for letter in self.dead_letters]


def run_consumer(
    consumer: str | Path | Consumer,
    records: Sequence[GivenRecord],
    *,
    partitions: int = 1,
    now: datetime = NOW,
    folder: Path | None = None,
) -> Staged:
    """Run a consumer until it has read all the records.

    `consumer` is a name from the project's definitions, the path of a `defs.yaml`, or a definition made in Python. Where a
    `folder` is given, the tables stay in it, as `staged` and `dead`. Raises `ConfigError` for a definition that is wrong, and
    what ingestion raises, such as `InvalidLimit`.
    """
    definition = _definition(consumer)
    if folder is not None:
        return _staged(definition, records, partitions, now, folder)
    with TemporaryDirectory() as temporary:
        return _staged(definition, records, partitions, now, Path(temporary))


def _staged(consumer: Consumer, records: Sequence[GivenRecord], partitions: int, now: datetime, folder: Path) -> Staged:
    there = consumer.model_copy(update={"staged": folder / "staged", "dead_letters": folder / "dead"})
    clock = ManualClock(now.timestamp())
    topics = _topics(consumer, records)
    cluster = _filled(topics, records, partitions, clock)
    for topic in topics:
        stage_from(
            MemoryConsumer(cluster, topic, consumer.group),
            there.of_topic(topic),
            "test",
            threading.Event(),
            Limits(until_caught_up=True),
            lambda commit: None,
            Surroundings(clock=clock),
        )
    return Staged(_read(there.staged), _read(there.dead_letters).to_pylist(), tuple(consumer.config.columns))


def _definition(consumer: str | Path | Consumer) -> Consumer:
    if isinstance(consumer, Consumer):
        return consumer
    settings = Settings.load()
    known = consumers(settings) if isinstance(consumer, str) else read_folder(consumer.parent, settings)
    name = consumer if isinstance(consumer, str) else consumer.parent.name
    if name not in known:
        raise ConfigError(f"there is no consumer '{name}': there are {', '.join(known) or 'none yet'}")
    return known[name]


def _topics(consumer: Consumer, records: Sequence[GivenRecord]) -> list[str]:
    """What the consumer reads: topics that it names, or those of the records that are like its pattern."""
    found = consumer.config.topics_among(lambda: {record["topic"] for record in records if "topic" in record})
    if not found:
        raise ValueError(f"the consumer reads {consumer.config.reads}: say of each record in which `topic` it is")
    return found


def _filled(topics: Sequence[str], records: Sequence[GivenRecord], partitions: int, clock: ManualClock) -> MemoryCluster:
    cluster = MemoryCluster(clock)
    for topic in topics:
        MemoryAdmin(cluster).create_topic(topic, partitions)
    producer = MemoryProducer(cluster)
    for record in records:
        headers = record.get("headers", ())
        if record.get("topic", topics[0]) not in topics:
            raise ValueError(f"the consumer does not read the topic {record['topic']}; it reads {', '.join(topics)}")
        producer.send(
            record.get("topic", topics[0]),
            _bytes(record.get("value")),
            _bytes(record.get("key")),
            headers=[(name, _bytes(value)) for name, value in (headers.items() if isinstance(headers, Mapping) else headers)],
            timestamp_ms=_millis(record.get("timestamp")),
            partition=record.get("partition", 0 if partitions == 1 else None),
        )
    producer.close()
    return cluster


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


def _millis(moment: datetime | str | None) -> int | None:
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    if moment is not None and moment.tzinfo is None:
        raise ValueError(f"the timestamp {moment} needs an offset, such as Z")
    return None if moment is None else round(moment.timestamp() * 1000)


def _read(path: Path) -> pa.Table:
    """All rows of a table; none, and no columns, where there is no table."""
    if not DeltaTable.is_deltatable(str(path)):
        return pa.table({})
    return DeltaTable(path).to_pyarrow_table().sort_by([("_partition", "ascending"), ("_offset", "ascending")])
