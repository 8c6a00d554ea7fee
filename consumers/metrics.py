"""The measurements that the platform takes, by name. A name that is not listed here fails the type check.

Sinks that take them elsewhere are in `consumers/monitoring/`.
"""

from collections.abc import Mapping
from typing import Literal, Protocol

Counter = Literal[
    "records_in",  # records polled from the broker
    "bytes_in",  # bytes of their columns
    "batches_in",  # batches polled
    "records_out",  # records produced and acknowledged
    "dead_letters",  # invalid records made durable as such
    "commits",  # commits of positions together with data
    "rebalances",  # assignments, revocations and losses of partitions
    "retries",  # calls repeated after a transient error
    "rejections",  # batches held because the strategy was full
    "client_errors",  # errors that the Kafka client reported and went on from
    "throttled_seconds",  # brokers slowed a client down
    "paused_seconds",  # fetching was paused
]
"""What only grows."""

Gauge = Literal[
    "lag",  # records behind the high watermark, by partition
    "time_lag_seconds",  # age of the newest record that was committed
    "assigned_partitions",  # partitions of this member
    "in_flight_bytes",  # bytes submitted and not committed
    "client_queue_messages",  # messages in the client's queues
    "client_queue_bytes",  # bytes in the client's queues
]
"""What goes up and down."""

Histogram = Literal[
    "batch_records",  # records of a commit
    "batch_bytes",  # bytes of a commit
    "decode_seconds",  # decoding, per commit
    "flush_seconds",  # writing files or rows, per commit
    "commit_seconds",  # the commit itself
    "poll_seconds",  # one poll of the broker
    "task_seconds",  # one call of a user's function
]
"""What is measured again and again."""

Tags = Mapping[str, str]


class Metrics(Protocol):
    """Takes measurements. Never raises and never waits: called by the polling thread, and by others."""

    def count(self, name: Counter, value: float = 1, tags: Tags | None = None) -> None:
        """Add to a counter."""
        ...

    def gauge(self, name: Gauge, value: float, tags: Tags | None = None) -> None:
        """Set a gauge."""
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
