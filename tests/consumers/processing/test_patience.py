"""The file budget: batches wait longer while a window has more files than it should, and never longer than allowed."""

from collections import Counter
from pathlib import Path

import pytest

from consumers.clock import ManualClock
from consumers.config import BatchLimits
from consumers.processing.strategies.stage.patience import Patience, patience
from consumers.staging.staged import StagedTable
from tests.consumers.parts import consumer
from tests.consumers.staging.rewriting import GOOD, WINDOW, Ingestion

ADAPTS = BatchLimits(max_latency_seconds=10, full_window_latency_seconds=60)


@pytest.mark.parametrize(("files", "seconds"), [(0, 10), (100, 10), (200, 20), (300, 40), (400, 60), (1_000_000, 60)], ids=str)
def test_a_batch_waits_twice_as_long_for_each_budget_more_up_to_the_limit(files: int, seconds: float) -> None:
    assert patience(files, 100, 10.0, 60.0) == seconds


def test_without_a_limit_nothing_waits_longer() -> None:
    assert patience(1000, 10, 10.0, None) == 10.0


def test_a_limit_below_the_usual_latency_shortens_nothing() -> None:
    assert patience(1000, 10, 10.0, 5.0) == 10.0


def test_files_are_counted_in_the_table_first_and_by_commits_then() -> None:
    asked = []

    def count() -> Counter[str]:
        asked.append(True)
        return Counter({"a": 3, "b": 1})

    kept = Patience(ADAPTS, 2)
    kept.wrote(["a"], count)
    assert kept.seconds == pytest.approx(10 * 2**0.5)
    kept.wrote(["a"], count)
    assert kept.seconds == 20
    kept.wrote(["b"], count)
    assert kept.seconds == 10
    assert len(asked) == 1


def test_a_table_is_not_counted_where_nothing_adapts() -> None:
    kept = Patience(BatchLimits(), 1)
    kept.wrote(["a"], lambda: pytest.fail("it was"))
    assert kept.seconds == 10


def test_the_staged_table_tells_the_files_of_its_windows(tmp_path: Path) -> None:
    parts = consumer(tmp_path)
    ingestion = Ingestion(parts)
    ingestion.stage(GOOD)
    ingestion.stage(GOOD)
    table = StagedTable(parts, ManualClock())
    assert table.files_by_window() == {WINDOW: 2}
