"""A short sample of the fault scenarios, on a real Kafka; `make faults` runs all of them at length."""

from contextlib import closing
from pathlib import Path

import pytest

from tests.faults import scenarios  # noqa: F401 - importing them registers them
from tests.faults.kinds import Kinds
from tests.faults.lab import Lab
from tests.faults.scenario import SCENARIOS

pytestmark = [pytest.mark.faults, pytest.mark.integration, pytest.mark.timeout(240)]


@pytest.mark.parametrize(
    ("name", "times", "records"), [("kill_at_boundaries", 5, 4_000), ("put_fails", 3, 4_000), ("poison", 2, 2_500)]
)
def test_a_fault_that_fires_under_records_leaves_nothing_wrong(
    name: str, times: int, records: int, kafka: str, tmp_path: Path
) -> None:
    with closing(Lab(kafka, tmp_path, seed=20130101, pace=0.1)) as lab:
        outcome = SCENARIOS[name].run(lab, times, records, 20130101)
    assert outcome.kinds == Kinds()
    assert outcome.valid, outcome
