"""The matrix: what counts as passed, and how a row is told."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults import scenarios
from tests.faults.kinds import Kinds
from tests.faults.matrix import Row, markdown, told
from tests.faults.scenario import SCENARIOS, Outcome, Scenario

GOOD = Outcome(asked=5, fired=5, records=1_000, recovery_seconds=1.0)


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [
        (GOOD, "passed"),
        (replace(GOOD, fired=4), "INVALID"),
        (replace(GOOD, records=999), "INVALID"),
        (replace(GOOD, asked=0), "INVALID"),
        (replace(GOOD, note="it could not be carried through"), "INVALID"),
        (replace(GOOD, recovery_seconds=60.1), "SLOW"),
        (replace(GOOD, kinds=Kinds(L=("(0, 7)",))), "FOUND"),
        (replace(GOOD, fired=4, kinds=Kinds(M=("a window",))), "FOUND"),
    ],
)
def test_only_a_fault_that_fired_under_records_and_left_nothing_wrong_has_passed(outcome: Outcome, verdict: str) -> None:
    assert outcome.verdict == verdict


def test_what_was_found_is_told_under_its_row() -> None:
    scenario = Scenario("name", "a fault", lambda *_: GOOD, 1, 1, 1)
    row = Row(scenario, replace(GOOD, kinds=Kinds(L=("(0, 7)",))), 3.0)
    assert told(row)[1:] == ["  L: (0, 7)"]
    assert markdown([row]).splitlines()[-1] == "| name | a fault | 5 | 5 | 1,000 | 1.0 | 1 | 0 | 0 | 0 | 0 | 0 | 0 | FOUND |"


def test_every_file_of_scenarios_is_in_the_matrix() -> None:
    files = {file.stem for folder in scenarios.__path__ for file in Path(folder).glob("[a-z]*.py")}
    assert set(SCENARIOS) == files
