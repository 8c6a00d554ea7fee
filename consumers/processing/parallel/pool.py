"""Worker processes that outlive the strategy that uses them."""

import threading
from collections.abc import Callable

from consumers.processing.parallel.blocks import Columns
from consumers.processing.parallel.process import ProcessLane
from consumers.processing.strategies.task import Made
from consumers.types import Ranges


class WorkerPool:
    """Keeps the worker processes of closed strategies for the next one of the same function.

    The engine builds a strategy anew when all its partitions were gone, under eager rebalancing each time. A process, and what
    the function's module loads, need not start anew with it: make a pool beside the processor, give it as `pool` to
    `RunTaskWithMultiprocessing`, and close it after the run. A process busy with work that was given up is ended, not kept.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[ProcessLane] = []
        self._closed = False

    def lane(self, function: Callable[[Columns], object], max_crashes: int) -> "PooledLane":
        """A process for the function: one that is idle, or a new one."""
        with self._lock:
            made = ProcessLane(function, max_crashes)
            for lane in self._idle:
                if lane.same_as(made):
                    self._idle.remove(lane)
                    return PooledLane(lane, self)
        return PooledLane(made, self)

    def keep(self, lane: ProcessLane) -> None:
        """Have it back, idle."""
        with self._lock:
            if not self._closed:
                self._idle.append(lane)
                return
        lane.stop()
        lane.close(0)

    def close(self, seconds: float = 5.0) -> None:
        """End the idle processes, killing those that are not gone after `seconds`, and from now on those that come back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for lane in idle:
            lane.stop()
        for lane in idle:
            lane.close(seconds)


class PooledLane:
    """A process lane that goes back to its pool when it is closed while it has nothing to do."""

    def __init__(self, lane: ProcessLane, pool: WorkerPool) -> None:
        self._lane = lane
        self._pool = pool
        self._busy = False
        self._stopped = False

    def start(self) -> None:
        """Start the process, unless it still runs."""
        self._lane.start()

    def run(self, payload: Columns, ranges: Ranges) -> Made[Columns]:
        self._busy = True
        made = self._lane.run(payload, ranges)
        # Not after an error, whatever it was: such a process is better not used again.
        self._busy = False
        return made

    def stop(self) -> None:
        """End the process in the middle of its work; leave it alone when it has none."""
        if self._busy:
            self._stopped = True
            self._lane.stop()

    def close(self, seconds: float) -> None:
        """After `stop`, and when nothing calls `run` any more."""
        self.stop()
        if self._stopped:
            self._lane.close(seconds)
        else:
            self._pool.keep(self._lane)
