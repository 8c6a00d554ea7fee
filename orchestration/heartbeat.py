"""A run's sign of life, kept in Dagster's own storage, and the word to leave that the run may find there.

A member's run beats while it gets on. Whoever keeps members alive reads the beats: a run whose beat is old hangs, is stopped, or
is gone, whatever Dagster says of it. The run looks the other way, too: at its own status, so that it ends although nobody can
reach its process any more, and for a word to leave. Knows nothing of what a run does.
"""

import json
import os
import signal
import socket
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Self

import dagster as dg
import psutil
from dagster._core.errors import DagsterExecutionInterruptedError
from dagster._core.storage.runs.schema import KeyValueStoreTable
from dagster._core.storage.runs.sql_run_storage import SqlRunStorage

from consumers.clock import Clock

BEAT_SECONDS = 15.0
LOOK_SECONDS = 3.0
_BEATS = "weir/heartbeat/"
_LEAVE = "weir/leave/"
_SAME_START_SECONDS = 2.0
_WORKING = (dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED)


def dead_after(longest_wait: float) -> float:
    """Seconds without a beat after which a run is taken for dead, if its records wait for each other for at most `longest_wait`.

    75 at least: with a look every 15 seconds, a run that hangs is found within two minutes.
    """
    return max(75.0, 60.0 + longest_wait)


@dataclass(frozen=True, slots=True)
class Beat:
    """When a run last got on (seconds since the epoch), and its process: a pid alone may be somebody else's by now."""

    at: float
    host: str
    pid: int
    started: float


class Pulse:
    """What a run does to be seen alive, entered as a context for as long as that. Its beat is forgotten at the end.

    `progress` may be called by any thread, and costs nothing. `beat` belongs to the main thread, which calls it often: it asks
    the storage every three seconds.
    """

    def __init__(self, instance: dg.DagsterInstance, run_id: str, clock: Clock) -> None:
        self._instance = instance
        self._run_id = run_id
        self._clock = clock
        self.told = ""
        """Why the run is to leave, once it was told."""
        self._moved = True
        self._wrote = self._looked = float("-inf")

    def __enter__(self) -> Self:
        self.beat()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        forget(self._instance, [self._run_id])

    def progress(self) -> None:
        """The run got on."""
        self._moved = True

    def beat(self) -> str:
        """Write a beat if one is due and the run got on since; returns why the run is to leave, empty while it may stay.

        Raises what Dagster's own termination raises, once the run is cancelled or over.
        """
        now = self._clock.monotonic()
        if self._moved and now - self._wrote >= BEAT_SECONDS:
            self._moved, self._wrote = False, now
            write(self._instance, self._run_id, own_beat(self._clock.time()))
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            self._look()
        return self.told

    def _look(self) -> None:
        run = self._instance.get_run_by_id(self._run_id)
        if run is not None and run.status not in _WORKING:
            raise DagsterExecutionInterruptedError(f"this run is {run.status.value} already")
        self.told = told_to_leave(self._instance, [self._run_id]).get(self._run_id, "")


def beats(instance: dg.DagsterInstance, runs: Iterable[str]) -> dict[str, Beat]:
    """The last beat of each run that has one."""
    return {run: Beat(**json.loads(text)) for run, text in _read(instance, _BEATS, runs).items()}


def tell_to_leave(instance: dg.DagsterInstance, run: str, why: str) -> None:
    """The run ends in good order within seconds, as a success."""
    instance.daemon_cursor_storage.set_cursor_values({_LEAVE + run: why})


def told_to_leave(instance: dg.DagsterInstance, runs: Iterable[str]) -> dict[str, str]:
    """Which of the runs were told to leave, and why."""
    return _read(instance, _LEAVE, runs)


def forget(instance: dg.DagsterInstance, runs: Collection[str]) -> None:
    """Drop what is kept about runs. Does nothing where Dagster's storage is no SQL database: it has no way to drop."""
    storage = _sql(instance)
    if storage is None or not runs:
        return
    keys = [prefix + run for prefix in (_BEATS, _LEAVE) for run in runs]
    with storage.connect() as connection:
        connection.execute(KeyValueStoreTable.delete().where(KeyValueStoreTable.c.key.in_(keys)))


def kill(beat: Beat) -> bool:
    """Kill the process behind a beat, even a stopped one, if it is on this machine and still the same; whether it was."""
    if beat.host != socket.gethostname() or beat.pid == os.getpid():
        return False
    try:
        if abs(psutil.Process(beat.pid).create_time() - beat.started) > _SAME_START_SECONDS:
            return False
        os.kill(beat.pid, signal.SIGKILL)
    except (psutil.NoSuchProcess, ProcessLookupError):
        return False
    return True


def own_beat(now: float) -> Beat:
    """A beat of this process."""
    return Beat(now, socket.gethostname(), os.getpid(), psutil.Process().create_time())


def write(instance: dg.DagsterInstance, run: str, beat: Beat) -> None:
    """Set a run's last beat."""
    instance.daemon_cursor_storage.set_cursor_values({_BEATS + run: json.dumps(asdict(beat))})


def _read(instance: dg.DagsterInstance, prefix: str, runs: Iterable[str]) -> dict[str, str]:
    keys = {prefix + run for run in runs}
    found = instance.daemon_cursor_storage.get_cursor_values(keys) if keys else {}
    return {key.removeprefix(prefix): value for key, value in found.items() if value}


def _sql(instance: dg.DagsterInstance) -> SqlRunStorage | None:
    storage = instance.run_storage
    return storage if isinstance(storage, SqlRunStorage) else None
