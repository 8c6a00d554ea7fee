"""What the job functions compute, on frames small enough to check by hand."""

import datetime as dt
import random
from collections.abc import Sequence
from functools import reduce

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from spark_jobs.account_balances import account_balances
from spark_jobs.airport_delays import airport_delays
from spark_jobs.carrier_delays import carrier_delays
from spark_jobs.hourly_routes import hourly_routes
from spark_jobs.staged import day_of

pytestmark = pytest.mark.spark

FLIGHT = "_window string, origin string, dep_time long, dep_delay long, _tombstone boolean"
WEATHER = "_window string, origin string, temp double, precip double, wind_speed double, visib double, _tombstone boolean"
TRANSACTION = "_window string, account_id string, amount_cents long, _tombstone boolean"
ROUTE = "_window string, time_hour timestamp, origin string, dest string, dep_time long, dep_delay long, _tombstone boolean"
CARRIER = "_window string, carrier string, dep_delay long, _tombstone boolean"

Values = Sequence[tuple[object, ...]]


def delays(spark: SparkSession, flights: Values, weather: Values, percentile: float = 0.9) -> list[Row]:
    frames = (spark.createDataFrame(list(flights), FLIGHT), spark.createDataFrame(list(weather), WEATHER))
    return airport_delays(*frames, percentile=percentile).orderBy("_window", "origin").collect()


def test_delays_are_counted_per_day_and_origin_with_the_p90_between_neighbours(spark: SparkSession) -> None:
    flights = [("2013-01-01", "JFK", 500, delay, False) for delay in range(11)]
    flights.append(("2013-01-02", "JFK", 500, 7, False))
    first, second = delays(spark, flights, [])
    assert (first.flights, first.cancelled, first.mean_delay, first.p90_delay) == (11, 0, 5.0, 9.0)
    assert (second["_window"], second.flights, second.p90_delay) == ("2013-01-02", 1, 7.0)
    assert first.day == dt.date(2013, 1, 1)


def test_another_percentile_is_a_column_of_its_name(spark: SparkSession) -> None:
    flights = [("2013-01-01", "JFK", 500, delay, False) for delay in range(11)]
    (row,) = delays(spark, flights, [], percentile=0.5)
    assert row.p50_delay == 5.0


def test_a_flight_without_departure_time_is_cancelled_and_has_no_delay(spark: SparkSession) -> None:
    flights = [("2013-01-01", "JFK", None, None, False), ("2013-01-01", "JFK", 500, 30, False)]
    (row,) = delays(spark, flights, [])
    assert (row.flights, row.cancelled, row.mean_delay) == (2, 1, 30.0)


def test_a_tombstone_is_not_a_flight(spark: SparkSession) -> None:
    flights = [("2013-01-01", "JFK", 500, 30, False), ("2013-01-01", None, None, None, True)]
    (row,) = delays(spark, flights, [])
    assert (row.origin, row.flights, row.cancelled) == ("JFK", 1, 0)


def test_weather_is_that_of_the_same_day_and_airport_and_never_multiplies_flights(spark: SparkSession) -> None:
    flights = [("2013-01-01", "JFK", 500, 1, False), ("2013-01-01", "LGA", 500, 1, False)]
    weather = [
        ("2013-01-01", "JFK", 30.0, 0.1, 10.0, 8.0, False),
        ("2013-01-01", "JFK", 40.0, 0.2, 20.0, 10.0, False),
        ("2013-01-02", "LGA", 99.0, 9.9, 99.0, 99.0, False),
    ]
    jfk, lga = delays(spark, flights, weather)
    assert (jfk.flights, jfk.mean_temp, jfk.mean_wind_speed, jfk.mean_visib) == (1, 35.0, 15.0, 9.0)
    assert jfk.total_precip == 0.3
    assert (lga.flights, lga.mean_temp) == (1, None)


def test_the_order_of_observations_does_not_show_in_the_last_digit(spark: SparkSession) -> None:
    flights = [("2013-01-01", "JFK", 500, 1, False)]
    weather = [("2013-01-01", "JFK", value, value, value, value, False) for value in (0.1, 0.7, 0.2, 1e9)]
    assert delays(spark, flights, weather) == delays(spark, flights, weather[::-1])


def balances(frame: DataFrame) -> dict[str, tuple[int, int]]:
    return {row.account_id: (row.balance_cents, row.transactions) for row in frame.collect()}


def test_balances_add_up_over_all_windows_and_leave_tombstones_out(spark: SparkSession) -> None:
    rows = [
        ("2013-06-01", "A1", 500, False),
        ("2013-06-02", "A1", -700, False),
        ("2013-06-02", "A2", 3, False),
        ("2013-06-02", None, None, True),
    ]
    assert balances(account_balances(spark.createDataFrame(rows, TRANSACTION), None)) == {"A1": (-200, 2), "A2": (3, 1)}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_balances_are_the_same_however_the_transactions_are_split(spark: SparkSession, seed: int) -> None:
    draw = random.Random(seed)
    rows = [("2013-06-01", f"A{draw.randrange(5)}", draw.randint(-100, 100), draw.random() < 0.1) for _ in range(40)]
    cut = draw.randint(0, len(rows))
    old, new, both = (spark.createDataFrame(part, TRANSACTION) for part in (rows[:cut], rows[cut:], rows))
    before = account_balances(old, None)
    after = account_balances(new, before)
    assert {**balances(before), **balances(after)} == balances(account_balances(both, None))


def test_only_accounts_with_new_transactions_come_back(spark: SparkSession) -> None:
    old = account_balances(spark.createDataFrame([("w", "A1", 1, False), ("w", "A2", 2, False)], TRANSACTION), None)
    assert balances(account_balances(spark.createDataFrame([("w", "A2", 3, False)], TRANSACTION), old)) == {"A2": (5, 2)}


def flight(hour: int, dest: str, delay: int | None, dead: bool = False) -> tuple[object, ...]:
    at = dt.datetime(2013, 1, 1, hour)
    return ("2013-01-01", at, "JFK", dest, None if delay is None else 500, delay, dead)


def test_routes_are_counted_by_hour_and_a_cancelled_flight_has_not_departed(spark: SparkSession) -> None:
    rows = [flight(5, "LAX", 10), flight(5, "LAX", -4), flight(5, "LAX", None), flight(6, "LAX", None), flight(5, "SFO", 1, True)]
    found = hourly_routes(spark.createDataFrame(rows, ROUTE)).orderBy("hour").collect()
    assert [(row.hour.hour, row.dest, row.flights, row.departed, row.delay_minutes) for row in found] == [
        (5, "LAX", 3, 2, 6),
        (6, "LAX", 1, 0, 0),
    ]


def test_routes_of_parts_add_up_to_the_routes_of_the_whole(spark: SparkSession) -> None:
    draw = random.Random(7)
    rows = [flight(draw.randrange(3), draw.choice(["LAX", "SFO"]), draw.choice([None, 5, -3])) for _ in range(40)]
    parts = [hourly_routes(spark.createDataFrame(rows[at : at + 15], ROUTE)) for at in range(0, 40, 15)]
    summed = (
        reduce(DataFrame.unionByName, parts)
        .groupBy("_window", "hour", "origin", "dest")
        .agg(*(F.sum(name).alias(name) for name in ("flights", "departed", "delay_minutes")))
    )
    whole = hourly_routes(spark.createDataFrame(rows, ROUTE))
    assert sorted(map(tuple, summed.collect()), key=repr) == sorted(map(tuple, whole.collect()), key=repr)


def test_a_carriers_typical_delay_leaves_out_the_extremes(spark: SparkSession) -> None:
    rows = [("2013-01-01", "AA", delay, False) for delay in (-500, *range(10, 19), 9_000)]
    rows += [("2013-01-01", "AA", 7_777, True)]
    nobody_left = [("2013-01-01", "UA", None, False)]
    found = carrier_delays(spark.createDataFrame([*rows, *nobody_left], CARRIER)).orderBy("carrier").collect()
    assert [(row.carrier, row.typical_delay) for row in found] == [("AA", 14.0), ("UA", None)]


def test_an_hours_window_lies_in_its_day(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("2013-01-01-05",), ("2013-01-02",)], "_window string")
    assert [row[0] for row in frame.select(day_of()).collect()] == ["2013-01-01", "2013-01-02"]
