"""Executors, Python workers and drivers on a cluster are killed while they compute: the output is the clean run's.

`WEIR_KILLS=20` kills as often; the default is for every build.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import psutil
import pytest
from deltalake import DeltaTable

from orchestration.resources.spark import SparkResource, SparkSubmit
from spark_jobs.request import Request, Source
from tests.orchestration.spark_requests import PACKAGES, made_jobs, request, rows_of, staged
from tests.spark_fixture import Standalone, standalone, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.faults, pytest.mark.timeout(1800)]
ROUNDS = int(os.environ.get("WEIR_KILLS", "1"))

Kill = Callable[[int, Standalone], None]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("kills")
    with pytest.MonkeyPatch.context() as patch, made_jobs(folder / "packages"):
        patch.setenv("WEIR_HOME", str(folder / "home"))
        yield folder


@pytest.fixture(scope="module")
def spark(folder: Path, cluster: Standalone) -> Iterator[SparkResource]:
    spark = SparkResource(spark_config=cluster.config, packages=PACKAGES)
    spark.stop()
    yield spark
    spark.stop()


@pytest.fixture(scope="module")
def flights(folder: Path) -> Source:
    return staged(folder / "flights")


def worker(pid: int, cluster: Standalone) -> None:
    """The Python process that computes."""
    os.kill(pid, signal.SIGKILL)


def executor(pid: int, cluster: Standalone) -> None:
    """The executor that it belongs to."""
    (owner,) = [one for one in cluster.executors() if pid in [child.pid for child in one.children(recursive=True)]]
    owner.kill()


def driver(pid: int, cluster: Standalone) -> None:
    """The driver's JVM, below this process."""
    below = psutil.Process().children(recursive=True)
    (owner,) = [one for one in below if "org.apache.spark.deploy.SparkSubmit" in one.cmdline()]
    owner.kill()


@pytest.mark.parametrize("kill", [worker, executor])
def test_what_was_killed_is_computed_again_and_the_rows_are_those_of_a_clean_run(
    folder: Path, cluster: Standalone, spark: SparkResource, flights: Source, kill: Kill
) -> None:
    clean = folder / "output" / f"clean-{kill.__name__}"
    spark.compute(dg.build_op_context(), request("totals", flights, clean))
    for number in range(ROUNDS):
        name = f"{kill.__name__}-{number}"
        marks, attempt = folder / f"marks-{name}", folder / "output" / name
        marks.mkdir()
        thread = threading.Thread(target=kill_and_go, args=(marks, cluster, kill))
        thread.start()
        spark.compute(dg.build_op_context(), request("halting", flights, attempt, folder=str(marks)))
        thread.join()
        assert rows_of(attempt) == rows_of(clean)
        assert len(list(marks.glob("worker-*"))) > 1, "nobody took over, so nobody was killed"


def test_a_killed_driver_leaves_no_application_and_the_next_run_gives_the_rows_of_a_clean_one(
    folder: Path, cluster: Standalone, spark: SparkResource, flights: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.stop()  # its executors take all cores
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder / "packages"), str(Path.cwd())]))
    submit = SparkSubmit(master=cluster.master, spark_config=cluster.config, packages=PACKAGES, driver_memory="512m")
    assert submitted(submit, request("totals", flights, folder / "output" / "clean-driver")) == []
    for number in range(ROUNDS):
        marks = folder / f"marks-driver-{number}"
        marks.mkdir()
        thread = threading.Thread(target=kill_and_go, args=(marks, cluster, driver))
        thread.start()
        killed = request("halting", flights, folder / "output" / f"driver-{number}", folder=str(marks))
        (failure,) = submitted(submit, killed)
        thread.join()
        assert "killed by signal 9" in failure
        assert not DeltaTable.is_deltatable(killed.attempt)
        wait_until(lambda: not cluster.applications() and not cluster.executors(), "the application and its executors are gone")
        again = folder / "output" / f"driver-{number}-again"
        assert submitted(submit, request("totals", flights, again)) == []
        assert rows_of(again) == rows_of(folder / "output" / "clean-driver")


def submitted(submit: SparkSubmit, made: Request) -> list[str]:
    """What a request fails with."""
    failures = []

    @dg.op
    def compute(context: dg.OpExecutionContext) -> None:
        try:
            submit.compute(context, made)
        except dg.Failure as failure:
            failures.append(str(failure.description))

    @dg.job
    def job() -> None:
        compute()

    job.execute_in_process()
    return failures


def kill_and_go(marks: Path, cluster: Standalone, kill: Kill) -> None:
    """Kill who says that it computes; whoever takes over is not held up."""
    wait_until(lambda: any(marks.glob("worker-*")), "a Python worker computes")
    kill(int(next(marks.glob("worker-*")).name.removeprefix("worker-")), cluster)
    (marks / "go").touch()
