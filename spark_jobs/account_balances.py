"""The balance of every account over all transactions that were ever staged."""

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.staged import records


def account_balances(spark: SparkSession, inputs: Mapping[str, DataFrame], windows: Sequence[str]) -> DataFrame:
    """One row per account: `balance_cents` (integer cents, negative when overdrawn) and the number of
    `transactions`.
    """
    return (
        records(inputs["transactions"])
        .groupBy("account_id")
        .agg(
            F.sum("amount_cents").alias("balance_cents"),
            F.count(F.lit(1)).alias("transactions"),
        )
    )
