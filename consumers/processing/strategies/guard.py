"""Wraps a strategy in tests and raises as soon as it, or its caller, breaks the protocol.

Knows offsets and calls, not payloads. One ledger is written from both sides of the strategy: what it took, and what left it.
"""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from consumers.processing.strategies.protocol import Commit, Message, MessageRejected, Rejection, Strategy
from consumers.types import Ranges, TopicPartition

T = TypeVar("T")
U = TypeVar("U")


class ProtocolBroken(AssertionError):
    """A strategy, or who calls it, does not keep to the protocol."""


def guard(build: Callable[[Strategy[U]], Strategy[T]], next_step: Strategy[U], *, settles_rejected: bool = False) -> "Guard[T]":
    """A strategy with a next step, guarded: `guard(lambda after: Map(f, after), next_step)`.

    `settles_rejected` says that rejections end in it, as in one that writes dead letters.
    """
    ledger = _Ledger(keeps_rejected=not settles_rejected)
    after = _After(ledger, next_step)
    return Guard(build(after), ledger, after.reached)


def guard_last(build: Callable[[Commit], Strategy[T]], commit: Commit) -> "Guard[T]":
    """A last strategy, guarded: `guard_last(lambda commit: CommitPositions(commit), commit)`."""
    ledger = _Ledger(keeps_rejected=False)

    def told(ranges: Ranges) -> None:
        ledger.check(ranges, ())
        ledger.left(ranges, ())
        commit(ranges)

    return Guard(build(told), ledger, None)


class _Ledger:
    """What is inside of a strategy: offsets that it took and has not handed on, and the rejections among them."""

    def __init__(self, keeps_rejected: bool) -> None:
        self._keeps_rejected = keeps_rejected
        self._thread: int | None = None
        self._next: dict[TopicPartition, int] = {}  # the offset that has to leave next
        self._end: dict[TopicPartition, int] = {}  # where that which was taken ends
        self._owed: set[tuple[TopicPartition, int]] = set()
        self._moved = False  # something left since the last `take`
        self.forgetting = False

    def same_thread(self) -> None:
        """Every call comes from one thread."""
        here = threading.get_ident()
        self._thread = self._thread or here
        _require(self._thread == here, "called from a second thread")

    def inside(self) -> dict[TopicPartition, range]:
        """The offsets that were taken and have not left."""
        return {tp: range(start, self._end[tp]) for tp, start in self._next.items() if start < self._end[tp]}

    def take(self, message: Message[T]) -> Callable[[], None]:
        """A message is offered. Returns what to call when it was refused."""
        ends, owed, empty = dict(self._end), set(self._owed), not self.inside()
        for tp, step in message.ranges.items():
            _require(step.start == self._end.get(tp, step.start), f"{tp}: {step} was submitted after offset {self._end.get(tp)}")
            self._next.setdefault(tp, step.start)
            self._end[tp] = step.end
        self._owed |= {(rejection.partition, rejection.offset) for rejection in message.rejected}
        self._moved = False

        def refused() -> None:
            early = [tp for tp in message.ranges if self._next[tp] > ends.get(tp, message.ranges[tp].start)]
            _require(not early and not (empty and self._moved), f"refused a message and handed on a part of it: {message.ranges}")
            self._end, self._owed = ends, owed & self._owed
            self._next = {tp: start for tp, start in self._next.items() if tp in ends}

        return refused

    def check(self, ranges: Ranges, rejected: tuple[Rejection, ...]) -> None:
        """Something is about to leave."""
        self.same_thread()
        _require(not self.forgetting, f"handed on {ranges} while it was told to forget")
        for tp, step in ranges.items():
            _require(tp in self._next, f"{tp}: {step} leaves, and nothing of the partition was taken")
            _require(step.start == self._next[tp], f"{tp}: {step} leaves, and {self._next[tp]} is next")
            _require(step.end <= self._end[tp], f"{tp}: {step} leaves, and only what is before {self._end[tp]} was taken")
        for rejection in rejected:
            own = ranges.get(rejection.partition)
            _require(
                own is not None and (not own or rejection.offset in range(own.start, own.end)), f"{rejection} is not of {ranges}"
            )

    def left(self, ranges: Ranges, rejected: tuple[Rejection, ...]) -> None:
        """It has left."""
        self._moved = True
        self._owed -= {(rejection.partition, rejection.offset) for rejection in rejected}
        for tp, step in ranges.items():
            self._next[tp] = step.end
        lost = {(tp, offset) for tp, offset in self._owed if offset < self._next.get(tp, 0)}
        _require(not (lost and self._keeps_rejected), f"rejections did not leave with their offsets: {lost}")
        self._owed -= lost

    def forget(self) -> None:
        """Nothing is inside any more; partitions may go on elsewhere."""
        self._next, self._end, self._owed = {}, {}, set()


class Guard(Generic[T]):
    """The side from which messages come."""

    def __init__(self, inner: Strategy[T], ledger: _Ledger, reached: set[str] | None) -> None:
        self._inner = inner
        self._ledger = ledger
        self._reached = reached
        self._closed = False

    def submit(self, message: Message[T]) -> None:
        self._begin("submit")
        refused = self._ledger.take(message)
        try:
            self._inner.submit(message)
        except MessageRejected:
            refused()
            raise

    def poll(self) -> None:
        self._begin("poll")
        self._inner.poll()
        self._end("poll")

    def flush(self, timeout: float) -> bool:
        self._begin("flush")
        done = self._inner.flush(timeout)
        if done:
            _require(not self._ledger.inside(), f"flush says that all is through, and {self._ledger.inside()} is not")
            self._end("flush")
            self._ledger.forget()
        return done

    def discard(self) -> None:
        self._drop("discard", self._inner.discard)

    def close(self) -> None:
        self._drop("close", self._inner.close)
        self._closed = True

    def _drop(self, what: str, call: Callable[[], None]) -> None:
        self._begin(what)
        self._ledger.forgetting = True
        call()
        self._ledger.forgetting = False
        self._ledger.forget()
        self._end(what)

    def _begin(self, what: str) -> None:
        self._ledger.same_thread()
        _require(not self._closed or what in ("close", "discard"), f"{what} after close")
        if self._reached is not None and not self._closed:
            self._reached.discard(what)

    def _end(self, what: str) -> None:
        reached = self._reached is None or self._closed or what in self._reached
        _require(reached, f"{what} did not reach the next step, or that one had not finished")


class _After(Generic[U]):
    """The side to which messages go."""

    def __init__(self, ledger: _Ledger, next_step: Strategy[U]) -> None:
        self._ledger = ledger
        self._next_step = next_step
        self.reached: set[str] = set()

    def submit(self, message: Message[U]) -> None:
        _require("close" not in self.reached, "submit to a next step that was closed")
        self._ledger.check(message.ranges, message.rejected)
        self._next_step.submit(message)
        self._ledger.left(message.ranges, message.rejected)

    def poll(self) -> None:
        self._ledger.same_thread()
        self._next_step.poll()
        self.reached.add("poll")

    def flush(self, timeout: float) -> bool:
        self._ledger.same_thread()
        done = self._next_step.flush(timeout)
        (self.reached.add if done else self.reached.discard)("flush")
        return done

    def discard(self) -> None:
        self._ledger.same_thread()
        self._next_step.discard()
        self.reached.add("discard")

    def close(self) -> None:
        self._ledger.same_thread()
        self._next_step.close()
        self.reached.add("close")


def _require(held: bool, what: str) -> None:
    if not held:
        raise ProtocolBroken(what)
