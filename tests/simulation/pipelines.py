"""What members run in a simulation: a pipeline builds a member's strategy, and knows what came out and where it stands."""

import itertools
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import pyarrow as pa
from sqlalchemy import Column, Integer, LargeBinary, MetaData, String, Table

from consumers.brokers.memory import MemoryCluster, MemoryProducer, MemoryTransactionalProducer
from consumers.brokers.memory.log import Kind as Entry
from consumers.config import InvalidLimits
from consumers.database.failures import Backoff
from consumers.database.positions import SqlPositions
from consumers.database.writes import append
from consumers.errors import InvalidValue
from consumers.processing.context import Build, Context, Surroundings
from consumers.processing.group_positions import GroupPositions
from consumers.processing.incarnation import Incarnation
from consumers.processing.positions import PositionStore
from consumers.processing.strategies.batch import Batch
from consumers.processing.strategies.buffer import UpTo
from consumers.processing.strategies.commit_positions import CommitPolicy, CommitPositions
from consumers.processing.strategies.dead_letters import DeadLetters, TopicSink
from consumers.processing.strategies.each import Record, each, each_kept, each_mapped
from consumers.processing.strategies.filter import Filter
from consumers.processing.strategies.guard import guard, guard_last
from consumers.processing.strategies.map import Map
from consumers.processing.strategies.produce import Produce
from consumers.processing.strategies.produce_in_transaction import ProduceInTransaction
from consumers.processing.strategies.protocol import Commit, Message, Strategy
from consumers.processing.strategies.run_task import RunTask
from consumers.processing.strategies.sql_sink import SqlSink
from consumers.processing.strategies.sql_transactions import SqlBatch
from consumers.processing.strategies.unfold import Unfold
from consumers.types import RECORD_COLUMNS, TopicPartition, topic_hash
from tests.simulation.crossings import Crossings, Watched
from tests.simulation.database import Databases, Door
from tests.simulation.oracle import Loss, Output, Promise, Seen
from tests.simulation.schedule import Setup
from tests.simulation.source import TOPIC

GROUP = "g"


@dataclass
class Parts:
    """What a member is made of beside its consumer. `door` is where its database can fail."""

    store: PositionStore
    build: Build
    door: Door | None = None


class Pipeline(Protocol):
    """One for a schedule."""

    promise: Promise

    def parts(self, name: str, broker: Any, crossings: Crossings, around: Surroundings) -> Parts:
        """For a new member that reads by `broker`."""
        ...

    def durable(self) -> dict[int, int] | None:
        """The next offset of each partition, as far as output is durable. None where nobody can look just now."""
        ...

    def output(self) -> Output:
        """What came out so far."""
        ...


ROWS = Table(
    "rows",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("part", Integer),
    Column("at", Integer),
    Column("uid", String),
    Column("value", LargeBinary),
)


def row_of(record: Record) -> dict[str, Any]:
    """A record as a row. Raises `InvalidValue` for one that is produced as invalid."""
    if record.value is not None and record.value.startswith(b"invalid"):
        raise InvalidValue("it says so itself")
    return {"part": record.partition, "at": record.offset, "uid": uid_of(record), "value": record.value}


def uid_of(record: Record) -> str:
    """By which the oracle knows it."""
    return (dict(record.headers)["uid"] or b"").decode()


OUT, DEAD = "out", "dead"
_NO_RECORDS = pa.RecordBatch.from_pylist([], RECORD_COLUMNS)
MOST_PARTITIONS = 6


_DATABASES: list[Databases] = []


class DatabasePipeline:
    """Rows, dead letters and positions in one transaction of a database."""

    def __init__(self, cluster: MemoryCluster, setup: Setup, promise: Promise) -> None:
        self.promise = promise
        self._setup = setup
        self._cluster = cluster
        if not _DATABASES:
            _DATABASES.append(Databases())
        self._databases = _DATABASES[0]
        self._databases.begin()

    def parts(self, name: str, broker: Any, crossings: Crossings, around: Surroundings) -> Parts:
        door, engine = self._databases.engine(crossings)
        backoff = Backoff(attempts=6, first_seconds=0.1, most_seconds=1.0)
        store = SqlPositions(engine, "c", name, around.clock, around.random, backoff)
        batch = SqlBatch(max_records=self._setup.batch_records, max_latency_seconds=self._setup.latency_seconds)
        same_topic = Incarnation(broker.topic_id, around.clock).require

        def sink(commit: Commit) -> SqlSink[Any]:
            return SqlSink(store, append(ROWS), commit, around, batch=batch, backoff=backoff, same_topic=same_topic)

        def build(context: Context) -> Strategy[Any]:
            last = guard_last(sink, context.commit) if self._setup.shape % 2 else sink(context.commit)
            chain: Strategy[Any] = guard(lambda after: RunTask(each(row_of), after, around=around), last)
            if self._setup.shape % 3 == 0:
                chain = guard(lambda after: Unfold(_pairs, _NO_RECORDS, after, around=around), chain)
            return chain

        return Parts(store, build, door)

    def durable(self) -> dict[int, int] | None:
        ask = "SELECT partition, next_offset FROM weir_positions WHERE topic_id_hash = ?"
        with suppress(sqlite3.OperationalError):  # somebody is stopped in the middle of a transaction
            self._databases.raw.execute("SELECT count(*) FROM rows, weir_dead_letters WHERE 0").fetchall()
            return dict(self._databases.raw.execute(ask, (topic_hash(self._cluster.topic(TOPIC).id),)))
        return None

    def output(self) -> Output:
        ask = self._databases.raw.execute
        rows = [Seen(uid, p, at, value) for p, at, uid, value in ask("SELECT part, at, uid, value FROM rows ORDER BY id")]
        letters = [
            Seen(value.decode().partition(" ")[2], p, at, value)
            for p, at, value in ask('SELECT partition, "offset", value FROM weir_dead_letters ORDER BY topic_id_hash, "offset"')
        ]
        losses = [Loss(*row) for row in ask("SELECT partition, first_lost, next_kept FROM weir_losses")]
        return Output(rows, letters, losses)


class _TopicPipeline:
    """What the two that write to topics share: records carry where they came from, and who sent them, in headers."""

    def __init__(self, cluster: MemoryCluster, setup: Setup, promise: Promise) -> None:
        self.promise = promise
        self._setup = setup
        self._cluster = cluster
        for topic in (OUT, DEAD):
            cluster.create_topic(topic, MOST_PARTITIONS)

    def durable(self) -> dict[int, int]:
        return {tp.partition: offset for tp, offset in self._cluster.group(GROUP).offsets.items()}

    def output(self) -> Output:
        rows = [seen for p in range(MOST_PARTITIONS) for seen in self._committed(TopicPartition(OUT, p), b"at", b"by")]
        dead = [seen for p in range(MOST_PARTITIONS) for seen in self._committed(TopicPartition(DEAD, p), b"weir-offset", b"")]
        return Output(rows, dead)

    def _committed(self, tp: TopicPartition, at: bytes, by: bytes) -> Iterator[Seen]:
        log = self._cluster.log(tp)
        for entry in log.entries:
            if entry.kind is Entry.DATA and entry.offset < log._open.get(entry.producer, log.end):
                told = {name.encode(): value or b"" for name, value in entry.headers}
                partition = int(told.get(b"weir-partition", b"%d" % tp.partition))
                yield Seen(told[b"uid"].decode(), partition, int(told[at]), entry.value, told.get(by, b"").decode())

    def _stamp(self, name: str, attempts: "Attempts") -> Callable[[Record], Record]:
        def stamped(record: Record) -> Record:
            row_of(record)
            by = f"{name}.{attempts.count}".encode()
            return msgspec.structs.replace(record, headers=(*record.headers, ("at", b"%d" % record.offset), ("by", by)))

        return stamped

    def _first_steps(self, name: str, around: Surroundings, rest: Strategy[Any]) -> Strategy[Any]:
        """Filter, map, and by the seed's choice unfold and batch, before the rest."""
        attempts = Attempts()
        chain, shape = rest, self._setup.shape
        if shape % 2:
            size = UpTo(records=self._setup.batch_records, seconds=self._setup.latency_seconds)
            chain = guard(lambda after: Batch(size, after, around=around), chain)
        if shape % 3 == 0:
            chain = guard(lambda after: Unfold(_pairs, _NO_RECORDS, after, around=around), chain)
        mapped = each_mapped(self._stamp(name, attempts))
        chain = guard(lambda after: Map(mapped, after, around=around), chain)
        attempts.inner = guard(lambda after: Filter(each_kept(_is_kept), after, around=around), chain)
        return attempts


class Attempts:
    """Passes everything on, and counts how often all was forgotten."""

    inner: Strategy[Any]

    def __init__(self) -> None:
        self.count = 1

    def submit(self, message: Message[Any]) -> None:
        self.inner.submit(message)

    def poll(self) -> None:
        self.inner.poll()

    def flush(self, timeout: float) -> bool:
        return self.inner.flush(timeout)

    def discard(self) -> None:
        self.count += 1
        self.inner.discard()

    def close(self) -> None:
        self.inner.close()


class ChainPipeline(_TopicPipeline):
    """Filter, map, produce, commit positions: at least once."""

    def parts(self, name: str, broker: Any, crossings: Crossings, around: Surroundings) -> Parts:
        made = itertools.count()
        producer = _watched(MemoryProducer(self._cluster, name, random=around.random), crossings)
        policy = CommitPolicy(self._setup.latency_seconds, self._setup.batch_records)

        def build(context: Context) -> Strategy[Any]:
            last = guard_last(lambda commit: CommitPositions(commit, policy, around.clock), context.commit)
            produced = guard(
                lambda after: Produce(producer, OUT, after, max_records=self._setup.room, keep_partitions=True, around=around),
                last,
            )
            return self._first_steps(f"{name}.{next(made)}", around, _dead_letters(producer, produced, around))

        return Parts(GroupPositions(broker, around.clock), build)


class TransactionPipeline(_TopicPipeline):
    """Consume, transform, produce: records and positions in one transaction."""

    def parts(self, name: str, broker: Any, crossings: Crossings, around: Surroundings) -> Parts:
        made, store = itertools.count(), GroupPositions(broker, around.clock)
        own = MemoryTransactionalProducer(self._cluster, f"id-{name}", client_id=name, timeout_seconds=20.0, random=around.random)
        producer = _watched(own, crossings)
        letters = _watched(MemoryProducer(self._cluster, name, random=around.random), crossings)
        size = UpTo(records=self._setup.batch_records, seconds=self._setup.latency_seconds)

        def build(context: Context) -> Strategy[Any]:
            def last(commit: Commit) -> ProduceInTransaction:
                return ProduceInTransaction(
                    producer, OUT, store.group_metadata, commit, size, keep_partitions=True, around=around
                )

            chain = _dead_letters(letters, guard_last(last, context.commit), around)
            return self._first_steps(f"{name}.{next(made)}", around, chain)

        return Parts(store, build)


def _watched(producer: MemoryProducer, crossings: Crossings) -> Any:
    return Watched(producer, crossings, frozenset({"begin", "send_offsets", "commit_transaction", "abort_transaction"}))


def _dead_letters(producer: Any, chain: Strategy[Any], around: Surroundings) -> Strategy[Any]:
    limits = InvalidLimits()
    return guard(lambda after: DeadLetters(TopicSink(producer, DEAD), limits, after, around=around), chain, settles_rejected=True)


def _is_kept(record: Record) -> bool:
    return record.value is None or not record.value.startswith(b"dropped")


def _pairs(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    return [batch.slice(at, 2) for at in range(0, batch.num_rows, 2)]


def pipeline_of(cluster: MemoryCluster, setup: Setup) -> Pipeline:
    """The one that a setup names."""
    match setup.pipeline:
        case "database":
            return DatabasePipeline(cluster, setup, Promise(failures=not setup.calm))
        case "transactions":
            promise = Promise(letters_exactly_once=False, losses_recorded=False, failures=not setup.calm)
            return TransactionPipeline(cluster, setup, promise)
        case "chain":
            promise = Promise(exactly_once=False, letters_exactly_once=False, losses_recorded=False, failures=not setup.calm)
            return ChainPipeline(cluster, setup, promise)
