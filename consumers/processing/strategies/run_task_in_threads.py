"""`RunTaskInThreads`: a function that waits (for a service, a disk) called on several payloads at the same time."""

from typing import Generic, TypeVar

from consumers.processing.context import Surroundings
from consumers.processing.parallel.lanes import Lanes
from consumers.processing.strategies.protocol import Strategy
from consumers.processing.strategies.step import DEFAULT
from consumers.processing.strategies.task import Function, Made, attempt, name_of
from consumers.types import Ranges

T = TypeVar("T")
U = TypeVar("U")


class RunTaskInThreads(Lanes[T, U]):
    """`RunTask` on `concurrency` threads. Messages leave in the order in which they came.

    At most `max_in_flight` messages are under way (default: two a thread); then it is full. A function that fails ends the run
    when everything before its message has gone on. What it does must be safe on several threads.

    A batch is one thread's, however large, unless `piece_rows` is given: then it is cut into even pieces of at least so many
    rows, at most one a thread. That is for functions per record (`each`) and others to which it is all the same which rows come
    together; they return a record batch, a table or a list.

    A thread cannot be stopped: after `close_seconds` a function that still runs is left alone and its result dropped.
    """

    def __init__(
        self,
        function: Function[T, U],
        next_step: Strategy[U],
        *,
        concurrency: int,
        max_in_flight: int | None = None,
        piece_rows: int | None = None,
        close_seconds: float = 5.0,
        around: Surroundings = DEFAULT,
    ) -> None:
        super().__init__(
            name_of(function),
            [_ThreadLane(function) for _ in range(concurrency)],
            next_step,
            max_in_flight=2 * concurrency if max_in_flight is None else max_in_flight,
            piece_rows=piece_rows,
            close_seconds=close_seconds,
            around=around,
        )


class _ThreadLane(Generic[T, U]):
    def __init__(self, function: Function[T, U]) -> None:
        self._function = function

    def start(self) -> None:
        """There is nothing to get ready."""

    def run(self, payload: T, ranges: Ranges) -> Made[U]:
        return attempt(self._function, payload, ranges)

    def stop(self) -> None:
        """A thread cannot be stopped."""

    def close(self, seconds: float) -> None:
        """It holds nothing."""
