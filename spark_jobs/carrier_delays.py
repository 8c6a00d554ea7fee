"""A day's typical delay per carrier, by a function of pandas."""

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.staged import WINDOW, records


def carrier_delays(flights: DataFrame, *, trim: float = 0.1) -> DataFrame:
    """One row per day and carrier: `typical_delay`, the mean of departure delays (minutes) without the `trim` (share) of shortest
    and of longest ones; null if no flight left.
    """

    def typical(delays: pd.Series) -> float:
        left = delays.dropna()
        return float(left[left.between(left.quantile(trim), left.quantile(1 - trim))].mean())

    typical_udf = F.pandas_udf(typical, "double")  # type: ignore[attr-defined]  # PySpark's stubs leave it out
    return records(flights).groupBy(WINDOW, "carrier").agg(typical_udf("dep_delay").alias("typical_delay"))
