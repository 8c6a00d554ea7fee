"""The strategies of `consumers/processing/strategies` that need no broker, table or process, for the conformance suite."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from consumers.errors import InvalidValue
from consumers.processing.strategies.batch import Batch
from consumers.processing.strategies.buffer import Buffer, UpTo
from consumers.processing.strategies.commit_positions import IMMEDIATELY, CommitPolicy, CommitPositions
from consumers.processing.strategies.each import Record, each, each_kept, each_mapped
from consumers.processing.strategies.filter import Filter
from consumers.processing.strategies.healthcheck import Healthcheck
from consumers.processing.strategies.map import Map
from consumers.processing.strategies.protocol import Commit, Strategy
from consumers.processing.strategies.reduce import Reduce
from consumers.processing.strategies.run_task import RunTask
from consumers.processing.strategies.unfold import Unfold
from tests.contracts.strategies import Ended, Last, Middle, Opened, Room, Row, batch, judge, kept

_SIZE = UpTo(records=5, seconds=3.0)


def judge_record(record: Record) -> Record:
    """A user's function per record."""
    if record.value == b"boom":
        raise RuntimeError("boom")
    if record.value == b"bad":
        raise InvalidValue("bad")
    return record


def keep_record(record: Record) -> bool:
    """A user's predicate per record."""
    return judge_record(record).value != b"drop"


def rows_of_records(records: Sequence[Record]) -> list[Row]:
    """The rows of a list of records."""
    return [(record.partition, record.offset) for record in records]


def _halves(payload: pa.RecordBatch) -> list[pa.RecordBatch]:
    judged, middle = judge(payload), payload.num_rows // 2
    return [judged.slice(0, middle), judged.slice(middle)] if payload.num_rows else []


def _listed(value: tuple[Record, ...], payload: pa.RecordBatch) -> tuple[Record, ...]:
    return (*value, *each(judge_record)(judge(payload)))


def _counted(rows: list[Any], payload: pa.RecordBatch) -> list[Any]:
    return [*rows, judge(payload)]


@contextmanager
def run_task(room: Room, after: Strategy[Any]) -> Opened:
    yield RunTask(judge, after, around=room.around)


@contextmanager
def run_task_each(room: Room, after: Strategy[Any]) -> Opened:
    yield RunTask(each(judge_record), after, around=room.around)


@contextmanager
def map_each(room: Room, after: Strategy[Any]) -> Opened:
    yield Map(each_mapped(judge_record), after, around=room.around)


@contextmanager
def filter_batch(room: Room, after: Strategy[Any]) -> Opened:
    yield Filter(kept, after, around=room.around)


@contextmanager
def filter_each(room: Room, after: Strategy[Any]) -> Opened:
    yield Filter(each_kept(keep_record), after, around=room.around)


@contextmanager
def unfold(room: Room, after: Strategy[Any]) -> Opened:
    yield Unfold(_halves, batch([]), after, around=room.around)


@contextmanager
def reduce(room: Room, after: Strategy[Any]) -> Opened:
    yield Reduce(_listed, tuple, _SIZE, after, around=room.around)


@contextmanager
def batches(room: Room, after: Strategy[Any]) -> Opened:
    yield Batch(_SIZE, after, around=room.around)


@contextmanager
def buffer(room: Room, after: Strategy[Any]) -> Opened:
    yield Buffer(_counted, list, pa.concat_batches, _SIZE, after, around=room.around)


@contextmanager
def healthcheck(room: Room, after: Strategy[Any]) -> Opened:
    yield Healthcheck(lambda: None, after)


@contextmanager
def chain(room: Room, after: Strategy[Any]) -> Opened:
    batched: Batch = Batch(UpTo(records=7, seconds=2.0), after, around=room.around)
    unfolded = Unfold(_halves, batch([]), batched, around=room.around)
    yield Filter(kept, Batch(_SIZE, unfolded, around=room.around), around=room.around)


MIDDLES = [
    Middle("RunTask", run_task, rejects=True, fails=True),
    Middle("RunTask-each", run_task_each, rows_of_records, rejects=True, fails=True),
    Middle("Map-each", map_each, rejects=True, fails=True),
    Middle("Filter", filter_batch, drops=True),
    Middle("Filter-each", filter_each, rejects=True, drops=True, fails=True),
    Middle("Unfold", unfold, rejects=True, fails=True),
    Middle("Reduce", reduce, rows_of_records, rejects=True, fails=True),
    Middle("Batch", batches),
    Middle("Buffer", buffer, rejects=True, fails=True),
    Middle("Healthcheck", healthcheck),
    Middle("Filter-Batch-Unfold-Batch", chain, rejects=True, drops=True, fails=True),
]


@contextmanager
def commit_immediately(room: Room, commit: Commit) -> Iterator[Ended]:
    yield Ended(CommitPositions(commit, IMMEDIATELY, room.around.clock))


@contextmanager
def commit_by_policy(room: Room, commit: Commit) -> Iterator[Ended]:
    yield Ended(CommitPositions(commit, CommitPolicy(seconds=5.0, offsets=8), room.around.clock))


LASTS = [
    Last("CommitPositions-immediately", commit_immediately),
    Last("CommitPositions-by-policy", commit_by_policy),
]
