"""What every job needs to know about a staged table: its windows, which rows carry a record, which record of a key is last."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

WINDOW = "_window"
"""The partition column of staged and output tables: `2013-01-01` for a day, `2013-01-01-05` for an hour."""

OFFSET = "_offset"
"""A record's place in its partition. It orders the records of a key, because a key stays in one partition."""

TOMBSTONE = "_tombstone"
"""True in rows that state that a key was deleted. Their declared columns are null; the key is in `_key`."""

_RANK = "_rank"


def records(staged: DataFrame) -> DataFrame:
    """The rows that carry a payload: all but tombstones. All rows of a table that knows no tombstones."""
    if TOMBSTONE not in staged.columns:
        return staged
    return staged.where(~F.coalesce(F.col(TOMBSTONE), F.lit(False)))


def latest(frame: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The row with the greatest `_offset` of every key, tombstones included, so that a deletion stays a row."""
    newest_first = Window.partitionBy(*keys).orderBy(F.desc_nulls_last(OFFSET))
    return frame.withColumn(_RANK, F.row_number().over(newest_first)).where(F.col(_RANK) == 1).drop(_RANK)


def day_of(window: str = WINDOW) -> Column:
    """The day window that the column's hour (or day) windows lie in: `2013-01-01-05` is of `2013-01-01`."""
    return F.substring(window, 1, len("2013-01-01"))
