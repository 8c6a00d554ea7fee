"""Departure delays per day and origin airport, beside the weather of that day at that airport."""

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.staged import WINDOW, records


def airport_delays(spark: SparkSession, inputs: Mapping[str, DataFrame], windows: Sequence[str]) -> DataFrame:
    """One row per day and origin with flights.

    `flights` and `cancelled` (no departure time) count flights. `mean_delay` and `p90_delay` (linear between
    neighbours) are minutes over the flights that left, null if none did. The weather's columns keep the units
    of their source, and are null where no observation was staged.
    """
    flights = (
        records(inputs["flights"])
        .groupBy(WINDOW, "origin")
        .agg(
            F.count(F.lit(1)).alias("flights"),
            F.count_if(F.col("dep_time").isNull()).alias("cancelled"),
            F.avg("dep_delay").alias("mean_delay"),
            F.percentile("dep_delay", 0.9).alias("p90_delay"),
        )
    )
    weather = (
        records(inputs["weather"])
        .groupBy(WINDOW, "origin")
        .agg(
            F.avg("temp").alias("mean_temp"),
            F.sum("precip").alias("total_precip"),
            F.avg("wind_speed").alias("mean_wind_speed"),
            F.avg("visib").alias("mean_visib"),
        )
    )
    return flights.join(weather, [WINDOW, "origin"], "left").withColumn("day", F.to_date(WINDOW))
