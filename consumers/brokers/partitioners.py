"""Which partition a record goes to: librdkafka's own partitioners by name, or a function."""

from collections.abc import Callable
from typing import Literal

import confluent_kafka as ck
from confluent_kafka import KafkaException

from consumers.brokers.failures import describe, refusal
from consumers.clock import Clock
from consumers.errors import BrokerError

NamedPartitioner = Literal[
    "murmur2_random",  # as Java's clients: by the key's hash; records without a key anywhere
    "murmur2",  # the same, but all records without a key in one partition
    "consistent_random",  # librdkafka's old default, by CRC32 of the key; records without a key, or an empty one, anywhere
    "consistent",  # the same, but all records without a key in one partition
    "fnv1a_random",  # as Sarama (Go), by the key's hash; records without a key anywhere
    "fnv1a",  # the same, but all records without a key in one partition
    "random",  # anywhere, whatever the key
]
"""A partitioner that the client has."""

PartitionFunction = Callable[[bytes | None, int], int]
"""From a record's key and the number of the topic's partitions to one of them, counted from 0."""

Partitioner = NamedPartitioner | PartitionFunction

_KNOWN_SECONDS = 300.0
_ASK_SECONDS = 10.0


class PartitionCounts:
    """How many partitions topics have, asked again every five minutes, as the client itself does."""

    def __init__(self, producer: ck.Producer, clock: Clock) -> None:
        self._producer = producer
        self._clock = clock
        self._known: dict[str, tuple[int, float]] = {}

    def of(self, topic: str) -> int:
        """The topic's partitions. Raises `BrokerError` when the cluster does not tell, or has no such topic."""
        now = self._clock.monotonic()
        count, until = self._known.get(topic, (0, now))
        if until <= now:
            count = self._ask(topic)
            self._known[topic] = count, now + _KNOWN_SECONDS
        return count

    def _ask(self, topic: str) -> int:
        try:
            found = self._producer.list_topics(topic, _ASK_SECONDS).topics[topic]
        except KafkaException as error:
            raise BrokerError(f"Kafka did not tell the partitions of topic '{topic}': {describe(error)}") from error
        if found.error is not None:
            raise refusal(f"the partitions of topic '{topic}'", found.error)
        return len(found.partitions)
