"""Members that do not know yet that their partitions are another's: they write nothing."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import URL, Connection, Engine, create_engine, text

from consumers.clock import SystemClock
from consumers.database.tables import DEAD_LETTERS, create_tables
from consumers.database.writes import append
from consumers.errors import OwnershipLost
from consumers.processing.starts import Start
from tests.consumers.database.parts import LINES, TP, contents, ids, member, message, sink, take


def test_a_zombie_writes_neither_row_nor_dead_letter(engine: Engine) -> None:
    old, new = member(engine, "old"), member(engine, "new")
    take(old)
    zombie = sink(old)
    zombie.submit(message(0, 5, reject=[2]))
    take(new)
    with pytest.raises(OwnershipLost):
        zombie.flush(0)
    assert (ids(engine), contents(engine, DEAD_LETTERS)) == ([], [])
    successor = sink(new)
    successor.submit(message(0, 5, reject=[2]))
    successor.flush(0)
    assert ids(engine) == [0, 1, 3, 4]
    assert [letter["offset"] for letter in contents(engine, DEAD_LETTERS)] == [2]


def test_a_zombie_in_the_middle_of_its_transaction_makes_the_successor_wait_and_start_after_it(sql_url: URL) -> None:
    if sql_url.get_backend_name() == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    theirs, ours = create_engine(sql_url), create_engine(sql_url)
    old, new = member(theirs), member(ours)
    take(old)
    entered, released, raised = threading.Event(), threading.Event(), []
    seen = new.positions([TP])

    def slow(connection: Connection, payloads: Sequence[Any]) -> None:
        append(LINES)(connection, payloads)
        entered.set()
        released.wait(30)

    create_tables(theirs, LINES)
    zombie = sink(old, write=slow)
    zombie.submit(message(0, 5))
    writing = threading.Thread(target=zombie.flush, args=(0,))
    writing.start()
    entered.wait(30)

    def successor() -> None:
        try:
            new.acquire(seen, {TP: Start(0)}, "id")
        except OwnershipLost as error:
            raised.append(error)

    taking = threading.Thread(target=successor)
    taking.start()
    _until_somebody_waits_for_a_lock(ours)
    released.set()
    writing.join()
    taking.join()
    assert len(raised) == 1  # it had seen offset 0, and looks again
    assert take(new) == {TP: 5}
    assert ids(ours) == [0, 1, 2, 3, 4]
    theirs.dispose()
    ours.dispose()


def _until_somebody_waits_for_a_lock(engine: Engine) -> None:
    clock = SystemClock()
    deadline = clock.monotonic() + 30
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        while not connection.execute(text("SELECT count(*) FROM pg_locks WHERE NOT granted")).scalar():
            assert clock.monotonic() < deadline
            clock.sleep(0.01)
