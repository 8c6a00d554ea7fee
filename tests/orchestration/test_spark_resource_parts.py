"""What the Spark runtimes are made of, without a JVM: settings by size, kept logs, shipped code, the leash."""

import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import dagster as dg
import psutil
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from consumers.errors import ConfigError
from orchestration.resources.spark import SparkResource, SparkRuntime, SparkSubmit, leash
from orchestration.resources.spark.failures import first_cause, told
from orchestration.resources.spark.kept import Kept, prune
from orchestration.resources.spark.shipping import shipped
from orchestration.resources.spark.sizes import MIB, bytes_of, sized
from orchestration.settings import Settings
from spark_jobs.request import Request, Source
from tests.spark_fixture import wait_until

PARTITIONS, MINIMUM = "spark.sql.shuffle.partitions", "spark.sql.files.minPartitionNum"
DAY = 86400.0


@pytest.mark.parametrize(
    ("read", "cores", "partitions"),
    [(0, 8, 1), (1000, 8, 1), (4 * MIB, 8, 4), (100 * MIB, 2, 7), (100 * MIB, 64, 64), (10**15, 8, 4000)],
)
def test_shuffle_partitions_grow_with_what_is_read_and_small_inputs_get_few(read: int, cores: int, partitions: int) -> None:
    assert int(sized(read, cores)[PARTITIONS]) == partitions


def test_files_are_split_alike_whatever_the_cores() -> None:
    assert sized(100 * MIB, 2)[MINIMUM] == sized(100 * MIB, 64)[MINIMUM] == "4"


def test_larger_inputs_get_larger_files_and_broadcasts() -> None:
    def numbers(read: int) -> list[int]:
        settings = sized(read, 8)
        return [
            int(settings[f"spark.sql.{name}"]) // MIB
            for name in ("adaptive.advisoryPartitionSizeInBytes", "autoBroadcastJoinThreshold")
        ]

    assert [numbers(MIB), numbers(5000 * MIB), numbers(20_000 * MIB), numbers(2**42)] == [
        [64, 10],
        [64, 50],
        [128, 100],
        [256, 100],
    ]


def table(path: Path) -> list[str]:
    """Two windows, a file each; returns the files as the log has them."""
    rows = pa.table({"n": list(range(1000)), "_window": ["2013-01-01", "2013-01-02"] * 500})
    write_deltalake(str(path), rows, partition_by=["_window"])
    return list(pa.table(DeltaTable(str(path)).get_add_actions()).column("path").to_pylist())


def request(*sources: Source) -> Request:
    inputs = {f"input{number}": source for number, source in enumerate(sources)}
    return Request("job", "spark_jobs.account_balances.account_balances", "full", inputs, "output", "output/attempt")


def test_the_bytes_of_a_request_are_those_of_its_windows_or_files_at_the_pinned_version(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    first, second = table(tmp_path / "table")
    sizes = [(tmp_path / "table" / file).stat().st_size for file in (first, second)]
    table_at_0 = Source(path, 0)
    DeltaTable(path).delete("_window = '2013-01-01'")
    assert bytes_of(request(table_at_0)) == sum(sizes)
    assert bytes_of(request(Source(path, 0, files=(second,)), table_at_0)) == sum(sizes) + sizes[1]
    window = first.split("/")[0].removeprefix("_window=")
    assert bytes_of(request(Source(path, 0, windows=(window,)))) == sizes[0]


def test_the_bytes_of_what_cannot_be_read_from_here_are_unknown(tmp_path: Path) -> None:
    assert bytes_of(request(Source(str(tmp_path / "nowhere"), 3))) is None


def old(path: Path, size: int, days: float) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (100 * DAY - days * DAY,) * 2)
    return path


def test_old_logs_go_first_then_the_oldest_until_few_enough_are_left(tmp_path: Path) -> None:
    old(tmp_path / "ancient", 1, days=20)
    old(tmp_path / "older" / "part", MIB, days=3)
    os.utime(tmp_path / "older", (97 * DAY,) * 2)
    old(tmp_path / "newer", MIB, days=2)
    prune(tmp_path, Kept(days=14, megabytes=1.5), now=100 * DAY)
    assert [entry.name for entry in tmp_path.iterdir()] == ["newer"]


def test_a_log_of_the_last_hour_stays_however_large(tmp_path: Path) -> None:
    old(tmp_path / "running", MIB, days=0.01)
    prune(tmp_path, Kept(days=14, megabytes=0), now=100 * DAY)
    assert (tmp_path / "running").exists()


def test_the_same_code_is_shipped_as_the_same_file_and_imports_from_it(tmp_path: Path) -> None:
    packed = shipped(tmp_path, ["spark_jobs", "dagster_pipes"])
    assert shipped(tmp_path, ["spark_jobs", "dagster_pipes"]) == packed
    assert {"spark_jobs/request.py", "dagster_pipes/__init__.py"} <= set(zipfile.ZipFile(packed).namelist())
    code = "import spark_jobs.request as module; print(module.__file__)"
    told = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(packed)!r}); {code}"], check=True, capture_output=True
    )
    assert told.stdout.decode().startswith(str(packed))


def test_a_package_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no_such_jobs"):
        shipped(tmp_path, ["no_such_jobs"])


# A command with a child of its own that ignores requests to end, as a driver might.
STUBBORN = """
import pathlib, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if sys.argv[2] == "parent":
    subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[1], "child", sys.argv[3]])
pathlib.Path(sys.argv[3], sys.argv[2]).touch()
signal.pause()
"""


def test_whatever_the_command_started_ends_when_its_keeper_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = "import subprocess, sys; subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE).wait()"
    quick = f"import runpy; m = runpy.run_path({leash.__file__!r}); m['main'].__globals__['GRACE_SECONDS'] = 0.1; "
    quick += "import sys; sys.exit(m['main'](sys.argv[1:]))"
    command = [sys.executable, "-c", quick, sys.executable, "-c", STUBBORN, STUBBORN, "parent", str(tmp_path)]
    killed = subprocess.Popen([sys.executable, "-c", keeper, *command])
    wait_until(lambda: (tmp_path / "parent").exists() and (tmp_path / "child").exists(), "both run")
    below = psutil.Process(killed.pid).children(recursive=True)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert len(below) == 3
    assert psutil.wait_procs(below, timeout=60)[1] == []


@pytest.mark.parametrize(("code", "exit_code"), [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 137)])
def test_the_leash_ends_as_its_command_did(code: str, exit_code: int) -> None:
    process = subprocess.Popen([sys.executable, "-I", leash.__file__, sys.executable, "-c", code], stdin=subprocess.PIPE)
    assert process.wait() == exit_code
    assert process.stdin is not None
    process.stdin.close()


def submitted(command: list[str], option: str) -> str:
    return command[command.index(option) + 1]


def test_a_submission_names_what_it_ships_and_the_users_settings_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_HOME", str(tmp_path))
    resource = SparkSubmit(
        master="yarn",
        deploy_mode="cluster",
        executor_memory="3g",
        spark_config={"spark": {"sql": {"shuffle": {"partitions": 7}}}},
    )
    table(tmp_path / "table")
    command = list(resource.command(Settings.load(), request(Source(str(tmp_path / "table"), 0)), {"spark.executor.cores": "2"}))
    assert (submitted(command, "--master"), submitted(command, "--deploy-mode")) == ("yarn", "cluster")
    assert submitted(command, "--py-files").endswith("jobs.zip")
    assert command[-1].endswith("spark_jobs/main.py")
    assert {"spark.executor.memory=3g", "spark.executor.cores=2", "spark.sql.shuffle.partitions=7"} <= set(command)
    assert any(word.startswith("spark.jars=") and "delta-spark" in word for word in command)


def test_any_runtime_can_stand_behind_a_job() -> None:
    def compute(spark: SparkRuntime) -> bool:
        return spark.started

    assert [compute(SparkResource()), compute(SparkSubmit())] == [False, False]

    @dg.asset
    def table_of_a_job(spark: dg.ResourceParam[SparkRuntime]) -> None:
        assert not spark.started

    for runtime in (SparkResource(), SparkSubmit()):
        assert dg.materialize([table_of_a_job], resources={"spark": runtime}).success


LOST = "ExecutorLostFailure (executor 0 exited caused by one of the running tasks) Reason: Remote RPC client disassociated."
JAVA = f"""An error occurred while calling o71.save.
: org.apache.spark.SparkException: Task 0 failed 4 times, most recent failure: Lost task 0.3 in stage 1.0 (TID 4): {LOST}
Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)
"""
CAUSES = """Boom
\tat a.b(C.scala:1)
Caused by: java.io.IOException: outer
\tat a.b(C.scala:2)
Caused by: java.io.IOException: No space left
\t... 12 more
"""


def test_a_lost_executor_is_the_cause_and_not_the_stage_that_failed_for_it() -> None:
    assert first_cause(JAVA) == [LOST]


def test_the_deepest_cause_in_java_is_the_first() -> None:
    assert first_cause(CAUSES) == ["java.io.IOException: No space left"]


def test_an_error_has_twenty_lines_at_most(tmp_path: Path) -> None:
    failure = told("job", [f"line {number} {'x' * 1000}" for number in range(100)], tmp_path / "log.txt")
    lines = str(failure.description).splitlines()
    assert len(lines) <= 20
    assert max(map(len, lines)) < 500
    assert str(tmp_path / "log.txt") in lines[-1]
