"""Write into a SQL database whose tables cannot hold positions: by remembering the ids of messages and skipping repeats.

The positions live elsewhere, usually with Kafka's group, and follow the write. After a crash between the two, records come again;
their ids are in the database by then, written in the transaction of their rows, so they are left out.

What holds: the effect of an id, once, as long as the id is remembered, also when a member that lost its partition does not know
it yet. What does not: a record that comes again after more than `remember_offsets` newer ones (or `remember_seconds`) is written
again, and so is one whose id is not the same each time. Two records with one id count as one; the first is written.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from sqlalchemy import ColumnElement, Connection, Engine, and_, delete

from consumers.database.bulk import insert_rows
from consumers.database.failures import DEFAULT_BACKOFF, Backoff, patiently
from consumers.database.tables import DEAD_LETTERS, SEEN_IDS, create_tables, insert_into
from consumers.database.writes import Write
from consumers.processing.context import Surroundings
from consumers.processing.strategies.protocol import Commit, Message
from consumers.processing.strategies.sql_transactions import DEFAULT_BATCH, SqlBatch, SqlTransactions
from consumers.processing.strategies.task import name_of
from consumers.types import Ranges, TopicPartition

_FORGET_SECONDS = 60.0

Identify = Callable[[pa.RecordBatch], Sequence[str]]
"""The id of each record of a payload: the same whenever that record is read, and no other's in its partition."""

_Id = tuple[TopicPartition, str]


class SqlSinkById(SqlTransactions[pa.RecordBatch]):
    """The strategy that ends in a database that knows message ids instead of positions.

    Payloads are record batches with the columns `partition` and `offset`; `write` gets them without the records whose ids are
    known. `remember_offsets` is how far back in each partition ids are kept, `remember_seconds` how long (None: however long).
    """

    def __init__(
        self,
        engine: Engine,
        consumer: str,
        identify: Identify,
        write: Write[pa.RecordBatch],
        commit: Commit,
        around: Surroundings,
        *,
        remember_offsets: int = 1_000_000,
        remember_seconds: float | None = None,
        batch: SqlBatch = DEFAULT_BATCH,
        backoff: Backoff = DEFAULT_BACKOFF,
    ) -> None:
        super().__init__(engine, consumer, write, commit, around, batch, backoff)
        self._identify = identify
        self._remember_offsets = remember_offsets
        self._remember_seconds = remember_seconds
        self._forgot = around.clock.monotonic()
        what = f"consumer {consumer}: creating tables"
        patiently(lambda: create_tables(engine, SEEN_IDS, DEAD_LETTERS), engine, what, around.clock, around.random, backoff)

    def _admit(
        self, connection: Connection, messages: Sequence[Message[pa.RecordBatch]], ranges: Ranges
    ) -> Sequence[pa.RecordBatch]:
        named = [(message.payload, self._ids(message)) for message in messages]
        offsets: dict[_Id, int] = {}
        for payload, ids in named:
            for each, offset in zip(ids, payload["offset"].to_pylist(), strict=True):
                offsets.setdefault(each, offset)
        new = self._remember(connection, offsets)
        self._forget(connection, ranges)
        return [payload.filter(pa.array([_first(each, new) for each in ids], pa.bool_())) for payload, ids in named]

    def _landed(self, ranges: Ranges) -> bool:
        return False  # never asked: nothing here is lost to another writer

    def _ids(self, message: Message[pa.RecordBatch]) -> list[_Id]:
        payload = message.payload
        if not payload.num_rows:
            return []
        by_number = {tp.partition: tp for tp in message.ranges}
        ids = self._users(self._identified, message.ranges, payload)
        return [(by_number[p], each) for p, each in zip(payload["partition"].to_pylist(), ids, strict=True)]

    def _identified(self, payload: pa.RecordBatch) -> Sequence[str]:
        ids = self._identify(payload)
        if len(ids) != payload.num_rows:
            raise ValueError(f"{name_of(self._identify)} returned {len(ids)} ids for {payload.num_rows} records")
        return ids

    def _remember(self, connection: Connection, offsets: dict[_Id, int]) -> set[_Id]:
        """Write ids down, in one order everywhere. Returns those that were not there."""
        if not offsets:
            return set()
        now = self._time()
        rows = [
            {
                "consumer": self._consumer,
                "topic": tp.topic,
                "partition": tp.partition,
                "message_id": each,
                "offset": offsets[tp, each],
                "seen_at": now,
            }
            for tp, each in sorted(offsets)
        ]
        key = (SEEN_IDS.c.topic, SEEN_IDS.c.partition, SEEN_IDS.c.message_id)
        insert = insert_into(SEEN_IDS, connection).on_conflict_do_nothing()
        made = insert_rows(connection, insert, SEEN_IDS, rows, returning=key)
        return {(TopicPartition(row.topic, row.partition), row.message_id) for row in made}

    def _forget(self, connection: Connection, ranges: Ranges) -> None:
        """Drop ids that are far behind; the old ones from time to time, since that looks at all of them."""
        for tp, step in sorted(ranges.items()):
            connection.execute(delete(SEEN_IDS).where(self._of(tp), SEEN_IDS.c.offset < step.end - self._remember_offsets))
        now = self._around.clock.monotonic()
        if self._remember_seconds is not None and now - self._forgot >= min(_FORGET_SECONDS, self._remember_seconds):
            self._forgot = now
            eldest = self._time() - timedelta(seconds=self._remember_seconds)
            for tp in sorted(ranges):
                connection.execute(delete(SEEN_IDS).where(self._of(tp), SEEN_IDS.c.seen_at < eldest))

    def _of(self, tp: TopicPartition) -> ColumnElement[bool]:
        columns = SEEN_IDS.c
        return and_(columns.consumer == self._consumer, columns.topic == tp.topic, columns.partition == tp.partition)

    def _time(self) -> datetime:
        return datetime.fromtimestamp(self._around.clock.time(), UTC)


def _first(each: _Id, new: set[_Id]) -> bool:
    """Whether an id is new, and met for the first time; it is not new any more then."""
    if each not in new:
        return False
    new.remove(each)
    return True
