"""Balances are right although every statement and COMMIT may fail; and the check can say that they are wrong."""

import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from sqlalchemy import URL, Connection, Engine, create_engine, func, select

from consumers.brokers.memory import MemoryCluster, MemoryConsumer, MemoryProducer
from consumers.clock import ManualClock
from consumers.database.faults import faults
from consumers.database.tables import DEAD_LETTERS, create_tables
from consumers.errors import ConfigError, StorageError
from consumers.processing.context import Surroundings
from consumers.processing.processor import Limits
from consumers.processing.strategies.sql_sink import SqlSink
from consumers.processing.strategies.sql_transactions import SqlBatch
from consumers.types import RecordBatch
from orchestration.cli.balances import check
from orchestration.samples import balances
from orchestration.samples.balances import BALANCES, Changes, Difference, add, differences, keep_balances
from orchestration.samples.records import expected_balances, malformed_rows, records, sample
from orchestration.samples.sources import transactions_frame

COUNT = 2_000
MALFORMED = 0.02
SEED = 7
SMALL = SqlBatch(max_records=100)
CLOCK = ManualClock(2_000_000_000)


@pytest.fixture
def cluster() -> MemoryCluster:
    """The topic, filled."""
    made = MemoryCluster(clock=CLOCK)
    topic = sample("transactions")
    made.create_topic(topic.topic, topic.partitions, {"retention.ms": "-1"})
    producer = MemoryProducer(made, random=random.Random(SEED))
    frame, broken = transactions_frame(SEED, COUNT), malformed_rows(COUNT, MALFORMED, SEED)
    for key, value, stamp in records(topic, frame, broken, SEED):
        producer.send(topic.topic, value, key, timestamp_ms=stamp)
    producer.close()
    return made


class Slow(MemoryConsumer):
    """Polls a little at a time, and every poll takes a while."""

    def poll(self, max_records: int, timeout: float) -> RecordBatch | None:
        CLOCK.advance(0.02)
        return super().poll(min(max_records, 150), timeout)


def expected() -> dict[str, int]:
    return expected_balances(SEED, COUNT, MALFORMED)


def run(cluster: MemoryCluster, engine: Engine, chance: random.Random) -> None:
    """One member, to the end of the topic."""
    broker = Slow(cluster, "transactions", "weir-balances")
    around = Surroundings(clock=cluster.clock, random=chance)
    reason = keep_balances(broker, engine, "m", threading.Event(), Limits(until_caught_up=True), around, SMALL)
    assert reason == "caught up"


def run_until_done(cluster: MemoryCluster, engine: Engine, probability: float) -> Counter[str]:
    """Start again and again under injected errors; where they happened, and how many starts there were."""
    chance = random.Random(SEED)
    with faults(engine, probability, chance) as injected:
        for starts in range(1, 200):
            try:
                run(cluster, engine, chance)
            except StorageError:
                continue
            return Counter(injected.injected, starts=starts)
    raise AssertionError("never done")


@pytest.mark.parametrize("probability", [0.0, 0.2])
def test_balances_are_right_under_errors_before_and_after_statements_and_commits(
    cluster: MemoryCluster, sql_url: URL, probability: float
) -> None:
    engine = create_engine(sql_url)
    happened = run_until_done(cluster, engine, probability)
    assert differences(engine, expected()) == []
    with engine.connect() as connection:
        letters = connection.execute(select(func.count()).select_from(DEAD_LETTERS)).scalar_one()
        counted = connection.execute(select(func.sum(BALANCES.c.transactions))).scalar_one()
    assert letters == malformed_rows(COUNT, MALFORMED, SEED).sum() > 0
    assert counted + letters == COUNT
    if probability:
        assert all(happened.values()) and happened["starts"] > 1, happened
    engine.dispose()


def commit_apart(sink: SqlSink[Changes], connection: Connection, payloads: Sequence[Changes]) -> None:
    """A planted defect: the rows are committed before the positions."""
    with sink._engine.begin() as other:
        add(other, payloads)


def count_twice(sink: SqlSink[Changes], connection: Connection, payloads: Sequence[Changes]) -> None:
    """A planted defect: one payload in some counts twice."""
    add(connection, [*payloads, *payloads[:1]])


def forget(sink: SqlSink[Changes], connection: Connection, payloads: Sequence[Changes]) -> None:
    """A planted defect: one payload in some is left out."""
    add(connection, payloads[1:])


@pytest.mark.parametrize("defect", [commit_apart, count_twice, forget])
def test_the_check_finds_planted_defects(
    cluster: MemoryCluster, sql_url: URL, defect: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    if defect is commit_apart and sql_url.get_backend_name() == "sqlite":
        pytest.skip("SQLite has one writer at a time, so rows cannot be written apart")

    class Defective(SqlSink[Changes]):
        def _users(self, function: object, ranges: object, *arguments: object) -> object:
            return defect(self, *arguments)

    monkeypatch.setattr(balances, "SqlSink", Defective)
    engine = create_engine(sql_url)
    run_until_done(cluster, engine, 0.05)
    assert differences(engine, expected())
    engine.dispose()


def test_an_account_that_is_wrong_missing_or_unknown_is_a_difference(sql_url: URL) -> None:
    engine = create_engine(sql_url)
    create_tables(engine, BALANCES)
    with engine.begin() as connection:
        for account, cents in (("A", 5), ("B", 7), ("X", 0)):
            connection.execute(BALANCES.insert(), {"account_id": account, "cents": cents, "transactions": 1})
    assert differences(engine, {"A": 5, "B": 8, "C": 3, "D": 0}) == [
        Difference("B", 8, 7),
        Difference("C", 3, None),
        Difference("X", 0, 0),
    ]
    engine.dispose()


def test_a_check_of_a_database_that_is_not_there_says_so_and_makes_none(tmp_path: Path) -> None:
    missing = tmp_path / "missing.db"
    with pytest.raises(ConfigError, match=r"there is no database .*missing\.db"):
        check(f"sqlite:///{missing}", limit=10)
    assert not missing.exists()
