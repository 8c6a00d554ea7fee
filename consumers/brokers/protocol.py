"""What the engine asks of a broker's consumer. Offsets are handed in explicitly; nothing is committed or reset by itself."""

from collections.abc import Mapping
from typing import Protocol

from consumers.types import Positions, RecordBatch, TopicPartition, Watermarks

Partitions = frozenset[TopicPartition]


class RebalanceListener(Protocol):
    """Called from within `poll`, in the thread that polls."""

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
    """A member of a consumer group."""

    def subscribe(self, listener: RebalanceListener) -> None:
        """Join the group."""
        ...

    def poll(self, max_records: int, timeout: float) -> RecordBatch | None:
        """The next records of the assigned partitions; None after `timeout` seconds without any."""
        ...

    def seek(self, positions: Positions) -> None:
        """Go on from these offsets."""
        ...

    def pause(self) -> None:
        """Stop fetching; `poll` goes on keeping the membership."""
        ...

    def resume(self) -> None:
        """Fetch again."""
        ...

    def commit(self, positions: Positions, wait: bool = False) -> None:
        """Tell the group's coordinator the next offsets. Failures are logged: the table is the truth."""
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

    def close(self) -> None:
        """Leave the group."""
        ...
