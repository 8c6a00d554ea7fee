"""Account balances from the topic `transactions`, in a SQL database: a sum is right only if every record counts exactly once.

The generator knows what every balance has to be, so `differences` can tell.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import BigInteger, Column, Connection, Engine, MetaData, String, Table, select

from consumers.brokers.protocol import BrokerConsumer
from consumers.config import ConsumerConfig
from consumers.database.bulk import insert_rows
from consumers.database.positions import SqlPositions
from consumers.database.tables import insert_into
from consumers.errors import InvalidRecord
from consumers.formats import JsonDecoder
from consumers.processing.context import Context, Surroundings
from consumers.processing.incarnation import Incarnation
from consumers.processing.processor import Limits, Processor
from consumers.processing.strategies.protocol import Strategy
from consumers.processing.strategies.run_task import RunTask
from consumers.processing.strategies.sql_sink import SqlSink
from consumers.processing.strategies.sql_transactions import DEFAULT_BATCH, SqlBatch
from consumers.processing.strategies.task import Partial
from consumers.processing.subscription import Subscription

NAME = "balances"
TOPIC = "transactions"

BALANCES = Table(
    "balances",
    MetaData(),
    Column("account_id", String, primary_key=True),
    Column("cents", BigInteger, nullable=False),
    Column("transactions", BigInteger, nullable=False),
)

_RECORD = ConsumerConfig.model_validate(
    {
        "topic": TOPIC,
        "schema": {
            "account_id": {"type": "string", "nullable": False},
            "amount_cents": {"type": "long", "nullable": False},
        },
        "window": "day",
    }
)


@dataclass(frozen=True, slots=True)
class Change:
    """What some transactions of an account come to."""

    cents: int = 0
    transactions: int = 0

    def __add__(self, other: "Change") -> "Change":
        return Change(self.cents + other.cents, self.transactions + other.transactions)


Changes = Mapping[str, Change]


@dataclass(frozen=True, slots=True)
class Difference:
    """An account whose balance is not what it has to be; None where the database has no such account."""

    account: str
    expected: int
    actual: int | None


class ToChanges:
    """Records → changes by account. Raises `Partial` where records are no transactions: the changes of the others, and why."""

    def __init__(self) -> None:
        self._decoder = JsonDecoder(_RECORD.columns)

    def __call__(self, batch: pa.RecordBatch) -> Changes:
        there = pc.is_valid(batch["value"])
        empty = _invalid(batch.filter(pc.invert(there)), [(i, "no value") for i in range(pc.sum(pc.invert(there)).as_py() or 0)])
        batch = batch.filter(there)
        decoded = self._decoder.decode(batch["value"])
        sums = decoded.rows.group_by("account_id").aggregate([("amount_cents", "sum"), ("amount_cents", "count")])
        columns = (sums[name].to_pylist() for name in ("account_id", "amount_cents_sum", "amount_cents_count"))
        changes = {account: Change(cents, count) for account, cents, count in zip(*columns, strict=True)}
        if invalid := (*empty, *_invalid(batch, [(reject.index, reject.reason) for reject in decoded.rejects])):
            raise Partial(changes, invalid)
        return changes


def add(connection: Connection, payloads: Sequence[Changes]) -> None:
    """Add changes to the balances, in one order everywhere, so that members do not wait for each other in a circle."""
    total: dict[str, Change] = {}
    for changes in payloads:
        for account, change in changes.items():
            total[account] = total.get(account, Change()) + change
    rows = [
        {"account_id": account, "cents": total[account].cents, "transactions": total[account].transactions}
        for account in sorted(total)
    ]
    if rows:
        insert = insert_into(BALANCES, connection)
        sums = {name: BALANCES.c[name] + insert.excluded[name] for name in ("cents", "transactions")}
        insert_rows(connection, insert.on_conflict_do_update(index_elements=["account_id"], set_=sums), BALANCES, rows)


def keep_balances(
    broker: BrokerConsumer,
    engine: Engine,
    member: str,
    stop: threading.Event,
    limits: Limits,
    around: Surroundings | None = None,
    batch: SqlBatch = DEFAULT_BATCH,
) -> str:
    """Be a member that keeps the balances until stopped or a limit is reached; returns which. Closes the broker's consumer.

    Raises `FatalError`; the next call goes on from what is committed.
    """
    around = around or Surroundings()
    try:
        positions = SqlPositions(engine, NAME, member, around.clock, around.random)
        positions.prepare(BALANCES)
        incarnation = Incarnation(broker.topic_id, around.clock)

        def build(context: Context) -> Strategy[pa.RecordBatch]:
            sink: SqlSink[Changes] = SqlSink(
                positions, add, context.commit, context.around, batch=batch, same_topic=incarnation.require
            )
            return RunTask(ToChanges(), sink, around=context.around)

        processor = Processor(Subscription(NAME, TOPIC), broker, positions, build, around)
        try:
            return processor.run(stop, limits)
        finally:
            processor.end()
    finally:
        broker.close()


def differences(engine: Engine, expected: Mapping[str, int]) -> list[Difference]:
    """Accounts whose balance is not as expected, or that should not be there. An account without transactions needs no row."""
    with engine.connect() as connection:
        actual = {row.account_id: row.cents for row in connection.execute(select(BALANCES))}
    wrong = [
        Difference(account, cents, actual.get(account))
        for account, cents in sorted(expected.items())
        if actual.get(account, 0) != cents
    ]
    return wrong + [Difference(account, 0, actual[account]) for account in sorted(actual.keys() - expected.keys())]


def _invalid(batch: pa.RecordBatch, reasons: Sequence[tuple[int, str]]) -> tuple[InvalidRecord, ...]:
    return tuple(InvalidRecord(batch["partition"][i].as_py(), batch["offset"][i].as_py(), reason) for i, reason in reasons)
