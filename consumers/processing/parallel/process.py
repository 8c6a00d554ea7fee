"""A worker process, seen from the process that uses it: start it, ask it, replace it when it dies, end it.

Started anew rather than forked: neither librdkafka nor delta-rs survives a fork. Not with `multiprocessing` either, which would
import the main module (Dagster's, say) into every worker.
"""

import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from consumers.errors import ConfigError, TaskFailed, within
from consumers.processing.parallel.blocks import Columns, Incoming, Outgoing
from consumers.processing.parallel.worker import Answer
from consumers.processing.strategies.task import Made, name_of, places
from consumers.types import Ranges

log = logging.getLogger(__name__)

_DYING_SECONDS = 1.0  # between the end of its connection and that of the process

_BOOT = (
    "import sys; connection, lifeline, *sys.path = sys.argv[1:]; del sys.argv[1:]; "
    "from consumers.processing.parallel.worker import main; main(int(connection), int(lifeline))"
)


class ProcessLane:
    """Runs a function in a process of its own, one payload at a time. Used by one thread; `stop` and `close` by another."""

    def __init__(self, function: Callable[[Columns], object], max_crashes: int) -> None:
        self._name = name_of(function)
        self._pickled = _pickled(function)
        self._max_crashes = max_crashes
        self._lock = threading.Lock()
        self._stopped = False
        self._process: _Process | None = None

    def same_as(self, other: "ProcessLane") -> bool:
        """Whether it does the same work in the same way."""
        return (self._pickled, self._max_crashes) == (other._pickled, other._max_crashes)

    def start(self) -> "_Process":
        """Start a process unless there is one. No wait: it comes up while others do. Raises `Stopped` after `stop`."""
        with self._lock:
            if self._stopped:
                raise Stopped
            if self._process is None:
                self._process = _Process(self._pickled)
            return self._process

    def run(self, payload: Columns, ranges: Ranges) -> Made[Columns]:
        """What the function makes of it. A process that dies meanwhile is replaced, and the function called again.

        Raises `TaskFailed` when the function does, with the worker's traceback, or when its process dies once more than
        `max_crashes` times.
        """
        if not isinstance(payload, Columns):
            raise TaskFailed(
                f"{self._name} was given {type(payload).__name__} on {places(ranges)}; only Arrow crosses to a process."
            )
        crashes = 0
        while True:
            process = self.start()
            try:
                return process.ask(payload, ranges)
            except (EOFError, ConnectionError) as gone:
                how = self._bury(process)
                crashes += 1
                if crashes > self._max_crashes:
                    raise TaskFailed(_died(self._name, crashes, how, ranges)) from gone
                log.warning("%s: a worker process died (%s) on %s; another one does it again", self._name, how, places(ranges))

    def stop(self) -> None:
        """End the process, and so what `run` waits for. No wait."""
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.stop()

    def close(self, seconds: float) -> None:
        """After `stop`: have the process gone, killed if it is not after `seconds`."""
        if self._process is not None:
            self._process.end(seconds)

    def _bury(self, process: "_Process") -> str:
        """Let go of a dead process. How it ended. Raises `Stopped` when we ended it ourselves."""
        with self._lock:
            if self._stopped:
                raise Stopped
            self._process = None
        return process.end(_DYING_SECONDS)


class Stopped(Exception):
    """The work was given up. Nobody waits for its result."""


class _Process:
    """One process and both directions to it."""

    def __init__(self, pickled: bytes) -> None:
        self._link, theirs = socket.socketpair()
        watched, lifeline = os.pipe()
        self._lifeline = os.fdopen(lifeline, "wb", buffering=0)
        # A process group of its own: Ctrl-C is for us, and we end the workers when their work is done.
        self._child = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-c", _BOOT, str(theirs.fileno()), str(watched), *sys.path],
            pass_fds=(theirs.fileno(), watched),
            stdin=subprocess.DEVNULL,
            process_group=0,
        )
        theirs.close()
        os.close(watched)
        self._outgoing, self._incoming = Outgoing(self._link), Incoming(self._link)
        self._pickled: bytes | None = pickled

    def ask(self, columns: Columns, ranges: Ranges) -> Made[Columns]:
        """Have the function called. Raises EOFError or ConnectionError when the process is gone."""
        if self._pickled is not None:
            self._outgoing.send(self._pickled)
            self._outgoing.forget()  # it may not have been read yet
            self._pickled = None
        self._outgoing.write(columns)
        self._outgoing.send(pickle.dumps(ranges))
        # Copied: a few nanoseconds a record, and no strategy after this one can hold up, or see change, what lies in the block.
        parcel = self._incoming.receive(copy=True)
        answer: Answer = pickle.loads(parcel.note)
        if answer.failure is not None:
            raise TaskFailed(f"{answer.failure}\n{answer.trace}".rstrip())
        if answer.keep_block:
            self._outgoing.forget()
        return Made(parcel.columns, answer.rejected)

    def stop(self) -> None:
        """Ask it to end, and whoever waits for it to wait no longer."""
        with suppress(OSError):  # it is gone already
            self._link.shutdown(socket.SHUT_RDWR)
        self._child.terminate()

    def end(self, seconds: float) -> str:
        """Have it gone, killed if it is not after `seconds`. How it ended."""
        try:
            self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._outgoing.forget()
        self._link.close()
        self._lifeline.close()
        code = self._child.returncode
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _pickled(function: Callable[[Columns], object]) -> bytes:
    try:
        return pickle.dumps(function)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(
            f"The function {name_of(function)} cannot be handed to worker processes: {within(error)}. "
            "Define it at the top level of a "
            "module, and bind arguments by functools.partial rather than in a lambda or an inner function. Nothing ran."
        ) from error


def _died(name: str, times: int, how: str, ranges: Ranges) -> str:
    return (
        f"The worker process of {name} died ({how}), the last of {times} on {places(ranges)}. Nothing from these offsets on was "
        "committed; everything before is safe. SIGKILL is most often the machine out of memory: use smaller batches or fewer "
        "processes. After SIGSEGV or SIGABRT standard error has the stack. Mend the function and start again."
    )
