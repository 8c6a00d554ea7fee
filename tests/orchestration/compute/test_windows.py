"""Which windows of an input a window is computed from, and when that makes it another one."""

import pytest

from orchestration.compute.windows import Reach

DAYS = {f"2013-01-{day:02}": f"v{day}" for day in range(1, 6)}
HOURS = {f"2013-01-{day:02}-{hour:02}": f"v{day}.{hour}" for day in (1, 2) for hour in (0, 23)}


@pytest.mark.parametrize(
    ("reach", "held", "of"),
    [
        (Reach(), DAYS, ["2013-01-02"]),
        (Reach(look_back=1), DAYS, ["2013-01-01", "2013-01-02"]),
        (Reach(look_back=2), DAYS, ["2013-01-01", "2013-01-02"]),
        (Reach(up_to=True), DAYS, ["2013-01-01", "2013-01-02"]),
        (Reach(whole=True), DAYS, list(DAYS)),
        (Reach(contained=True), HOURS, ["2013-01-02-00", "2013-01-02-23"]),
        (Reach(contained=True, look_back=1), HOURS, list(HOURS)),
        (Reach(contained=True, up_to=True), HOURS, list(HOURS)),
    ],
)
def test_a_day_is_computed_from(reach: Reach, held: dict[str, str], of: list[str]) -> None:
    assert reach.of("2013-01-02", sorted(held)) == of


@pytest.mark.parametrize("window", ["0001-01-01", "0999-12-31", "None"])
def test_a_window_that_no_calendar_has_a_day_before_is_computed_from_itself(window: str) -> None:
    assert Reach(look_back=1).of(window, [window]) == [window]


def test_an_hour_looks_back_over_midnight() -> None:
    assert Reach(look_back=1).of("2013-01-02-00", sorted(HOURS)) == ["2013-01-01-23", "2013-01-02-00"]


@pytest.mark.parametrize(
    ("reach", "changed"),
    [
        (Reach(), {"2013-01-02"}),
        (Reach(look_back=1), {"2013-01-02", "2013-01-03"}),
        (Reach(up_to=True), {"2013-01-02", "2013-01-03", "2013-01-04", "2013-01-05"}),
        (Reach(whole=True), set(DAYS)),
    ],
)
def test_a_change_reaches_the_windows_that_are_computed_from_it_and_no_other(reach: Reach, changed: set[str]) -> None:
    before = reach.contents(DAYS, DAYS)
    after = reach.contents(DAYS, {**DAYS, "2013-01-02": "other"})
    assert {window for window in DAYS if before[window] != after[window]} == changed


def test_an_hour_changes_its_day() -> None:
    days = ["2013-01-01", "2013-01-02"]
    reach = Reach(contained=True)
    before, after = reach.contents(days, HOURS), reach.contents(days, {**HOURS, "2013-01-02-05": "new"})
    assert [before[day] == after[day] for day in days] == [True, False]
    assert reach.own("2013-01-02-05") == "2013-01-02"
