"""What every job needs to know about a staged table: its windows, which rows carry a record, which record of a key is last."""

from collections.abc import Collection, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

WINDOW = "_window"
"""The partition column of staged and output tables: `2013-01-01` for a day, `2013-01-01-05` for an hour."""

OFFSET = "_offset"
"""A record's place in its partition. It orders the records of a key as long as the key stays in one partition."""

PARTITION = ("_topic", "_topic_id", "_partition")
"""What an offset counts in. A topic that was made again has another id, and its offsets begin anew."""

TOMBSTONE = "_tombstone"
"""True in rows that state that a key was deleted. Their declared columns are null; the key is in `_key`."""

INCOMPARABLE = (
    "An offset counts within one partition of a topic, and anew when the topic is made again. Either add what tells these rows "
    "apart to the keys, such as _topic, or choose the row by something else, such as _timestamp, and return no _offset."
)
"""What to do about rows of one key with such offsets."""

_RANK, _MIXED = "_rank", "_mixed"


def records(staged: DataFrame) -> DataFrame:
    """The rows that carry a payload: all but tombstones. All rows of a table that knows no tombstones."""
    if TOMBSTONE not in staged.columns:
        return staged
    return staged.where(~F.coalesce(F.col(TOMBSTONE), F.lit(False)))


def latest(frame: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The row with the greatest `_offset` of every key, tombstones included, so that a deletion stays a row.

    Give it rows with the columns of `PARTITION`: Spark then refuses to compute them where a key came from several partitions, or
    from before and after its topic was made again, since their offsets say nothing about each other.
    """
    newest_first = Window.partitionBy(*keys).orderBy(F.desc_nulls_last(OFFSET))
    named = F.concat(F.lit(f"{', '.join(keys)} = "), F.concat_ws(", ", *(F.col(key).cast("string") for key in keys)))
    told = F.concat(F.lit("latest: rows of one key have offsets that cannot be compared: "), named, F.lit(f". {INCOMPARABLE}"))
    mixed = frame.withColumn(_MIXED, of_several_partitions(frame.columns, keys))
    ranked = mixed.withColumn(_RANK, F.when(F.col(_MIXED), F.raise_error(told)).otherwise(F.row_number().over(newest_first)))
    return ranked.where(F.col(_RANK) == 1).drop(_RANK, _MIXED)


def of_several_partitions(columns: Collection[str], keys: Sequence[str]) -> Column:
    """Whether the rows of a row's key come from several partitions, so that their offsets say nothing about each other.

    Told by those of the columns of `PARTITION` that are there; by none of them it is false.
    """
    there = [name for name in PARTITION if name in columns]
    if not there:
        return F.lit(False)
    place, of_key = F.struct(*there), Window.partitionBy(*keys)
    return ~F.min(place).over(of_key).eqNullSafe(F.max(place).over(of_key))


def day_of(window: str = WINDOW) -> Column:
    """The day window that the column's hour (or day) windows lie in: `2013-01-01-05` is of `2013-01-01`."""
    return F.substring(window, 1, len("2013-01-01"))
