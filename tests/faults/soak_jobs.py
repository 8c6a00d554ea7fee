"""The jobs of the soak, one of each mode, and what their readers must find: the records of a prefix of every partition."""

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.staged import records

KEYS = 20


def bad(offset: int) -> bool:
    """Whether the record at this offset cannot become a row."""
    return offset % 10 == 9


def key(partition: int, offset: int) -> int:
    """A key stays in its partition."""
    return 2 * (offset % KEYS) + partition


def per_window(rows: DataFrame) -> DataFrame:
    """Mode window: each row also says how many records its window has in all, so that rows of two versions do not fit."""
    each = records(rows).groupBy("_window", "_partition")
    parts = each.agg(F.count(F.lit(1)).alias("n"), F.max("_offset").alias("last"), F.sum("g").alias("g"))
    whole = parts.groupBy("_window").agg(F.sum("n").alias("of_window"))
    return parts.join(whole, "_window")


def as_they_are(rows: DataFrame) -> DataFrame:
    """Mode incremental."""
    return records(rows).select("_window", "_partition", "_offset", "a", "g")


def newest(rows: DataFrame) -> DataFrame:
    """Mode merge."""
    return rows.select("a", "_topic", "_topic_id", "_partition", "_offset", "_tombstone")


def check_rows(found: pd.DataFrame) -> None:
    """Of staged rows, and of the copies by the job in mode incremental: every record of a prefix once, and every rewrite whole.

    A rewrite adds one to `g` of all rows that its window has, so that earlier records never have less than later ones.
    """
    for partition, rows in found.groupby("_partition"):
        offsets = sorted(rows["_offset"])
        wanted = [offset for offset in range(offsets[-1] + 1) if not bad(offset)]
        assert offsets == wanted, f"partition {partition}: {sorted(set(offsets) ^ set(wanted))[:9]}, {len(offsets)} rows"
    for place, rows in found.sort_values("_offset").groupby(["_window", "_partition"]):
        assert rows["g"].is_monotonic_decreasing, f"{place}: a part of a rewrite is missing"


def check_per_window(found: pd.DataFrame) -> None:
    """Of the job in mode window."""
    assert not found.duplicated(["_window", "_partition"]).any()
    assert (found.groupby("_window")["n"].transform("sum") == found["of_window"]).all(), found
    for _, rows in found.groupby("_partition"):
        last = rows["last"].max()
        assert rows["n"].sum() == sum(not bad(offset) for offset in range(last + 1)), found


def check_newest(found: pd.DataFrame) -> None:
    """Of the job in mode merge: the newest record of every key in a prefix."""
    for partition, rows in found.groupby("_partition"):
        seen = (offset for offset in range(rows["_offset"].max() + 1) if not bad(offset))
        wanted = {key(int(str(partition)), offset): offset for offset in seen}
        assert dict(zip(rows["a"], rows["_offset"], strict=True)) == wanted
        assert len(rows) == len(wanted)
