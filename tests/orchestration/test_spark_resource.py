"""A session in the run: shared, watched, adjusted per request; and what its failures say."""

import os
import signal
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import psutil
import pytest

from orchestration.resources.spark import SparkResource
from spark_jobs.request import Result, Source
from tests.orchestration.spark_requests import PACKAGES, made_jobs, request, rows_of, staged
from tests.spark_fixture import command, wait_until

pytestmark = pytest.mark.spark
SHUFFLES = "spark.sql.shuffle.partitions"
SECRET = "c4nary \\ of storage"


@dataclass(frozen=True)
class Bench:
    """A resource, a table, and where results go."""

    spark: SparkResource
    flights: Source
    folder: Path

    def compute(self, function: str, name: str, settings: Mapping[str, str] | None = None) -> Result:
        """The request's attempt is `name`."""
        return self.spark.compute(dg.build_op_context(), request(function, self.flights, self.folder / name), settings)

    def failed(self, function: str) -> list[str]:
        """The lines of the error that Dagster shows."""
        with pytest.raises(dg.Failure) as caught:
            self.compute(function, f"failed-{function}")
        assert caught.value.__suppress_context__, "Dagster would print what Spark said after all"
        lines = str(caught.value.description).splitlines()
        assert len(lines) <= 20
        assert Path(lines[-1].removeprefix("Everything that Spark said: ")).stat().st_size > 0
        return lines


def noting_chmod(folder: Path) -> Path:
    """A folder with a `chmod` that notes what it is asked in `chmods`, and does nothing."""
    (folder / "bin").mkdir()
    (folder / "bin" / "chmod").write_text(f'#!/bin/sh\necho "$@" >> {folder}/chmods\n')
    (folder / "bin" / "chmod").chmod(0o755)
    return folder / "bin"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch, made_jobs(folder / "packages"):
        patch.setenv("WEIR_HOME", str(folder / "home"))
        patch.setenv("PATH", f"{noting_chmod(folder)}{os.pathsep}{os.environ['PATH']}")
        spark = SparkResource(packages=PACKAGES, spark_config={"spark.hadoop.fs.s3a.secret.key": SECRET})
        spark.stop()  # another file's session in this process was launched with other settings
        yield Bench(spark, staged(folder / "flights"), folder / "output")
        spark.stop()


def test_requests_share_one_session_whose_pages_answer_on_loopback_and_whose_events_are_kept(bench: Bench) -> None:
    first, second = bench.compute("totals", "first"), bench.compute("totals", "second")
    assert first.application == second.application != ""
    assert first.ui.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(first.ui) as answer:
        assert b"Spark" in answer.read()
    assert [entry.name for entry in (bench.folder.parent / "home/spark/events").iterdir()] == [f"eventlog_v2_{first.application}"]
    assert rows_of(bench.folder / "first") == rows_of(bench.folder / "second")
    assert len(rows_of(bench.folder / "first")) == 6


def test_local_files_get_their_permissions_without_a_process_for_each(bench: Bench) -> None:
    bench.compute("totals", "permitted")
    noted = (bench.folder.parent / "chmods").read_text().splitlines()
    # Delta's own log is written through another interface of Hadoop's: twice a commit, however many files it has.
    assert [line for line in noted if str(bench.folder) in line and "_delta_log" not in line] == []
    files = [path for path in (bench.folder / "permitted").rglob("*.parquet") if path.parent.name.startswith("_inputs=")]
    assert {oct(path.stat().st_mode & 0o777) for path in files} == {"0o644"}
    assert all(path.with_name(f".{path.name}.crc").exists() for path in files), "checksums stay"


def test_a_secret_setting_reaches_spark_but_no_arguments_and_no_pages(bench: Bench) -> None:
    context = bench.spark.spark_session.sparkContext
    assert context._jsc.hadoopConfiguration().get("fs.s3a.secret.key") == SECRET
    [*below] = psutil.Process().children(recursive=True)
    assert any("SparkSubmit" in command(process) for process in below)
    assert not any("c4nary" in command(process) for process in below)
    # Event logs are this, too, but packed.
    with urllib.request.urlopen(f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/environment") as answer:
        told = answer.read()
    assert b"fs.s3a.secret.key" in told and b"c4nary" not in told


def test_settings_of_a_request_hold_for_it_alone(bench: Bench) -> None:
    before = bench.spark.spark_session.conf.get(SHUFFLES)
    bench.compute("totals", "adjusted", {SHUFFLES: "3"})
    with pytest.raises(dg.Failure):
        bench.compute("divided", "adjusted-failed", {SHUFFLES: "5"})
    assert bench.spark.spark_session.conf.get(SHUFFLES) == before != "3"


def test_settings_that_a_running_session_cannot_take_are_named_and_nothing_is_computed(bench: Bench) -> None:
    with pytest.raises(dg.Failure, match=r"cannot take spark\.executor\.memory: ") as caught:
        bench.compute("totals", "fixed", {"spark.executor.memory": "3g", SHUFFLES: "3"})
    assert "spark_config" in str(caught.value.description)
    assert not (bench.folder / "fixed").exists()


def test_an_interrupt_of_dagster_is_not_taken_over_by_spark(bench: Bench) -> None:
    _ = bench.spark.spark_session
    assert threading.current_thread() is threading.main_thread()
    # What Python starts with; a process in the background of a shell ignores the signal.
    assert signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_IGN)


def test_an_error_in_a_python_worker_shows_the_jobs_own_line(bench: Bench) -> None:
    lines = bench.failed("divided")
    assert lines[-2] == "ZeroDivisionError: float division by zero"
    assert any("return value / 0" in line for line in lines)
    assert not any("pyspark" in line for line in lines)


def test_a_missing_column_is_told_with_those_there_are(bench: Bench) -> None:
    lines = bench.failed("missing")
    assert len(lines) == 3
    assert "`nope` cannot be resolved. Did you mean" in lines[1]


def test_what_the_function_itself_raises_comes_as_it_is(bench: Bench) -> None:
    with pytest.raises(ValueError, match="no such carrier"):
        bench.compute("refused", "refused")


def halted(bench: Bench, name: str, kill: Callable[[int], None]) -> Callable[[], Result]:
    """Computes; the process that does is killed as soon as it has said who it is."""
    folder = bench.folder.parent / f"halted-{name}"
    folder.mkdir()

    def killer() -> None:
        wait_until(lambda: any(folder.glob("worker-*")), "a Python worker computes")
        kill(int(next(folder.glob("worker-*")).name.removeprefix("worker-")))
        (folder / "go").touch()

    def compute() -> Result:
        thread = threading.Thread(target=killer)
        thread.start()
        try:
            made = request("halting", bench.flights, bench.folder / name, folder=str(folder))
            return bench.spark.compute(dg.build_op_context(), made)
        finally:
            thread.join()

    return compute


def test_a_killed_python_worker_fails_a_local_job_and_a_rerun_computes_what_a_clean_run_does(bench: Bench) -> None:
    compute = halted(bench, "worker", lambda pid: os.kill(pid, signal.SIGKILL))
    with pytest.raises(dg.Failure, match="Python worker exited unexpectedly"):
        compute()
    bench.compute("totals", "worker-again")
    bench.compute("totals", "worker-clean")
    assert rows_of(bench.folder / "worker-again") == rows_of(bench.folder / "worker-clean")


def test_a_killed_driver_is_said_and_the_next_session_computes_the_same(bench: Bench) -> None:
    bench.compute("totals", "driver-clean")
    process = bench.spark.spark_session.sparkContext._gateway.proc  # type: ignore[union-attr]
    with pytest.raises(dg.Failure, match="driver is gone"):
        halted(bench, "driver", lambda _: process.kill())()
    bench.spark.stop()
    bench.compute("totals", "driver-again")
    assert rows_of(bench.folder / "driver-again") == rows_of(bench.folder / "driver-clean")
