"""Merging by key: the latest record wins, tombstones delete, and only touched buckets are written."""

import random
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.merging import BUCKET, merged, touched, with_bucket
from spark_jobs.staged import latest
from tests.spark_jobs.tables import Lab, Rows, partition_columns, rows_of, stage, without

pytestmark = pytest.mark.spark

SCHEMA = "k string, v long, _offset long, _tombstone boolean"
Record = tuple[str, int | None, int, bool]


def upserts(numbers: DataFrame) -> DataFrame:
    return numbers.select("k", "v", "_offset", "_tombstone")


def plain(numbers: DataFrame) -> DataFrame:
    return numbers.select("k", "v")


def totals(numbers: DataFrame, current: DataFrame | None) -> DataFrame:
    new = numbers.groupBy("k").agg(F.sum("v").alias("v"))
    return new if current is None else current.unionByName(new).groupBy("k").agg(F.sum("v").alias("v"))


def keyless(numbers: DataFrame) -> DataFrame:
    return numbers.select("v")


def batch(lab: Lab, *records: Record) -> tuple[str, ...]:
    rows: Rows = [
        {"_window": "w", "k": key, "v": value, "_offset": offset, "_tombstone": dead} for key, value, offset, dead in records
    ]
    return stage(lab.root / "numbers", rows)


def apply(spark: SparkSession, table: DataFrame | None, records: list[Record]) -> DataFrame:
    """The table after a batch, the way that the runner does it."""
    new = with_bucket(spark.createDataFrame(records, SCHEMA), ["k"], 4)
    if table is None:
        return _fixed(spark, merged(new, None, ["k"]))
    within = F.col(BUCKET).isin(list(touched(new)))
    return _fixed(spark, table.where(~within).unionByName(merged(new, table.where(within), ["k"])))


def _fixed(spark: SparkSession, frame: DataFrame) -> DataFrame:
    return spark.createDataFrame(frame.collect(), frame.schema)


def content(table: DataFrame) -> dict[str, Any]:
    return {row["k"]: (row["v"], row["_offset"]) for row in table.collect()}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_any_order_of_arrival_that_keeps_the_order_of_partitions_gives_the_same_table(spark: SparkSession, seed: int) -> None:
    draw = random.Random(seed)
    partitions = [_log(draw, prefix) for prefix in "abc"]
    expected = {key: (value, offset) for log in partitions for key, value, offset, dead in _last(log) if not dead}
    table = None
    while any(partitions):
        arriving: list[Record] = []
        for log in partitions:
            taken = draw.randint(0, 12)
            arriving += log[:taken]
            del log[:taken]
        draw.shuffle(arriving)
        table = apply(spark, table, arriving)
    assert table is not None
    assert expected
    assert content(table) == expected


def _log(draw: random.Random, prefix: str) -> list[Record]:
    keys = [f"{prefix}{number}" for number in range(5)]
    drawn = ((draw.choice(keys), offset, draw.random() < 0.3) for offset in range(20))
    return [(key, None if dead else offset * 7, offset, dead) for key, offset, dead in drawn]


def _last(log: list[Record]) -> list[Record]:
    return list({record[0]: record for record in log}.values())


def test_a_tombstone_deletes_its_key_and_a_later_record_brings_it_back(spark: SparkSession) -> None:
    table = apply(spark, None, [("a", 1, 0, False), ("b", 2, 1, False)])
    table = apply(spark, table, [("a", None, 2, True)])
    assert content(table) == {"b": (2, 1)}
    assert content(apply(spark, table, [("a", 3, 3, False)])) == {"a": (3, 3), "b": (2, 1)}


def test_a_deletion_of_an_unknown_key_leaves_no_row(spark: SparkSession) -> None:
    assert content(apply(spark, None, [("a", None, 0, True)])) == {}


def test_of_several_records_of_a_key_in_a_batch_the_last_wins(spark: SparkSession) -> None:
    records: list[Record] = [
        ("a", 1, 5, False),
        ("a", None, 7, True),
        ("a", 9, 9, False),
        ("b", 1, 6, False),
        ("b", None, 8, True),
    ]
    assert content(apply(spark, None, records)) == {"a": (9, 9)}


def test_a_row_with_a_greater_offset_stays(spark: SparkSession) -> None:
    table = apply(spark, None, [("a", 1, 10, False)])
    assert content(apply(spark, table, [("a", 2, 9, False), ("a", None, 8, True)])) == {"a": (1, 10)}


def test_the_same_batch_twice_changes_nothing(spark: SparkSession) -> None:
    records: list[Record] = [("a", 1, 0, False), ("b", 2, 1, False), ("a", 3, 2, False)]
    table = apply(spark, None, records)
    assert content(apply(spark, table, records)) == content(table)


def test_a_key_may_have_nulls_and_several_columns(spark: SparkSession) -> None:
    keys = ["k", "v"]
    table = merged(with_bucket(spark.createDataFrame([("a", None, 0, False)], SCHEMA), keys, 4), None, keys)
    new = with_bucket(spark.createDataFrame([("a", None, 1, False), ("a", 1, 0, False)], SCHEMA), keys, 4)
    rows = merged(new, table, keys).collect()
    assert {(row["k"], row["v"], row["_offset"]) for row in rows} == {("a", None, 1), ("a", 1, 0)}


def test_latest_keeps_the_tombstone_that_is_last(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("a", 1, 0, False), ("a", None, 1, True), ("b", 2, 0, False)], SCHEMA)
    rows = {tuple(row) for row in latest(frame, ["k"]).collect()}
    assert rows == {("a", None, 1, True), ("b", 2, 0, False)}
    assert latest(frame, ["k"]).columns == frame.columns


def test_a_merge_that_starts_over_replaces_every_bucket(lab: Lab) -> None:
    batch(lab, ("a", 1, 0, False), ("b", 2, 1, False), ("b", None, 2, True))
    request = lab.request(upserts, "merge", {"numbers": lab.source()}, keys=("k",), buckets=4)
    assert lab.run(request).buckets == ("0", "1", "2", "3")
    assert without(rows_of(request.attempt), BUCKET) == [{"k": "a", "v": 1, "_offset": 0}]
    assert partition_columns(request.attempt) == [BUCKET]


def test_a_merge_writes_touched_buckets_only_and_names_one_that_it_emptied(lab: Lab) -> None:
    batch(lab, *[(f"k{number}", number, number, False) for number in range(40)])
    keys: dict[str, Any] = {"keys": ("k",), "buckets": 64}
    lab.merge(lab.request(upserts, "merge", {"numbers": lab.source()}, **keys))
    before = {row["k"]: row for row in rows_of(lab.output)}
    alone = next(key for key, row in before.items() if [r[BUCKET] for r in before.values()].count(row[BUCKET]) == 1)
    new = batch(lab, (alone, None, 100, True))
    request = lab.request(upserts, "merge", {"numbers": lab.source(files=new)}, **keys)
    assert lab.merge(request).buckets == (before[alone][BUCKET],)
    assert rows_of(request.attempt) == []
    assert {row["k"]: row for row in rows_of(lab.output)} == {key: row for key, row in before.items() if key != alone}


def test_a_merge_without_new_rows_touches_nothing(lab: Lab) -> None:
    batch(lab, ("a", 1, 0, False))
    lab.merge(lab.request(upserts, "merge", {"numbers": lab.source()}, keys=("k",), buckets=4))
    request = lab.request(upserts, "merge", {"numbers": lab.source(files=())}, keys=("k",), buckets=4, output_version=0)
    assert lab.run(request).buckets == ()
    assert rows_of(request.attempt) == []


def test_current_is_none_first_and_then_the_output_without_its_buckets(lab: Lab) -> None:
    batch(lab, ("a", 1, 0, False), ("b", 2, 1, False))
    lab.merge(lab.request(totals, "merge", {"numbers": lab.source()}, keys=("k",), buckets=4))
    new = batch(lab, ("a", 10, 2, False), ("c", 3, 3, False))
    lab.merge(lab.request(totals, "merge", {"numbers": lab.source(files=new)}, keys=("k",), buckets=4))
    assert {row["k"]: row["v"] for row in rows_of(lab.output)} == {"a": 11, "b": 2, "c": 3}


def test_a_merge_starts_from_the_version_that_the_request_names(lab: Lab) -> None:
    batch(lab, ("a", 1, 0, False))
    first = lab.request(totals, "merge", {"numbers": lab.source()}, keys=("k",), buckets=4)
    lab.merge(first)
    lab.merge(lab.request(totals, "merge", {"numbers": lab.source()}, keys=("k",), buckets=4))
    again = lab.request(totals, "merge", {"numbers": lab.source()}, keys=("k",), buckets=4, output_version=0)
    lab.run(again)
    assert [row["v"] for row in rows_of(again.attempt)] == [2]


@pytest.mark.parametrize("starts_over", [True, False])
def test_two_rows_of_a_key_without_an_offset_to_choose_by_are_an_error(lab: Lab, starts_over: bool) -> None:
    batch(lab, ("a", 1, 0, False))
    first = lab.request(plain, "merge", {"numbers": lab.source()}, keys=("k",), buckets=4)
    lab.merge(first)
    new = batch(lab, ("twice", 1, 1, False), ("twice", 2, 2, False))
    version = -1 if starts_over else 0
    request = lab.request(plain, "merge", {"numbers": lab.source(files=new)}, keys=("k",), buckets=4, output_version=version)
    with pytest.raises(ValueError, match=r"that share their k, and no _offset to choose by: twice\. Nothing"):
        lab.run(request)


PLACED = f"{SCHEMA}, _topic string, _topic_id string, _partition int"
Place = tuple[str, str, int]
ONE: Place = ("t", "t-1", 0)
MADE_AGAIN: Place = ("t", "t-2", 0)


def upserts_with_place(numbers: DataFrame) -> DataFrame:
    return numbers.select("k", "v", "_offset", "_tombstone", "_topic", "_topic_id", "_partition")


def placed(lab: Lab, *records: tuple[Record, Place]) -> tuple[str, ...]:
    names = ("k", "v", "_offset", "_tombstone", "_topic", "_topic_id", "_partition")
    return stage(lab.root / "numbers", [{"_window": "w", **dict(zip(names, (*r, *at), strict=True))} for r, at in records])


@pytest.mark.parametrize("other", [MADE_AGAIN, ("u", "u-1", 0), ("t", "t-1", 1)])
@pytest.mark.parametrize("dead", [True, False])
def test_offsets_of_a_topic_made_again_or_of_another_partition_are_not_compared(lab: Lab, other: Place, dead: bool) -> None:
    placed(lab, (("a", 1, 900, False), ONE), (("b", 1, 901, False), ONE))
    keys: dict[str, Any] = {"keys": ("k",), "buckets": 4}
    lab.merge(lab.request(upserts_with_place, "merge", {"numbers": lab.source()}, **keys))
    new = placed(lab, (("a", 2, 3, dead), other), (("c", 2, 4, False), other))
    later = lab.request(upserts_with_place, "merge", {"numbers": lab.source(files=new)}, output_version=0, **keys)
    with pytest.raises(
        ValueError, match=r"share their k and have one offset, or offsets of several partitions: a\. Nothing .* return no _offset"
    ):
        lab.run(later)
    with pytest.raises(ValueError, match="offsets of several partitions: a"):
        lab.run(lab.request(upserts_with_place, "merge", {"numbers": lab.source()}, **keys))


def test_two_new_rows_of_one_record_are_not_chosen_from_by_chance(lab: Lab) -> None:
    placed(lab, (("a", 1, 5, False), ONE), (("a", 2, 5, False), ONE), (("b", 1, 6, False), ONE))
    with pytest.raises(ValueError, match=r"have one offset, or offsets of several partitions: a\. Nothing"):
        lab.run(lab.request(upserts_with_place, "merge", {"numbers": lab.source()}, keys=("k",), buckets=4))


def test_rows_without_a_key_are_refused_and_the_text_says_where_a_tombstone_has_it(lab: Lab) -> None:
    stage(lab.root / "numbers", [{"_window": "w", "k": None, "v": 1}, {"_window": "w", "k": "a", "v": 1}])
    with pytest.raises(ValueError, match=r"rows without a key, .* key is in _key alone"):
        lab.run(lab.request(plain, "merge", {"numbers": lab.source()}, keys=("k",), buckets=4))


def test_keys_that_each_stay_in_a_partition_merge_beside_each_other(lab: Lab) -> None:
    there: Place = ("u", "u-1", 3)
    placed(lab, (("a", 1, 900, False), ONE), (("b", 1, 2, False), there), (("a", 2, 901, False), ONE))
    keys: dict[str, Any] = {"keys": ("k",), "buckets": 4}
    lab.merge(lab.request(upserts_with_place, "merge", {"numbers": lab.source()}, **keys))
    new = placed(lab, (("a", None, 902, True), ONE), (("b", 2, 3, False), there))
    lab.merge(lab.request(upserts_with_place, "merge", {"numbers": lab.source(files=new)}, **keys))
    assert {row["k"]: (row["v"], row["_offset"]) for row in rows_of(lab.output)} == {"b": (2, 3)}


def test_with_the_topic_among_the_keys_equal_keys_of_two_topics_are_two_rows(lab: Lab) -> None:
    placed(lab, (("a", 1, 900, False), ONE), (("a", 2, 3, False), ("u", "u-1", 0)))
    lab.merge(lab.request(upserts_with_place, "merge", {"numbers": lab.source()}, keys=("_topic", "k"), buckets=4))
    assert {(row["_topic"], row["v"]) for row in rows_of(lab.output)} == {("t", 1), ("u", 2)}


def test_an_offset_without_the_partition_that_its_input_knows_is_refused_before_anything_is_written(lab: Lab) -> None:
    placed(lab, (("a", 1, 0, False), ONE))
    request = lab.request(upserts, "merge", {"numbers": lab.source()}, keys=("k",), buckets=4)
    with pytest.raises(ValueError, match=r"_offset without _topic, _topic_id, _partition, so that .* Nothing was written"):
        lab.run(request)


def test_latest_refuses_a_key_of_several_partitions_and_says_which(spark: SparkSession) -> None:
    rows = [("a", 1, 900, False, *ONE), ("a", 2, 3, False, *MADE_AGAIN), ("b", 1, 4, False, *ONE)]
    frame = spark.createDataFrame(rows, PLACED)
    with pytest.raises(PySparkException, match=r"latest: .* cannot be compared: k = a\. An offset counts within one partition"):
        latest(frame, ["k"]).collect()
    alone = latest(frame.where("_topic_id = 't-1'"), ["k"])
    assert {(row["k"], row["_offset"]) for row in alone.collect()} == {("a", 900), ("b", 4)}
    assert alone.columns == frame.columns


def test_a_result_without_its_key_is_refused(lab: Lab) -> None:
    batch(lab, ("a", 1, 0, False))
    request = lab.request(keyless, "merge", {"numbers": lab.source()}, keys=("k",), buckets=4)
    with pytest.raises(ValueError, match="no column k, a key of the merge; it returned v"):
        lab.run(request)
