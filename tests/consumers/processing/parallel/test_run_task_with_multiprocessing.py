"""`RunTaskWithMultiprocessing` beyond the conformance suite: order, crashes in between, and processes that stay or go."""

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from consumers.errors import TaskFailed
from consumers.processing.parallel.pool import WorkerPool
from consumers.processing.strategies.protocol import MessageRejected
from consumers.processing.strategies.run_task_with_multiprocessing import RunTaskWithMultiprocessing
from tests.consumers.processing.parallel.functions import obey, said, told
from tests.consumers.processing.parallel.parts import TP, Kept, columns, message
from tests.contracts.strategies import until

Open = Callable[..., RunTaskWithMultiprocessing]


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    """The tests share processes; see there what else that is good for."""
    made = WorkerPool()
    yield made
    made.close()


@pytest.fixture
def after() -> Kept:
    return Kept()


@pytest.fixture
def open_(after: Kept, pool: WorkerPool) -> Iterator[Open]:
    with ExitStack() as stack:

        def made(**settings: Any) -> RunTaskWithMultiprocessing:
            strategy = RunTaskWithMultiprocessing(obey, after, **({"processes": 2, "pool": pool} | settings))
            stack.callback(strategy.close)
            return strategy

        yield made


def test_order_is_kept_whatever_takes_how_long_and_whatever_dies(open_: Open, after: Kept, tmp_path: Path) -> None:
    chance = random.Random(4)
    strategy = open_(max_in_flight=5)
    todo = [told(columns(start, start + 10), "wait", str(chance.choice([0, 0, 0.001, 0.01]))) for start in range(0, 600, 10)]
    for dies in (11, 12, 40):
        todo[dies] = told(columns(dies * 10, dies * 10 + 10), "kill the first", str(tmp_path / str(dies)))
    for index, batch in enumerate(todo):
        _submit(strategy, batch, index * 10)
    assert strategy.flush(20)
    assert after.ends == list(range(10, 610, 10))
    assert [offset for taken in after.messages for offset in taken.payload["offset"].to_pylist()] == list(range(600))


def test_one_large_batch_is_done_by_all_processes_and_joined_in_order(open_: Open, after: Kept) -> None:
    strategy = open_()
    strategy.submit(message(told(columns(0, 1001), "refuse first", "odd"), 0, 1001))
    assert strategy.flush(20)
    (made,) = after.messages
    assert [(r.partition, r.offset) for r in made.rejected] == [(TP, 0), (TP, 500)]
    assert made.payload["offset"].to_pylist() == [offset for offset in range(1001) if offset not in (0, 500)]


def test_a_batch_stays_whole_when_it_is_small_or_asked_to(open_: Open, after: Kept) -> None:
    for settings, rows in (({}, 199), ({"piece_rows": None}, 1001)):
        strategy = open_(**settings)
        strategy.submit(message(told(columns(0, rows), "say rows"), 0, rows))
        assert strategy.flush(20)
        strategy.close()
        assert said(after.messages.pop().payload) == str(rows)


def test_what_is_in_flight_is_bounded(open_: Open, after: Kept) -> None:
    strategy = open_(max_in_flight=3)
    after.full = True
    for start in range(3):
        strategy.submit(message(columns(start, start + 1), start, start + 1))
    with pytest.raises(MessageRejected):
        strategy.submit(message(columns(3, 4), 3, 4))
    after.full = False
    assert strategy.flush(20)
    assert after.ends == [1, 2, 3]


def test_work_that_kills_its_process_again_and_again_ends_the_run(open_: Open, after: Kept) -> None:
    strategy = open_(max_crashes=0)
    strategy.submit(message(columns(0, 5), 0, 5))
    strategy.submit(message(told(columns(5, 10), "die", "SIGKILL"), 5, 10))
    strategy.submit(message(columns(10, 15), 10, 15))
    with pytest.raises(TaskFailed, match=r"killed by SIGKILL.* 0 \[5, 10\).*out of memory"):
        until(lambda: False, strategy.poll)
    assert after.ends == [5]


def test_what_is_not_arrow_is_refused(open_: Open) -> None:
    strategy = open_()
    strategy.submit(message(["a list"], 0, 1))
    with pytest.raises(TaskFailed, match="was given list on topic orders"):
        strategy.flush(20)


def test_closing_ends_processes_in_the_middle_of_a_call(open_: Open, after: Kept, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    strategy = open_(processes=1, pool=None)
    strategy.submit(message(told(columns(0, 1), "hold the interpreter", str(marker)), 0, 1))
    until(lambda: marker.exists() and bool(marker.read_text()))
    strategy.close()
    assert not psutil.pid_exists(int(marker.read_text()))
    assert after.messages == []


def test_idle_processes_of_a_pool_serve_the_next_strategy_and_busy_ones_end(after: Kept, tmp_path: Path) -> None:
    pool, marker, pids = WorkerPool(), tmp_path / "marker", []
    for _ in range(2):
        strategy = RunTaskWithMultiprocessing(obey, after, processes=1, pool=pool)
        strategy.submit(message(told(columns(0, 1), "say pid"), 0, 1))
        assert strategy.flush(20)
        strategy.close()
        pids.append(int(said(after.messages.pop().payload)))
    assert pids[0] == pids[1]
    strategy = RunTaskWithMultiprocessing(obey, after, processes=1, pool=pool)
    strategy.submit(message(told(columns(0, 1), "hold the interpreter", str(marker)), 0, 1))
    until(marker.exists)
    strategy.close()
    assert not psutil.pid_exists(pids[0])
    pool.close()


def test_a_pool_that_is_closed_leaves_no_process(after: Kept) -> None:
    pool = WorkerPool()
    strategy = RunTaskWithMultiprocessing(obey, after, processes=1, pool=pool)
    strategy.submit(message(told(columns(0, 1), "say pid"), 0, 1))
    assert strategy.flush(20)
    pool.close()
    pid = int(said(after.messages.pop().payload))
    assert psutil.pid_exists(pid)
    strategy.close()
    assert not psutil.pid_exists(pid)


def _submit(strategy: RunTaskWithMultiprocessing, batch: Any, start: int) -> None:
    """Offer it until it is taken."""

    def taken() -> bool:
        try:
            strategy.submit(message(batch, start, start + batch.num_rows))
        except MessageRejected:
            return False
        return True

    until(taken, strategy.poll)
