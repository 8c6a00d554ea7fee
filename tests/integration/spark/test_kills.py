"""Executors and Python workers on a cluster are killed while they compute: the output is the clean run's.

`WEIR_KILLS=20` kills as often; the default is for every build.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest

from orchestration.resources.spark import SparkResource
from spark_jobs.request import Source
from tests.orchestration.spark_requests import PACKAGES, made_jobs, request, rows_of, staged
from tests.spark_fixture import Standalone, standalone, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.faults, pytest.mark.timeout(300 + 60 * int(os.environ.get("WEIR_KILLS", "1")))]
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


def kill_and_go(marks: Path, cluster: Standalone, kill: Kill) -> None:
    """Kill who says that it computes; whoever takes over is not held up."""
    wait_until(lambda: any(marks.glob("worker-*")), "a Python worker computes")
    try:
        kill(int(next(marks.glob("worker-*")).name.removeprefix("worker-")), cluster)
    finally:
        (marks / "go").touch()
