"""Where positions live: the seam between the engine and a staged table, a database, or Kafka's own group offsets."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from consumers.processing.starts import Start
from consumers.types import Position, TopicPartition


class PositionStore(Protocol):
    """The truth about how far a consumer has come. Used by the polling thread.

    A store that data is written beside gives out *epochs*: taking a partition over makes every older owner's commits fail. The
    strategy that commits is built over the same store, and learns its epochs from it.
    """

    @property
    def fences(self) -> bool:
        """Whether taking a partition over makes every older owner's commits fail."""
        ...

    def positions(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, Position]:
        """Where partitions stand now, asked anew."""
        ...

    def known_topic(self, topic: str) -> int | None:
        """`topic_hash` of the topic that the positions last asked for belong to; None where there are none yet."""
        ...

    def acquire(self, seen: Mapping[TopicPartition, Position], starts: Mapping[TopicPartition, Start], topic_id: str) -> None:
        """Take partitions over, to start where `starts` says. Raises `OwnershipLost` when one stands elsewhere by now."""
        ...

    def release(self, partitions: frozenset[TopicPartition]) -> None:
        """These are not ours any longer."""
        ...
