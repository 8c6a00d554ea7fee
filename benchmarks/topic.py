"""The topic that is measured: JSON records of about 180 bytes, four partitions, as many as asked for."""

import random
from collections.abc import Iterator

import msgspec
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from consumers.brokers.options import KafkaOptions
from consumers.brokers.producer import KafkaProducer
from consumers.config import ConsumerConfig

PARTITIONS = 4
_START_MS = 1_767_225_600_000  # 2026-01-01
_HOUR_MS = 3_600_000

DEFINITION = ConsumerConfig.model_validate(
    {
        "topic": "bench",
        "schema": {
            "id": {"type": "long", "nullable": False},
            "account": {"type": "string", "nullable": False},
            "amount_cents": {"type": "long", "nullable": False},
            "price": "double",
            "approved": {"type": "boolean", "nullable": False},
            "booked_at": {"type": "timestamp", "nullable": False},
            "note": "string",
            "city": "string",
            "currency": {"type": "string", "nullable": False},
        },
        "window": "hour",
        "batch": {"max_records": 200_000, "max_latency_seconds": 10.0},
    }
)


def create(bootstrap_servers: str, topic: str) -> bool:
    """Make a topic; false when it is there already."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    new = NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1, config={"retention.ms": "-1"})
    try:
        admin.create_topics([new], operation_timeout=10.0)[topic].result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        raise
    return True


def fill(bootstrap_servers: str, topic: str, records: int) -> float:
    """Make `topic` with `records` records; returns their mean size in bytes. A topic that is there is left as it is."""
    if not create(bootstrap_servers, topic):
        return 0.0
    size = 0
    with KafkaProducer(KafkaOptions(bootstrap_servers)) as producer:
        for i, value in enumerate(values(records)):
            size += len(value)
            stamp = _START_MS + i * _HOUR_MS // max(1, records // 4)
            producer.send(topic, value, b"%d" % (i % 1000), timestamp_ms=stamp)
    return size / records


def values(records: int, seed: int = 1) -> Iterator[bytes]:
    """The records' values."""
    draw = random.Random(seed)
    cities = ["Newark", "New York", "Philadelphia", "Boston", "Chicago"]
    encode = msgspec.json.Encoder().encode
    for i in range(records):
        yield encode(
            {
                "id": i,
                "account": f"A{draw.randrange(10_000):06d}",
                "amount_cents": draw.randrange(-(10**6), 10**6),
                "price": draw.random() * 100,
                "approved": draw.random() < 0.9,
                "booked_at": f"2026-01-{1 + i % 28:02d}T{i % 24:02d}:{i % 60:02d}:00Z",
                "note": None if i % 3 else "paid by card",
                "city": cities[i % 5],
                "currency": "EUR",
            }
        )
