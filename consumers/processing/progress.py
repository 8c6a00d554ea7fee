"""How far each partition of a member has come: read, committed, and where it was to get to."""

from collections import deque
from dataclasses import dataclass, field

from consumers.errors import FatalError
from consumers.types import OffsetRange, Positions, Ranges, RecordBatch, TopicPartition


@dataclass(frozen=True, slots=True)
class _InFlight:
    ends: Positions
    nbytes: int
    newest_ms: int | None


@dataclass(slots=True)
class Progress:
    """Positions of the partitions that are ours: `safe` is committed, `read` is polled, `goal` is what a bounded run reaches."""

    safe: dict[TopicPartition, int] = field(default_factory=dict)
    read: dict[TopicPartition, int] = field(default_factory=dict)
    goal: dict[TopicPartition, int] = field(default_factory=dict)
    newest_ms: int | None = None
    _in_flight: deque[_InFlight] = field(default_factory=deque)

    def begin(self, starts: Positions, goal: Positions) -> None:
        """Partitions became ours."""
        self.safe |= starts
        self.read |= starts
        self.goal |= goal

    def release(self, partitions: frozenset[TopicPartition]) -> None:
        """Partitions are ours no longer."""
        for owned in (self.safe, self.read, self.goal):
            for tp in partitions:
                owned.pop(tp, None)
        self._settle()

    def polled(self, batch: RecordBatch, newest_ms: int | None) -> None:
        """A batch was read, whose newest record is of `newest_ms`."""
        ends = {tp: step.end for tp, step in batch.ranges.items()}
        self.read |= ends
        self._in_flight.append(_InFlight(ends, batch.nbytes, newest_ms))

    def committed(self, ranges: Ranges) -> dict[TopicPartition, int]:
        """Ranges are durable. Returns the positions that moved; those of partitions that are not ours any more do not.

        Raises `FatalError` where offsets between the position and a range were left out: a strategy has lost them.
        """
        moved = {tp: step.end for tp, step in ranges.items() if self._moves(tp, step)}
        self.safe |= moved
        self._settle()
        return moved

    def forget(self) -> None:
        """What is not committed will be read again."""
        self.read |= self.safe
        self._in_flight.clear()

    @property
    def in_flight_bytes(self) -> int:
        """Bytes read and not committed."""
        return sum(part.nbytes for part in self._in_flight)

    @property
    def idle(self) -> bool:
        """Nothing is read that is not committed."""
        return not self._in_flight

    def all_read(self) -> bool:
        """Everything up to the goal was read."""
        return bool(self.goal) and self._reached(self.read)

    def all_safe(self) -> bool:
        """Everything up to the goal is committed."""
        return self._reached(self.safe)

    def _reached(self, positions: Positions) -> bool:
        return all(positions[tp] >= goal for tp, goal in self.goal.items())

    def _moves(self, tp: TopicPartition, step: OffsetRange) -> bool:
        # A commit that was under way when its partition was taken over anew tells what the takeover has read already.
        if tp not in self.safe or step.end <= self.safe[tp]:
            return False
        if step.start != self.safe[tp]:
            raise FatalError(
                f"{tp}: offsets {step.start} to {step.end - 1} were committed, but the position is {self.safe[tp]}: a strategy "
                "left offsets out or committed out of order. This is a defect in the strategy; nothing further is committed."
            )
        return True

    def _settle(self) -> None:
        while self._in_flight and all(self.safe.get(tp, end) >= end for tp, end in self._in_flight[0].ends.items()):
            self.newest_ms = self._in_flight.popleft().newest_ms or self.newest_ms
