"""`Buffer`: several messages become one. What `Reduce` and `Batch` are made of."""

import functools
from collections.abc import Callable, Sized
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import pyarrow as pa

from consumers.processing.context import Surroundings
from consumers.processing.strategies.protocol import Message, Rejection, Strategy
from consumers.processing.strategies.step import DEFAULT, Step
from consumers.processing.strategies.task import call
from consumers.types import OffsetRange, TopicPartition, join_ranges

T = TypeVar("T")
S = TypeVar("S")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class UpTo:
    """When a buffer is full: by records, by bytes, or `seconds` after its first message, whichever comes first.

    Records are rows of the payloads, their elements, or the payloads themselves where they have no length. Bytes are those of the
    payloads or of their source records, whichever are more: both stay in memory. A message is never divided, so the last one may
    carry a buffer past these.
    """

    records: int | None = None
    bytes: int = 64 * 2**20
    seconds: float = 10.0


@dataclass(slots=True)
class _Gathered(Generic[S]):
    """What is in the buffer: the state so far, and what its messages account for."""

    state: S
    since: float
    records: int = 0
    bytes: int = 0
    ranges: dict[TopicPartition, OffsetRange] = field(default_factory=dict)
    source: dict[int, pa.RecordBatch] = field(default_factory=dict)
    rejected: tuple[Rejection, ...] = ()
    more: bool = False

    def add(self, payload: object, grown: Message[S]) -> None:
        """Take in a message that `grown` made of a payload and of the state before."""
        self.state = grown.payload
        self.records += _records(payload)
        self.bytes += max(grown.nbytes, getattr(payload, "nbytes", 0))
        self.ranges = join_ranges(self.ranges, grown.ranges)
        self.source |= {id(records): records for records in grown.source}  # parts of one `Unfold` share theirs
        self.rejected += grown.rejected
        self.more = grown.more


class Buffer(Step[T, U], Generic[T, S, U]):
    """Gathers payloads into a state until it is full, then passes on what it makes of the state.

    `add` makes the new state of the state before and a payload (it may raise as any user's function), `initial` the first one,
    `finish` what is passed on. A flush passes on what there is. Messages without rows count in time alone, and their offsets pass
    with the others.
    """

    def __init__(
        self,
        add: Callable[[S, T], S],
        initial: Callable[[], S],
        finish: Callable[[S], U],
        size: UpTo,
        next_step: Strategy[U],
        *,
        around: Surroundings = DEFAULT,
    ) -> None:
        super().__init__(next_step, around)
        self._add = add
        self._initial = initial
        self._make = finish
        self._size = size
        self._gathered: _Gathered[S] | None = None

    def _take(self, message: Message[T]) -> None:
        gathered = self._gathered or _Gathered(self._initial(), self._around.clock.monotonic())
        grown: Message[S] = call(functools.partial(self._add, gathered.state), message, self._around)
        gathered.add(message.payload, grown)
        self._gathered = gathered
        self._finish_when_full()

    def poll(self) -> None:
        super().poll()
        if not self._waiting:
            self._finish_when_full()

    def flush(self, timeout: float) -> bool:
        if self._gathered is not None and self._gathered.more:
            # A step before has the rest, and hands it on as soon as there is room.
            self._drain()
            self._next_step.flush(0)
            return False
        return super().flush(timeout)

    def _finish_when_full(self) -> None:
        full, size = self._gathered, self._size
        if full is None or full.more:
            return
        many = size.records is not None and full.records >= size.records
        if many or full.bytes >= size.bytes or self._around.clock.monotonic() - full.since >= size.seconds:
            self._finish()

    def _finish(self) -> None:
        gathered, self._gathered = self._gathered, None
        if gathered is not None:
            whole = Message(gathered.state, gathered.ranges, tuple(gathered.source.values()), gathered.rejected)
            self._send(call(self._make, whole, self._around))

    def _forget(self) -> None:
        self._gathered = None


def _records(payload: object) -> int:
    if isinstance(payload, pa.RecordBatch | pa.Table):
        return int(payload.num_rows)
    return len(payload) if isinstance(payload, Sized) and not isinstance(payload, str | bytes) else 1
