"""What the job that is published computes."""

import datetime as dt

import pytest
from pyspark.sql import SparkSession

from spark_jobs.daily_carriers import daily_carriers

pytestmark = pytest.mark.spark

FLIGHT = "_window string, carrier string, dep_time long, dep_delay long, _tombstone boolean"


def test_a_carriers_day_counts_flights_and_departures_and_has_the_longest_delay(spark: SparkSession) -> None:
    flights = [
        ("2013-01-01", "UA", 500, 3, False),
        ("2013-01-01", "UA", 600, 40, False),
        ("2013-01-01", "UA", None, None, False),
        ("2013-01-01", None, None, None, True),
        ("2013-01-02", "UA", None, None, False),
    ]
    first, second = daily_carriers(spark.createDataFrame(flights, FLIGHT)).orderBy("day").collect()
    assert first.asDict() == {
        "_window": "2013-01-01",
        "day": dt.date(2013, 1, 1),
        "carrier": "UA",
        "flights": 3,
        "departed": 2,
        "worst_delay": 40,
    }
    assert (second.departed, second.worst_delay) == (0, None)
