"""The sinks into SQL databases, on SQLite, for the conformance suite."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from sqlalchemy import BigInteger, Column, Engine, Integer, MetaData, StaticPool, Table, create_engine, select

from consumers.database.positions import SqlPositions
from consumers.database.tables import create_tables
from consumers.database.writes import append
from consumers.processing.starts import Start
from consumers.processing.strategies.protocol import Commit
from consumers.processing.strategies.sql_sink import SqlSink
from consumers.processing.strategies.sql_sink_by_id import SqlSinkById
from consumers.processing.strategies.sql_transactions import SqlBatch
from consumers.types import TopicPartition
from tests.contracts.strategies import PARTITIONS, Ended, Last, Room, Row

_ROWS = Table("rows", MetaData(), Column("partition", Integer), Column("offset", BigInteger))
_BATCH = SqlBatch(max_records=5, max_latency_seconds=5.0)


def _to_rows(payload: pa.RecordBatch) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = payload.select(["partition", "offset"]).to_pylist()
    return rows


@contextmanager
def _database() -> Iterator[Engine]:
    engine = create_engine("sqlite://", poolclass=StaticPool)
    create_tables(engine, _ROWS)
    yield engine
    engine.dispose()


def _stored(engine: Engine) -> Iterable[Row]:
    with engine.connect() as connection:
        return [(row.partition, row.offset) for row in connection.execute(select(_ROWS))]


@contextmanager
def sql_sink(room: Room, commit: Commit) -> Iterator[Ended]:
    with _database() as engine:
        positions = SqlPositions(engine, "c", "m", room.around.clock, room.around.random)

        def reclaim() -> Mapping[TopicPartition, int]:
            seen = positions.positions(PARTITIONS)
            starts = {tp: Start(stood.offset or 0) for tp, stood in seen.items()}
            positions.acquire(seen, starts, "id")
            return {tp: start.offset for tp, start in starts.items()}

        reclaim()
        sink = SqlSink(positions, append(_ROWS, _to_rows), commit, room.around, batch=_BATCH)
        yield Ended(sink, lambda: _stored(engine), reclaim)


@contextmanager
def sql_sink_by_id(room: Room, commit: Commit) -> Iterator[Ended]:
    with _database() as engine:
        write = append(_ROWS, _to_rows)
        sink = SqlSinkById(engine, "c", lambda batch: list(map(str, batch["offset"])), write, commit, room.around, batch=_BATCH)
        yield Ended(sink, lambda: _stored(engine))


LASTS = [
    Last("SqlSink", sql_sink, takes_rejected=True),
    Last("SqlSinkById", sql_sink_by_id, takes_rejected=True),
]
