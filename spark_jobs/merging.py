"""Merges new rows into the rows that a table has, by key.

A table of mode merge is partitioned by `_bucket`, a hash of the key. Only the buckets that new rows fall into are written anew.
"""

from collections.abc import Sequence
from functools import reduce
from operator import and_

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.staged import OFFSET, TOMBSTONE, of_several_partitions

BUCKET = "_bucket"
"""The partition column of merged tables: the number of the key's bucket, as text."""

_NEW = "_new"
_RANK, _UNCLEAR = "_rank", "_unclear"


def with_bucket(rows: DataFrame, keys: Sequence[str], buckets: int) -> DataFrame:
    """The rows with `_bucket`, which depends on nothing but the values of the key and their types."""
    return rows.withColumn(BUCKET, F.pmod(F.xxhash64(*keys), F.lit(buckets)).cast("string"))


def touched(new: DataFrame) -> tuple[str, ...]:
    """The buckets that the new rows are in; this computes the rows."""
    return tuple(sorted(row[BUCKET] for row in new.select(BUCKET).distinct().collect()))


def merged(new: DataFrame, kept: DataFrame | None, keys: Sequence[str]) -> DataFrame:
    """The rows of the buckets after the merge: of every key the one with the greatest `_offset`, and among equals, or without
    that column, the new one. Keys whose last row is a tombstone are gone. A bucket's rows meet in one task, sorted by key.

    Where nothing says which row of a key is the last, any choice would be chance, and a row of the key gets no bucket (null): two
    new ones have no `_offset` or the same, or the rows have offsets of several partitions. Nor does a new row
    whose whole key is null.
    """
    rows = _marked(new, True)
    if kept is not None:
        rows = rows.unionByName(_marked(kept, False), allowMissingColumns=True)
    ordered = OFFSET in new.columns
    of_key = [BUCKET, *keys]
    # Partitioned by bucket and key: the shuffle by bucket serves the ranking, too, and there is no second one.
    newest_first = Window.partitionBy(*of_key).orderBy(*([F.desc_nulls_last(OFFSET)] if ordered else []), F.desc(_NEW))
    unclear = of_several_partitions(new.columns, of_key) if ordered else F.col(_NEW) & (F.col(_RANK) > 1)
    if ordered:
        # A function may make several rows of one record: which of them is the last, its offset does not say.
        twins = F.col(_NEW) & F.lag(_NEW).over(newest_first) & F.col(OFFSET).eqNullSafe(F.lag(OFFSET).over(newest_first))
        unclear = unclear | F.coalesce(twins & (F.col(_RANK) == 2), F.lit(False))
    unclear = unclear | reduce(and_, (F.col(key).isNull() for key in keys), F.col(_NEW))
    ranked = rows.repartition(BUCKET).withColumn(_RANK, F.row_number().over(newest_first)).withColumn(_UNCLEAR, unclear)
    last = ranked.where((F.col(_RANK) == 1) | F.col(_UNCLEAR))
    left = last.where(F.col(_UNCLEAR) | ~F.coalesce(F.col(TOMBSTONE), F.lit(False)))
    return left.withColumn(BUCKET, F.when(~F.col(_UNCLEAR), F.col(BUCKET))).drop(_RANK, _NEW, _UNCLEAR, TOMBSTONE)


def _marked(rows: DataFrame, new: bool) -> DataFrame:
    rows = rows.withColumn(_NEW, F.lit(new))
    return rows if TOMBSTONE in rows.columns else rows.withColumn(TOMBSTONE, F.lit(False))
