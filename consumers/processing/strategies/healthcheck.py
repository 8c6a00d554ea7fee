"""`Healthcheck`: a sign of life from within a chain."""

from collections.abc import Callable
from typing import Generic, TypeVar

from consumers.processing.strategies.protocol import Message, Strategy

T = TypeVar("T")


class Healthcheck(Generic[T]):
    """Calls `heartbeat` when it is polled; messages pass as they are.

    Where it stands in a chain is what it says: that the loop turns, and that no step before it hangs. `HealthFile(path,
    clock).progress` and `HealthEndpoint(...).progress` of `consumers.monitoring.health` are heartbeats.
    """

    def __init__(self, heartbeat: Callable[[], None], next_step: Strategy[T]) -> None:
        self._heartbeat = heartbeat
        self._next_step = next_step

    def submit(self, message: Message[T]) -> None:
        self._next_step.submit(message)

    def poll(self) -> None:
        self._heartbeat()
        self._next_step.poll()

    def flush(self, timeout: float) -> bool:
        return self._next_step.flush(timeout)

    def discard(self) -> None:
        self._next_step.discard()

    def close(self) -> None:
        self._next_step.close()
