"""The runner on real Delta tables: pinned reads, replaced windows, one commit, stamped rows."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.runner import Request, Source, run

pytestmark = pytest.mark.spark


def sums(spark: SparkSession, inputs: Mapping[str, DataFrame], windows: Sequence[str]) -> DataFrame:
    return inputs["numbers"].groupBy("_window").agg(F.sum("x").alias("s"))


def stage(path: Path, **windows: list[int]) -> None:
    rows = [{"_window": window, "x": x} for window, xs in windows.items() for x in xs]
    write_deltalake(str(path), pa.Table.from_pylist(rows), partition_by=["_window"], mode="append")


def request(tmp_path: Path, version: int, **fingerprints: str) -> Request:
    source = Source(str(tmp_path / "numbers"), version)
    return Request("sums", "v1", {"numbers": source}, str(tmp_path / "sums"), fingerprints)


def rows(tmp_path: Path) -> dict[str, tuple[int, str]]:
    table = DeltaTable(str(tmp_path / "sums")).to_pyarrow_table().to_pylist()
    return {row["_window"]: (row["s"], row["_inputs"]) for row in table}


def test_a_commit_after_the_pinned_version_is_not_seen(spark: SparkSession, tmp_path: Path) -> None:
    stage(tmp_path / "numbers", a=[1, 2])
    stage(tmp_path / "numbers", a=[100])
    run(spark, sums, request(tmp_path, 0, a="f1"))
    assert rows(tmp_path) == {"a": (3, "f1")}


def test_only_the_requested_windows_are_replaced(spark: SparkSession, tmp_path: Path) -> None:
    stage(tmp_path / "numbers", a=[1], b=[2], c=[3])
    assert run(spark, sums, request(tmp_path, 0, a="f1", b="f1", c="f1")) == 0
    stage(tmp_path / "numbers", a=[10], b=[10], c=[10])
    assert run(spark, sums, request(tmp_path, 1, a="f2", c="f2")) == 1
    assert rows(tmp_path) == {"a": (11, "f2"), "b": (2, "f1"), "c": (13, "f2")}


def test_the_commit_says_what_it_was_computed_from(spark: SparkSession, tmp_path: Path) -> None:
    stage(tmp_path / "numbers", a=[1])
    run(spark, sums, request(tmp_path, 0, a="f1"))
    commit = DeltaTable(str(tmp_path / "sums")).history(1)[0]
    said = '{"code_version": "v1", "inputs": {"numbers": 0}, "job": "sums", "windows": ["a"]}'
    assert commit["userMetadata"] == said


def test_rows_of_a_window_that_was_not_asked_for_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    def stray(spark: SparkSession, inputs: Mapping[str, DataFrame], windows: Sequence[str]) -> DataFrame:
        return sums(spark, inputs, windows).withColumn("_window", F.lit("elsewhere"))

    stage(tmp_path / "numbers", a=[1])
    run(spark, sums, request(tmp_path, 0, a="f1"))
    with pytest.raises(PySparkException, match="DELTA_REPLACE_WHERE_MISMATCH"):
        run(spark, stray, request(tmp_path, 0, a="f2"))
    assert rows(tmp_path) == {"a": (1, "f1")}


def test_a_result_without_the_window_column_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    def windowless(spark: SparkSession, inputs: Mapping[str, DataFrame], windows: Sequence[str]) -> DataFrame:
        return sums(spark, inputs, windows).drop("_window")

    stage(tmp_path / "numbers", a=[1])
    with pytest.raises(ValueError, match="no column _window"):
        run(spark, windowless, request(tmp_path, 0, a="f1"))
    assert not DeltaTable.is_deltatable(str(tmp_path / "sums"))


def test_without_windows_the_whole_table_is_replaced(spark: SparkSession, tmp_path: Path) -> None:
    whole = {"": "f1"}
    stage(tmp_path / "numbers", a=[1], b=[2])
    run(spark, sums, request(tmp_path, 0, **whole))
    DeltaTable(str(tmp_path / "numbers")).delete("_window = 'b'")
    run(spark, sums, request(tmp_path, 1, **{"": "f2"}))
    assert rows(tmp_path) == {"a": (1, "f2")}
