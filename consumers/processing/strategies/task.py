"""The one place where a user's function is called on a message: what it raises becomes a rejection, or the end of the run.

Knows no broker, no thread and no process; `attempt` takes and returns only what can cross to another process.
"""

import functools
import sysconfig
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar, cast

import numpy as np
import pyarrow as pa

from consumers.errors import InvalidRecord, InvalidRecords, TaskFailed, within
from consumers.processing.context import Surroundings
from consumers.processing.strategies.protocol import Message, Rejection
from consumers.types import Ranges, TopicPartition

T = TypeVar("T")
U = TypeVar("U")

MOST_CALLS = 1_000
"""How often a function is called on one payload, with one or more invalid records fewer each time."""

_LIBRARIES = ("<frozen ", *{sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
_COMPILED = (".pxi", ".pyx")


class Partial(InvalidRecords):
    """Raised by a function that has made its value without some records: `value`, which those are, and why."""

    def __init__(self, value: object, records: Iterable[InvalidRecord]) -> None:
        super().__init__(records)
        self.value = value


Function = Callable[[T], U]
"""A user's function of a payload.

It should depend on its argument alone: when it raises `InvalidRecord` (or `InvalidRecords`, which names several at once), it is
called again with the same payload less those records, and after a restart with records that it has seen before. A payload from
which records are taken this way is a `pa.RecordBatch` or a `pa.Table` with the columns `partition` and `offset`. A function of
any other payload raises `Partial`, with the value that it made of the other records, and is not called again; without that the
run ends. It is also called with payloads that have no rows: every offset passes through it, those of filtered and of missing
records as well.
"""


@dataclass(frozen=True, slots=True)
class Made(Generic[U]):
    """What a function made of a payload, and the records that it refused."""

    value: U
    rejected: tuple[Rejection, ...] = ()


def call(function: Function[T, U], message: Message[T], around: Surroundings) -> Message[U]:
    """The message with what the function makes of its payload. Raises `TaskFailed`."""
    began = around.clock.monotonic()
    made = attempt(function, message.payload, message.ranges)
    around.metrics.observe("task_seconds", around.clock.monotonic() - began, {"function": name_of(function)})
    return message.with_payload(made.value, made.rejected)


def attempt(function: Function[T, U], payload: T, ranges: Ranges) -> Made[U]:
    """Call a function on a payload that accounts for `ranges`, at most `MOST_CALLS` times. Raises `TaskFailed`.

    Arguments, result and error can be pickled where the payload and the value can.
    """
    try:
        value, invalid = _repeated(function, payload)
        return Made(value, _rejections(invalid, ranges))
    except Exception as error:
        raise TaskFailed(_explained(function, ranges, error)) from error


def _repeated(function: Function[T, U], payload: T) -> tuple[U, list[InvalidRecord]]:
    """Call a function until it calls no more records invalid; returns its value, and the records that are."""
    invalid: list[InvalidRecord] = []
    for _ in range(MOST_CALLS):
        try:
            return function(payload), invalid
        except InvalidRecord as error:
            more: tuple[InvalidRecord, ...] = (error,)
        except Partial as error:
            return cast(U, error.value), [*invalid, *error.records]
        except InvalidRecords as error:
            more = error.records
        payload = _without(payload, more)
        invalid += more
    raise Misused(
        f"it named invalid records {MOST_CALLS:,} times for one batch. Raise InvalidRecords, or Partial, to name all of a "
        "batch at once, or use a function per record"
    )


class Misused(Exception):
    """A function told something that cannot be."""


def _rejections(invalid: Iterable[InvalidRecord], ranges: Ranges) -> tuple[Rejection, ...]:
    """One for each record, in the order in which they were named first."""
    found: dict[tuple[TopicPartition, int], Rejection] = {}
    for record in invalid:
        partition = _partition_of(record, ranges)
        found.setdefault((partition, record.offset), Rejection(partition, record.offset, record.reason))
    return tuple(found.values())


def _partition_of(record: InvalidRecord, ranges: Ranges) -> TopicPartition:
    """The partition with that number, whose range has the offset or passes none (see `Unfold`)."""
    found = [
        tp
        for tp, step in ranges.items()
        if tp.partition == record.partition and (not step or step.start <= record.offset < step.end)
    ]
    if len(found) != 1:
        raise Misused(f"it called a record invalid that is not of this batch: {record}") from record
    return found[0]


def _without(payload: T, invalid: tuple[InvalidRecord, ...]) -> T:
    """The payload less these records; at least one row fewer."""
    if not isinstance(payload, pa.RecordBatch | pa.Table) or not {"partition", "offset"} <= set(payload.schema.names):
        raise Misused(
            f"it called a record invalid ({invalid[0]}), and its payload, a {type(payload).__name__}, is no record batch or "
            "table with the columns partition and offset, from which it could be taken. Let it raise Partial(value, invalid) "
            "instead"
        ) from invalid[0]
    partitions, offsets = (np.asarray(payload[name]) for name in ("partition", "offset"))
    gone = np.zeros(payload.num_rows, np.bool_)
    for record in invalid:
        here = (partitions == record.partition) & (offsets == record.offset)
        if not here.any():
            raise Misused(f"it called a record invalid that its payload does not have (any more): {record}") from record
        gone |= here
    return cast(T, payload.filter(pa.array(~gone)))


def name_of(function: object) -> str:
    """A function's name for people: module and qualified name, also of a bound, wrapped, partial or callable object."""
    if isinstance(function, functools.partial):
        return name_of(function.func)
    if hasattr(function, "__wrapped__"):
        return name_of(function.__wrapped__)
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{getattr(named, '__module__', '?')}.{getattr(named, '__qualname__', '?')}"


def places(ranges: Ranges) -> str:
    """Partitions and offsets for people, as `orders: 0 [5, 9), 1 [0, 3)`."""
    topics: dict[str, list[str]] = {}
    for tp, step in sorted(ranges.items()):
        topics.setdefault(tp.topic, []).append(f"{tp.partition} [{step.start}, {step.end})")
    return "; ".join(f"topic {topic}, partitions and offsets {', '.join(steps)}" for topic, steps in topics.items())


def _raised_at(error: Exception) -> traceback.FrameSummary:
    """The innermost line that is not a library's: the one that its author knows, where there is one."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES) and not frame.filename.endswith(_COMPILED)]
    return (own or frames)[-1]


def _explained(function: object, ranges: Ranges, error: Exception) -> str:
    at = f"on {places(ranges) or 'a message without offsets'}"
    safe = "Nothing from these offsets on was committed; everything before is safe. Mend the function and start again"
    if isinstance(error, Misused):
        return f"The function {name_of(function)} failed {at}: {within(error)}. {safe}."
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    raised = _raised_at(error)
    return (
        f"The function {name_of(function)} failed at {Path(raised.filename).name}:{raised.lineno} {at}: {type(error).__name__}: "
        f"{within(error)}{notes}. {safe}, or let it raise InvalidRecord(partition, offset, reason) to send records to the "
        "dead letters."
    )
