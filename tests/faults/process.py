"""Starts children, waits for what they say, and signals them. Every child is collected, whatever happens to the test.

They are forked from a server that has imported everything and done nothing else, so a restart costs no second of imports.
"""

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.faults import child as childs
from tests.faults.child import Order

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["pyarrow.dataset", "tests.faults.child"])


class Child:
    """A running child."""

    def __init__(self, order: Order, log: Path) -> None:
        self.said: list[str] = []
        self._log = log
        self._ear, mouth = _FORKS.Pipe(duplex=False)
        self._process = _FORKS.Process(target=childs.main, args=(order, mouth, str(log)), daemon=True)
        self._process.start()
        mouth.close()

    def wait_for(self, word: str, seconds: float = 60.0) -> None:
        """Wait until the child says something that begins so. Fails when it ends before, or says nothing of the kind in time."""
        deadline = time.monotonic() + seconds
        while self._ear.poll(max(0.0, deadline - time.monotonic())):
            if not self._hear():
                raise AssertionError(f"ended before '{word}'; it said {self.said[-5:]}; see {self._log}")
            if self.said[-1].startswith(word):
                return
        raise AssertionError(f"no '{word}' within {seconds} s; it said {self.said[-5:]}; see {self._log}")

    def wait_until_stopped(self, seconds: float = 60.0) -> None:
        """Wait until it stands still at its point: it says so a moment before."""
        self.wait_for("fired", seconds)
        process, deadline = psutil.Process(self._process.pid), time.monotonic() + seconds
        while process.status() != psutil.STATUS_STOPPED:
            assert time.monotonic() < deadline, f"not stopped within {seconds} s"
            time.sleep(0.01)

    def end(self, seconds: float = 90.0) -> int:
        """Wait for the end. Returns the exit code: minus the signal's number when it was killed."""
        deadline = time.monotonic() + seconds
        while self._ear.poll(max(0.0, deadline - time.monotonic())):
            if not self._hear():
                self._process.join(max(1.0, deadline - time.monotonic()))
                assert self._process.exitcode is not None
                return self._process.exitcode
        raise AssertionError(f"still running after {seconds} s; it said {self.said[-5:]}; see {self._log}")

    @property
    def alive(self) -> bool:
        """Whether it still runs, or is stopped."""
        return self._process.is_alive()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def close(self) -> None:
        """Kill it if it runs; stopped ones too."""
        if self._process.is_alive():
            self._process.kill()
        self._process.join(20)
        self._ear.close()

    def _hear(self) -> bool:
        try:
            self.said.append(self._ear.recv())
        except EOFError:
            return False
        return True


@contextmanager
def child(order: Order, log: Path) -> Iterator[Child]:
    """A child that does not outlive the block."""
    started = Child(order, log)
    try:
        yield started
    finally:
        started.close()
