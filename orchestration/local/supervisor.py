"""Child processes that are kept alive: one that dies is started again, until all are told to end."""

import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

_LOOK_SECONDS = 1.0
_MOST_RESTARTS = 10
_TERM_SECONDS = 10.0
_KILL_SECONDS = 5.0


class Supervisor:
    """Starts named commands with one log file, each in a session of its own. A context manager: its end is theirs."""

    def __init__(self, commands: Mapping[str, Sequence[str]], folder: Path, env: Mapping[str, str], log: Path) -> None:
        self._commands = commands
        self._folder = folder
        self._env = env
        self._log = log
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._parents: set[int] = set()
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
        end(list(self._children.values()))

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

    def _watch(self) -> None:
        while not self._ending.wait(_LOOK_SECONDS):
            for name, child in list(self._children.items()):
                if self._restarts < _MOST_RESTARTS and (what := self._dead(child)):
                    self._restarts += 1
                    with self._log.open("a") as output:
                        output.write(f"{name} {what}; starting it again\n")
                    end([child])
                    self._start(name)

    def _dead(self, child: "subprocess.Popen[bytes]") -> str:
        """Why a child is of no use any more; empty while it is.

        Dagster's code server is a proxy before a process that does the work. The proxy does not notice when that one dies, so a
        process that had children and has none counts as dead.
        """
        if child.poll() is not None:
            return f"ended with {child.returncode}"
        try:
            children = psutil.Process(child.pid).children()
        except psutil.NoSuchProcess:
            return ""
        if children:
            self._parents.add(child.pid)
        return "lost the process that works for it" if child.pid in self._parents and not children else ""


def end(processes: Sequence["subprocess.Popen[bytes]"]) -> None:
    """End processes and everything that they started: SIGTERM first, SIGKILL for what does not listen."""
    tree: list[psutil.Process] = []
    for process in processes:
        try:
            top = psutil.Process(process.pid)
            tree += [*top.children(recursive=True), top]
        except psutil.NoSuchProcess:
            continue
    for number, seconds in ((signal.SIGTERM, _TERM_SECONDS), (signal.SIGKILL, _KILL_SECONDS)):
        for each in tree:
            try:
                os.kill(each.pid, number)
            except ProcessLookupError:
                continue
        _, tree = psutil.wait_procs(tree, timeout=seconds)
