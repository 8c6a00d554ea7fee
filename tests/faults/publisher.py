"""A child process that runs a job from plan to publication, and is killed at a named point of it."""

import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orchestration.compute.publish as publishing
from orchestration.compute.job import Job
from orchestration.compute.plan import plan, request
from spark_jobs.request import Request, Result
from tests.orchestration.compute import fake
from tests.orchestration.compute.bench import FUNCTIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([__name__])
_STARTED = "started"

Fault = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], None]


@dataclass(frozen=True)
class Point:
    """A call in which the process dies: `owner.name`, as `fault` does it to the real function."""

    owner: str
    name: str
    fault: Fault


def before(real: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Nothing of the call is done."""


def after(real: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """All of the call is done."""
    real(*args, **kwargs)


def without_log(real: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """An attempt's files are there, its log is not: so it is while files are written."""
    real(*args, **kwargs)
    shutil.rmtree(Path(args[0]) / "_delta_log")


def half_sealed(real: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Of an attempt's log the commit is gone and the folder is there."""
    for commit in (args[0] / "_delta_log").glob("*.json"):
        commit.unlink()


_PUBLISH = {
    "before the attempt is read": Point("publish", "read_attempt", before),
    "before the commit": Point("publish", "_commit", before),
    "after the commit": Point("publish", "_commit", after),
    "while the attempt's log is removed": Point("publish", "seal", half_sealed),
    "after the attempt's log was removed": Point("publish", "seal", after),
}
AFTER_THE_COMMIT = [*_PUBLISH][2:]
FAKE_POINTS: Mapping[str, Point] = {
    "before anything is written": Point("fake", "write_deltalake", before),
    "while files are written": Point("fake", "write_deltalake", without_log),
    "before the audits": Point("fake", "write_deltalake", after),
    **_PUBLISH,
}
SPARK_POINTS: Mapping[str, Point] = {
    "before anything is written": Point("runner", "_write", before),
    "before the audits": Point("runner", "_audited", before),
    "after the audits": Point("runner", "_audited", after),
    **_PUBLISH,
}


def spark_sums(numbers: "DataFrame") -> "DataFrame":
    """As `fake.sums`."""
    from pyspark.sql import functions as F

    return numbers.groupBy("_window").agg(F.sum("x").alias("s"))


@dataclass(frozen=True)
class Order:
    """What the child does: which job, with Spark or without, and at which point it dies; None for at no point of its own."""

    job: Job
    spark: bool
    point: str | None


class Child:
    """A running child."""

    def __init__(self, order: Order, log: Path) -> None:
        self._ear, mouth = _FORKS.Pipe(duplex=False)
        self._process = _FORKS.Process(target=main, args=(order, mouth, str(log)), daemon=True)
        self._process.start()
        mouth.close()
        assert self._ear.poll(60) and self._ear.recv() == _STARTED

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._process.is_alive()

    def wait(self, seconds: float = 120.0) -> int | None:
        """The exit code, minus the signal's number when it was killed; None when it does not end in time."""
        self._process.join(seconds)
        return self._process.exitcode

    def kill(self) -> None:
        """SIGKILL; nothing is left of it."""
        self._process.kill()
        self._process.join(20)
        self._ear.close()


@contextmanager
def child(order: Order, log: Path) -> Iterator[Child]:
    """A child that has begun to work, and is killed at the end of the block."""
    started = Child(order, log)
    try:
        yield started
    finally:
        started.kill()


def main(order: Order, mouth: Connection, log: str) -> None:
    """A child's whole life; what goes wrong is in the file `log`."""
    errors = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(errors, 2)
    os.dup2(errors, 1)
    if order.point is not None:
        _arm((SPARK_POINTS if order.spark else FAKE_POINTS)[order.point])
    mouth.send(_STARTED)
    run(order.job, order.spark)


def run(job: Job, spark: bool) -> None:
    """Compute and publish what is to be done."""
    todo = plan(job)
    if todo.stale:
        asked = request(todo)
        publishing.publish(todo, asked, _with_spark(asked) if spark else fake.compute(asked, FUNCTIONS[job.mode]))


def _with_spark(asked: Request) -> Result:
    import dagster as dg

    from orchestration.resources.spark import SparkResource

    asked = replace(asked, function=f"{__name__}.{spark_sums.__name__}")
    return SparkResource(event_logs="").compute(dg.build_op_context(), asked)


def _arm(point: Point) -> None:
    from spark_jobs import runner

    owner = {"publish": publishing, "fake": fake, "runner": runner}[point.owner]
    real = getattr(owner, point.name)

    def last(*args: Any, **kwargs: Any) -> None:
        point.fault(real, args, kwargs)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, point.name, last)
