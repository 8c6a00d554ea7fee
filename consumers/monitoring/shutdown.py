"""Signals of a process of our own: the first one stops gracefully, the second one at once."""

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)
GRACE_SECONDS = 5.0
_WAKE = b"\0"


class Shutdown:
    """`stop` is set by the first SIGINT or SIGTERM, `abort` by the second, while this is entered as a context (main thread only).

    After the second signal the process has `grace` seconds to end by itself; then, or at a third signal, it is ended, with
    128 + the signal's number. That takes a thread of its own, so a step that hangs holds nothing up. `say` shows a line to
    whoever sent the signal.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        grace: float = GRACE_SECONDS,
        end: Callable[[int], None] = os._exit,
    ) -> None:
        self.stop = threading.Event()
        self.abort = threading.Event()
        self._say = say
        self._grace = grace
        self._end = end
        self._count = 0
        self._over = threading.Event()
        self._before: list[tuple[int, Any]] = []

    def __enter__(self) -> Self:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._thread = threading.Thread(target=self._watch, name="signals", daemon=True)
        self._thread.start()
        # The pipe is written to the moment a signal arrives; a handler in Python waits until the main thread lets it run.
        self._wakeup = signal.set_wakeup_fd(self._write)
        self._before = [(number, signal.signal(number, _ignore)) for number in SIGNALS]
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        self._over.set()
        os.write(self._write, _WAKE)
        self._thread.join()
        os.close(self._write)
        os.close(self._read)

    def received(self, number: int) -> None:
        """What a signal does."""
        self._count += 1
        if self._count == 1:
            self.stop.set()
            self._say(
                "Stopping: what is in hand is committed first. Once more ends at once; what is committed is safe either way."
            )
        elif self._count == 2:
            self.abort.set()
            self._say("Ending at once: what is not committed is read again by the next start.")
            threading.Thread(target=self._end_after_grace, args=(number,), name="hard-stop", daemon=True).start()
        else:
            self._end(128 + number)

    def _end_after_grace(self, number: int) -> None:
        if not self._over.wait(self._grace):
            self._end(128 + number)

    def _watch(self) -> None:
        while not self._over.is_set():
            for number in os.read(self._read, 64):
                if number in SIGNALS:
                    self.received(number)


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """The thread that reads the pipe does what there is to do."""
