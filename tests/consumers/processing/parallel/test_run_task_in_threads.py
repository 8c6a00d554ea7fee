"""`RunTaskInThreads` beyond the conformance suite: what runs at the same time, in what pieces, and how it ends."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pytest

from consumers.clock import SystemClock
from consumers.errors import ConfigError, TaskFailed
from consumers.metrics import Histogram, NoMetrics, Tags
from consumers.processing.context import Surroundings
from consumers.processing.parallel.lanes import cut, join
from consumers.processing.strategies.batch import Batch
from consumers.processing.strategies.buffer import UpTo
from consumers.processing.strategies.protocol import MessageRejected
from consumers.processing.strategies.run_task_in_threads import RunTaskInThreads
from consumers.processing.strategies.unfold import Unfold
from tests.consumers.processing.parallel.parts import Kept, columns, message
from tests.contracts.strategies import until

Open = Callable[..., RunTaskInThreads[Any, Any]]


class Observed(NoMetrics):
    def __init__(self) -> None:
        self.seen: list[tuple[str, Tags | None]] = []

    def observe(self, name: Histogram, value: float, tags: Tags | None = None) -> None:
        self.seen.append((name, tags))


@pytest.fixture
def after() -> Kept:
    return Kept()


@pytest.fixture
def open_(after: Kept) -> Iterator[Open]:
    with ExitStack() as stack:

        def made(function: Callable[[Any], Any], **settings: Any) -> RunTaskInThreads[Any, Any]:
            strategy: RunTaskInThreads[Any, Any] = RunTaskInThreads(function, after, **({"concurrency": 2} | settings))
            stack.callback(strategy.close)
            return strategy

        yield made


def test_a_flush_brings_more_parts_of_a_message_through_than_threads_take_at_once(after: Kept) -> None:
    def rows(payload: pa.RecordBatch) -> list[pa.RecordBatch]:
        return [payload.slice(i, 1) for i in range(payload.num_rows)]

    threads: RunTaskInThreads[pa.RecordBatch, pa.RecordBatch] = RunTaskInThreads(
        lambda row: row, Batch(UpTo(), after), concurrency=1
    )
    first = Unfold(rows, columns(0, 0), threads)
    try:
        first.submit(message(columns(0, 10), 0, 10))
        assert first.flush(60)
        assert [kept.payload.num_rows for kept in after.messages] == [10]
    finally:
        first.close()


def test_messages_wait_for_those_before_them(open_: Open, after: Kept) -> None:
    released = [threading.Event() for _ in range(3)]
    done = [threading.Event() for _ in range(3)]

    def wait(index: int) -> int:
        released[index].wait(20)
        done[index].set()
        return index

    strategy = open_(wait, concurrency=3)
    for index in range(3):
        strategy.submit(message(index, index, index + 1))
    for index in (2, 1):
        released[index].set()
        assert done[index].wait(20)
        strategy.poll()
        assert after.ends == []
    released[0].set()
    assert strategy.flush(20)
    assert after.ends == [1, 2, 3]
    assert [taken.payload for taken in after.messages] == [0, 1, 2]


def test_as_many_calls_as_there_are_threads_run_at_the_same_time(open_: Open) -> None:
    together = threading.Barrier(3, timeout=20)
    strategy = open_(lambda payload: together.wait(), concurrency=3)
    for index in range(3):
        strategy.submit(message(index, index, index + 1))
    assert strategy.flush(20)


def test_it_is_full_at_its_limit_until_a_message_has_gone_on(open_: Open, after: Kept) -> None:
    strategy = open_(lambda payload: payload, max_in_flight=2)
    after.full = True
    for index in range(2):
        strategy.submit(message(index, index, index + 1))
    for _ in range(3):
        with pytest.raises(MessageRejected):
            strategy.submit(message(2, 2, 3))
    after.full = False
    assert strategy.flush(20)
    strategy.submit(message(2, 2, 3))
    assert strategy.flush(20)
    assert after.ends == [1, 2, 3]


def test_all_before_a_failure_goes_on_and_nothing_after_it(open_: Open, after: Kept) -> None:
    strategy = open_(lambda payload: 6 / payload, max_in_flight=9)
    for index, payload in enumerate([1, 2, 0, 3]):
        strategy.submit(message(payload, index, index + 1))
    for _ in range(2):
        with pytest.raises(TaskFailed, match=r"topic orders, partitions and offsets 0 \[2, 3\).*ZeroDivisionError"):
            until(lambda: False, strategy.poll)
    assert after.ends == [1, 2]


def test_an_exit_from_a_function_reaches_the_polling_thread(open_: Open) -> None:
    def leave(payload: object) -> None:
        raise SystemExit(3)

    strategy = open_(leave)
    strategy.submit(message(1, 0, 1))
    with pytest.raises(SystemExit):
        until(lambda: False, strategy.poll)


def test_a_batch_is_one_call_unless_pieces_are_asked_for(open_: Open, after: Kept) -> None:
    sizes: list[int] = []

    def count(batch: pa.RecordBatch) -> pa.RecordBatch:
        sizes.append(batch.num_rows)
        return batch

    for piece_rows, expected in ((None, [100]), (51, [100]), (40, [50, 50]), (1, [50, 50])):
        strategy = open_(count, piece_rows=piece_rows)
        strategy.submit(message(columns(0, 100), 0, 100))
        assert strategy.flush(20)
        assert after.messages.pop().payload.equals(columns(0, 100))
        assert sizes == expected
        sizes.clear()


def test_pieces_that_do_not_join_end_the_run_with_what_to_do(open_: Open) -> None:
    strategy = open_(lambda batch: {"sum": batch.num_rows}, piece_rows=1)
    strategy.submit(message(columns(0, 10), 0, 10))
    with pytest.raises(TaskFailed, match=r"\[0, 10\) does not join: .*dict.*piece_rows=None"):
        strategy.flush(20)


def test_what_was_discarded_while_it_ran_is_dropped(open_: Open, after: Kept) -> None:
    began, release = threading.Event(), threading.Event()

    def wait(payload: str) -> str:
        if payload == "old":
            began.set()
            release.wait(20)
        return payload

    strategy = open_(wait, concurrency=1, max_in_flight=2)
    strategy.submit(message("old", 0, 1))
    strategy.submit(message("old", 1, 2))
    assert began.wait(20)
    strategy.discard()
    strategy.submit(message("new", 0, 1))
    release.set()
    assert strategy.flush(20)
    assert [taken.payload for taken in after.messages] == ["new"]


def test_the_next_step_is_flushed_once_everything_is_there(open_: Open, after: Kept) -> None:
    release = threading.Event()
    strategy = open_(lambda payload: release.wait(20))
    strategy.submit(message(1, 0, 1))
    assert not strategy.flush(0.01)
    assert after.flushed == 0
    release.set()
    until(lambda: after.flushed == 1, strategy.poll)
    assert after.ends == [1]


def test_closing_leaves_a_function_alone_that_does_not_end(open_: Open, after: Kept, caplog: pytest.LogCaptureFixture) -> None:
    began, release = threading.Event(), threading.Event()

    def wait(payload: object) -> None:
        began.set()
        release.wait(20)

    strategy = open_(wait, close_seconds=0.01)
    strategy.submit(message(1, 0, 1))
    assert began.wait(20)
    strategy.close()
    release.set()
    assert "still runs" in caplog.text
    assert (after.closed, after.ends) == (1, [])


@pytest.mark.parametrize("settings", [{"concurrency": 0}, {"max_in_flight": 0}, {"piece_rows": 0}])
def test_settings_that_could_do_nothing_are_refused(open_: Open, settings: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="are 1 or more"):
        open_(len, **settings)


def test_its_threads_end_with_it(open_: Open) -> None:
    before = set(threading.enumerate())
    strategy = open_(lambda payload: payload, concurrency=3)
    strategy.submit(message(1, 0, 1))
    strategy.close()
    assert set(threading.enumerate()) <= before


def test_each_call_is_measured_by_its_functions_name(open_: Open) -> None:
    observed = Observed()
    strategy = open_(len, around=Surroundings(SystemClock(), observed))
    strategy.submit(message("payload", 0, 1))
    assert strategy.flush(20)
    assert observed.seen == [("task_seconds", {"function": "builtins.len"})]


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 10, 101])
@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_pieces_are_even_and_join_to_what_was_cut(rows: int, lanes: int) -> None:
    batch = columns(0, rows)
    pieces = cut(batch, lanes, 2)
    assert len(pieces) == max(1, min(lanes, rows // 2))
    assert max(p.num_rows for p in pieces) - min(p.num_rows for p in pieces) <= 1
    assert join(pieces).equals(batch)
    assert join([p.to_pylist() for p in pieces]) == batch.to_pylist()
    assert join(cut(pa.table(batch), lanes, 2)).equals(pa.table(batch))
