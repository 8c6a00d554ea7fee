"""The measurements that the platform takes, by name. A name that is not listed here fails the type check.

Names end in their unit, or begin with it; sinks that want another order change it. Sinks are in `consumers/monitoring/`.
"""

from collections.abc import Mapping
from typing import Final, Literal, Protocol

Counter = Literal[
    "records_in",
    "bytes_in",
    "batches_in",
    "records_out",
    "dead_letters",
    "commits",
    "rebalances",
    "retries",
    "rejections",
    "client_errors",
    "throttled_seconds",
    "paused_seconds",
]
"""What only grows."""

Gauge = Literal[
    "lag",
    "time_lag_seconds",
    "assigned_partitions",
    "in_flight_bytes",
    "client_queue_messages",
    "client_queue_bytes",
]
"""What goes up and down."""

Histogram = Literal[
    "batch_records",
    "batch_bytes",
    "decode_seconds",
    "flush_seconds",
    "commit_seconds",
    "poll_seconds",
    "task_seconds",
]
"""What is measured again and again."""

Name = Counter | Gauge | Histogram

Tags = Mapping[str, str]

MEANING: Final[Mapping[Name, str]] = {
    "records_in": "records polled from the broker",
    "bytes_in": "bytes that the polled records take in memory",
    "batches_in": "batches polled from the broker",
    "records_out": "records produced and acknowledged",
    "dead_letters": "invalid records made durable as such",
    "commits": "commits of positions, together with their data where the store holds both",
    "rebalances": "assignments, revocations and losses of partitions, by kind",
    "retries": "calls repeated after a transient error",
    "rejections": "times that a batch was held because the strategy was full",
    "client_errors": "errors that the Kafka client reported and went on from",
    "throttled_seconds": "seconds for which brokers slowed the client down",
    "paused_seconds": "seconds for which fetching was paused, known when it goes on",
    "lag": "records behind the high watermark, by topic and partition",
    "time_lag_seconds": "age of the newest committed record at its commit",
    "assigned_partitions": "partitions of this member",
    "in_flight_bytes": "bytes polled and not committed",
    "client_queue_messages": "messages that wait in the Kafka client's own queues",
    "client_queue_bytes": "bytes that wait in the Kafka client's own queues",
    "batch_records": "records of a commit",
    "batch_bytes": "bytes that a commit wrote",
    "decode_seconds": "decoding, per commit",
    "flush_seconds": "writing files or rows, per commit",
    "commit_seconds": "the commit itself",
    "poll_seconds": "a poll of the broker that brought records, waiting included",
    "task_seconds": "a call of a user's function",
}
"""What each one is."""


class Metrics(Protocol):
    """Takes measurements. Never raises and never waits: called by the polling thread, and by others."""

    def count(self, name: Counter, value: float = 1, tags: Tags | None = None) -> None:
        """Add to a counter."""
        ...

    def gauge(self, name: Gauge, value: float, tags: Tags | None = None) -> None:
        """Set a gauge; NaN says that there is nothing to tell any more, such as the lag of a partition that went elsewhere."""
        ...

    def observe(self, name: Histogram, value: float, tags: Tags | None = None) -> None:
        """Add a value to a distribution."""
        ...


class NoMetrics:
    """Takes none."""

    def count(self, name: Counter, value: float = 1, tags: Tags | None = None) -> None:
        """Nothing."""

    def gauge(self, name: Gauge, value: float, tags: Tags | None = None) -> None:
        """Nothing."""

    def observe(self, name: Histogram, value: float, tags: Tags | None = None) -> None:
        """Nothing."""
