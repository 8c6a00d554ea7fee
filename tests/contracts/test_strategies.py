"""Every strategy keeps to the protocol: the conformance suite. `strategies.py` says how a strategy comes under it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from consumers.errors import FatalError, TaskFailed
from consumers.types import OffsetRange, TopicPartition
from tests.contracts.bench import Bench, EndBench, bench_of, end_bench_of
from tests.contracts.driver import joined
from tests.contracts.strategies import PARTITIONS, registered, until

TP = PARTITIONS[0]
MANY = 300


@pytest.fixture(params=registered("MIDDLES"), ids=str)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    with bench_of(request.param, tmp_path) as opened:
        yield opened


@pytest.fixture(params=registered("LASTS"), ids=str)
def end(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EndBench]:
    with end_bench_of(request.param, tmp_path) as opened:
        yield opened


def test_messages_leave_in_the_order_in_which_they_came(bench: Bench) -> None:
    for partitions in ((0,), (1,), (0, 1), (1,), (0,)):
        bench.driver.put("ok", "ok", "ok", partitions=partitions)
    bench.settle()
    assert bench.after.committed == {TP: OffsetRange(0, 9), PARTITIONS[1]: OffsetRange(0, 9)}


def test_messages_get_through_by_polls_alone(bench: Bench) -> None:
    bench.driver.submit("ok", "ok", "ok")

    def time_passes() -> None:
        bench.room.advance(60)

    until(lambda: bench.after.committed == {TP: OffsetRange(0, 3)}, bench.driver.poll, time_passes)


def test_flushing_passes_on_what_waits_for_more(bench: Bench) -> None:
    bench.driver.submit("ok")
    until(bench.driver.flush)
    bench.settle()
    assert bench.after.committed == {TP: OffsetRange(0, 1)}


def test_nothing_is_lost_or_doubled_when_the_next_step_is_full(bench: Bench) -> None:
    bench.after.full = True

    def refused() -> bool:
        bench.room.advance(60)
        bench.driver.submit("ok", "ok")
        return bench.driver.refused > 0

    until(refused, bench.driver.poll)
    assert not bench.after.done
    bench.after.full = False
    bench.settle()


def test_what_is_taken_while_the_next_step_is_full_is_bounded(bench: Bench) -> None:
    bench.after.full = True
    taken = 0
    while bench.driver.submit("ok", "ok") and taken < MANY:
        bench.room.advance(60)
        taken += 1
    assert taken < MANY


def test_a_message_without_rows_advances_positions(bench: Bench) -> None:
    bench.driver.submit("ok", rows=False)
    bench.settle()
    assert bench.after.committed == {TP: OffsetRange(0, 1)}
    bench.driver.submit("ok", "ok", partitions=(0, 1), rows=False)
    bench.settle()
    assert bench.after.committed == {TP: OffsetRange(0, 3), PARTITIONS[1]: OffsetRange(0, 2)}


def test_records_that_go_nowhere_advance_positions(bench: Bench) -> None:
    bench.driver.submit("drop", "bad", "drop")
    bench.settle()
    assert bench.after.committed == {TP: OffsetRange(0, 3)}


def test_rejections_travel_with_their_offsets(bench: Bench) -> None:
    bench.driver.put("ok", "ok", "ok", rejected=[1])
    bench.driver.put("ok", rejected=[0])
    bench.settle()


def test_invalid_records_become_rejections_and_the_others_go_on(bench: Bench) -> None:
    bench.driver.put("ok", "bad", "ok", "bad")
    bench.driver.put("bad", "ok")
    bench.settle()


def test_a_discard_forgets_and_what_is_submitted_again_passes_once(bench: Bench) -> None:
    bench.after.slow = True
    bench.driver.submit("ok", "bad", "drop", "ok")
    bench.driver.submit("ok", "ok", "ok", partitions=(0, 1))
    bench.driver.poll()
    bench.driver.discard()
    bench.after.slow = False
    assert not bench.after.done
    bench.driver.submit("ok", "bad")
    bench.settle()


def test_a_discard_forgets_what_the_next_step_refused(bench: Bench) -> None:
    bench.after.full = True
    bench.driver.submit("ok", "ok", "ok", "ok", "ok", "ok")
    bench.driver.discard()
    bench.after.full = False
    until(bench.driver.flush, bench.driver.poll)
    assert not bench.after.done


def test_a_flush_with_unfinished_work_says_so_and_goes_on_by_polls(bench: Bench) -> None:
    bench.after.full = True
    taken = bench.driver.submit("ok", "ok")
    assert bench.driver.flush() is not taken
    bench.after.full = False
    until(lambda: bench.after.committed == {TP: OffsetRange(0, 2)}, bench.driver.offer, bench.driver.poll)


def test_a_flush_waits_for_the_next_step(bench: Bench) -> None:
    bench.after.slow = True
    bench.driver.submit("ok", "ok")
    assert not bench.driver.flush()
    bench.after.slow = False
    bench.settle()


def test_polls_and_flushes_of_nothing_do_nothing(bench: Bench) -> None:
    for _ in range(3):
        bench.driver.poll()
        bench.room.advance(60)
        assert bench.driver.flush()
    assert not bench.after.done


def test_closing_twice_is_closing_once(bench: Bench) -> None:
    bench.driver.submit("ok")
    bench.driver.strategy.close()
    done = len(bench.after.done)
    bench.driver.strategy.close()
    assert bench.after.closed
    assert len(bench.after.done) == done


def test_an_error_of_the_next_step_ends_it_and_nothing_past_it_passes(bench: Bench) -> None:
    bench.driver.submit("ok")
    bench.settle()
    bench.after.fails = FatalError("the disk is full")

    def on() -> None:
        bench.driver.submit("ok", "ok", "ok", "ok", "ok", "ok")
        bench.driver.flush()

    with pytest.raises(FatalError, match="the disk is full"):
        until(lambda: False, on)
    assert bench.after.committed == {TP: OffsetRange(0, 1)}


def test_a_function_that_raises_ends_the_run_with_topic_partition_and_offsets(bench: Bench) -> None:
    if not bench.case.fails:
        pytest.skip("calls no function of the user's that could raise")
    bench.driver.submit("ok", "ok")
    bench.settle()

    def on() -> None:
        bench.driver.submit("ok", "boom")
        bench.driver.flush()

    with pytest.raises(TaskFailed, match=r"topic orders, partitions and offsets 0 \[2, .*boom"):
        until(lambda: False, on)
    assert bench.after.committed == {TP: OffsetRange(0, 2)}


def test_after_a_flush_all_that_was_submitted_is_committed(end: EndBench) -> None:
    for partitions in ((0,), (1,), (0, 1), (1,), (0,)):
        end.driver.put("ok", "ok", "ok", partitions=partitions)
    end.settle()
    assert joined(end.commits) == {TP: OffsetRange(0, 9), PARTITIONS[1]: OffsetRange(0, 9)}


def test_a_flush_alone_commits(end: EndBench) -> None:
    end.driver.submit("ok", "ok", "ok")
    until(end.driver.flush)
    assert joined(end.commits) == {TP: OffsetRange(0, 3)}


def test_commits_come_by_polls_alone(end: EndBench) -> None:
    end.driver.submit("ok", "ok", "ok")

    def time_passes() -> None:
        end.room.advance(60)

    until(lambda: joined(end.commits) == {TP: OffsetRange(0, 3)}, end.driver.poll, time_passes)


def test_a_last_step_commits_what_has_no_rows(end: EndBench) -> None:
    end.driver.submit("ok", "ok", rows=False)
    end.settle()
    assert joined(end.commits) == {TP: OffsetRange(0, 2)}


def test_a_last_step_keeps_rejections_or_refuses_to_drop_them(end: EndBench) -> None:
    if end.case.takes_rejected:
        end.driver.submit("ok", "ok", "ok", rejected=[1])
        end.settle()
    else:
        with pytest.raises(FatalError, match="DeadLetters"):
            end.driver.submit("ok", "ok", "ok", rejected=[1])
        assert not end.commits


def test_a_last_step_makes_nothing_durable_between_messages_of_the_same_records(end: EndBench) -> None:
    whole = end.driver.source.message(*["ok"] * 20)
    early = replace(whole.with_payload(whole.payload.slice(0, 10)), ranges={TP: OffsetRange(0, 0)}, more=True)
    end.driver.strategy.submit(early)
    end.room.advance(60)
    end.driver.poll()
    end.driver.strategy.flush(0.3)
    assert not end.commits
    assert not list(end.ended.rows() if end.ended.rows else [])
    end.driver.held = whole.with_payload(whole.payload.slice(10))
    end.settle()


def test_a_discard_forgets_what_was_not_committed(end: EndBench) -> None:
    end.driver.submit("ok", "ok")
    end.driver.discard()
    told = joined(end.commits)
    end.driver.poll()
    until(end.driver.flush, end.driver.poll)
    assert joined(end.commits) == told


def test_what_is_submitted_again_after_a_discard_is_there_once(end: EndBench) -> None:
    end.driver.submit("ok", "ok", partitions=(0, 1))
    end.driver.discard()
    end.driver.put("ok", "ok", "ok", partitions=(1,))
    end.driver.put("ok", "ok", "ok", partitions=(0,))
    end.settle()


def test_a_last_step_that_has_nothing_commits_nothing(end: EndBench) -> None:
    end.driver.poll()
    end.room.advance(60)
    assert end.driver.flush()
    end.driver.discard()
    end.driver.strategy.close()
    end.driver.strategy.close()
    assert not end.commits


def test_a_closed_last_step_has_committed_no_more_than_it_told(end: EndBench) -> None:
    end.driver.submit("ok", "ok")
    told: dict[TopicPartition, OffsetRange] = joined(end.commits)
    end.driver.strategy.close()
    assert joined(end.commits) == told
