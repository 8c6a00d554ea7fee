"""Inputs at a pinned version: all rows, those of windows, those of files."""

import datetime as dt
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_jobs.inputs import read
from spark_jobs.request import Source
from tests.spark_jobs.tables import Lab, Rows, stage

pytestmark = pytest.mark.spark


def row(window: str, x: int, **more: Any) -> dict[str, Any]:
    return {"_window": window, "x": x, **more}


def values(spark: SparkSession, source: Source) -> list[int]:
    return sorted(found["x"] for found in read(spark, source).collect())


def test_a_commit_after_the_pinned_version_is_not_seen(lab: Lab) -> None:
    stage(lab.root / "numbers", [row("a", 1), row("b", 2)])
    stage(lab.root / "numbers", [row("a", 100)])
    assert values(lab.spark, lab.source(version=0)) == [1, 2]


def test_only_the_rows_of_the_windows_are_read(lab: Lab) -> None:
    stage(lab.root / "numbers", [row("a", 1), row("b", 2), row("c", 3)])
    assert values(lab.spark, lab.source(windows=("a", "c"))) == [1, 3]
    assert values(lab.spark, lab.source(windows=())) == []


def test_only_the_rows_of_the_files_are_read(lab: Lab) -> None:
    stage(lab.root / "numbers", [row("a", 1), row("b", 2)])
    new = stage(lab.root / "numbers", [row("a", 10), row("c", 30)])
    assert values(lab.spark, lab.source(files=new)) == [10, 30]
    assert values(lab.spark, lab.source(files=())) == []


def test_files_and_windows_together_are_the_rows_of_either(lab: Lab) -> None:
    stage(lab.root / "numbers", [row("a", 1), row("b", 2)])
    new = stage(lab.root / "numbers", [row("c", 30)])
    assert values(lab.spark, lab.source(files=new, windows=("a",))) == [1, 30]


def test_other_files_of_the_table_are_not_even_looked_at(lab: Lab) -> None:
    old = stage(lab.root / "numbers", [row("a", 1)])
    new = stage(lab.root / "numbers", [row("a", 10)])
    schema = DeltaTable(str(lab.root / "numbers")).schema().to_json()
    source = lab.source(files=new, schema=schema)
    Path(lab.root / "numbers" / old[0]).unlink()
    (lab.root / "numbers" / "_delta_log" / f"{0:020}.json").unlink()
    assert values(lab.spark, source) == [10]


def test_the_rows_of_files_are_those_that_delta_reads_with_all_types(lab: Lab) -> None:
    nested: Rows = [
        row("2013-01-01", 1, at=dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC), day=dt.date(2013, 1, 1), place={"codes": [1, 2]}),
        row("2013-01-01-05", 2, at=None, day=None, place=None),
    ]
    files = stage(lab.root / "numbers", nested)
    plain = read(lab.spark, lab.source(files=files))
    delta = read(lab.spark, lab.source())
    assert plain.schema == delta.schema
    assert plain.orderBy("x").collect() == delta.orderBy("x").collect()
    given = lab.source(files=files, schema=DeltaTable(str(lab.root / "numbers")).schema().to_json())
    assert read(lab.spark, given).schema == delta.schema


def test_partition_values_stay_text_and_come_back_as_they_were(lab: Lab) -> None:
    odd = ["2013-01-01", "0007", "a b", "50%", "a/b", "x:y=z", "*[1]{2}"]
    files = stage(lab.root / "numbers", [row(window, x) for x, window in enumerate(odd)])
    found = read(lab.spark, lab.source(files=files)).orderBy("x").collect()
    assert [one["_window"] for one in found] == odd


def test_a_null_partition_value_is_null(lab: Lab) -> None:
    files = stage(lab.root / "numbers", [{"_window": None, "x": 1}, row("a", 2)])
    assert [one["_window"] for one in read(lab.spark, lab.source(files=files)).orderBy("x").collect()] == [None, "a"]


def test_a_column_that_an_old_file_does_not_have_is_null(lab: Lab) -> None:
    old = stage(lab.root / "numbers", [row("a", 1)])
    new = stage(lab.root / "numbers", [row("a", 2, y="late")])
    found = read(lab.spark, lab.source(files=(*old, *new))).orderBy("x").collect()
    assert [one["y"] for one in found] == [None, "late"]


def test_files_of_several_attempts_are_read_together(lab: Lab) -> None:
    for attempt in (1, 2):
        stage(lab.root / "numbers" / f"attempt-{attempt}", [row("a", attempt), row("b", attempt * 10)])
    files = [
        str(path.relative_to(lab.root / "numbers"))
        for path in (lab.root / "numbers").rglob("*.parquet")
        if "_delta_log" not in path.parts
    ]
    stage(lab.root / "numbers", [row("c", 0)])
    found = read(lab.spark, lab.source(files=tuple(files))).orderBy("x").collect()
    assert [(one["_window"], one["x"]) for one in found] == [("a", 1), ("a", 2), ("b", 10), ("b", 20)]


def test_a_table_without_partitions_is_read_by_files_too(lab: Lab) -> None:
    stage(lab.root / "numbers", [{"x": 1}], partition=None)
    new = stage(lab.root / "numbers", [{"x": 2}], partition=None)
    assert values(lab.spark, lab.source(files=new)) == [2]


def test_a_file_that_is_gone_is_an_error_and_not_an_absence(lab: Lab) -> None:
    files = stage(lab.root / "numbers", [row("a", 1)])
    source = replace(lab.source(), files=(*files, "_window=a/gone.parquet"))
    with pytest.raises(PySparkException, match=r"gone\.parquet"):
        values(lab.spark, source)


def test_hundreds_of_attempts_do_not_end_the_planners_stack(lab: Lab) -> None:
    stage(lab.root / "numbers", [row("a", 0)])
    (path,) = (lab.root / "numbers").rglob("*.parquet")
    files = []
    for attempt in range(600):
        files.append(f"attempt-{attempt}/_window=a/{path.name}")
        (lab.root / "numbers" / files[-1]).parent.mkdir(parents=True)
        shutil.copyfile(path, lab.root / "numbers" / files[-1])
    assert read(lab.spark, lab.source(files=tuple(files))).count() == 600
