"""Small parts for tests of database sinks: members without a broker, messages, and what a table holds."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import BigInteger, Column, Engine, MetaData, Row, String, Table, select

from consumers.clock import ManualClock
from consumers.database.positions import SqlPositions
from consumers.database.tables import POSITIONS, create_tables
from consumers.database.writes import Write, append
from consumers.processing.context import Surroundings
from consumers.processing.starts import Start
from consumers.processing.strategies.protocol import Message, Rejection
from consumers.processing.strategies.sql_sink import SqlSink
from consumers.types import OffsetRange, Ranges, TopicPartition
from tests.consumers.parts import records

TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)

ROWS = Table(
    "rows",
    MetaData(),
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("text", String),
)
LINES = Table("lines", MetaData(), Column("id", BigInteger, nullable=False), Column("text", String))
"""As ROWS, and takes a row twice."""


def surroundings(seed: int = 1) -> Surroundings:
    return Surroundings(clock=ManualClock(1_000.0), random=random.Random(seed))


def member(engine: Engine, name: str = "m", **more: Any) -> SqlPositions:
    return SqlPositions(engine, "c", name, ManualClock(1_000.0), random.Random(1), **more)


def take(positions: SqlPositions, *partitions: TopicPartition, start: int = 0, topic_id: str = "id") -> dict[TopicPartition, int]:
    """Take partitions over where they stand, else at `start`. Returns the offsets."""
    seen = positions.positions(partitions or (TP,))
    starts = {tp: Start(start if stood.offset is None else stood.offset) for tp, stood in seen.items()}
    positions.acquire(seen, starts, topic_id)
    return {tp: start.offset for tp, start in starts.items()}


def message(first: int, count: int, tp: TopicPartition = TP, reject: Sequence[int] = (), text: str = "") -> Message[Any]:
    """Records of one partition, with a row each whose id is the offset; those in `reject` are invalid."""
    source = records([b"v%d" % offset for offset in range(first, first + count)], first, tp.partition)
    rows = [{"id": offset, "text": text or str(offset)} for offset in range(first, first + count) if offset not in reject]
    rejected = tuple(Rejection(tp, offset, "no good") for offset in reject)
    return Message(rows, {tp: OffsetRange(first, first + count)}, (source,), rejected)


def both(first: Message[Any], second: Message[Any]) -> Message[Any]:
    """Two messages of different partitions as one."""
    return Message(
        [*first.payload, *second.payload],
        {**first.ranges, **second.ranges},
        (*first.source, *second.source),
        first.rejected + second.rejected,
    )


class Told:
    """Takes what a sink tells the engine."""

    def __init__(self) -> None:
        self.commits: list[Ranges] = []

    def __call__(self, ranges: Ranges) -> None:
        self.commits.append(ranges)


def sink(positions: SqlPositions, told: Told | None = None, write: Write[Any] | None = None, **more: Any) -> SqlSink[Any]:
    """A sink into LINES, unless told otherwise."""
    if write is None:
        create_tables(positions.engine, LINES)
        write = append(LINES)
    return SqlSink(positions, write, told or Told(), more.pop("around", surroundings()), **more)


def ids(engine: Engine, table: Table = LINES) -> list[int]:
    with engine.connect() as connection:
        return sorted(connection.execute(select(table.c.id)).scalars())


def contents(engine: Engine, table: Table) -> list[Mapping[str, Any]]:
    with engine.connect() as connection:
        rows: Sequence[Row[Any]] = connection.execute(select(table).order_by(*table.primary_key)).all()
    return [dict(row._mapping) for row in rows]


def stands(engine: Engine) -> dict[int, tuple[int, int]]:
    """Next offset and epoch, by partition."""
    with engine.connect() as connection:
        return {row.partition: (row.next_offset, row.epoch) for row in connection.execute(select(POSITIONS))}


def payload_of(count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": list(range(count)), "text": [str(n) for n in range(count)]})


def answer_lost(engine: Engine, monkeypatch: pytest.MonkeyPatch, times: int = 1, committed: bool = True) -> None:
    """The next COMMITs get no answer; `committed` says whether they happen."""
    commit, left = engine.dialect.do_commit, [times]

    def do_commit(connection: Any) -> None:
        if committed or not left[0]:
            commit(connection)
        if left[0]:
            left[0] -= 1
            error = engine.dialect.loaded_dbapi.OperationalError("the connection is gone")
            error.sqlite_errorcode = 5
            raise error

    monkeypatch.setattr(engine.dialect, "do_commit", do_commit)
