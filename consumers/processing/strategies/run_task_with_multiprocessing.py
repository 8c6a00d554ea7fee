"""`RunTaskWithMultiprocessing`: a function that computes, on several cores. Columns cross in shared memory, as Arrow."""

from consumers.processing.context import Surroundings
from consumers.processing.parallel.blocks import Columns
from consumers.processing.parallel.lanes import Lanes
from consumers.processing.parallel.pool import WorkerPool
from consumers.processing.parallel.process import ProcessLane
from consumers.processing.strategies.protocol import Strategy
from consumers.processing.strategies.step import DEFAULT
from consumers.processing.strategies.task import Function, name_of


class RunTaskWithMultiprocessing(Lanes[Columns, Columns]):
    """`RunTask` in `processes` worker processes, from record batches or tables to such, which leave in the order they came in.

    At most `max_in_flight` messages are under way (default: two a process); then it is full. The memory that a process shares
    holds one piece each way and grows to the largest.

    The function must be picklable, that is stand in a module; a worker imports that module and little else. It may be called
    again on the same rows: when its process dies it is replaced, and the work done again, up to `max_crashes` times for the same
    rows; then the run ends. What it is given is a view of shared memory, as safe to keep as any Arrow data.

    So that one large batch uses every core, it is cut into even pieces of at least `piece_rows` rows, at most one a process, and
    the results are joined. A function to which it matters which rows come together needs `piece_rows=None`: it is given whole
    payloads.

    `close` ends the processes, also in the middle of a call, and kills those that are not gone after `close_seconds`; with a
    `pool` those that are idle stay for the next strategy. Should this process be killed, the kernel kills them.
    """

    def __init__(
        self,
        function: Function[Columns, Columns],
        next_step: Strategy[Columns],
        *,
        processes: int,
        max_in_flight: int | None = None,
        piece_rows: int | None = 100,
        max_crashes: int = 2,
        pool: WorkerPool | None = None,
        close_seconds: float = 5.0,
        around: Surroundings = DEFAULT,
    ) -> None:
        super().__init__(
            name_of(function),
            [pool.lane(function, max_crashes) if pool else ProcessLane(function, max_crashes) for _ in range(processes)],
            next_step,
            max_in_flight=2 * processes if max_in_flight is None else max_in_flight,
            piece_rows=piece_rows,
            close_seconds=close_seconds,
            around=around,
        )
