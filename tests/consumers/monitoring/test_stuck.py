"""A consumer that gets nowhere is noticed, explained and ended."""

import logging
import subprocess
import sys
import threading

import pytest

from consumers.clock import ManualClock, SystemClock
from consumers.monitoring.stuck import STUCK_EXIT, StuckDetector, stuck_after


def turns(detector: StuckDetector, clock: ManualClock, count: int) -> None:
    for _ in range(count):
        clock.advance(1)
        detector.look()


def test_nobody_is_stuck_while_there_is_progress_now_and_then() -> None:
    clock, ended = ManualClock(), threading.Event()
    detector = StuckDetector(10, clock, ended.set)
    for _ in range(5):
        turns(detector, clock, 9)
        detector.progress()
    assert not ended.is_set()


def test_no_progress_puts_every_stack_into_the_log_and_ends_once(caplog: pytest.LogCaptureFixture) -> None:
    clock, calls, let_go = ManualClock(), [], threading.Event()
    hanging = threading.Thread(target=let_go.wait, name="the-one-that-hangs")
    hanging.start()
    try:
        detector = StuckDetector(10, clock, lambda: calls.append("ended"))
        turns(detector, clock, 30)
    finally:
        let_go.set()
        hanging.join()
    assert calls == ["ended"]
    [message] = [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]
    assert "no progress for 10 seconds" in message
    assert "thread the-one-that-hangs" in message
    assert "thread MainThread" in message
    assert "in turns" in message


def test_time_in_which_the_whole_process_stood_still_does_not_count() -> None:
    clock, ended = ManualClock(), threading.Event()
    detector = StuckDetector(10, clock, ended.set)
    turns(detector, clock, 3)
    clock.advance(3600)
    turns(detector, clock, 3)
    assert not ended.is_set()
    turns(detector, clock, 10)
    assert ended.is_set()


def test_the_process_ends_also_when_the_log_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, ended, let_go = ManualClock(), threading.Event(), threading.Event()
    monkeypatch.setattr("consumers.monitoring.stuck._LOG_SECONDS", 0.05)
    monkeypatch.setattr(StuckDetector, "_log", lambda self, text: let_go.wait(30))
    turns(StuckDetector(10, clock, ended.set), clock, 12)
    assert ended.is_set()
    let_go.set()


def test_the_watching_thread_looks_by_itself_and_ends_with_the_context() -> None:
    ended = threading.Event()
    with StuckDetector(0.02, SystemClock(), ended.set) as detector:
        assert ended.wait(10)
    assert not detector._thread.is_alive()


def test_records_that_wait_for_each_other_longer_have_a_longer_limit() -> None:
    assert (stuck_after(10), stuck_after(600)) == (300, 1800)


CHILD = """
import threading
from consumers.clock import SystemClock
from consumers.monitoring.stuck import StuckDetector
def a_step_that_hangs():
    threading.Lock().acquire() or 0
    lock = threading.Lock(); lock.acquire(); lock.acquire()
with StuckDetector(0.2, SystemClock()):
    a_step_that_hangs()
"""


def test_a_process_that_hangs_says_where_and_ends_with_a_code_of_its_own() -> None:
    child = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, timeout=60, check=False)
    assert child.returncode == STUCK_EXIT
    assert "in a_step_that_hangs" in child.stderr
