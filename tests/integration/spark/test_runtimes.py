"""The same request on every runtime: a local session, a standalone cluster, a submitted application, Spark Connect."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import util
from pathlib import Path

import dagster as dg
import psutil
import pytest
from deltalake import DeltaTable

from orchestration.resources.spark import SparkResource, SparkRuntime, SparkSubmit
from spark_jobs.request import Source
from tests.orchestration.spark_requests import PACKAGES, RUN, made_jobs, request, rows_of, staged
from tests.spark_fixture import Standalone, connect_server, standalone, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("runtimes")
    with pytest.MonkeyPatch.context() as patch, made_jobs(folder / "packages"):
        patch.setenv("WEIR_HOME", str(folder / "home"))
        yield folder


@pytest.fixture(scope="module")
def flights(folder: Path) -> Source:
    return staged(folder / "flights")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[Standalone]:
    with standalone(folder / "cluster") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def expected(folder: Path, flights: Source) -> Sequence[str]:
    """The rows that a local session with all cores computes."""
    spark = SparkResource(spark_config={"spark.master": "local[*]"}, packages=PACKAGES)
    return computed(spark, flights, folder / "output" / "local")


def computed(runtime: SparkRuntime, flights: Source, attempt: Path) -> Sequence[str]:
    """The rows of one request, bit for bit."""
    assert failures_of(runtime, flights, attempt) == []
    return rows_of(attempt)


def failures_of(runtime: SparkRuntime, flights: Source, attempt: Path) -> Sequence[str | None]:
    """What a request fails with. A session ends with it, since a process has one at a time."""
    if isinstance(runtime, SparkResource):
        runtime.stop()
    made = request("totals", flights, attempt)
    failures: list[str | None] = []

    @dg.op
    def compute(context: dg.OpExecutionContext) -> None:
        try:
            runtime.compute(context, made)
        except dg.Failure as failure:
            failures.append(failure.description)

    @dg.job
    def job() -> None:
        compute()

    try:
        job.execute_in_process()
    finally:
        if isinstance(runtime, SparkResource):
            runtime.stop()
    return failures


def test_executors_of_a_standalone_cluster_compute_what_a_local_session_does(
    folder: Path, flights: Source, cluster: Standalone, expected: Sequence[str]
) -> None:
    runtime = SparkResource(spark_config=cluster.config, packages=PACKAGES)
    assert computed(runtime, flights, folder / "output" / "standalone") == expected
    wait_until(lambda: not cluster.applications() and not cluster.executors(), "the application and its executors are gone")


def test_an_application_submitted_to_a_cluster_computes_what_a_local_session_does(
    folder: Path, flights: Source, cluster: Standalone, expected: Sequence[str]
) -> None:
    runtime = SparkSubmit(master=cluster.master, spark_config=cluster.config, packages=PACKAGES)
    assert computed(runtime, flights, folder / "output" / "submitted") == expected
    wait_until(lambda: not cluster.applications() and not cluster.executors(), "the application and its executors are gone")


def test_a_run_that_is_terminated_ends_its_application_and_the_executors(
    folder: Path, flights: Source, cluster: Standalone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder / "packages"), str(Path.cwd())]))
    marks = folder / "marks"
    marks.mkdir()
    made = request("halting", flights, folder / "output" / "terminated", folder=str(marks))
    arguments = [cluster.master, json.dumps(cluster.config), made.to_json()]
    with (folder / "run.txt").open("wb") as output:
        run = subprocess.Popen([sys.executable, "-c", RUN, *arguments], stdout=output, stderr=output)
    try:
        wait_until(lambda: any(marks.glob("worker-*")), "executors compute")
        assert cluster.applications()
        below = [*psutil.Process(run.pid).children(recursive=True), *cluster.executors()]
        below += [child for executor in cluster.executors() for child in executor.children(recursive=True)]
        run.send_signal(signal.SIGINT)  # what Dagster's launcher sends
        run.wait(60)
        wait_until(lambda: not cluster.applications() and not cluster.executors(), "the application and its executors are gone")
        assert psutil.wait_procs(below, timeout=60)[1] == []
        assert not DeltaTable.is_deltatable(made.attempt)
    finally:
        run.kill()
        run.wait()


def test_a_standalone_cluster_refuses_python_in_cluster_mode_and_says_so(
    folder: Path, flights: Source, cluster: Standalone
) -> None:
    runtime = SparkSubmit(master=cluster.master, deploy_mode="cluster", spark_config=cluster.config, packages=PACKAGES)
    (failure,) = failures_of(runtime, flights, folder / "output" / "cluster-mode")
    assert "Cluster deploy mode is currently not supported for python applications" in str(failure)


@pytest.mark.skipif(util.find_spec("grpc_status") is None, reason="the extra `connect` is not installed")
def test_a_connect_server_computes_what_a_local_session_does(folder: Path, flights: Source, expected: Sequence[str]) -> None:
    with connect_server(folder / "connect") as url:
        runtime = SparkResource(spark_config={"spark.remote": url}, packages=PACKAGES)
        assert computed(runtime, flights, folder / "output" / "connect") == expected
