"""Notices that a consumer has stopped making progress, says where every thread is, and ends it.

A process that hangs keeps its partitions, or gives them up without ending; either way nobody restarts it. Ending it is safe: what
is committed stays, the rest is read again.
"""

import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Self

from consumers.clock import Clock

log = logging.getLogger(__name__)

STUCK_EXIT = 70
"""The exit code of a process that was ended because it was stuck (EX_SOFTWARE in sysexits.h)."""

_LEAST_SECONDS = 300.0
_LOG_SECONDS = 5.0


def stuck_after(longest_wait: float) -> float:
    """A limit for a consumer whose records wait for each other for at most `longest_wait` seconds, which is no progress.

    It is a good deal longer than whatever takes long on purpose, such as finishing work before partitions are given up.
    """
    return max(_LEAST_SECONDS, 3 * longest_wait)


def end_process() -> None:
    """End this process at once, without the clean-up that would wait for the threads that hang."""
    os._exit(STUCK_EXIT)


class StuckDetector:
    """Watches from a thread of its own, while it is entered as a context.

    `progress` is called by whoever is watched. After `seconds` without a call, the stacks go to the log and `on_stuck` is called,
    once. Time in which this thread did not run either (a suspended machine, a stopped process) does not count.
    """

    def __init__(self, seconds: float, clock: Clock, on_stuck: Callable[[], None] = end_process) -> None:
        self._seconds = seconds
        self._clock = clock
        self._on_stuck = on_stuck
        self._every = min(1.0, seconds / 4)
        self._progressed = True
        self._idle = 0.0
        self._looked = clock.monotonic()
        self._stuck = False
        self._ended = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._watch, name="stuck-detector", daemon=True)

    def __enter__(self) -> Self:
        self.progress()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def progress(self) -> None:
        """Something got on. Costs nothing."""
        self._progressed = True

    def look(self) -> None:
        """One turn of the watching thread."""
        now = self._clock.monotonic()
        passed, self._looked = now - self._looked, now
        if self._progressed:
            self._progressed, self._idle = False, 0.0
            return
        self._idle += min(passed, 2 * self._every)
        if self._idle >= self._seconds and not self._stuck:
            self._stuck = True
            self._tell()
            self._on_stuck()

    def _watch(self) -> None:
        with self._changed:
            while not self._ended:
                self._clock.wait(self._changed, self._every)
                if not self._ended:
                    self.look()

    def _tell(self) -> None:
        # The thread that hangs may hold the log's lock; what follows must happen all the same.
        telling = threading.Thread(target=self._log, args=(stacks(),), name="stuck-report", daemon=True)
        telling.start()
        telling.join(_LOG_SECONDS)

    def _log(self, text: str) -> None:
        log.critical(
            "no progress for %.0f seconds; ending. What is committed is safe, the rest is read again by the next start. Where "
            "every thread is:\n%s",
            self._idle,
            text,
        )


def stacks() -> str:
    """The stack of every thread of this process, by name, the deepest call last."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = [
        f"thread {names.get(ident, 'unknown')} ({ident}):\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    ]
    return "\n".join(parts)
