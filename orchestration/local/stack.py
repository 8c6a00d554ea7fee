"""Dagster's webserver, daemon and code server as children of this process: up until told, then gone."""

import json
import os
import socket
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from consumers.clock import Clock, SystemClock
from orchestration.event_log import BATCHES, SETTINGS, instance_of
from orchestration.local.errors import LocalError
from orchestration.local.supervisor import Supervisor
from orchestration.settings import Settings

READY_SECONDS = 180.0
_CODE_SERVER = "code server"
_CANCEL_SECONDS = 15.0
_POLL_SECONDS = 0.25


@dataclass(frozen=True)
class Dagster:
    """A running webserver, daemon and code server: where the UI is, and where their output goes."""

    url: str
    home: Path
    log: Path
    supervisor: Supervisor

    def require_alive(self) -> None:
        """Raises LocalError when one of the processes keeps dying."""
        if (name := self.supervisor.failed()) is not None:
            raise LocalError(f"Dagster's {name} keeps ending; its output is in {self.log}\n{_tail(self.log)}")


def dagster_home(settings: Settings) -> Path:
    """This installation's DAGSTER_HOME, with the project's `dagster.yaml` in it; one that was edited there is kept."""
    home = settings.home / "dagster"
    home.mkdir(parents=True, exist_ok=True)
    if not (home / "dagster.yaml").exists():
        (home / "dagster.yaml").write_text((settings.project / "dagster.yaml").read_text(encoding="utf-8") + SETTINGS, "utf-8")
    return home


@contextmanager
def running_dagster(settings: Settings, bootstrap_servers: str, port: int, clock: Clock | None = None) -> Iterator[Dagster]:
    """Webserver, daemon and code server on loopback, kept alive until the block ends; then runs in progress are cancelled.

    Port 0 takes a free one. Raises LocalError when the port is taken, or when the webserver does not answer in time.
    """
    clock = clock or SystemClock()
    port = port or _free_port()
    _require_free(port)
    home = dagster_home(settings)
    log = home / "dagster.log"
    # Made here, once: three processes that start together on an empty home would race to create its databases.
    with instance_of(home):
        pass
    commands = _commands(home, port, _free_port())
    environment = _environment(settings, home, bootstrap_servers)
    with Supervisor(commands, settings.project, environment, log, proxies=[_CODE_SERVER]) as supervisor:
        stack = Dagster(f"http://127.0.0.1:{port}", home, log, supervisor)
        _wait_until_ready(stack, clock)
        try:
            yield stack
        finally:
            _end_runs(stack, clock)


def _commands(home: Path, port: int, code_port: int) -> dict[str, list[str]]:
    """The three processes. They share one code server, so that definitions are loaded once, and reloaded from the UI."""
    workspace = home / "workspace.yaml"
    workspace.write_text(
        f"load_from:\n  - grpc_server: {{host: 127.0.0.1, port: {code_port}, location_name: weir}}\n", encoding="utf-8"
    )
    python = [sys.executable, "-m"]
    code = ["dagster", "code-server", "start", "-m", "orchestration.definitions", "--location-name", "weir"]
    return {
        _CODE_SERVER: [*python, *code, "-h", "127.0.0.1", "-p", str(code_port)],
        "webserver": [*python, "dagster_webserver", "-w", str(workspace), "-h", "127.0.0.1", "-p", str(port)],
        "daemon": [*python, "dagster._daemon", "run", "-w", str(workspace)],
    }


def _environment(settings: Settings, home: Path, bootstrap_servers: str) -> dict[str, str]:
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "DAGSTER_HOME": str(home),
        "DAGSTER_DISABLE_TELEMETRY": "yes",
        **BATCHES,
        "PYTHONFAULTHANDLER": "1",
        # The code server's inner process ends when nobody has asked for it this long. By default that is 30 s, which a slow
        # machine needs to load the definitions.
        "DAGSTER_GRPC_PROXY_HEARTBEAT_TTL_SECONDS": "600",
        # To start a run, the code server waits until its process has loaded the definitions. By default the daemon calls the run
        # failed after 60 s of that, which a busy machine may need.
        "DAGSTER_GRPC_TIMEOUT_SECONDS": "300",
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


def wait_for_interrupt(stack: Dagster, clock: Clock) -> None:
    """Return on Ctrl-C. Raises LocalError when one of the processes keeps dying."""
    try:
        while True:
            stack.require_alive()
            clock.sleep(_POLL_SECONDS)
    except KeyboardInterrupt:
        return


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
        stack.require_alive()
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
