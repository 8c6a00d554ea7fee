"""The strategies that work on threads and in processes, for the conformance suite."""

import atexit
from contextlib import contextmanager
from typing import Any

from consumers.processing.parallel.pool import WorkerPool
from consumers.processing.strategies.each import each, each_mapped
from consumers.processing.strategies.protocol import Strategy
from consumers.processing.strategies.run_task_in_threads import RunTaskInThreads
from consumers.processing.strategies.run_task_with_multiprocessing import RunTaskWithMultiprocessing
from tests.contracts.strategies import Middle, Opened, Room, judge
from tests.contracts.strategies_core import judge_record, rows_of_records

_POOL = WorkerPool()
atexit.register(_POOL.close)


@contextmanager
def threads(room: Room, after: Strategy[Any]) -> Opened:
    yield RunTaskInThreads(judge, after, concurrency=3, around=room.around)


@contextmanager
def threads_each(room: Room, after: Strategy[Any]) -> Opened:
    yield RunTaskInThreads(each(judge_record), after, concurrency=3, piece_rows=1, around=room.around)


@contextmanager
def processes(room: Room, after: Strategy[Any]) -> Opened:
    yield RunTaskWithMultiprocessing(judge, after, processes=1, max_in_flight=8, pool=_POOL, around=room.around)


@contextmanager
def processes_each(room: Room, after: Strategy[Any]) -> Opened:
    mapped = each_mapped(judge_record)
    yield RunTaskWithMultiprocessing(mapped, after, processes=2, piece_rows=1, pool=_POOL, around=room.around)


MIDDLES = [
    Middle("Threads", threads, rejects=True, fails=True, real_time=True, examples=20),
    Middle("Threads-each", threads_each, rows_of_records, rejects=True, fails=True, real_time=True, examples=20),
    Middle("Processes", processes, rejects=True, fails=True, real_time=True, examples=8),
    Middle("Processes-each", processes_each, rejects=True, fails=True, real_time=True, examples=8),
]
