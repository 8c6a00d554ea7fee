import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from consumers.clock import SystemClock
from orchestration.local.supervisor import Supervisor

WORKER = "import os, signal, sys; open(sys.argv[1], 'a').write(f'{os.getpid()}\\n'); signal.pause()"
PROXY = """
import signal, subprocess, sys
def start(*_):
    workers.append(subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]]))
workers = []
signal.signal(signal.SIGUSR1, start)
start()
while True:
    signal.pause()
"""
_clock = SystemClock()


@pytest.fixture
def pids(tmp_path: Path) -> Path:
    return tmp_path / "pids"


def supervisor(pids: Path, **commands: str) -> Supervisor:
    python: Mapping[str, Sequence[str]] = {
        name: [sys.executable, "-c", code, WORKER, str(pids)] for name, code in commands.items()
    }
    return Supervisor(python, pids.parent, os.environ, pids.with_name("log"), proxies=["proxy"])


def until(condition: Callable[[], bool]) -> None:
    deadline = _clock.monotonic() + 60
    while not condition():
        assert _clock.monotonic() < deadline
        _clock.sleep(0.05)


def workers(pids: Path, count: int) -> list[psutil.Process]:
    """The first processes that wrote down that they are there."""
    until(lambda: pids.exists() and pids.read_text().count("\n") >= count)
    return [psutil.Process(int(pid)) for pid in pids.read_text().split()[:count]]


def gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def parent_of(process: psutil.Process) -> psutil.Process:
    parent = process.parent()
    assert parent is not None
    return parent


def test_what_dies_is_started_again_and_all_ends_with_the_supervisor(pids: Path) -> None:
    with supervisor(pids, one=WORKER.replace("argv[1]", "argv[2]")) as kept:
        [first] = workers(pids, 1)
        first.kill()
        until(lambda: pids.read_text().count("\n") == 2)
        second = psutil.Process(int(pids.read_text().split()[1]))
        assert kept.failed() is None
    until(lambda: gone(second))


def test_a_proxy_without_its_newest_worker_is_started_again_and_its_older_one_goes_on(pids: Path) -> None:
    with supervisor(pids, proxy=PROXY) as kept:
        [older] = workers(pids, 1)
        proxy = parent_of(older)
        proxy.send_signal(signal.SIGUSR1)
        [_, newest] = workers(pids, 2)
        until(lambda: newest in kept._workers.values())
        newest.kill()
        until(lambda: gone(proxy))
        until(lambda: pids.read_text().count("\n") == 3)
        assert not gone(older)


def test_what_lost_its_parent_ends_with_the_supervisor_too(pids: Path) -> None:
    with supervisor(pids, proxy=PROXY):
        [orphan] = workers(pids, 1)
        proxy = parent_of(orphan)
        proxy.kill()
        until(lambda: pids.read_text().count("\n") == 2)
        assert not gone(orphan)
    until(lambda: gone(orphan))
