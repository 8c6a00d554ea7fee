"""Runs one member of a consumer group inside a Dagster op so that terminating the run ends it gracefully.

Dagster interrupts a run by raising in its main thread, at any instruction. So the member works in a thread of its own, where
nothing is raised, and the main thread does what a run owes Dagster meanwhile, such as the mirror. The main thread takes no lock
that the member takes: an interruption may come while it is held.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from consumers.clock import Clock
from consumers.errors import FatalError

R = TypeVar("R")

PATIENCE_SECONDS = 8.0
"""How long an interrupted member may take to finish or discard its batch; Dagster kills the process later than that."""
_POLL_SECONDS = 0.1


@dataclass
class _Member(Generic[R]):
    """What the two threads share. Only plain assignments, which are atomic."""

    work: Callable[[threading.Event], R]
    clock: Clock
    stuck: threading.Event
    stop: threading.Event = field(default_factory=threading.Event)
    done: bool = False
    result: list[R] = field(default_factory=list)
    error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result.append(self.work(self.stop))
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            self.error = error
        finally:
            self.done = True

    def watch(self, meanwhile: Callable[[], object]) -> None:
        """Until the member ends."""
        while not self.done:
            if self.stuck.is_set():
                raise FatalError(
                    "the member made no progress for a long time and is given up; the run's stderr says where each of its "
                    "threads was. What is committed is safe, and the next run reads the rest again."
                )
            if meanwhile():
                self.stop.set()
            self.clock.sleep(_POLL_SECONDS)

    def end(self, patience: float) -> None:
        """Tell the member to stop and wait for it, at most `patience` seconds."""
        self.stop.set()
        deadline = self.clock.monotonic() + patience
        while not self.done and self.clock.monotonic() < deadline:
            self.clock.sleep(_POLL_SECONDS)


def run_member(
    work: Callable[[threading.Event], R],
    meanwhile: Callable[[], object],
    clock: Clock,
    patience: float = PATIENCE_SECONDS,
    stuck: threading.Event | None = None,
) -> R:
    """Call `work(stop)` in a thread and `meanwhile` here, ten times a second, until it ends; returns its result.

    What `meanwhile` returns is why the member is to stop, if it is: anything true. Raises what `work` raises, and `FatalError`
    once `stuck` is set while the member works. When this thread is interrupted, or `meanwhile` fails, `stop` is set, the member
    gets `patience` seconds to finish or discard, and the interruption goes on.
    """
    member = _Member(work, clock, stuck or threading.Event())
    # A daemon thread: one that does not stop in time ends with the process, which a crash-safe commit allows.
    threading.Thread(target=member.run, name="member", daemon=True).start()
    try:
        member.watch(meanwhile)
    finally:
        member.end(patience)
    if member.error is not None:
        raise member.error
    return member.result[0]
