"""`spark-submit` through Dagster Pipes: results, errors, and an application that ends with its run."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import psutil
import pytest

from orchestration.resources.spark import SparkSubmit
from spark_jobs.request import Request, Result, Source
from tests.orchestration.spark_requests import PACKAGES, RUN, made_jobs, request, rows_of, staged
from tests.spark_fixture import command, wait_until

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("submit")
    with pytest.MonkeyPatch.context() as patch, made_jobs(folder / "packages"):
        patch.setenv("WEIR_HOME", str(folder / "home"))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder / "packages"), str(Path.cwd())]))
        yield folder


@pytest.fixture(scope="module")
def flights(folder: Path) -> Source:
    return staged(folder / "flights")


def computed(made: Request) -> tuple[list[Result], list[str]]:
    """Results and errors of a run with an op that computes."""
    results = []

    @dg.op
    def compute(context: dg.OpExecutionContext) -> None:
        results.append(SparkSubmit(packages=PACKAGES).compute(context, made))

    @dg.job
    def job() -> None:
        compute()

    run = job.execute_in_process(raise_on_error=False)
    failures = [event.step_failure_data.user_failure_data for event in run.filter_events(lambda event: event.is_step_failure)]
    return results, [str(failure.description) for failure in failures if failure]


@pytest.fixture(scope="module")
def clean(folder: Path, flights: Source) -> Result:
    """What an undisturbed application reported; its rows are in `output/clean`."""
    (result,), failures = computed(request("totals", flights, folder / "output" / "clean"))
    assert failures == []
    return result


def test_a_result_comes_back_with_its_application(folder: Path, clean: Result) -> None:
    assert clean.application.startswith("local-")
    assert len(rows_of(folder / "output" / "clean")) == 6


def test_an_error_in_the_application_is_as_short_as_in_a_session(folder: Path, flights: Source) -> None:
    results, (failure,) = computed(request("divided", flights, folder / "output" / "divided"))
    assert results == []
    lines = failure.splitlines()
    assert len(lines) <= 20
    assert "ZeroDivisionError: float division by zero" in lines
    assert Path(lines[-1].removeprefix("Everything that Spark said: ")).stat().st_size > 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_application_ends_with_its_run(folder: Path, flights: Source, number: signal.Signals) -> None:
    marks = folder / f"marks-{number}"
    marks.mkdir()
    made = request("halting", flights, folder / "output" / f"ended-{number}", folder=str(marks))
    with (folder / "run.txt").open("wb") as output:
        run = subprocess.Popen([sys.executable, "-c", RUN, "local[1]", "{}", made.to_json()], stdout=output, stderr=output)
    try:
        wait_until(lambda: any(marks.glob("worker-*")), "the application computes")
        below = psutil.Process(run.pid).children(recursive=True)
        assert len(below) >= 3, "the leash, the JVM and Python"
        run.send_signal(number)
        run.wait(60)
        assert psutil.wait_procs(below, timeout=60)[1] == []
    finally:
        run.kill()
        run.wait()


def test_a_killed_application_is_told_with_its_signal_and_a_rerun_computes_what_a_clean_run_does(
    folder: Path, flights: Source, clean: Result
) -> None:
    marks = folder / "marks-killed"
    marks.mkdir()

    def kill() -> None:
        wait_until(lambda: any(marks.glob("worker-*")), "the application computes")
        try:
            (driver,) = (process for process in psutil.Process().children(recursive=True) if submitted(process))
            driver.kill()
        finally:
            (marks / "go").touch()

    thread = threading.Thread(target=kill)
    thread.start()
    results, (failure,) = computed(request("halting", flights, folder / "output" / "killed", folder=str(marks)))
    thread.join()
    assert (results, "killed by signal 9" in failure) == ([], True)
    computed(request("totals", flights, folder / "output" / "again"))
    assert rows_of(folder / "output" / "again") == rows_of(folder / "output" / "clean")


def submitted(process: psutil.Process) -> bool:
    """Whether it is an application's JVM, and not that of a session which another test of this process left open."""
    words = command(process)
    return "org.apache.spark.deploy.SparkSubmit" in words and "pyspark-shell" not in words
