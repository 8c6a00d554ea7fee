"""What the engine asks of a broker: a consumer, a producer, an admin. Real Kafka and the in-memory broker offer the same.

Offsets are handed in explicitly; nothing is committed or reset by itself.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from consumers.types import Positions, RecordBatch, TopicPartition, Watermarks

Partitions = frozenset[TopicPartition]
Headers = Sequence[tuple[str, bytes | None]]


class RebalanceListener(Protocol):
    """Called from within `poll` or `close`, in the thread that calls those."""

    def assigned(self, partitions: Partitions) -> Positions:
        """Partitions are ours from now on. Returns where to start each.

        Called with none when the group has answered and has none for this member, so that waiting can end.
        """
        ...

    def revoked(self, partitions: Partitions) -> None:
        """Partitions go to another member after this returns."""
        ...

    def lost(self, partitions: Partitions) -> None:
        """Partitions are another member's already."""
        ...


class BrokerConsumer(Protocol):
    """Reads one topic: as a member of a consumer group, or partitions that it was told."""

    def subscribe(self, listener: RebalanceListener) -> None:
        """Join the group, or take the partitions that were named; the listener hears of them from within `poll`."""
        ...

    def poll(self, max_records: int, timeout: float) -> RecordBatch | None:
        """The next records of the assigned partitions; None after `timeout` seconds without any."""
        ...

    def seek(self, positions: Positions) -> None:
        """Go on from these offsets."""
        ...

    def pause(self) -> None:
        """Stop fetching; `poll` goes on keeping the membership. Also partitions that are assigned later stay paused."""
        ...

    def resume(self) -> None:
        """Fetch again."""
        ...

    def commit(self, positions: Positions, wait: bool = False) -> None:
        """Tell the group's coordinator the next offsets. Failures are logged; without a group nothing happens."""
        ...

    def watermarks(self, partitions: Partitions) -> Mapping[TopicPartition, Watermarks]:
        """Low and high watermarks, asked now. Under read_committed, high is the last stable offset's end."""
        ...

    def high_watermarks(self, partitions: Partitions) -> Mapping[TopicPartition, int]:
        """High watermarks as the last fetches told; partitions not fetched yet are absent."""
        ...

    def group_offsets(self, partitions: Partitions) -> Positions:
        """What the group has committed."""
        ...

    def offsets_at(self, partitions: Partitions, timestamp_ms: int) -> Positions:
        """The first offset at or after a time, or the end where there is none."""
        ...

    def partitions(self) -> Partitions:
        """All partitions that the topic has now."""
        ...

    def topic_id(self) -> str:
        """The id of the topic's present incarnation; empty where the brokers know none."""
        ...

    def group_metadata(self) -> object:
        """What a transactional producer of the same broker needs to commit this group's offsets; opaque."""
        ...

    def close(self) -> None:
        """Leave the group."""
        ...


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of a record that was sent: where it is, or why it is nowhere."""

    topic: str
    partition: int
    offset: int
    error: str | None = None


@dataclass(slots=True)
class Receipt:
    """A batch of sent records: how many still wait for their acknowledgement, and what failed (index in the batch, why).

    Changed from within the producer's `send*`, `poll` and `flush`, in the thread that calls those, and by nobody else.
    """

    waiting: int
    failed: list[tuple[int, str]]


class BrokerProducer(Protocol):
    """Writes records: idempotent, acknowledged by all replicas, bounded in memory. Used by one thread."""

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
        on_delivery: Callable[[Delivery], None] | None = None,
    ) -> None:
        """Queue one record; waits while the queue is full. Without `partition` the key decides, by the partitioner."""
        ...

    def send_batch(self, topic: str, records: pa.RecordBatch) -> Receipt:
        """Queue a batch; waits while the queue is full.

        `records` has a column `value`, and may have `key`, `headers`, `timestamp` and `partition`, typed as in `RECORD_COLUMNS`.
        Other columns are ignored.
        """
        ...

    @property
    def waiting(self) -> int:
        """Records that were queued and are not acknowledged yet."""
        ...

    def poll(self, timeout: float = 0.0) -> None:
        """Take in delivery reports; waits up to `timeout` seconds for the first. Raises `BrokerError` for what is fatal."""
        ...

    def flush(self, timeout: float) -> int:
        """Wait until everything is acknowledged or has failed, at most `timeout` seconds. Returns how many records still wait."""
        ...

    def close(self, timeout: float = 60.0) -> object:
        """Flush, then let go; may return a report. Raises `UndeliveredError` when records failed or still wait."""
        ...


class TransactionalProducer(BrokerProducer, Protocol):
    """A producer whose records, and a group's offsets, become visible together or not at all."""

    def begin(self) -> None:
        """Begin a transaction. The first one fences every older producer with the same transactional id."""
        ...

    def send_offsets(self, positions: Positions, group_metadata: object) -> None:
        """Put a group's next offsets into the transaction. Raises `OwnershipLost` when the member was fenced meanwhile."""
        ...

    def commit_transaction(self, timeout: float = 60.0) -> None:
        """Make it visible. Raises `OwnershipLost` when fenced, `BrokerError` for the rest; then `abort_transaction`."""
        ...

    def abort_transaction(self, timeout: float = 60.0) -> None:
        """Forget it."""
        ...


class BrokerAdmin(Protocol):
    """Questions and orders to a cluster that need no group membership. Every call has a timeout; errors are `BrokerError`."""

    def create_topic(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Make a topic (`config` has Kafka's own names, such as `cleanup.policy`). Returns once it can be used."""
        ...

    def delete_topic(self, topic: str) -> None:
        """Delete a topic; one of the same name made later has another id."""
        ...

    def add_partitions(self, topic: str, total: int) -> None:
        """Grow a topic to `total` partitions."""
        ...

    def delete_records(self, before: Positions) -> None:
        """Drop the records before these offsets, as retention would."""
        ...

    def topics(self) -> list[str]:
        """The names of all topics but Kafka's own, in their order."""
        ...

    def partitions(self, topic: str) -> int:
        """How many partitions the topic has."""
        ...

    def topic_id(self, topic: str) -> str:
        """The id of the topic's present incarnation; empty where the brokers know none."""
        ...

    def topic_config(self, topic: str) -> Mapping[str, str]:
        """The settings that are in force for the topic, by Kafka's own names."""
        ...

    def watermarks(self, topic: str) -> Mapping[TopicPartition, Watermarks]:
        """The low and high watermark of every partition."""
        ...

    def stable_watermarks(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, Watermarks]:
        """Low and high watermarks as a reader of committed transactions sees them: high is the last stable offset."""
        ...

    def offsets_at(self, topic: str, timestamp_ms: int) -> Positions:
        """Per partition, the first offset at or after a time, or the high watermark where there is none."""
        ...

    def group_offsets(self, group: str, topic: str) -> Positions:
        """What the group has committed, by partition; partitions without a commit are absent."""
        ...

    def set_group_offsets(self, group: str, positions: Positions) -> bool:
        """Commit these for a group without members. False, and nothing changed, where it has some: they tell it themselves."""
        ...

    def close(self) -> None:
        """Let go of the connections."""
        ...
