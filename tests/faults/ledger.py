"""Topics with a ledger: what was produced, where it landed, and what must become of it."""

import hashlib
import json
import random
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]

from consumers.config import Consumer, ConsumerConfig

FIRST_MS = 1_356_998_400_000  # 2013-01-01
DAY_MS = 86_400_000

# A commit for every poll of 200 records, and hardly a batch waiting: otherwise a topic this small is staged before a fault comes.
SMALL_BATCHES = {"max_records": 200, "max_bytes": 32_768, "max_latency_seconds": 0.2}


@dataclass(frozen=True, slots=True)
class Sent:
    """A record that the cluster acknowledged: its partition and offset, the SHA-256 of its value, and whether it is malformed."""

    partition: int
    offset: int
    digest: str
    malformed: bool


@dataclass
class Ledger:
    """Every send: `acked` ones with their places, the digests of those that failed or were aborted, and of those nobody knows of.

    `gone` were acknowledged, and the topic lost them before anybody could read them.
    """

    acked: list[Sent] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    gone: list[Sent] = field(default_factory=list)

    @property
    def next(self) -> int:
        """The number of the next record, so that no two values are equal."""
        return len(self.acked) + len(self.failed) + len(self.unknown) + len(self.gone)


def digest(value: bytes) -> str:
    """What two equal values have in common."""
    return hashlib.sha256(value).hexdigest()


def value_of(number: int, text: str) -> bytes:
    """The well-formed value of a row."""
    return json.dumps({"id": number, "text": text}).encode()


def malformed_value(number: int) -> bytes:
    """One of several kinds of values that cannot be a row."""
    kinds = (b'{"id": "%d", "text": "a string for a long"}', b'{"id": %d', b"\xff\xfe%d", b'{"text": "no id: %d"}')
    return kinds[number % len(kinds)] % number


def new_topic(bootstrap: str, partitions: int, name: str | None = None, replicas: int = 1) -> str:
    """Create a topic whose records are never too old."""
    topic = name or f"t-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(topic, partitions, replicas, config={"retention.ms": "-1"})], operation_timeout=20)
    made[topic].result(20)
    return topic


def add_partitions(bootstrap: str, topic: str, total: int) -> None:
    """Give a topic more partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(topic, total)], operation_timeout=20)[topic].result(20)


def delete_topic(bootstrap: str, topic: str) -> None:
    """Delete a topic; returns when the broker knows it no more."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic], operation_timeout=20)[topic].result(20)


def delete_records(bootstrap: str, topic: str, before: dict[int, int]) -> None:
    """Take away the records below an offset, as retention does."""
    gone = [ck.TopicPartition(topic, partition, offset) for partition, offset in before.items()]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records(gone, operation_timeout=20).values():
        future.result(20)


def produce(
    bootstrap: str,
    topic: str,
    count: int,
    partitions: int | Sequence[int],
    *,
    malformed: float = 0.05,
    first: int = 0,
    seed: int = 7,
    days: int = 2,
) -> list[Sent]:
    """Produce `count` records, spread over the partitions and over `days`, a share of them malformed. Returns the ledger."""
    chosen = list(range(partitions)) if isinstance(partitions, int) else list(partitions)
    chance = random.Random(seed)
    sent: list[Sent] = []
    failed: list[str] = []
    producer = ck.Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 5})
    for number in range(first, first + count):
        bad = chance.random() < malformed
        value = malformed_value(number) if bad else value_of(number, f"text {number} ü")

        def note(error: ck.KafkaError | None, message: ck.Message, value: bytes = value, bad: bool = bad) -> None:
            if error is None:
                sent.append(Sent(message.partition() or 0, message.offset() or 0, digest(value), bad))
            else:
                failed.append(error.str())

        when = FIRST_MS + (number - first) * days * DAY_MS // count
        producer.produce(topic, value, b"k%d" % number, partition=chance.choice(chosen), timestamp=when, on_delivery=note)
        producer.poll(0)
    producer.flush(60)
    assert not failed and len(sent) == count
    return sent


def consumer_in(folder: Path, topic: str, name: str | None = None, **changes: object) -> Consumer:
    """A consumer of such a topic, with its tables in `folder`."""
    attributes: dict[str, object] = {
        "topic": topic,
        "schema": {"id": {"type": "long", "nullable": False}, "text": "string"},
        "window": "day",
        "batch": {"max_latency_seconds": 0.2},
        **changes,
    }
    name = name or "c_" + topic.removeprefix("t-").replace("-", "_")
    config = ConsumerConfig.model_validate(attributes)
    return Consumer(name=name, config=config, staged=folder / "staged" / name, dead_letters=folder / "dead_letters" / name)


def offsets_by_partition(sent: Iterable[Sent]) -> dict[int, int]:
    """The end that each partition must be read to: one past the last offset of the ledger."""
    ends: dict[int, int] = {}
    for record in sent:
        ends[record.partition] = max(ends.get(record.partition, 0), record.offset + 1)
    return ends
