"""Pieces of messages worked on side by side, and handed on in the order in which the messages came.

Knows nothing of what a lane does with a piece.
"""

import logging
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import pairwise
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar, cast

import pyarrow as pa

from consumers.errors import ConfigError, TaskFailed, within
from consumers.processing.context import Surroundings
from consumers.processing.parallel.blocks import Columns
from consumers.processing.strategies.protocol import Message, MessageRejected, Strategy
from consumers.processing.strategies.step import Step
from consumers.processing.strategies.task import Made, places
from consumers.types import Ranges

log = logging.getLogger(__name__)

T = TypeVar("T")
U = TypeVar("U")
T_contra = TypeVar("T_contra", contravariant=True)

_PAUSE_SECONDS = 0.002


class Lane(Protocol[T_contra, U]):
    """Does one piece at a time, on a thread that it is given."""

    def start(self) -> object:
        """Get ready, if that takes a while. No wait."""
        ...

    def run(self, payload: T_contra, ranges: Ranges) -> Made[U]:
        """What becomes of the payload. Raises `TaskFailed`."""
        ...

    def stop(self) -> None:
        """Make `run` end soon, if that can be done. No wait."""
        ...

    def close(self, seconds: float) -> None:
        """After `stop`, when `run` has ended or had its time: let go of everything within so many seconds."""
        ...


@dataclass(frozen=True, slots=True)
class _Piece(Generic[T, U]):
    payload: T
    ranges: Ranges
    made: Future[Made[U]]


@dataclass(frozen=True, slots=True)
class _Flight(Generic[T, U]):
    message: Message[T]
    pieces: list[_Piece[T, U]]

    @property
    def landed(self) -> bool:
        return all(piece.made.done() for piece in self.pieces)


class Lanes(Step[T, U]):
    """A step whose work is done by lanes, one thread each.

    At most `max_in_flight` messages are taken that the next step has not. A batch is cut into even pieces, at most one a lane and
    none of fewer rows than `piece_rows` (None: never cut), and what became of them is joined again.
    """

    def __init__(
        self,
        name: str,
        lanes: Sequence[Lane[T, U]],
        next_step: Strategy[U],
        *,
        max_in_flight: int,
        piece_rows: int | None,
        close_seconds: float,
        around: Surroundings,
    ) -> None:
        if not lanes or max_in_flight < 1 or (piece_rows is not None and piece_rows < 1):
            raise ConfigError(f"{name}: threads or processes, max_in_flight and piece_rows are 1 or more. Nothing ran.")
        super().__init__(next_step, around)
        self._name = name
        self._lanes = lanes
        self._max_in_flight = max_in_flight
        self._piece_rows = piece_rows
        self._close_seconds = close_seconds
        self._flights: deque[_Flight[T, U]] = deque()
        self._pieces: SimpleQueue[_Piece[T, U] | None] = SimpleQueue()
        # Daemons: a function that never returns must not keep the interpreter from ending.
        self._threads = [threading.Thread(target=self._work, args=(lane,), name=name, daemon=True) for lane in lanes]
        for lane in lanes:
            lane.start()
        for thread in self._threads:
            thread.start()

    def submit(self, message: Message[T]) -> None:
        self._drain()
        if len(self._flights) + len(self._waiting) >= self._max_in_flight:
            raise MessageRejected
        self._take(message)

    def flush(self, timeout: float) -> bool:
        clock = self._around.clock
        deadline = clock.monotonic() + timeout
        # Only then the next step: each flush of it may be a commit.
        while not self._drain():
            if (left := deadline - clock.monotonic()) <= 0:
                self._flushing = True
                return False
            clock.sleep(min(_PAUSE_SECONDS, left))
            self._next_step.poll()
        return super().flush(max(0.0, deadline - clock.monotonic()))

    def close(self) -> None:
        if self._closed:
            return
        try:
            super().close()
        finally:
            self._end()

    def _take(self, message: Message[T]) -> None:
        payloads = cut(message.payload, len(self._lanes), self._piece_rows)
        flight = _Flight(message, [_Piece(payload, message.ranges, Future[Made[U]]()) for payload in payloads])
        self._flights.append(flight)
        for piece in flight.pieces:
            self._pieces.put(piece)

    def _drain(self) -> bool:
        """Hand on what is done, in order; whether nothing is left. Raises a failure once everything before it has gone on."""
        while super()._drain():
            if not self._flights or not self._flights[0].landed:
                return not self._flights
            self._waiting.append(self._joined(self._flights[0]))
            self._flights.popleft()
        return False

    def _joined(self, flight: _Flight[T, U]) -> Message[U]:
        made = [piece.made.result() for piece in flight.pieces]
        try:
            value = join([part.value for part in made])
        except (TypeError, pa.ArrowInvalid) as error:
            raise TaskFailed(
                f"{self._name}: what became of the pieces of a batch on {places(flight.message.ranges)} "
                f"does not join: {within(error)}. "
                "Let the function return the same columns and types for any rows, or give it whole batches by piece_rows=None. "
                "Nothing from these offsets on was committed; everything before is safe."
            ) from error
        return flight.message.with_payload(value, tuple(rejection for part in made for rejection in part.rejected))

    def _forget(self) -> None:
        for flight in self._flights:
            for piece in flight.pieces:
                piece.made.cancel()
        self._flights.clear()

    def _work(self, lane: Lane[T, U]) -> None:
        clock, metrics, tags = self._around.clock, self._around.metrics, {"function": self._name}
        while (piece := self._pieces.get()) is not None:
            if piece.made.set_running_or_notify_cancel():
                began = clock.monotonic()
                try:
                    made = lane.run(piece.payload, piece.ranges)
                    metrics.observe("task_seconds", clock.monotonic() - began, tags)
                except BaseException as error:  # noqa: BLE001 - raised again on the polling thread
                    piece.made.set_exception(error)
                else:
                    piece.made.set_result(made)
                    del made
            del piece  # it would live on until the next one comes

    def _end(self) -> None:
        clock = self._around.clock
        deadline = clock.monotonic() + self._close_seconds
        for lane in self._lanes:
            self._pieces.put(None)
            lane.stop()
        for lane, thread in zip(self._lanes, self._threads, strict=True):
            thread.join(max(0.0, deadline - clock.monotonic()))
            if thread.is_alive():
                log.warning(
                    "%s still runs %s seconds after it was discarded; its result is dropped", self._name, self._close_seconds
                )
            lane.close(max(0.0, deadline - clock.monotonic()))


def cut(payload: T, lanes: int, piece_rows: int | None) -> list[T]:
    """The payload in even pieces: at most so many, of at least `piece_rows` rows. What has no columns is left whole."""
    if piece_rows is None or not isinstance(payload, Columns):
        return [payload]
    count = max(1, min(lanes, payload.num_rows // piece_rows))
    at = [payload.num_rows * i // count for i in range(count + 1)]
    return [payload.slice(start, end - start) for start, end in pairwise(at)]


def join(values: list[U]) -> U:
    """Pieces as one. Raises TypeError when they are neither columns nor lists, `pa.ArrowInvalid` when their columns differ."""
    if len(values) == 1:
        return values[0]
    parts: list[Any] = list(values)
    if all(isinstance(part, pa.RecordBatch) for part in parts):
        return cast(U, pa.concat_batches(parts))
    if all(isinstance(part, pa.Table) for part in parts):
        return cast(U, pa.concat_tables(parts))
    if all(isinstance(part, list) for part in parts):
        return cast(U, [value for part in parts for value in part])
    raise TypeError(
        f"neither all record batches, nor tables, nor lists, but {', '.join(sorted({type(p).__name__ for p in parts}))}"
    )
