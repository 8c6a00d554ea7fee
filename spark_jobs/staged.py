"""What every job needs to know about a staged table: its window column, and which rows carry a record."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

WINDOW = "_window"
"""The partition column of staged and output tables: `2013-01-01` for a day, `2013-01-01-05` for an hour."""


def records(staged: DataFrame) -> DataFrame:
    """The rows that carry a payload: a tombstone states that a key was deleted, and its declared columns are
    null.
    """
    return staged.where(~F.coalesce(F.col("_tombstone"), F.lit(False)))
