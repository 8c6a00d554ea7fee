"""The topic that is measured: JSON records of about 180 bytes in four partitions, or a variant; and what its rows add up to."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from consumers.brokers.options import KafkaOptions
from consumers.brokers.producer import KafkaProducer
from consumers.config import ConsumerConfig

PARTITIONS = 4
_START_MS = 1_767_225_600_000  # 2026-01-01
_HOUR_MS = 3_600_000
_ENCODE = msgspec.json.Encoder().encode

_SCHEMA: dict[str, Any] = {
    "id": {"type": "long", "nullable": False},
    "account": {"type": "string", "nullable": False},
    "amount_cents": {"type": "long", "nullable": False},
    "price": "double",
    "approved": {"type": "boolean", "nullable": False},
    "booked_at": {"type": "timestamp", "nullable": False},
    "note": "string",
    "city": "string",
    "currency": {"type": "string", "nullable": False},
}


@dataclass(frozen=True)
class Variant:
    """How a topic differs: its partitions, bytes that each note has more, columns added, and every how many records one is bad.

    `share` is the part of the records that it gets; `least` is the rate beside the plain topic's that is to be reached.
    """

    partitions: int = PARTITIONS
    padding: int = 0
    more_columns: int = 0
    bad_every: int = 0
    share: float = 1.0
    least: float | None = None

    @property
    def definition(self) -> ConsumerConfig:
        """Of a consumer of it."""
        more = dict(zip(_more(self.more_columns), ["long", "double", "string"] * self.more_columns, strict=False))
        batch = {"max_records": 200_000, "max_latency_seconds": 10.0}
        return ConsumerConfig.model_validate({"topic": "bench", "schema": _SCHEMA | more, "window": "hour", "batch": batch})


VARIANTS = {
    "plain": Variant(),
    "1kb": Variant(padding=820, share=0.25),
    "10kb": Variant(padding=10_060, share=0.025),
    "40-columns": Variant(more_columns=31, share=0.25),
    "malformed": Variant(bad_every=100, least=0.8),
    "200-partitions": Variant(partitions=200, least=0.8),
}


@dataclass(frozen=True)
class Rows:
    """What a table of the topic's good records has: rows, the sum of amounts, and a checksum of id and amount together."""

    count: int
    amounts: int
    checksum: int

    @staticmethod
    def of(ids: "np.ndarray[Any, Any]", amounts: "np.ndarray[Any, Any]") -> "Rows":
        """Of two columns of 64-bit integers. The checksum is the same in any order; it wraps."""
        mixed = (ids.astype(np.uint64) + np.uint64(1)) * (amounts.astype(np.uint64) * np.uint64(2) + np.uint64(1))
        return Rows(len(ids), int(amounts.sum()), int(mixed.sum()))


def create(bootstrap_servers: str, topic: str, partitions: int = PARTITIONS) -> bool:
    """Make a topic; false when it is there already."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config={"retention.ms": "-1"})
    try:
        admin.create_topics([new], operation_timeout=10.0)[topic].result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        raise
    return True


def fill(bootstrap_servers: str, topic: str, records: int, variant: Variant = VARIANTS["plain"]) -> tuple[float, Rows]:
    """Make `topic` with `records` records; their mean size in bytes, and their good rows. What is there is left."""
    size, ids, amounts = 0, [], []
    new = create(bootstrap_servers, topic, variant.partitions)
    with KafkaProducer(KafkaOptions(bootstrap_servers)) as producer:
        for i, row in enumerate(_rows(records, variant)):
            value = _ENCODE(row)
            size += len(value)
            if variant.bad_every and i % variant.bad_every == 0:
                value = _spoilt(row, i // variant.bad_every)
            else:
                ids.append(i)
                amounts.append(row["amount_cents"])
            if new:
                stamp = _START_MS + i * _HOUR_MS // max(1, records // 4)
                producer.send(topic, value, b"%d" % (i % 1000), timestamp_ms=stamp)
    return size / records, Rows.of(np.array(ids, np.int64), np.array(amounts, np.int64))


def values(records: int) -> Iterator[bytes]:
    """The plain records' values."""
    return map(_ENCODE, _rows(records, VARIANTS["plain"]))


def _rows(records: int, variant: Variant) -> Iterator[dict[str, Any]]:
    draw = random.Random(1)
    cities = ["Newark", "New York", "Philadelphia", "Boston", "Chicago"]
    padding = "x" * variant.padding
    names = _more(variant.more_columns)
    for i in range(records):
        yield {
            "id": i,
            "account": f"A{draw.randrange(10_000):06d}",
            "amount_cents": draw.randrange(-(10**6), 10**6),
            "price": draw.random() * 100,
            "approved": draw.random() < 0.9,
            "booked_at": f"2026-01-{1 + i % 28:02d}T{i % 24:02d}:{i % 60:02d}:00Z",
            "note": padding + f"note {i}" if padding else None if i % 3 else "paid by card",
            "city": cities[i % 5],
            "currency": "EUR",
            **{name: (i + at, (i + at) / 8, f"text {(i + at) % 997}")[at % 3] for at, name in enumerate(names)},
        }


def _more(columns: int) -> list[str]:
    return [f"more_{at:02d}" for at in range(columns)]


def _spoilt(row: dict[str, Any], number: int) -> bytes:
    """The row as a record that is to be refused: cut off, of a wrong type, or without a required field."""
    kind = number % 3
    if kind == 0:
        return _ENCODE(row)[:-2]
    if kind == 1:
        return _ENCODE({**row, "amount_cents": "many"})
    return _ENCODE({name: value for name, value in row.items() if name != "currency"})
