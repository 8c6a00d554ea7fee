"""Write into a SQL database exactly once: rows, dead letters and positions in one transaction, by compare-and-set."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlalchemy import Connection

from consumers.database.dead_letters import Origin
from consumers.database.failures import DEFAULT_BACKOFF, Backoff
from consumers.database.positions import SqlPositions
from consumers.database.tables import DEAD_LETTERS
from consumers.database.writes import Write
from consumers.processing.context import Surroundings
from consumers.processing.strategies.protocol import Commit, Message
from consumers.processing.strategies.sql_transactions import DEFAULT_BATCH, SqlBatch, SqlTransactions
from consumers.types import Ranges, TopicPartition

T = TypeVar("T")


class SqlSink(SqlTransactions[T]):
    """The strategy that ends in the database that also holds the positions.

    `write` is `append(table)`, `upsert(table, key)`, `apply(function)`, or anything like them. Each transaction first moves the
    positions, provided that they stand where its messages begin and in the epochs in which `positions` took them; so a zombie
    writes nothing, and a repeat after a crash or a lost answer is impossible. `same_topic` is asked before each transaction with
    the id of the topic that the partitions were taken from, and raises when it has another one now (`Incarnation.require`).
    """

    def __init__(
        self,
        positions: SqlPositions,
        write: Write[T],
        commit: Commit,
        around: Surroundings,
        *,
        batch: SqlBatch = DEFAULT_BATCH,
        backoff: Backoff = DEFAULT_BACKOFF,
        same_topic: Callable[[str], None] = lambda topic_id: None,
    ) -> None:
        super().__init__(positions.engine, positions.consumer, write, commit, around, batch, backoff)
        self._positions = positions
        self._same_topic = same_topic
        positions.prepare(DEAD_LETTERS)

    def _ask_first(self, ranges: Ranges) -> None:
        for topic_id in sorted({self._positions.held(tp).topic_id for tp in ranges}):
            self._same_topic(topic_id)

    def _admit(self, connection: Connection, messages: Sequence[Message[T]], ranges: Ranges) -> Sequence[T]:
        self._positions.advance(connection, ranges)
        return [message.payload for message in messages]

    def _landed(self, ranges: Ranges) -> bool:
        return self._positions.landed(ranges)

    def _origin(self, tp: TopicPartition) -> Origin:
        held = self._positions.held(tp)
        return Origin(held.topic_id_hash, held.cut)
