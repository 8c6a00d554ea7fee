"""What the job functions compute, on frames small enough to check by hand."""

import datetime as dt
from collections.abc import Sequence

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from spark_jobs.account_balances import account_balances
from spark_jobs.airport_delays import airport_delays

pytestmark = pytest.mark.spark

FLIGHT = "_window string, origin string, dep_time long, dep_delay long, _tombstone boolean"
WEATHER = "_window string, origin string, temp double, precip double, wind_speed double, visib double, _tombstone boolean"


def delays(spark: SparkSession, flights: Sequence[tuple[object, ...]], weather: Sequence[tuple[object, ...]]) -> list[Row]:
    inputs: dict[str, DataFrame] = {
        "flights": spark.createDataFrame(list(flights), FLIGHT),
        "weather": spark.createDataFrame(list(weather), WEATHER),
    }
    return airport_delays(spark, inputs, ["d1", "d2"]).orderBy("_window", "origin").collect()


def test_delays_are_counted_per_day_and_origin_with_the_p90_between_neighbours(spark: SparkSession) -> None:
    flights = [("2013-01-01", "JFK", 500, delay, False) for delay in range(11)]
    flights.append(("2013-01-02", "JFK", 500, 7, False))
    first, second = delays(spark, flights, [])
    assert (first.flights, first.cancelled, first.mean_delay, first.p90_delay) == (11, 0, 5.0, 9.0)
    assert (second["_window"], second.flights, second.p90_delay) == ("2013-01-02", 1, 7.0)
    assert first.day == dt.date(2013, 1, 1)


def test_a_flight_without_departure_time_is_cancelled_and_has_no_delay(spark: SparkSession) -> None:
    flights = [("2013-01-01", "JFK", None, None, False), ("2013-01-01", "JFK", 500, 30, False)]
    (row,) = delays(spark, flights, [])
    assert (row.flights, row.cancelled, row.mean_delay) == (2, 1, 30.0)


def test_a_tombstone_is_not_a_flight(spark: SparkSession) -> None:
    flights = [("2013-01-01", "JFK", 500, 30, False), ("2013-01-01", None, None, None, True)]
    (row,) = delays(spark, flights, [])
    assert (row.origin, row.flights, row.cancelled) == ("JFK", 1, 0)


def test_weather_is_that_of_the_same_day_and_airport_and_never_multiplies_flights(
    spark: SparkSession,
) -> None:
    flights = [("2013-01-01", "JFK", 500, 1, False), ("2013-01-01", "LGA", 500, 1, False)]
    weather = [
        ("2013-01-01", "JFK", 30.0, 0.1, 10.0, 8.0, False),
        ("2013-01-01", "JFK", 40.0, 0.2, 20.0, 10.0, False),
        ("2013-01-02", "LGA", 99.0, 9.9, 99.0, 99.0, False),
    ]
    jfk, lga = delays(spark, flights, weather)
    assert (jfk.flights, jfk.mean_temp, jfk.mean_wind_speed, jfk.mean_visib) == (1, 35.0, 15.0, 9.0)
    assert jfk.total_precip == pytest.approx(0.3)
    assert (lga.flights, lga.mean_temp) == (1, None)


def test_balances_add_up_over_all_windows_and_leave_tombstones_out(spark: SparkSession) -> None:
    rows = [
        ("2013-06-01", "A1", 500, False),
        ("2013-06-02", "A1", -700, False),
        ("2013-06-02", "A2", 3, False),
        ("2013-06-02", None, None, True),
    ]
    staged = spark.createDataFrame(rows, "_window string, account_id string, amount_cents long, _tombstone boolean")
    result = account_balances(spark, {"transactions": staged}, []).orderBy("account_id").collect()
    assert [tuple(row) for row in result] == [("A1", -200, 2), ("A2", 3, 1)]
