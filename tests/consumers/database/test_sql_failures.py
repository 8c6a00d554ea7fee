"""When the database fails: what is tried again, what ends the run, and what is found out after a COMMIT without an answer."""

import logging
import random
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from sqlalchemy import URL, Connection, Engine, create_engine, select, text
from sqlalchemy.exc import OperationalError

from consumers.database.failures import Backoff
from consumers.database.tables import DEAD_LETTERS, create_tables
from consumers.database.writes import append
from consumers.errors import OwnershipLost, StorageError
from consumers.processing.strategies.protocol import MessageRejected
from consumers.processing.strategies.sql_sink import SqlSink
from consumers.processing.strategies.sql_transactions import SqlBatch
from consumers.types import OffsetRange
from tests.consumers.database.parts import (
    LINES,
    TP,
    Told,
    answer_lost,
    contents,
    ids,
    member,
    message,
    sink,
    surroundings,
    take,
)
from tests.postgres_fixture import database


class Failing:
    """A write that raises some errors first, one a call."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.calls = 0

    def __call__(self, connection: Connection, payloads: Sequence[Any]) -> None:
        self.calls += 1
        append(LINES)(connection, payloads)
        if self._errors:
            raise self._errors.pop(0)


def busy() -> OperationalError:
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY
    return OperationalError("INSERT", {}, error)


def failing(engine: Engine, *errors: Exception, **more: Any) -> tuple[SqlSink[Any], Failing, Told]:
    create_tables(engine, LINES)
    positions, write, told = member(engine), Failing(*errors), Told()
    take(positions)
    return sink(positions, told, write, **more), write, told


def test_a_transient_error_is_tried_again_by_later_polls_and_nothing_waits(memory: Engine) -> None:
    around = surroundings()
    ours, write, told = failing(memory, busy(), around=around, batch=SqlBatch(max_records=1))
    ours.submit(message(0, 1))
    ours.poll()
    assert write.calls == 1
    with pytest.raises(MessageRejected):
        ours.submit(message(1, 1))
    around.clock.sleep(1)
    ours.submit(message(1, 1))
    assert told.commits == [{TP: OffsetRange(0, 1)}, {TP: OffsetRange(1, 2)}]
    assert ids(memory) == [0, 1]


def test_a_flush_tries_again_as_long_as_it_may(memory: Engine) -> None:
    ours, write, told = failing(memory, busy(), busy(), busy(), backoff=Backoff(first_seconds=10, most_seconds=10))
    ours.submit(message(0, 1))
    assert not ours.flush(0)
    assert ours.flush(100)
    assert (write.calls, ids(memory), len(told.commits)) == (4, [0], 1)


def test_a_transient_error_that_stays_ends_the_run(memory: Engine) -> None:
    ours, write, told = failing(memory, *(busy() for _ in range(9)), backoff=Backoff(attempts=3))
    ours.submit(message(0, 1))
    with pytest.raises(StorageError, match=r"locked. Nothing of it was committed.*kept failing"):
        ours.flush(1_000)
    assert (write.calls, ids(memory), told.commits) == (3, [], [])


def test_an_error_that_stays_is_not_tried_again(memory: Engine) -> None:
    ours, write, _ = failing(memory, OperationalError("INSERT", {}, sqlite3.OperationalError("no such table: x")))
    ours.submit(message(0, 1))
    with pytest.raises(StorageError, match="no such table: x"):
        ours.flush(1_000)
    assert write.calls == 1


@pytest.fixture
def theirs(postgres: URL) -> Iterator[URL]:
    with database(postgres) as url:
        yield url


@pytest.mark.integration
def test_a_transaction_that_postgresql_breaks_off_is_tried_again(theirs: URL) -> None:
    engine = create_engine(theirs)
    killed: list[int] = []

    def cut(connection: Connection, payloads: Sequence[Any]) -> None:
        append(LINES)(connection, payloads)
        if not killed:
            killed.append(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())
            with engine.connect() as other:
                other.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": killed[0]})

    create_tables(engine, LINES)
    positions, told = member(engine), Told()
    take(positions)
    ours = sink(positions, told, cut)
    ours.submit(message(0, 3))
    assert ours.flush(100)
    assert (len(killed), ids(engine), told.commits) == (1, [0, 1, 2], [{TP: OffsetRange(0, 3)}])
    engine.dispose()


@pytest.mark.integration
def test_serialization_failures_are_tried_again(theirs: URL) -> None:
    engine = create_engine(theirs, isolation_level="SERIALIZABLE")
    create_tables(engine, LINES)
    calls: list[int] = []

    def counted(connection: Connection, payloads: Sequence[Any]) -> None:
        calls.append(len(connection.execute(select(LINES)).all()))
        if len(calls) == 1:
            with engine.begin() as other:  # reads what we write, and writes what we read
                other.execute(select(LINES)).all()
                other.execute(LINES.insert(), {"id": 99, "text": "theirs"})
        append(LINES)(connection, payloads)

    positions, told = member(engine), Told()
    take(positions)
    ours = sink(positions, told, counted)
    ours.submit(message(0, 2))
    assert ours.flush(100)
    assert (calls, ids(engine), len(told.commits)) == ([0, 1], [0, 1, 99], 1)
    engine.dispose()


@pytest.mark.parametrize("committed", [True, False])
def test_a_commit_without_an_answer_is_found_out_and_the_rows_are_there_once(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    positions, told = member(engine), Told()
    take(positions)
    ours = sink(positions, told)
    ours.submit(message(0, 3, reject=[1]))
    answer_lost(engine, monkeypatch, committed=committed)
    assert ours.flush(100)
    assert (ids(engine), told.commits) == ([0, 2], [{TP: OffsetRange(0, 3)}])
    assert len(contents(engine, DEAD_LETTERS)) == 1


def test_a_commit_without_an_answer_does_not_grow_before_it_is_found_out(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    positions, told, around = member(engine), Told(), surroundings()
    take(positions)
    ours = sink(positions, told, around=around, batch=SqlBatch(max_latency_seconds=0))
    answer_lost(engine, monkeypatch)
    ours.submit(message(0, 3))
    ours.poll()
    with pytest.raises(MessageRejected):
        ours.submit(message(3, 3))
    around.clock.sleep(1)
    ours.submit(message(3, 3))
    ours.poll()
    assert (ids(engine), told.commits) == ([0, 1, 2, 3, 4, 5], [{TP: OffsetRange(0, 3)}, {TP: OffsetRange(3, 6)}])


def test_a_commit_without_an_answer_and_then_a_takeover_is_lost_ownership(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    positions = member(engine)
    take(positions)
    ours = sink(positions)
    ours.submit(message(0, 3))
    answer_lost(engine, monkeypatch)
    assert not ours.flush(-1)
    assert take(member(engine)) == {TP: 3}
    with pytest.raises(OwnershipLost):
        ours.flush(100)
    assert ids(engine) == [0, 1, 2]


def test_a_commit_that_never_gets_an_answer_ends_the_run_and_says_that_it_is_in_doubt(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    positions = member(engine)
    take(positions)
    ours = sink(positions, backoff=Backoff(attempts=3))
    ours.submit(message(0, 3))
    answer_lost(engine, monkeypatch, times=9, committed=False)
    with pytest.raises(StorageError, match=r"not known, and need not be: the next start finds out"):
        ours.flush(1_000)
    assert take(member(engine)) == {TP: 0}


def test_retries_are_counted_and_logged_without_parameters(memory: Engine, caplog: pytest.LogCaptureFixture) -> None:
    ours, *_ = failing(memory, busy())
    ours.submit(message(0, 1, text="private"))
    with caplog.at_level(logging.WARNING):
        ours.flush(100)
    assert "database is locked" in caplog.text
    assert "private" not in caplog.text


def test_pauses_grow_up_to_a_limit_and_are_jittered() -> None:
    chance, backoff = random.Random(1), Backoff(first_seconds=1, most_seconds=8)
    pauses = [[backoff.pause(failures, chance) for _ in range(200)] for failures in (1, 2, 3, 4, 5, 50)]
    assert [round(max(each)) for each in pauses] == [1, 2, 4, 8, 8, 8]
    assert all(min(each) < max(each) / 4 for each in pauses)
