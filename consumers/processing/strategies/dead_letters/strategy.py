"""The step that writes rejected records away and passes a message on only when they are durable.

Messages keep their order: one without rejections waits behind those whose dead letters are on their way. What waits is bounded;
past the bound nothing more is taken.
"""

from collections import deque
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np

from consumers.config import InvalidLimits
from consumers.processing.context import Surroundings
from consumers.processing.invalid_limits import FEWEST_FOR_RATIO, InvalidGuard
from consumers.processing.strategies.dead_letters.letters import DeadLetterSink, Durable, letters_of
from consumers.processing.strategies.protocol import Message, MessageRejected, Rejection, Strategy
from consumers.processing.strategies.step import DEFAULT, Step
from consumers.types import TopicPartition

T = TypeVar("T")

ROOM_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Gated(Generic[T]):
    """A message that waits for dead letters, its own or those of a message before it."""

    message: Message[T]
    durable: Durable | None = None
    letters: int = 0
    letter_bytes: int = 0


class DeadLetters(Step[T, T]):
    """Makes `message.rejected` durable in `sink`, then hands the message on without them.

    Raises `InvalidLimit` when there are more invalid records than `limits` allow (`max_ratio` of at least 100 records that came
    one after another; `max_consecutive` in a partition; `max_bytes` that wait for the sink), and `FatalError` when the sink
    fails. Nothing from that message on is handed on then. Several messages of the same records (see `Unfold`) are judged as one,
    with the last. At most `room_bytes` of messages wait, and one message more.
    """

    def __init__(
        self,
        sink: DeadLetterSink,
        limits: InvalidLimits,
        next_step: Strategy[T],
        *,
        room_bytes: int = ROOM_BYTES,
        around: Surroundings = DEFAULT,
    ) -> None:
        super().__init__(next_step, around)
        self._sink = sink
        self._guard = InvalidGuard(limits)
        self._room_bytes = room_bytes
        self._forget()

    def submit(self, message: Message[T]) -> None:
        """Take a message; `MessageRejected` while too much waits, or the next step is full."""
        self._drain()
        if self._waiting or self._bytes >= self._room_bytes:
            raise MessageRejected
        self._take(message)

    def poll(self) -> None:
        """Write what is due, hand on what is durable."""
        self._sink.poll()
        super().poll()

    def flush(self, timeout: float) -> bool:
        """Write and hand on everything, then flush the next step."""
        began = self._around.clock.monotonic()
        self._sink.flush(timeout)
        return super().flush(max(0.0, timeout - (self._around.clock.monotonic() - began)))

    def discard(self) -> None:
        """Forget what waits. Dead letters that are on their way may arrive; the sink says what becomes of repeats."""
        self._sink.discard()
        super().discard()

    def close(self) -> None:
        """Forget what waits, then close the sink and the next step."""
        if not self._closed:
            self._sink.close()
        super().close()

    def _take(self, message: Message[T]) -> None:
        message = self._unrepeated(message)
        if not message.more:
            self._judge(message)
        self._gated.append(self._begin(message))
        self._bytes += message.nbytes
        self._drain()

    def _forget(self) -> None:
        self._gated: deque[_Gated[T]] = deque()
        self._bytes = 0
        self._letter_bytes = 0
        self._records = 0
        self._invalid = 0
        self._rejected: dict[tuple[TopicPartition, int], Rejection] = {}

    def _drain(self) -> bool:
        """Hand on, in order, what is durable; whether nothing waits any longer, for the sink or for the next step."""
        while super()._drain():
            if not self._gated:
                return True
            head = self._gated[0]
            if head.durable is not None and not head.durable():
                return False
            self._gated.popleft()
            self._bytes -= head.message.nbytes
            self._letter_bytes -= head.letter_bytes
            if head.letters:
                self._around.metrics.count("dead_letters", head.letters)
            self._waiting.append(head.message.without_rejected())
        return False

    def _begin(self, message: Message[T]) -> _Gated[T]:
        if not message.rejected:
            return _Gated(message)
        letters = letters_of(message)
        self._letter_bytes += letters.nbytes
        self._guard.check_bytes(_where(message), self._letter_bytes)
        return _Gated(message, self._sink.submit(letters), letters.num_rows, letters.nbytes)

    def _unrepeated(self, message: Message[T]) -> Message[T]:
        """The message less the rejections that other messages of the same records have brought already."""
        new: dict[tuple[TopicPartition, int], Rejection] = {}
        for rejection in message.rejected:
            at = rejection.partition, rejection.offset
            if at not in self._rejected:
                new.setdefault(at, rejection)
        self._rejected |= new
        return replace(message, rejected=tuple(new.values()))

    def _judge(self, message: Message[T]) -> None:
        """Raise `InvalidLimit` for a message, or for the last of several of the same records, before it is written."""
        rejected, self._rejected = self._rejected, {}
        bad: dict[TopicPartition, list[int]] = {}
        for tp, offset in rejected:
            bad.setdefault(tp, []).append(offset)
        reasons = [rejection.reason for rejection in rejected.values()]
        self._records += sum(records.num_rows for records in message.source)
        self._invalid += len(rejected)
        self._guard.check_share(_where(message), self._records, self._invalid, reasons)
        if self._records >= FEWEST_FOR_RATIO:
            self._records = self._invalid = 0
        for tp, step in message.ranges.items():
            invalid = np.unique(np.array(bad.get(tp, []), np.int64))
            self._guard.check_run(tp, step, np.setdiff1d(_offsets(message, tp), invalid), invalid, reasons)


def _offsets(message: Message[object], tp: TopicPartition) -> np.ndarray:
    """The offsets of a partition that hold a record."""
    parts = [records["offset"].to_numpy()[records["partition"].to_numpy() == tp.partition] for records in message.source]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _where(message: Message[object]) -> str:
    return ", ".join(str(tp) for tp in sorted(message.ranges))
