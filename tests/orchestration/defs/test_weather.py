"""The sample consumer `weather`, by its own YAML."""

from typing import Any

from orchestration.testing import run_consumer

HOUR: dict[str, Any] = {
    "origin": "EWR", "year": 2013, "month": 1, "day": 1, "hour": 1, "temp": 39.02, "dewp": 26.06, "humid": 59.37, "wind_dir": 270,
    "wind_speed": 10.36, "wind_gust": None, "precip": 0.0, "pressure": 1012.0, "visib": 10.0, "time_hour": "2013-01-01T06:00:00Z",
}  # fmt: skip


def test_an_hour_without_gusts_is_a_row() -> None:
    staged = run_consumer("weather", [{"value": HOUR, "timestamp": "2013-01-01T06:00:00Z"}])
    assert staged.rows[0]["wind_gust"] is None and staged.windows == {"2013-01-01": 1}


def test_an_hour_without_rain_measured_is_a_dead_letter() -> None:
    [reason] = run_consumer("weather", [{"value": HOUR | {"precip": None}}]).reasons
    assert "precip" in reason
