"""Departure delays per day and origin airport, beside the weather of that day at that airport."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.staged import WINDOW, records


def airport_delays(flights: DataFrame, weather: DataFrame, *, percentile: float = 0.9) -> DataFrame:
    """One row per day and origin with flights.

    `flights` and `cancelled` (no departure time) count flights. `mean_delay` and `p90_delay` (named by the `percentile`, linear
    between neighbours) are minutes over the flights that left, null if none did. The weather's columns keep the units of their
    source, and are null where no observation was staged.
    """
    delays = (
        records(flights)
        .groupBy(WINDOW, "origin")
        .agg(
            F.count(F.lit(1)).alias("flights"),
            F.count_if(F.col("dep_time").isNull()).alias("cancelled"),
            F.avg("dep_delay").alias("mean_delay"),
            F.percentile("dep_delay", percentile).alias(f"p{percentile * 100:g}_delay"),
        )
    )
    conditions = (
        records(weather)
        .groupBy(WINDOW, "origin")
        .agg(
            F.avg(_exact("temp")).cast("double").alias("mean_temp"),
            F.sum(_exact("precip")).cast("double").alias("total_precip"),
            F.avg(_exact("wind_speed")).cast("double").alias("mean_wind_speed"),
            F.avg(_exact("visib")).cast("double").alias("mean_visib"),
        )
    )
    return delays.join(conditions, [WINDOW, "origin"], "left").withColumn("day", F.to_date(WINDOW))


def _exact(column: str) -> Column:
    """A sum of doubles depends on the order in which tasks finish, in its last digits; one of decimals does not."""
    return F.col(column).cast("decimal(18,6)")
