"""Functions on threads and in processes, beside one of each: `python -m benchmarks.parallel --help`.

Contestants take turns, so that what else the machine does falls on all of them. What counts is the ratio. Crossing to a process
and back is measured as a call of the identity there, less the same call here.
"""

import os
import statistics
from collections.abc import Callable, Mapping
from contextlib import closing
from itertools import accumulate
from typing import Annotated, Any

import pyarrow as pa
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.functions import compute, same, wait
from consumers.clock import SystemClock
from consumers.processing.parallel.process import ProcessLane
from consumers.processing.strategies.commit_positions import CommitPositions
from consumers.processing.strategies.each import each_mapped
from consumers.processing.strategies.protocol import Message, MessageRejected, Strategy
from consumers.processing.strategies.run_task_in_threads import RunTaskInThreads
from consumers.processing.strategies.run_task_with_multiprocessing import RunTaskWithMultiprocessing
from consumers.processing.strategies.task import attempt
from consumers.types import RECORD_COLUMNS, OffsetRange, TopicPartition

_out = Console(highlight=False)
_CLOCK = SystemClock()
_TP = TopicPartition("bench", 0)
_BYTES = 200

Contestants = Mapping[str, Callable[[Any, Strategy[Any]], Strategy[Any]]]

_THREADS: Contestants = {
    "1 thread": lambda function, after: RunTaskInThreads(function, after, concurrency=1, piece_rows=1),
    "2 threads": lambda function, after: RunTaskInThreads(function, after, concurrency=2, piece_rows=1),
}
_PROCESSES: Contestants = {
    "1 process": lambda function, after: RunTaskWithMultiprocessing(function, after, processes=1),
    "2 processes": lambda function, after: RunTaskWithMultiprocessing(function, after, processes=2),
}


def records(count: int) -> pa.RecordBatch:
    """Records of 200 random bytes."""
    return pa.record_batch(
        [
            pa.repeat(pa.scalar(0, pa.int32()), count),
            pa.array(range(count), pa.int64()),
            pa.repeat(pa.scalar(0, pa.timestamp("ms", "UTC")), count),
            pa.array([None] * count, pa.binary()),
            pa.array([os.urandom(_BYTES) for _ in range(count)], pa.binary()),
            pa.array([[]] * count, RECORD_COLUMNS.field("headers").type),
        ],
        schema=RECORD_COLUMNS,
    )


def seconds(strategy: Strategy[Any], batches: list[pa.RecordBatch]) -> float:
    """How long a strategy takes for batches, submitted as it takes them."""
    ends = list(accumulate(batch.num_rows for batch in batches))
    began = _CLOCK.monotonic()
    for batch, end in zip(batches, ends, strict=True):
        message = Message(batch, {_TP: OffsetRange(end - batch.num_rows, end)})
        while not _taken(strategy, message):
            _CLOCK.sleep(0.001)
            strategy.poll()
    while not strategy.flush(60):
        pass
    return _CLOCK.monotonic() - began


def _taken(strategy: Strategy[Any], message: Message[Any]) -> bool:
    try:
        strategy.submit(message)
    except MessageRejected:
        return False
    return True


def race(title: str, function: Any, contestants: Contestants, batches: list[pa.RecordBatch], runs: int) -> None:
    """Rates of all, and how many times that of the first each is, run by run."""
    took: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(runs):
        for name, make in contestants.items():
            with closing(make(function, CommitPositions(lambda ranges: None))) as strategy:
                seconds(strategy, [batches[0]] * 2)  # processes come up, and import what they need
                took[name].append(seconds(strategy, batches))
    count = sum(batch.num_rows for batch in batches)
    first = took[next(iter(contestants))]
    table = Table(title=f"{title}: {count:,} records in {len(batches)} batches, {runs} runs", title_justify="left")
    for column in ("", "µs a record", "ratio", "min", "max"):
        table.add_column(column, justify="right")
    for name, each in took.items():
        ratios = [one / other for one, other in zip(first, each, strict=True)]
        figures = (statistics.median(ratios), min(ratios), max(ratios))
        table.add_row(name, f"{statistics.median(each) / count * 1e6:,.1f}", *(f"{figure:.2f}" for figure in figures))
    _out.print(table)


def crossing(count: int, runs: int) -> None:
    """What it costs to hand a batch to a process and have it back, a record."""
    batch, ranges = records(count), {_TP: OffsetRange(0, count)}
    lane = ProcessLane(same, max_crashes=0)
    there, here = [], []
    for _ in range(runs * 20 + 5):
        began = _CLOCK.monotonic()
        lane.run(batch, ranges)
        between = _CLOCK.monotonic()
        attempt(same, batch, ranges)
        here.append(_CLOCK.monotonic() - between)
        there.append(between - began)
    lane.stop()
    lane.close(5)
    costs = sorted((t - h) / count * 1e6 for t, h in zip(there[5:], here[5:], strict=True))
    tenth = len(costs) // 10
    _out.print(
        f"there and back with {count:,} records of {_BYTES} bytes, {len(costs)} times: median {statistics.median(costs):.3f} "
        f"µs a record, eight in ten {costs[tenth]:.3f} to {costs[-tenth - 1]:.3f}",
        soft_wrap=True,
    )


def main(
    runs: Annotated[int, typer.Option(min=1)] = 7,
    waiting: Annotated[int, typer.Option(help="Records for the function that waits 1 ms.", min=100)] = 800,
    computing: Annotated[int, typer.Option(help="Records for the function that computes.", min=100)] = 80_000,
) -> None:
    """Measure, and print tables."""
    _out.print(f"load before: {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores")
    crossing(10_000, runs)
    crossing(1_000, runs)
    small, large = [records(waiting // 4)] * 4, [records(computing // 16)] * 16
    processes = {name: make for name, make in _PROCESSES.items() if name == "2 processes"}
    race("waiting 1 ms a record", each_mapped(wait), {**_THREADS, **processes}, small, runs)
    race("computing in Python", each_mapped(compute), {**_PROCESSES, **_THREADS}, large, runs)
    _out.print(f"load after: {os.getloadavg()[0]:.2f}")


if __name__ == "__main__":
    typer.run(main)
