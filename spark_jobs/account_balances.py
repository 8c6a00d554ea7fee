"""The balance of every account, kept up to date by the transactions that came since."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.staged import records


def account_balances(transactions: DataFrame, current: DataFrame | None) -> DataFrame:
    """One row per account with new transactions: `balance_cents` (integer cents, negative when overdrawn) and the number of
    `transactions`, both over all that were ever staged.
    """
    new = (
        records(transactions)
        .groupBy("account_id")
        .agg(F.sum("amount_cents").alias("balance_cents"), F.count(F.lit(1)).alias("transactions"))
    )
    if current is None:
        return new
    before = current.join(new, "account_id", "left_semi")
    both = before.unionByName(new).groupBy("account_id")
    return both.agg(F.sum("balance_cents").alias("balance_cents"), F.sum("transactions").alias("transactions"))
