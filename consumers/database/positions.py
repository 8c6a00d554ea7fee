"""Positions in a SQL database, so that they move in the transaction that writes the data.

Ownership is a number, as in a staged table's log: whoever takes a partition over raises its epoch, and every move of a position
asks for the offset that it starts from and for its epoch, in the statement that makes it. `UPDATE … WHERE` waits for whoever
holds the row and looks at it anew afterwards, so PostgreSQL's READ COMMITTED is enough; stricter levels fail with a serialization
error instead, which is tried again. SQLite has one writer at a time. Rows are locked in the order of topic and partition,
always before anything else, so that members cannot wait for each other in a circle.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol, TypeVar

from sqlalchemy import ColumnElement, Connection, Engine, Row, Table, Update, and_, select, update

from consumers.clock import Clock, SystemClock
from consumers.database.failures import DEFAULT_BACKOFF, Backoff, patiently
from consumers.database.tables import LOSSES, POSITIONS, create_tables, insert_into
from consumers.errors import FatalError, OwnershipLost
from consumers.types import OffsetRange, Position, Ranges, TopicPartition, topic_hash

R = TypeVar("R")
_NO_ID = topic_hash("")


class _Start(Protocol):
    """Where to begin, as the engine decided."""

    @property
    def offset(self) -> int: ...

    @property
    def cut(self) -> bool: ...

    @property
    def lost(self) -> OffsetRange | None: ...


@dataclass(frozen=True, slots=True)
class Held:
    """A partition that is ours: in which epoch, and from which topic."""

    epoch: int
    cut: int
    topic_id: str
    topic_id_hash: int


class SqlPositions:
    """Where a consumer stands, in the table `weir_positions`; a `PositionStore` for the engine, and what a sink commits through.

    Used by one thread. The engine belongs to the caller; SQLite in memory needs a `StaticPool`, or each connection sees a
    database of its own.
    """

    fences = True

    def __init__(
        self,
        engine: Engine,
        consumer: str,
        member: str,
        clock: Clock | None = None,
        chance: random.Random | None = None,
        backoff: Backoff = DEFAULT_BACKOFF,
    ) -> None:
        self.engine = engine
        self.consumer = consumer
        self._member = member
        self._clock = clock or SystemClock()
        self._chance = chance or random.Random()
        self._backoff = backoff
        self._held: dict[TopicPartition, Held] = {}
        self._taken_once: set[TopicPartition] = set()
        self._topics: dict[str, int] = {}
        self.prepare(POSITIONS, LOSSES)

    def prepare(self, *tables: Table) -> None:
        """Create tables that are missing. Raises `StorageError`."""
        self._patiently(lambda: create_tables(self.engine, *tables))

    def positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        """Where partitions stand now. Raises `StorageError`."""
        asked = frozenset(partitions)
        topics = {tp.topic for tp in asked}
        rows = self._patiently(lambda: self._read(topics))
        self._topics = _topic_hashes(rows)
        stand = {TopicPartition(row.topic, row.partition): Position(row.next_offset, row.epoch, row.cut) for row in rows}
        return {tp: stand.get(tp, Position(None, 0)) for tp in asked}

    def known_topic(self, topic: str) -> int | None:
        """`topic_hash` of the topic that the positions last asked for belong to; None where there are none yet."""
        return self._topics.get(topic)

    def acquire(self, seen: Mapping[TopicPartition, Position], starts: Mapping[TopicPartition, _Start], topic_id: str) -> None:
        """Take partitions over, to start where `starts` says; all of them or none.

        Raises `OwnershipLost` when one does not stand as `seen` any more, and `StorageError`.
        """
        taken = {tp: self._taken(tp, then, starts[tp], topic_id) for tp, then in seen.items()}
        self._patiently(lambda: self._take(seen, starts, taken))
        self._held |= taken
        self._taken_once |= taken.keys()

    def release(self, partitions: frozenset[TopicPartition]) -> None:
        """These are not ours any longer. Nothing is written: whoever takes them over raises their epoch."""
        for tp in partitions:
            self._held.pop(tp, None)

    def held(self, tp: TopicPartition) -> Held:
        """What is known of a partition. Raises `OwnershipLost` when it is not any more, `FatalError` where it never was."""
        if tp in self._held:
            return self._held[tp]
        if tp in self._taken_once:
            raise OwnershipLost(f"{tp}: this member does not hold the partition any longer")
        raise FatalError(
            f"consumer {self.consumer}: {tp} was never taken over through the SqlPositions that the sink has. Nothing was "
            "written. Give the run, as its positions, the very object that the SqlSink has, then start again."
        )

    def advance(self, connection: Connection, ranges: Ranges) -> None:
        """Move positions from the starts to the ends of `ranges`, in the caller's transaction.

        Raises `OwnershipLost` when one is not at its start in our epoch; the caller then rolls back.
        """
        now = self._now()
        for tp, step in sorted(ranges.items()):
            moved = connection.execute(
                _at(self.consumer, tp, step.start, self.held(tp).epoch).values(
                    next_offset=step.end, member=self._member, updated_at=now
                )
            )
            if moved.rowcount != 1:
                raise self._lost(connection, tp, step)

    def landed(self, ranges: Ranges) -> bool:
        """Whether positions stand at the ends of `ranges` in our epochs: nobody else can have moved them there.

        Asked once: raises SQLAlchemy's errors.
        """
        rows = self._read({tp.topic for tp in ranges})
        stand = {TopicPartition(row.topic, row.partition): (row.next_offset, row.epoch) for row in rows}
        return all(tp in self._held and stand.get(tp) == (step.end, self._held[tp].epoch) for tp, step in ranges.items())

    def _taken(self, tp: TopicPartition, then: Position, start: _Start, topic_id: str) -> Held:
        epoch = then.epoch + 1
        # A broker that knows no ids says nothing against the id that is known.
        known = topic_hash(topic_id) if topic_id else self._topics.get(tp.topic, _NO_ID)
        return Held(epoch, epoch if start.cut else then.cut, topic_id, known)

    def _take(
        self,
        seen: Mapping[TopicPartition, Position],
        starts: Mapping[TopicPartition, _Start],
        taken: Mapping[TopicPartition, Held],
    ) -> None:
        with self.engine.begin() as connection:
            for tp, then in sorted(seen.items(), key=lambda each: each[0]):
                new = taken[tp]
                values = {
                    "next_offset": starts[tp].offset,
                    "epoch": new.epoch,
                    "cut": new.cut,
                    "topic_id_hash": new.topic_id_hash,
                    "member": self._member,
                    "updated_at": self._now(),
                }
                if self._set(connection, tp, then, values) != 1:
                    raise OwnershipLost(f"{tp}: another member moved the position while it was being taken over")
                self._record_loss(connection, tp, starts[tp].lost, new.epoch)

    def _record_loss(self, connection: Connection, tp: TopicPartition, lost: OffsetRange | None, epoch: int) -> None:
        if lost is not None:
            where = {"consumer": self.consumer, "topic": tp.topic, "partition": tp.partition, "epoch": epoch}
            row = where | {"first_lost": lost.start, "next_kept": lost.end, "noticed_at": self._now()}
            connection.execute(LOSSES.insert().values(row))

    def _set(self, connection: Connection, tp: TopicPartition, then: Position, values: Mapping[str, object]) -> int:
        if then.offset is not None:
            return connection.execute(_at(self.consumer, tp, then.offset, then.epoch).values(values)).rowcount
        first = {"consumer": self.consumer, "topic": tp.topic, "partition": tp.partition, **values}
        made = insert_into(POSITIONS, connection).values(first).on_conflict_do_nothing().returning(POSITIONS.c.partition)
        return len(connection.execute(made).all())

    def _read(self, topics: set[str]) -> list[Row[tuple[object, ...]]]:
        with self.engine.connect() as connection:
            found = select(POSITIONS).where(POSITIONS.c.consumer == self.consumer, POSITIONS.c.topic.in_(topics))
            return list(connection.execute(found))

    def _lost(self, connection: Connection, tp: TopicPartition, step: OffsetRange) -> OwnershipLost:
        now = connection.execute(
            select(POSITIONS.c.next_offset, POSITIONS.c.epoch, POSITIONS.c.member).where(_row(self.consumer, tp))
        ).first()
        stands = f"at offset {now.next_offset} in epoch {now.epoch} (member {now.member})" if now else "nowhere"
        return OwnershipLost(
            f"{tp}: the database stands {stands}, this member at {step.start} in epoch {self.held(tp).epoch}: another writer has "
            "taken the partition over"
        )

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.time(), UTC)

    def _patiently(self, work: Callable[[], R]) -> R:
        """Do it, again after transient errors.

        Also a takeover whose COMMIT got no answer is simply tried again: had it landed, the partition would not stand as seen,
        and the engine looks and takes it over once more.
        """
        what = f"consumer {self.consumer}: reading or taking positions"
        return patiently(work, self.engine, what, self._clock, self._chance, self._backoff)


def _row(consumer: str, tp: TopicPartition) -> ColumnElement[bool]:
    return and_(POSITIONS.c.consumer == consumer, POSITIONS.c.topic == tp.topic, POSITIONS.c.partition == tp.partition)


def _at(consumer: str, tp: TopicPartition, offset: int, epoch: int) -> Update:
    """A change of a partition's row that finds it only while it stands there."""
    return update(POSITIONS).where(_row(consumer, tp), POSITIONS.c.next_offset == offset, POSITIONS.c.epoch == epoch)


def _topic_hashes(rows: Iterable[Row[tuple[object, ...]]]) -> dict[str, int]:
    """By topic, what the lowest of its partitions that knows an id belongs to.

    Partitions that a topic no longer has keep what they were, and every topic has its lowest.
    """
    found: dict[str, int] = {}
    for row in sorted(rows, key=lambda each: (each.topic_id_hash == _NO_ID, each.partition)):
        found.setdefault(row.topic, row.topic_id_hash)
    return found
