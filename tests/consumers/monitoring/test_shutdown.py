"""Signals: the first stops gracefully, the second at once, and nothing that hangs holds them up."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from consumers.monitoring.shutdown import Shutdown


def test_the_first_signal_stops_and_the_second_aborts() -> None:
    said: list[str] = []
    ended: list[int] = []
    shutdown = Shutdown(said.append, grace=60, end=ended.append)
    shutdown.received(signal.SIGINT)
    assert (shutdown.stop.is_set(), shutdown.abort.is_set()) == (True, False)
    shutdown.received(signal.SIGTERM)
    assert shutdown.abort.is_set()
    assert ended == []
    assert [line.split(":")[0] for line in said] == ["Stopping", "Ending at once"]
    shutdown.received(signal.SIGTERM)
    assert ended == [143]


def test_what_does_not_end_by_itself_after_the_second_signal_is_ended() -> None:
    ended: list[int] = []
    over = threading.Event()

    def end(code: int) -> None:
        ended.append(code)
        over.set()

    shutdown = Shutdown(lambda _: None, grace=0.01, end=end)
    shutdown.received(signal.SIGINT)
    shutdown.received(signal.SIGINT)
    assert over.wait(10)
    assert ended == [130]


def test_signals_are_handled_inside_of_the_context_only() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with Shutdown(lambda _: None) as shutdown:
        os.kill(os.getpid(), signal.SIGTERM)
        assert shutdown.stop.wait(10)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


CHILD = """
import sys, threading
from consumers.monitoring.shutdown import Shutdown
with Shutdown(lambda text: print(text, flush=True), grace=0.2) as shutdown:
    print("ready", flush=True)
    if sys.argv[1] == "graceful":
        shutdown.stop.wait()
    else:
        lock = threading.Lock(); lock.acquire(); lock.acquire()  # a step that hangs
print("ended by itself", flush=True)
"""


@pytest.fixture
def child(request: pytest.FixtureRequest) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", CHILD, request.param]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("child", ["graceful"], indirect=True)
def test_a_process_ends_gracefully_after_one_signal(child: "subprocess.Popen[str]") -> None:
    child.send_signal(signal.SIGINT)
    said, _ = child.communicate(timeout=30)
    assert said.startswith("Stopping: ")
    assert said.endswith("ended by itself\n")
    assert child.returncode == 0


@pytest.mark.parametrize("child", ["hanging"], indirect=True)
def test_a_process_with_a_step_that_hangs_ends_after_the_second_signal(child: "subprocess.Popen[str]") -> None:
    assert child.stdout is not None
    child.send_signal(signal.SIGINT)
    assert child.stdout.readline().startswith("Stopping: ")
    child.send_signal(signal.SIGTERM)
    assert child.stdout.readline().startswith("Ending at once: ")
    assert child.wait(timeout=30) == 143
