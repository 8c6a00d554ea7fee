"""Merges new rows into the rows that a table has, by key.

A table of mode merge is partitioned by `_bucket`, a hash of the key. Only the buckets that new rows fall into are written anew.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.staged import OFFSET, TOMBSTONE

BUCKET = "_bucket"
"""The partition column of merged tables: the number of the key's bucket, as text."""

_NEW = "_new"
_RANK = "_rank"


def with_bucket(rows: DataFrame, keys: Sequence[str], buckets: int) -> DataFrame:
    """The rows with `_bucket`, which depends on nothing but the values of the key and their types."""
    return rows.withColumn(BUCKET, F.pmod(F.xxhash64(*keys), F.lit(buckets)).cast("string"))


def touched(new: DataFrame) -> tuple[str, ...]:
    """The buckets that the new rows are in; this computes the rows."""
    return tuple(sorted(row[BUCKET] for row in new.select(BUCKET).distinct().collect()))


def merged(new: DataFrame, kept: DataFrame | None, keys: Sequence[str]) -> DataFrame:
    """The rows of the buckets after the merge: of every key the one with the greatest `_offset`, and among equals, or without
    that column, the new one. Keys whose last row is a tombstone are gone. A bucket's rows meet in one task, sorted by key.

    Where two new rows have one key, and no `_offset` to choose by, any choice would be chance: the others get no bucket (null).
    """
    rows = _marked(new, True)
    if kept is not None:
        rows = rows.unionByName(_marked(kept, False), allowMissingColumns=True)
    order = [F.desc_nulls_last(OFFSET)] if OFFSET in new.columns else []
    # Partitioned by bucket and key: the shuffle by bucket serves the ranking, too, and there is no second one.
    newest_first = Window.partitionBy(BUCKET, *keys).orderBy(*order, F.desc(_NEW))
    ranked = rows.repartition(BUCKET).withColumn(_RANK, F.row_number().over(newest_first))
    first = F.col(_RANK) == 1
    if not order:
        ranked = ranked.where(first | F.col(_NEW)).withColumn(BUCKET, F.when(first, F.col(BUCKET)))
    else:
        ranked = ranked.where(first)
    return ranked.where(~F.coalesce(F.col(TOMBSTONE), F.lit(False))).drop(_RANK, _NEW, TOMBSTONE)


def _marked(rows: DataFrame, new: bool) -> DataFrame:
    rows = rows.withColumn(_NEW, F.lit(new))
    return rows if TOMBSTONE in rows.columns else rows.withColumn(TOMBSTONE, F.lit(False))
