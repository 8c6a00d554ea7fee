"""Dagster's webserver and daemon as a child of this process, with everything that it starts: up until told, then gone."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from consumers.clock import Clock, SystemClock
from orchestration.local.errors import LocalError
from orchestration.settings import Settings

READY_SECONDS = 180.0
_CANCEL_SECONDS = 15.0
_INTERRUPT_SECONDS = 10.0
_TERM_SECONDS = 5.0
_POLL_SECONDS = 0.25


@dataclass(frozen=True)
class Dagster:
    """A running webserver and daemon: where the UI is, and where their output goes."""

    url: str
    home: Path
    log: Path
    process: "subprocess.Popen[bytes]"


def dagster_home(settings: Settings) -> Path:
    """This installation's DAGSTER_HOME, with the project's `dagster.yaml` in it; one that was edited there is kept."""
    home = settings.home / "dagster"
    home.mkdir(parents=True, exist_ok=True)
    if not (home / "dagster.yaml").exists():
        shutil.copyfile(settings.project / "dagster.yaml", home / "dagster.yaml")
    return home


@contextmanager
def running_dagster(settings: Settings, bootstrap_servers: str, port: int, clock: Clock | None = None) -> Iterator[Dagster]:
    """Webserver and daemon on loopback, until the block ends; runs in progress are told to stop, too.

    Raises LocalError when the port is taken, or when the webserver does not answer in time.
    """
    clock = clock or SystemClock()
    port = port or _free_port()
    _require_free(port)
    home = dagster_home(settings)
    log = home / "dagster.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "dagster", "dev", "-w", "workspace.yaml", "-h", "127.0.0.1", "-p", str(port)],
            cwd=settings.project,
            env=_environment(settings, home, bootstrap_servers),
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    stack = Dagster(f"http://127.0.0.1:{port}", home, log, process)
    try:
        _wait_until_ready(stack, clock)
        yield stack
    finally:
        _end_runs(stack, clock)
        _stop(process)


def _environment(settings: Settings, home: Path, bootstrap_servers: str) -> dict[str, str]:
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "DAGSTER_HOME": str(home),
        "DAGSTER_DISABLE_TELEMETRY": "yes",
        "PYTHONFAULTHANDLER": "1",
        "WEIR_HOME": str(settings.home),
        "WEIR_TABLES": str(settings.tables),
        "WEIR_CACHE": str(settings.cache),
        "KAFKA_BOOTSTRAP_SERVERS": bootstrap_servers,
    }


def unfinished_runs(stack: Dagster) -> dict[str, str]:
    """Runs that are queued or under way: id → job."""
    found = _ask(
        stack.url,
        "{ runsOrError(filter: {statuses: [NOT_STARTED, QUEUED, STARTING, STARTED, CANCELING]}) "
        "{ ... on Runs { results { runId jobName } } } }",
    )
    return {run["runId"]: run["jobName"] for run in found["runsOrError"].get("results", [])}


def _end_runs(stack: Dagster, clock: Clock) -> None:
    """Cancel what runs, so that ingestion finishes its batch and Dagster's history says cancelled, not failed."""
    deadline = clock.monotonic() + _CANCEL_SECONDS
    try:
        ids = json.dumps(list(unfinished_runs(stack)))
        _ask(stack.url, f"mutation {{ terminateRuns(runIds: {ids}, terminatePolicy: SAFE_TERMINATE) {{ __typename }} }}")
        while unfinished_runs(stack) and clock.monotonic() < deadline:
            clock.sleep(_POLL_SECONDS)
    except (OSError, ValueError, KeyError, TypeError):
        return  # the webserver is gone already; the signals that follow end the runs, which is safe at any point


def _ask(url: str, query: str) -> dict[str, Any]:
    """A GraphQL question; raises OSError, ValueError, KeyError or TypeError when there is no proper answer."""
    request = urllib.request.Request(
        f"{url}/graphql", data=json.dumps({"query": query}).encode(), headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        data: dict[str, Any] = json.load(answer)["data"]
    return data


def _wait_until_ready(stack: Dagster, clock: Clock) -> None:
    deadline = clock.monotonic() + READY_SECONDS
    while clock.monotonic() < deadline:
        if stack.process.poll() is not None:
            raise LocalError(f"Dagster ended while it was starting; its output is in {stack.log}\n{_tail(stack.log)}")
        if _loaded(stack.url):
            return
        clock.sleep(_POLL_SECONDS)
    raise LocalError(f"Dagster did not answer at {stack.url} within {READY_SECONDS:.0f} s; its output is in {stack.log}")


def _loaded(url: str) -> bool:
    """Whether the webserver answers and has loaded the definitions."""
    try:
        found = _ask(url, "{ repositoriesOrError { ... on RepositoryConnection { nodes { name } } } }")
        return bool(found["repositoriesOrError"].get("nodes"))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """End the whole tree: politely, so that ingestion finishes its batch, then firmly."""
    try:
        tree = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for each in tree:
        _signal(each, signal.SIGINT)
    _, alive = psutil.wait_procs(tree, timeout=_INTERRUPT_SECONDS)
    for number, seconds in ((signal.SIGTERM, _TERM_SECONDS), (signal.SIGKILL, _TERM_SECONDS)):
        for each in alive:
            _signal(each, number)
        _, alive = psutil.wait_procs(alive, timeout=seconds)


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return


def _require_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise LocalError(f"port {port} is taken, so the Dagster UI cannot use it; choose another with --port") from None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
