"""Child processes that are kept alive: one that dies is started again, until all are told to end.

Dagster's code server is special: it is a proxy before a process that does the work, and each reload puts a new one behind it,
while the old one stays until the runs that it started are over. The proxy does not notice when its worker dies.
"""

import os
import signal
import subprocess
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

_LOOK_SECONDS = 1.0
_MOST_RESTARTS = 10
_TERM_SECONDS = 10.0
_KILL_SECONDS = 5.0


class Supervisor:
    """Starts named commands with one log file, each in a session of its own. A context manager: its end is theirs.

    Those named in `proxies` are of no use without the newest of their own children. One that is started again leaves the others
    of its children alone, which may have runs.
    """

    def __init__(
        self,
        commands: Mapping[str, Sequence[str]],
        folder: Path,
        env: Mapping[str, str],
        log: Path,
        proxies: Collection[str] = (),
    ) -> None:
        self._commands = commands
        self._proxies = proxies
        self._folder = folder
        self._env = env
        self._log = log
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._sessions: set[int] = set()
        self._workers: dict[int, psutil.Process] = {}
        self._restarts = 0
        self._ending = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="supervisor", daemon=True)

    def __enter__(self) -> Self:
        for name in self._commands:
            self._start(name)
        self._watcher.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ending.set()
        self._watcher.join()
        end(_in_sessions(self._sessions))

    def failed(self) -> str | None:
        """The name of a command that keeps dying, and is no longer started again; None while all is well."""
        if self._restarts < _MOST_RESTARTS:
            return None
        return next((name for name, child in self._children.items() if child.poll() is not None), None)

    def _start(self, name: str) -> None:
        with self._log.open("ab") as output:
            self._children[name] = subprocess.Popen(
                self._commands[name], cwd=self._folder, env=self._env, stdout=output, stderr=output, start_new_session=True
            )
        self._sessions.add(self._children[name].pid)

    def _watch(self) -> None:
        while not self._ending.wait(_LOOK_SECONDS):
            for name, child in list(self._children.items()):
                if self._restarts < _MOST_RESTARTS and (what := self._dead(name, child)):
                    self._restarts += 1
                    with self._log.open("a") as output:
                        output.write(f"{name} {what}; starting it again\n")
                    child.kill()
                    child.wait()
                    self._start(name)

    def _dead(self, name: str, child: "subprocess.Popen[bytes]") -> str:
        """Why a child is of no use any more; empty while it is."""
        if child.poll() is not None:
            return f"ended with {child.returncode}"
        if name not in self._proxies:
            return ""
        try:
            alive = [each for each in psutil.Process(child.pid).children() if each.status() != psutil.STATUS_ZOMBIE]
        except psutil.NoSuchProcess:
            return ""
        known = self._workers.get(child.pid)
        newest = max([*alive, *([known] if known else [])], key=lambda each: each.create_time(), default=None)
        if newest is None:
            return ""
        self._workers[child.pid] = newest
        return "" if newest in alive else "lost the process that works for it"


def end(processes: Iterable[psutil.Process]) -> None:
    """End processes: SIGTERM first, SIGKILL for those that do not listen."""
    left = list(processes)
    for number, seconds in ((signal.SIGTERM, _TERM_SECONDS), (signal.SIGKILL, _KILL_SECONDS)):
        for each in left:
            try:
                each.send_signal(number)
            except psutil.NoSuchProcess:
                continue
        _, left = psutil.wait_procs(left, timeout=seconds)


def _in_sessions(sessions: Collection[int]) -> list[psutil.Process]:
    """What was started in these sessions and is alive, whoever its parent is by now; and what that started elsewhere."""
    found: set[psutil.Process] = set()
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) in sessions:
                found |= {process, *process.children(recursive=True)}
        except (psutil.NoSuchProcess, ProcessLookupError, PermissionError):
            continue
    return list(found)
