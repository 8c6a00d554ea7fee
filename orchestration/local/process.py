"""Starts, finds and stops a broker's process.

A pid is trusted only when its command line names our configuration file.
"""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil

from consumers.clock import Clock
from orchestration.local.files import write_whole

TERM_SECONDS = 30.0
_POLL_SECONDS = 0.05


def start(command: list[str], folder: Path) -> psutil.Process:
    """Run a broker that outlives us, its output appended to `logs/console.log`, its pid in `pid`."""
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    with (folder / "logs" / "console.log").open("ab") as console:
        child = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            start_new_session=True,
        )
    write_whole(folder / "pid", f"{child.pid}\n")
    return psutil.Process(child.pid)


def find(folder: Path) -> psutil.Process | None:
    """The running process of the broker that lives in `folder`, or None.

    The pid file is only a hint: a pid is used again by the system, and a `weir` that was killed may not have
    written it.
    """
    configuration = str(folder / "server.properties")
    try:
        hinted = psutil.Process(int((folder / "pid").read_text()))
        # In the moment in which it becomes the broker it has no command line.
        if not hinted.cmdline() or _is_ours(hinted, configuration):
            return hinted
    except (OSError, ValueError, psutil.Error):
        pass
    return next((process for process in psutil.process_iter() if _is_ours(process, configuration)), None)


def stop(processes: list[psutil.Process], clock: Clock, seconds: float = TERM_SECONDS) -> None:
    """Ask all to end, wait together, then kill whoever is left."""
    _signal(processes, signal.SIGTERM)
    left = _wait(processes, clock, seconds)
    _signal(left, signal.SIGKILL)
    _wait(left, clock, TERM_SECONDS)


def _is_ours(process: psutil.Process, configuration: str) -> bool:
    try:
        return configuration in process.cmdline()
    except psutil.Error:
        return False


def _signal(processes: list[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        # psutil checks that the pid was not given to another process meanwhile
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _wait(processes: list[psutil.Process], clock: Clock, seconds: float) -> list[psutil.Process]:
    """Those still alive after `seconds`."""
    deadline = clock.monotonic() + seconds
    left = [process for process in processes if alive(process)]
    while left and clock.monotonic() < deadline:
        clock.sleep(_POLL_SECONDS)
        left = [process for process in left if alive(process)]
    return left


def alive(process: psutil.Process) -> bool:
    """Whether it still runs; a child of ours that ended is collected on the way."""
    try:
        if process.status() != psutil.STATUS_ZOMBIE:
            return process.is_running()
        if process.ppid() == os.getpid():
            process.wait(0)
    except psutil.TimeoutExpired:
        return True  # some of its threads are not gone yet, and hold its ports
    except (psutil.Error, ChildProcessError):
        pass
    return False
