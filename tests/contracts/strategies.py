"""What the conformance suite of strategies (test_strategies*.py) is run against, and the words that it is written in.

To put a strategy under the suite, add a file `tests/contracts/strategies_<yours>.py` with a list `MIDDLES` of `Middle` (it has a
next step) or `LASTS` of `Last` (it ends a chain and commits); nothing else is to be edited. `strategies_core.py` shows how.

Messages are record batches of the topic `orders`, partitions 0 and 1, from offset 0. A record's value says what is to become of
it: `ok` passes everywhere, `bad` is invalid, `drop` is filtered, `boom` makes a function raise. `judge` and `kept` are functions
that do so.
"""

import importlib
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from consumers.clock import ManualClock, SystemClock
from consumers.errors import InvalidRecord, InvalidRecords
from consumers.metrics import NoMetrics
from consumers.processing.context import Surroundings
from consumers.processing.strategies.protocol import Commit, Message, Strategy
from consumers.types import RECORD_COLUMNS, OffsetRange, TopicPartition

TOPIC = "orders"
PARTITIONS = (TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1))

Row = tuple[int, int]
"""Partition and offset of a record."""

PATIENCE = 20.0


@dataclass(frozen=True)
class Room:
    """What a strategy is opened in: a folder of its own, and surroundings. The clock is a `ManualClock` unless `real_time`."""

    path: Path
    around: Surroundings

    def advance(self, seconds: float) -> None:
        """Let time pass, where it is ours."""
        if isinstance(self.around.clock, ManualClock):
            self.around.clock.advance(seconds)


def rows_of(payload: Any) -> list[Row]:
    """The records that a payload with columns `partition` and `offset` stands for."""
    return list(zip(payload["partition"].to_pylist(), payload["offset"].to_pylist(), strict=True))


@dataclass(frozen=True)
class Middle:
    """A strategy with a next step.

    `open(room, next_step)` yields it and takes down what it needed; the suite closes the strategy itself. `rows` reads the source
    records from what it passes on. `rejects`, `drops` and `fails` say that it does something about `bad`, `drop` and `boom`.
    `settles_rejected`: rejections end in it. `real_time`: it is given the system's clock. `examples`: how many random runs.
    """

    name: str
    open: Callable[[Room, Strategy[Any]], AbstractContextManager[Strategy[pa.RecordBatch]]]
    rows: Callable[[Any], list[Row]] = rows_of
    rejects: bool = False
    drops: bool = False
    fails: bool = False
    settles_rejected: bool = False
    real_time: bool = False
    examples: int = 60

    def passes(self, value: bytes) -> bool:
        """Whether a record with this value gets to the next step."""
        return not (self.rejects and value == b"bad") and not (self.drops and value == b"drop")

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Ended:
    """A last strategy that was opened, and what is known of its target.

    `rows` reads what is durable there (None where nothing but the position is). `reclaim` is called after it raised
    `OwnershipLost` and was told to discard: takes the partitions over again and returns where they stand.
    """

    strategy: Strategy[pa.RecordBatch]
    rows: Callable[[], Iterable[Row]] | None = None
    reclaim: Callable[[], Mapping[TopicPartition, int]] | None = None


@dataclass(frozen=True)
class Last:
    """A strategy that ends a chain, opened with both `PARTITIONS` its own at offset 0. `takes_rejected`: it keeps them."""

    name: str
    open: Callable[[Room, Commit], AbstractContextManager[Ended]]
    takes_rejected: bool = False
    real_time: bool = False
    examples: int = 60

    def __str__(self) -> str:
        return self.name


def registered(kind: str) -> list[Any]:
    """All of `MIDDLES` or `LASTS`, from every file here that has some."""
    files = sorted(Path(__file__).parent.glob("strategies_*.py"))
    modules = [importlib.import_module(f"tests.contracts.{file.stem}") for file in files]
    return [case for module in modules for case in getattr(module, kind, ())]


def room(path: Path, real_time: bool) -> Room:
    """A room, its chance seeded."""
    return Room(path, Surroundings(SystemClock() if real_time else ManualClock(), NoMetrics(), random.Random(0)))


def judge(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A user's function: the batch as it is, unless it has `bad` or `boom` in it."""
    values = batch["value"]
    if pc.any(pc.equal(values, b"boom")).as_py():
        raise RuntimeError("boom")
    bad = rows_of(batch.filter(pc.equal(values, b"bad")))
    if len(bad) == 1:
        raise InvalidRecord(*bad[0], "bad")
    if bad:
        raise InvalidRecords(InvalidRecord(*row, "bad") for row in bad)
    return batch


def kept(batch: pa.RecordBatch) -> pa.BooleanArray:
    """A user's predicate."""
    return pc.not_equal(batch["value"], b"drop")


@dataclass
class Source:
    """The topic, made up as it is read: messages that continue where the last one ended."""

    next: dict[TopicPartition, int] = field(default_factory=lambda: dict.fromkeys(PARTITIONS, 0))
    values: dict[Row, bytes] = field(default_factory=dict)

    def message(self, *values: str, partitions: Iterable[int] = (0,), rows: bool = True) -> Message[pa.RecordBatch]:
        """A message with a record for each value in each partition; without `rows` their offsets alone.

        An offset that was read before has the value that it had then.
        """
        made = [(p, self.next[PARTITIONS[p]] + i, value.encode()) for p in partitions for i, value in enumerate(values)]
        made = [(p, offset, self.values.setdefault((p, offset), value if rows else b"")) for p, offset, value in made]
        ranges = {}
        for p in partitions:
            start = self.next[PARTITIONS[p]]
            ranges[PARTITIONS[p]] = OffsetRange(start, start + len(values))
            self.next[PARTITIONS[p]] = start + len(values)
        records = batch([row for row in made if row[2]])
        return Message(records, ranges, (records,))

    def seek(self, positions: Mapping[TopicPartition, int]) -> None:
        """Go on from there."""
        self.next |= positions

    def rows(self, wanted: Callable[[bytes], bool] = bool) -> list[Row]:
        """Every record before `next` whose value is wanted; by partition, in order."""
        return sorted(
            row for row, value in self.values.items() if value and wanted(value) and row[1] < self.next[PARTITIONS[row[0]]]
        )


def batch(rows: Iterable[tuple[int, int, bytes]]) -> pa.RecordBatch:
    """Records of these partitions, offsets and values."""
    listed = [
        {"partition": p, "offset": offset, "timestamp": offset, "key": b"k", "value": value, "headers": []}
        for p, offset, value in rows
    ]
    return pa.RecordBatch.from_pylist(listed, schema=RECORD_COLUMNS)


def until(condition: Callable[[], bool], *turn: Callable[[], object]) -> None:
    """Take turns until the condition holds; fails after `PATIENCE` seconds of real time."""
    clock = SystemClock()
    deadline = clock.monotonic() + PATIENCE
    for count in itertools.count():
        for take in turn:
            take()
        if condition():
            return
        assert clock.monotonic() < deadline, f"not in {PATIENCE} s and {count} turns"
        clock.sleep(0.001)


Opened = Iterator[Strategy[pa.RecordBatch]]
