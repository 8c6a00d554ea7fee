"""Real Spark servers for tests, of PySpark's own jars: a standalone cluster and a Connect server, on loopback and free ports."""

import json
import os
import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError

import psutil

from consumers.clock import SystemClock
from orchestration.local import jars
from orchestration.local.probe import listens
from orchestration.local.process import alive
from orchestration.local.process import stop as stop_processes
from orchestration.local.state import LOOPBACK, free_ports
from orchestration.resources.spark.defaults import Launch, defaults, environment
from orchestration.resources.spark.kept import Kept
from orchestration.settings import Settings

START_SECONDS = 120.0
_CLOCK = SystemClock()


def wait_until(condition: Callable[[], bool], what: str, seconds: float = START_SECONDS) -> None:
    """Fails when the condition does not become true in time."""
    deadline = _CLOCK.monotonic() + seconds
    while not condition():
        assert _CLOCK.monotonic() < deadline, f"not within {seconds} s: {what}"
        _CLOCK.sleep(0.1)


@dataclass(frozen=True)
class Standalone:
    """A running cluster of two workers with one core and one GiB each."""

    master: str
    pages: str
    workers: Sequence[psutil.Process]

    @property
    def config(self) -> dict[str, str]:
        """A driver's settings for this cluster: as small as its workers."""
        return {
            "spark.master": self.master,
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.executor.memory": "512m",
        }

    def applications(self) -> list[str]:
        """The ids of those that run."""
        return [application["id"] for application in _state(self.pages)["activeapps"]]

    def executors(self) -> list[psutil.Process]:
        """The processes that compute, of all applications."""
        below = [child for worker in self.workers for child in worker.children(recursive=True)]
        return [process for process in below if "CoarseGrainedExecutorBackend" in command(process)]


def command(process: psutil.Process) -> str:
    """The command line; nothing of a process that has just ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@contextmanager
def standalone(folder: Path) -> Iterator[Standalone]:
    """A cluster that is ready for work."""
    port, pages_port = free_ports(2)
    master, pages = f"spark://{LOOPBACK}:{port}", f"http://{LOOPBACK}:{pages_port}"
    with ExitStack() as stack:
        ports = ("--host", LOOPBACK, "--port", str(port), "--webui-port", str(pages_port))
        stack.enter_context(_running(folder / "master", "org.apache.spark.deploy.master.Master", *ports))
        wait_until(lambda: listens(port), "Spark's master listens")
        workers = [stack.enter_context(_worker(folder / f"worker-{number}", master)) for number in (1, 2)]
        cluster = Standalone(master, pages, workers)
        wait_until(lambda: _state(pages).get("aliveworkers") == 2, "both workers are known to the master")
        yield cluster


@contextmanager
def connect_server(folder: Path, more: Mapping[str, str] | None = None) -> Iterator[str]:
    """The address of a Connect server with Delta, for `spark.remote`."""
    (port,) = free_ports(1)
    launch = Launch("1g", None, "", Kept(1, 1))
    conf = {
        **defaults(Settings.load(), launch, {}),
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        **(more or {}),
    }
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    arguments = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    submit = ("org.apache.spark.deploy.SparkSubmit", "--class", server, *arguments, "spark-internal")
    with _running(folder, *submit, memory="1g") as process:
        wait_until(lambda: listens(port) or not alive(process), "the Connect server listens")
        assert alive(process), (folder / "output.txt").read_text()[-2000:]
        yield f"sc://{LOOPBACK}:{port}"


@contextmanager
def _worker(folder: Path, master: str) -> Iterator[psutil.Process]:
    size = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work"))
    with _running(folder, "org.apache.spark.deploy.worker.Worker", "--host", LOOPBACK, *size, master) as process:
        yield process


@contextmanager
def _running(folder: Path, name: str, *arguments: str, memory: str = "256m") -> Iterator[psutil.Process]:
    """A class of Spark's in a JVM, its output in `folder`; killed with all that it started."""
    folder.mkdir(parents=True, exist_ok=True)
    variables = {**os.environ, **environment(Settings.load(), local=True), "SPARK_DAEMON_MEMORY": memory}
    command = [str(jars.spark_jars().parent / "bin" / "spark-class"), name, *arguments]
    with (folder / "output.txt").open("wb") as output:
        started = subprocess.Popen(command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    process = psutil.Process(started.pid)
    try:
        yield process
    finally:
        below = process.children(recursive=True) if alive(process) else []
        stop_processes([process, *below], _CLOCK, seconds=0.0)
        started.wait()


def _state(pages: str) -> dict[str, Any]:
    """What the master knows; nothing while it starts."""
    try:
        with urllib.request.urlopen(f"{pages}/json/", timeout=5) as answer:
            found: dict[str, Any] = json.load(answer)
    except (URLError, ConnectionError):
        return {}
    return found
