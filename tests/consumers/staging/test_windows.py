"""Windows in UTC, and the cut of a table along them."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.staging.windows import Every, split, window_keys

STAMP = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("at", "hour"),
    [
        ("1970-01-01T00:00:00", "1970-01-01-00"),
        ("1969-12-31T23:59:59.999999", "1969-12-31-23"),
        ("1900-02-28T00:00:00", "1900-02-28-00"),
        ("2012-12-31T23:59:59.999999", "2012-12-31-23"),
        ("2013-01-01T00:00:00", "2013-01-01-00"),
        ("2016-02-29T12:00:00", "2016-02-29-12"),
        ("0001-01-01T00:00:00", "0001-01-01-00"),
        ("9999-12-31T23:59:59.999999", "9999-12-31-23"),
    ],
)
def test_a_time_belongs_to_its_hour_and_day(at: str, hour: str) -> None:
    times = pa.array([datetime.fromisoformat(at).replace(tzinfo=UTC)], STAMP)
    assert window_keys(times, "hour").to_pylist() == [hour]
    assert window_keys(times, "day").to_pylist() == [hour[:10]]


@given(st.lists(st.none() | st.datetimes(timezones=st.just(UTC)), max_size=20), st.sampled_from(["hour", "day"]))
def test_keys_are_those_that_python_computes(times: list[datetime | None], every: Every) -> None:
    length = 13 if every == "hour" else 10
    wanted = [None if t is None else t.isoformat()[:length].replace("T", "-") for t in times]
    assert window_keys(pa.chunked_array([pa.array(times, STAMP)]), every).to_pylist() == wanted


def test_dates_have_windows_too() -> None:
    assert window_keys(pa.array([-1, 0], pa.int32()).cast(pa.date32()), "hour").to_pylist() == ["1969-12-31-00", "1970-01-01-00"]


def test_a_split_keeps_every_row_in_order_under_its_key() -> None:
    table = pa.table({"n": list(range(7))})
    parts = list(split(table, pa.array(["b", "a", "c", "b", "a", "c", "b"])))
    assert [(name, part["n"].to_pylist()) for name, part in parts] == [("a", [1, 4]), ("b", [0, 3, 6]), ("c", [2, 5])]
    assert [(name, part.num_rows) for name, part in split(table, pa.array(["x"] * 7))] == [("x", 7)]
    assert list(split(table.slice(0, 0), pa.array([], pa.string()))) == []
