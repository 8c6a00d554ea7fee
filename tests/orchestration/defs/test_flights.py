"""The sample consumer `flights`, by its own YAML."""

from typing import Any

from orchestration.testing import run_consumer

FLIGHT: dict[str, Any] = {
    "year": 2013, "month": 1, "day": 1, "dep_time": 533, "sched_dep_time": 529, "dep_delay": 4, "arr_time": 850,
    "sched_arr_time": 830, "arr_delay": 20, "carrier": "UA", "flight": 1714, "tailnum": "N24211", "origin": "LGA", "dest": "IAH",
    "air_time": 227, "distance": 1416, "hour": 5, "minute": 29, "time_hour": "2013-01-01T10:00:00Z",
}  # fmt: skip


def test_a_flight_is_a_row_in_the_window_of_its_departure() -> None:
    staged = run_consumer("flights", [{"value": FLIGHT, "timestamp": "2013-01-01T10:00:00Z"}])
    assert staged.rows[0]["distance"] == 1416 and staged.windows == {"2013-01-01": 1}


def test_a_cancelled_flight_has_no_times() -> None:
    cancelled = FLIGHT | {"dep_time": None, "dep_delay": None, "arr_time": None, "arr_delay": None, "air_time": None}
    assert run_consumer("flights", [{"value": cancelled}]).rows[0]["air_time"] is None


def test_a_flight_without_distance_is_a_dead_letter() -> None:
    staged = run_consumer("flights", [{"value": {key: FLIGHT[key] for key in FLIGHT if key != "distance"}}, {"value": FLIGHT}])
    assert staged.reasons == ["Object missing required field `distance`"] and len(staged.rows) == 1
