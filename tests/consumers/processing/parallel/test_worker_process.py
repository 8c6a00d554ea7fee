"""A worker process: it runs the function on what it is given, it is replaced when it dies, and it never outlives its use."""

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from consumers.errors import ConfigError, TaskFailed
from consumers.processing.parallel.process import ProcessLane, Stopped
from consumers.types import OffsetRange
from tests.consumers.processing.parallel.functions import obey, said, told
from tests.consumers.processing.parallel.parts import TP, columns
from tests.contracts.strategies import until

BATCH = columns(5, 105)
RANGES = {TP: OffsetRange(5, 105)}

_PARENT = """
import sys, threading
import pyarrow as pa
from consumers.processing.parallel.process import ProcessLane
from tests.consumers.processing.parallel.functions import obey, said, told
batch = pa.ipc.open_stream(sys.stdin.buffer).read_next_batch()
idle, busy = ProcessLane(obey, 0), ProcessLane(obey, 0)
threading.Thread(target=busy.run, args=(told(batch, "hold the interpreter", sys.argv[1]), {})).start()
print(said(idle.run(told(batch, "say pid"), {}).value), flush=True)
"""


@pytest.fixture(scope="module")
def lane() -> Iterator[ProcessLane]:
    """One that the tests share; those that make it fail replace its process, which is what it is for."""
    made = ProcessLane(obey, max_crashes=1)
    yield made
    made.stop()
    made.close(5)


def ask(lane: ProcessLane, do: str, with_: str = "", batch: pa.RecordBatch = BATCH) -> pa.RecordBatch:
    return lane.run(told(batch, do, with_), RANGES).value


def test_what_the_function_makes_comes_back(lane: ProcessLane) -> None:
    assert ask(lane, "same").equals(BATCH)
    assert lane.run(pa.table(told(BATCH, "same")), RANGES).value.equals(pa.table(BATCH))
    assert ask(lane, "as table").equals(pa.Table.from_batches([BATCH, BATCH]))
    assert ask(lane, "say pid") != str(os.getpid())


def test_records_that_it_refuses_come_back_as_rejections(lane: ProcessLane) -> None:
    made = lane.run(told(BATCH, "refuse first", "too small"), RANGES)
    assert [(r.partition, r.offset, r.reason) for r in made.rejected] == [(TP, 5, "too small")]
    assert made.value.equals(BATCH.slice(1))


def test_results_larger_than_any_before_fit(lane: ProcessLane) -> None:
    for times in (1, 300, 7, 3000):
        assert ask(lane, "repeat", str(times)).num_rows == 100 * times


def test_batches_larger_than_any_before_fit(lane: ProcessLane) -> None:
    for size in (10, 30_000, 10, 100_000):
        assert said(ask(lane, "say rows", batch=columns(0, 100, size))) == "100"


def test_what_the_function_keeps_is_not_overwritten(lane: ProcessLane) -> None:
    ask(lane, "keep")
    for start in (1000, 2000):
        ask(lane, "same", batch=columns(start, start + 100))
    assert ask(lane, "show kept").equals(BATCH)


def test_a_result_stays_as_it_came(lane: ProcessLane) -> None:
    first = ask(lane, "same")
    ask(lane, "same", batch=columns(1000, 1100))
    assert first.equals(BATCH)


def test_a_failure_has_the_place_and_the_traceback_of_the_worker(lane: ProcessLane) -> None:
    before = said(ask(lane, "say pid"))
    with pytest.raises(TaskFailed, match=r"topic orders, partitions and offsets 0 \[5, 105\).* 3 apples") as failed:
        ask(lane, "raise", "3")
    assert 'functions.py", line' in str(failed.value)
    assert "in _raise" in str(failed.value)
    assert said(ask(lane, "say pid")) == before


def test_a_result_that_is_not_arrow_is_refused(lane: ProcessLane) -> None:
    with pytest.raises(TaskFailed, match=r"obey returned list on topic orders.*threads"):
        ask(lane, "return a list")


def test_a_killed_process_is_replaced_and_its_work_done_again(lane: ProcessLane, tmp_path: Path) -> None:
    before = said(ask(lane, "say pid"))
    assert ask(lane, "kill the first", str(tmp_path / "marker")).equals(BATCH)
    assert said(ask(lane, "say pid")) != before


def test_a_process_that_died_idle_is_replaced(lane: ProcessLane) -> None:
    idle = int(said(ask(lane, "say pid")))
    os.kill(idle, signal.SIGKILL)
    until(lambda: _gone(psutil.Process(idle)))
    assert ask(lane, "same").equals(BATCH)


@pytest.mark.parametrize(("how", "told_as"), [("SIGSEGV", "killed by SIGSEGV"), ("7", "exit code 7")])
def test_work_that_kills_every_process_fails_with_its_place(lane: ProcessLane, how: str, told_as: str) -> None:
    with pytest.raises(TaskFailed, match=rf"{told_as}.*the last of 2 on topic orders, partitions and offsets 0 \[5, 105\)"):
        ask(lane, "die", how)


def test_a_worker_imports_neither_kafka_nor_delta_nor_dagster(lane: ProcessLane) -> None:
    loaded = set(said(ask(lane, "say modules")).split())
    assert "pyarrow" in loaded
    assert not loaded & {"confluent_kafka", "deltalake", "dagster", "pyspark", "sqlalchemy", "pydantic", "pytest", "pandas"}


def test_a_function_that_cannot_be_pickled_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match=r"test_worker_process.*lambda.* cannot be handed to worker processes.*partial"):
        ProcessLane(lambda batch: batch, max_crashes=0)


def test_a_function_that_a_worker_cannot_load_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # As one does that stands in the script that was started: here it is found in __main__, there it is not.
    def stray(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    stray.__module__, stray.__qualname__ = "__main__", "stray"
    monkeypatch.setattr(sys.modules["__main__"], "stray", stray, raising=False)
    lane = ProcessLane(partial(stray), max_crashes=0)
    with pytest.raises(TaskFailed, match=r"could not load the function: AttributeError.*stray.*top level of a module"):
        lane.run(BATCH, RANGES)
    lane.stop()
    lane.close(5)


def test_nothing_is_left_when_it_is_closed() -> None:
    before = _descriptors()
    lane = ProcessLane(obey, max_crashes=0)
    pid = int(said(ask(lane, "say pid")))
    ask(lane, "repeat", "1000")
    lane.stop()
    lane.close(5)
    del lane
    assert not psutil.pid_exists(pid)
    assert _descriptors() == before


def test_a_process_that_does_not_want_to_end_is_killed(tmp_path: Path) -> None:
    lane = ProcessLane(obey, max_crashes=5)
    pid = _busy(lane, "ignore SIGTERM", tmp_path / "marker")
    lane.stop()
    lane.close(0.1)
    assert not psutil.pid_exists(pid)


def test_workers_die_with_a_parent_that_is_killed_idle_or_not(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    command = [sys.executable, "-c", _PARENT, str(marker)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        with pa.ipc.new_stream(parent.stdin, BATCH.schema) as stream:
            stream.write(BATCH)
        parent.stdin.close()
        idle, busy = psutil.Process(int(parent.stdout.readline())), psutil.Process(_written(marker))
        parent.kill()
    until(lambda: _gone(idle) and _gone(busy))


def _busy(lane: ProcessLane, do: str, marker: Path) -> int:
    """Have the lane do something endless on another thread; the worker's pid, once it is at it."""

    def until_it_is_stopped() -> None:
        with pytest.raises(Stopped):
            ask(lane, do, str(marker))

    threading.Thread(target=until_it_is_stopped, daemon=True).start()
    return _written(marker)


def _gone(process: psutil.Process) -> bool:
    """Whether it has ended; one that nobody has asked how it ended stays as a zombie."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _written(marker: Path) -> int:
    until(lambda: marker.exists() and bool(marker.read_text()))
    return int(marker.read_text())


def _descriptors() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))
