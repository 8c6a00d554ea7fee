"""Flights per route and scheduled hour, counted commit by commit."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.staged import WINDOW, records


def hourly_routes(flights: DataFrame) -> DataFrame:
    """One row per route and hour of the flights given: `flights`, `departed` and `delay_minutes` (of those that departed).

    Later flights of the same hour make a row of their own, so readers add up. That is why there are sums here, and no mean.
    """
    return (
        records(flights)
        .groupBy(WINDOW, F.col("time_hour").alias("hour"), "origin", "dest")
        .agg(
            F.count(F.lit(1)).alias("flights"),
            F.count("dep_time").alias("departed"),
            F.coalesce(F.sum("dep_delay"), F.lit(0)).alias("delay_minutes"),
        )
    )
