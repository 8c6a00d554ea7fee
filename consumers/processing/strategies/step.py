"""What steps with a next one have in common: what that one refuses waits here, in order, and nothing overtakes it."""

from abc import ABC, abstractmethod
from collections import deque
from typing import Generic, TypeVar

from consumers.processing.context import Surroundings
from consumers.processing.strategies.protocol import Message, MessageRejected, Strategy

T = TypeVar("T")
U = TypeVar("U")

DEFAULT = Surroundings()
"""The real clock, and no metrics."""

_PAUSE_SECONDS = 0.005
_STRATEGY = ("submit", "poll", "flush", "discard", "close")


class Link(ABC, Generic[U]):
    """What has a next step, which `poll`, `discard` and `close` reach. Subclasses hold messages, and offer them in `_drain`."""

    def __init__(self, next_step: Strategy[U], around: Surroundings) -> None:
        """Raises TypeError where the next step is no strategy."""
        if isinstance(next_step, type) or not all(hasattr(next_step, name) for name in _STRATEGY):
            raise TypeError(
                f"{type(self).__name__}: the next step is no strategy, but {next_step!r}. A chain ends in one that commits, such "
                "as CommitPositions(context.commit)."
            )
        self._next_step = next_step
        self._around = around
        self._flushing = False
        self._closed = False

    @abstractmethod
    def _drain(self) -> bool:
        """Offer the next step what waits for nothing else; whether nothing is held any longer."""

    def _forget(self) -> None:
        """Drop what is held."""

    def poll(self) -> None:
        self._next_step.poll()
        if self._drain() and self._flushing:
            self._flushing = not self._next_step.flush(0)

    def discard(self) -> None:
        self._flushing = False
        self._forget()
        self._next_step.discard()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.discard()
        self._next_step.close()


class Step(Link[U], Generic[T, U]):
    """A step that makes messages of `U` from messages of `T`. Subclasses say how in `_take`; those that gather say in `_finish`
    how to pass on what they have, and in `_forget` how to drop it.

    What was made is made once: a message that the next step refuses is kept and offered again, without calling anything twice.
    While one waits, `submit` takes nothing, so that a chain of n steps holds about n messages more than its last step.
    """

    def __init__(self, next_step: Strategy[U], around: Surroundings) -> None:
        super().__init__(next_step, around)
        self._waiting: deque[Message[U]] = deque()
        self._more = False

    @abstractmethod
    def _take(self, message: Message[T]) -> None:
        """Make of the message what is to be made, and `_send` it, now or later. Nothing is waiting when this is called."""

    def _finish(self) -> None:
        """`_send` what waits for more."""

    def _send(self, *messages: Message[U]) -> None:
        """Hand on, each as soon as everything before it was taken."""
        self._waiting.extend(messages)
        self._drain()

    def submit(self, message: Message[T]) -> None:
        if not self._drain():
            raise MessageRejected
        self._take(message)

    def flush(self, timeout: float) -> bool:
        clock = self._around.clock
        deadline = clock.monotonic() + timeout
        self._finish()
        self._flushing = True
        while True:
            empty = self._drain()
            done = self._next_step.flush(max(0.0, deadline - clock.monotonic()))
            if empty and done:
                self._flushing = False
                return True
            if done and self._drain():
                continue
            if empty and self._more:
                return False  # the steps after wait for what a step before has, which hands it on once this returns
            if (left := deadline - clock.monotonic()) <= 0:
                return False
            clock.sleep(min(_PAUSE_SECONDS, left))

    def discard(self) -> None:
        self._waiting.clear()
        self._more = False
        super().discard()

    def _drain(self) -> bool:
        while self._waiting:
            try:
                self._next_step.submit(self._waiting[0])
            except MessageRejected:
                return False
            self._more = self._waiting.popleft().more
        return True
