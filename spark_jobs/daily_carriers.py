"""A day's flights per carrier; its YAML publishes every change of them to Kafka."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.staged import WINDOW, records


def daily_carriers(flights: DataFrame) -> DataFrame:
    """One row per day and carrier: `flights`, of which `departed`, and the `worst_delay` (minutes, null if none departed)."""
    return (
        records(flights)
        .groupBy(WINDOW, F.to_date(WINDOW).alias("day"), "carrier")
        .agg(
            F.count(F.lit(1)).alias("flights"),
            F.count("dep_time").alias("departed"),
            F.max("dep_delay").alias("worst_delay"),
        )
    )
