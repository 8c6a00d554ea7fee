"""SIGKILL at every step of write, audit and publish, while somebody reads: readers see the old or the new version.

`WEIR_ROUNDS=20` goes through all steps as often; `WEIR_SPARK=1` computes with Spark, a session for every kill.
"""

import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from consumers.clock import SystemClock
from orchestration.compute.plan import plan
from spark_jobs.request import Mode
from tests.faults.publisher import AFTER_THE_COMMIT, FAKE_POINTS, SPARK_POINTS, Order, child, run
from tests.orchestration.compute import fake
from tests.orchestration.compute.bench import MODES, clean, make

pytestmark = [pytest.mark.faults, pytest.mark.timeout(7200)]

ROUNDS = int(os.environ.get("WEIR_ROUNDS", "1"))
SPARK = bool(os.environ.get("WEIR_SPARK"))
ANY_MOMENT = "at any moment"
LOOKS = 2_000 if SPARK else 20
WINDOWS = 4
SEED = 6
_CLOCK = SystemClock()

Rows = list[tuple[object, ...]]


class Reader:
    """Reads the output again and again in a thread, and keeps what it saw, in order."""

    def __init__(self, output: Path) -> None:
        self._output, self._stop = output, threading.Event()
        self.looks = 0
        self.seen: list[Rows] = []
        self.failed: list[Exception] = []
        self._thread = threading.Thread(target=self._read)

    def look(self) -> None:
        """Once."""
        found = fake.contents(self._output)
        if found not in self.seen[-1:]:
            self.seen.append(found)
        self.looks += 1

    @contextmanager
    def reading(self) -> Iterator["Reader"]:
        """It reads inside of the block, and once more at its end."""
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join()
        assert self.failed == []
        self.look()

    def _read(self) -> None:
        while not self._stop.is_set() and not self.failed:
            try:
                self.look()
            except Exception as error:  # noqa: BLE001 - the test fails with it
                self.failed.append(error)


def new_rows(staged: fake.Staged, number: int) -> None:
    """Every window and every key gets a row, so that a mixture of two versions has the sums of neither."""
    staged.batch(**{f"d{window}": [(f"k{window}", number), (f"k{window + 1}", number)] for window in range(WINDOWS)})


def ended(order: Order, log: Path) -> int | None:
    """The exit code of a child that nobody else ends."""
    with child(order, log) as one:
        return one.wait()


def killed_after(looks: int, reader: Reader, order: Order, log: Path) -> None:
    """A child dies after so many more looks of the reader, unless it has ended by then."""
    with child(order, log) as one:
        last = reader.looks + looks
        while reader.looks < last and one.runs and not reader.failed:
            _CLOCK.sleep(0.001)


@pytest.mark.parametrize("mode", ["window"] if SPARK else MODES)
@pytest.mark.parametrize("point", [*(SPARK_POINTS if SPARK else FAKE_POINTS), ANY_MOMENT])
def test_readers_see_the_old_or_the_new_version_and_a_rerun_gives_the_clean_ones_rows(
    tmp_path: Path, mode: Mode, point: str
) -> None:
    job, staged = make(tmp_path, mode)
    chance, log = random.Random(f"{SEED} {mode} {point}"), tmp_path / "child.log"
    new_rows(staged, 1)
    run(job, spark=False)
    for number in range(2, 2 + ROUNDS):
        new_rows(staged, number)
        old, new = fake.contents(job.output), clean(job)
        assert old != new
        with Reader(job.output).reading() as reader:
            if point == ANY_MOMENT:
                killed_after(chance.randint(1, LOOKS), reader, Order(job, SPARK, None), log)
            else:
                assert ended(Order(job, SPARK, point), log) == -signal.SIGKILL, log.read_text()
        assert [rows for rows in reader.seen if rows not in (old, new)] == []
        if point in AFTER_THE_COMMIT:
            assert reader.seen[-1] == new
        elif point != ANY_MOMENT:
            assert reader.seen == [old]
        assert ended(Order(job, SPARK, None), log) == 0, log.read_text()
        assert fake.contents(job.output) == new
        assert plan(job).stale == ()
