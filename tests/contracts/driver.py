"""Drives strategies as the engine does, and says what must have come of it. Used by the conformance suite alone."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from consumers.errors import OwnershipLost
from consumers.processing.strategies.protocol import Message, MessageRejected, Rejection, Strategy
from consumers.types import OffsetRange, Ranges, TopicPartition, join_ranges
from tests.contracts.strategies import PARTITIONS, Row, Source, until


class Next:
    """A next step that the test holds in its hand. What it has done is committed; what waits in it is forgotten by a discard."""

    def __init__(self) -> None:
        self.full = False
        self.slow = False  # works on its messages only when it is told to be fast again
        self.fails: Exception | None = None
        self.closed = 0
        self.done: list[Message[Any]] = []
        self._waiting: deque[Message[Any]] = deque()

    def submit(self, message: Message[Any]) -> None:
        if self.fails is not None:
            raise self.fails
        if self.full:
            raise MessageRejected
        self._waiting.append(message)

    def poll(self) -> None:
        if not self.slow:
            self.done += self._waiting
            self._waiting.clear()

    def flush(self, timeout: float) -> bool:
        self.poll()
        return not self._waiting

    def discard(self) -> None:
        self._waiting.clear()

    def close(self) -> None:
        self.discard()
        self.closed += 1

    @property
    def committed(self) -> Ranges:
        """All that is done, joined. Raises ValueError where it does not join."""
        return joined(message.ranges for message in self.done)


def joined(steps: Iterable[Ranges]) -> dict[TopicPartition, OffsetRange]:
    """Ranges one after the other as one. Raises ValueError where they do not join."""
    whole: dict[TopicPartition, OffsetRange] = {}
    for step in steps:
        whole = join_ranges(whole, step)
    return whole


@dataclass
class Driver:
    """The engine's part: holds a message that was refused, and goes back to what is committed after a discard."""

    strategy: Strategy[pa.RecordBatch]
    committed: Callable[[], Ranges]
    reclaim: Callable[[], Mapping[TopicPartition, int]] | None = None
    source: Source = field(default_factory=Source)
    held: Message[pa.RecordBatch] | None = None
    refused: int = 0
    given: dict[Row, Rejection] = field(default_factory=dict)

    def submit(self, *values: str, partitions: Iterable[int] = (0,), rows: bool = True, rejected: Iterable[int] = ()) -> bool:
        """Offer what is held, or a new message; whether it was taken. `rejected` are indexes of records rejected before."""
        if self.held is None:
            message = self.source.message(*values, partitions=tuple(partitions), rows=rows)
            self.held = self._rejecting(message, frozenset(rejected))
        return self.offer()

    def put(self, *values: str, partitions: Iterable[int] = (0,), rejected: Iterable[int] = ()) -> None:
        """Submit a message, polling until it is taken."""
        until(self.offer, self.poll)
        self.submit(*values, partitions=partitions, rejected=rejected)
        until(self.offer, self.poll)

    def offer(self) -> bool:
        """Offer what is held; whether nothing is held any longer."""
        return self._tried(self._offer) is not False

    def poll(self) -> None:
        """One poll."""
        self._tried(self.strategy.poll)

    def flush(self) -> bool:
        """A flush without waiting."""
        return self._tried(lambda: self.strategy.flush(0)) is True

    def discard(self) -> None:
        """Forget, and read again from what is committed."""
        self.strategy.discard()
        self._back({tp: step.end for tp, step in self.committed().items()})

    def finish(self) -> None:
        """Bring everything to its end."""
        until(lambda: self.offer() and self.flush(), self.poll)

    def _offer(self) -> bool:
        if self.held is not None:
            try:
                self.strategy.submit(self.held)
            except MessageRejected:
                self.refused += 1
                return False
            self.held = None
        return True

    def _tried(self, act: Callable[[], bool | None]) -> bool | None:
        try:
            return act()
        except OwnershipLost:
            if self.reclaim is None:
                raise
            self.strategy.discard()
            self._back(self.reclaim())
            return False

    def _back(self, positions: Mapping[TopicPartition, int]) -> None:
        self.held = None
        self.source.seek(dict.fromkeys(PARTITIONS, 0) | dict(positions))

    def _rejecting(self, message: Message[pa.RecordBatch], indexes: frozenset[int]) -> Message[pa.RecordBatch]:
        rows = message.payload.to_pylist()
        for index in indexes & set(range(len(rows))):
            row = (rows[index]["partition"], rows[index]["offset"])
            self.given[row] = Rejection(PARTITIONS[row[0]], row[1], "earlier")
        stays = [(row["partition"], row["offset"]) not in self.given for row in rows]
        gone = tuple(self.given[row["partition"], row["offset"]] for row, stay in zip(rows, stays, strict=True) if not stay)
        return message.with_payload(message.payload.filter(pa.array(stays, pa.bool_())), gone)
