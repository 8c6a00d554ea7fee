"""Writes records to Kafka, each once and none silently lost.

Knows confluent-kafka, and nothing of what is in a record.
"""

from dataclasses import dataclass
from typing import Any, Self

from confluent_kafka import KafkaError, Message, Producer

from consumers.errors import BrokerError

_KEPT_ERRORS = 10
_POLL_EVERY = 2_000
_BACKPRESSURE_SECONDS = 0.05


@dataclass(frozen=True)
class DeliveryReport:
    """How many records the cluster acknowledged and how many it did not, with the first few reasons."""

    delivered: int
    failed: int
    errors: tuple[str, ...]


class UndeliveredError(BrokerError):
    """Some records did not reach the cluster.

    `report` has the numbers; producing again writes the others twice.
    """

    def __init__(self, report: DeliveryReport) -> None:
        self.report = report
        total = report.delivered + report.failed
        super().__init__(
            f"{report.failed} of {total} records were not delivered "
            f"({'; '.join(report.errors) or 'no reason given'}); "
            "see that the cluster is up, then produce into a new topic or accept repeated records"
        )


class IdempotentProducer:
    """A producer for many records: no flush per record, acknowledged by all replicas, no repeats from
    retries.

    Used by one thread. `close` is what tells whether all went well; as a context manager that happens at the
    end of the block, while an exception inside it drops what is still waiting.
    """

    def __init__(self, bootstrap_servers: str, options: dict[str, Any] | None = None) -> None:
        """`options` are librdkafka's and win over ours, but for idempotence and `acks`."""
        self._delivered = 0
        self._failed = 0
        self._errors: dict[str, None] = {}
        self._until_poll = _POLL_EVERY
        self._producer = Producer(
            {
                "linger.ms": 20,
                "log_level": 3,
                "partitioner": "murmur2_random",  # a key goes where Java's clients would put it
                "batch.size": 512 * 1024,
                "compression.type": "lz4",
                "queue.buffering.max.messages": 200_000,
                "queue.buffering.max.kbytes": 128 * 1024,
                **(options or {}),
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "acks": "all",
            }
        )

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        timestamp: int = 0,
        partition: int = -1,
    ) -> None:
        """Queue a record; waits when the queue is full.

        `timestamp` is in milliseconds since the epoch, 0 for now; `partition` -1 lets the key decide. Raises
        KafkaException when the producer cannot go on at all.
        """
        while True:
            try:
                self._producer.produce(topic, value, key, partition=partition, on_delivery=self._on_delivery, timestamp=timestamp)
                break
            except BufferError:
                self._producer.poll(_BACKPRESSURE_SECONDS)
        self._until_poll -= 1
        if not self._until_poll:
            self.poll()

    def poll(self) -> None:
        """Take in the reports that have arrived, without waiting. `send` does so by itself now and then."""
        self._until_poll = _POLL_EVERY
        self._producer.poll(0)

    @property
    def delivered(self) -> int:
        """Records acknowledged, as far as reports were taken in."""
        return self._delivered

    @property
    def failed(self) -> int:
        """Records given up, as far as reports were taken in."""
        return self._failed

    def close(self, timeout: float = 60.0) -> DeliveryReport:
        """Wait up to `timeout` seconds for what is queued.

        Raises UndeliveredError when a record failed or still waits.
        """
        if self._producer.flush(timeout):
            self.abandon()
        report = DeliveryReport(self._delivered, self._failed, tuple(self._errors))
        if report.failed:
            raise UndeliveredError(report)
        return report

    def abandon(self) -> None:
        """Drop what is queued or on its way; each counts as failed."""
        self._producer.purge()
        self._producer.flush(5)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def _on_delivery(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self._delivered += 1
            return
        self._failed += 1
        if len(self._errors) < _KEPT_ERRORS:
            self._errors[error.str()] = None
