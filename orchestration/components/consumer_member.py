"""Runs one member of a consumer group inside a Dagster op so that terminating the run ends it gracefully.

Dagster interrupts a run by raising in its main thread, at any instruction. So the member works in a thread of its own, where
nothing is raised, and the main thread only waits and writes the mirror. The main thread takes no lock that the member takes:
an interruption may come while it is held.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from consumers.clock import Clock
from consumers.errors import FatalError
from consumers.staging.log import StagedCommit

R = TypeVar("R")
OnCommit = Callable[[StagedCommit], None]

PATIENCE_SECONDS = 8.0
"""How long an interrupted member may take to finish or discard its batch; Dagster kills the process later than that."""
_QUEUE = 64
_POLL_SECONDS = 0.1


@dataclass
class _Member(Generic[R]):
    """What the two threads share. Only plain assignments and deque operations, which are atomic."""

    work: Callable[[threading.Event, OnCommit], R]
    clock: Clock
    stuck: threading.Event
    stop: threading.Event = field(default_factory=threading.Event)
    commits: deque[StagedCommit] = field(default_factory=deque)
    done: bool = False
    abandoned: bool = False
    result: list[R] = field(default_factory=list)
    error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result.append(self.work(self.stop, self.hand_over))
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            self.error = error
        finally:
            self.done = True

    def hand_over(self, commit: StagedCommit) -> None:
        """Give a commit to the main thread; waits when that is far behind."""
        while len(self.commits) >= _QUEUE and not self.abandoned:
            self.clock.sleep(_POLL_SECONDS)
        self.commits.append(commit)

    def mirror(self, on_commit: OnCommit) -> None:
        """Until the member ends: every commit, in order."""
        while not self.done or self.commits:
            if self.stuck.is_set() and not self.done:
                raise FatalError(
                    "the member made no progress for a long time and is given up; the run's stderr says where each of its "
                    "threads was. What is committed is safe, and the next run reads the rest again."
                )
            if self.commits:
                on_commit(self.commits.popleft())
            else:
                self.clock.sleep(_POLL_SECONDS)

    def end(self, patience: float) -> None:
        """Tell the member to stop and wait for it, at most `patience` seconds."""
        self.stop.set()
        self.abandoned = True
        deadline = self.clock.monotonic() + patience
        while not self.done and self.clock.monotonic() < deadline:
            self.clock.sleep(_POLL_SECONDS)


def run_member(
    work: Callable[[threading.Event, OnCommit], R],
    on_commit: OnCommit,
    clock: Clock,
    patience: float = PATIENCE_SECONDS,
    stuck: threading.Event | None = None,
) -> R:
    """Call `work(stop, hand_over)` in a thread and `on_commit` here for every commit that it hands over; returns its result.

    Raises what `work` raises, and `FatalError` once `stuck` is set while the member works. When this thread is interrupted, or
    `on_commit` fails, `stop` is set, the member gets `patience` seconds to finish or discard, and the interruption goes on. The
    next repair finds commits that were not mirrored by then.
    """
    member = _Member(work, clock, stuck or threading.Event())
    # A daemon thread: one that does not stop in time ends with the process, which a crash-safe commit allows.
    threading.Thread(target=member.run, name="member", daemon=True).start()
    try:
        member.mirror(on_commit)
    finally:
        member.end(patience)
    if member.error is not None:
        raise member.error
    return member.result[0]
