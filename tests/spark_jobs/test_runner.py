"""The runner on real Delta tables: what each mode writes into its attempt, and what it refuses."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.spark_jobs.tables import Lab, partition_columns, paths, rows_of, stage, without

pytestmark = pytest.mark.spark


def sums(numbers: DataFrame, *, factor: int = 1) -> DataFrame:
    return numbers.groupBy("_window").agg((F.sum("x") * factor).alias("s"))


def astray(numbers: DataFrame) -> DataFrame:
    return numbers.withColumn("_window", F.concat(F.lit("not "), "_window"))


def windowless(numbers: DataFrame) -> DataFrame:
    return numbers.select("x")


def untouched(numbers: DataFrame) -> DataFrame:
    return numbers


def reserved(numbers: DataFrame) -> DataFrame:
    return numbers.withColumn("_inputs", F.lit("mine"))


def asked(numbers: DataFrame, windows: Sequence[str]) -> DataFrame:
    return sums(numbers).withColumn("asked", F.lit(",".join(windows)))


def joined(numbers: DataFrame, names: DataFrame) -> DataFrame:
    return sums(numbers).join(names.select("_window", "name"), "_window", "left")


def staged(lab: Lab) -> Lab:
    rows = [("a", 1), ("a", 2), ("b", 3), ("c", 4)]
    stage(lab.root / "numbers", [{"_window": window, "x": x} for window, x in rows])
    return lab


def test_window_rows_carry_the_fingerprint_of_their_window_as_a_partition(lab: Lab) -> None:
    request = staged(lab).request(
        sums, "window", {"numbers": lab.source(windows=("a", "c"))}, fingerprints={"a": "f1", "c": "f2"}
    )
    lab.run(request)
    assert rows_of(request.attempt) == [{"_window": "a", "_inputs": "f1", "s": 3}, {"_window": "c", "_inputs": "f2", "s": 4}]
    assert partition_columns(request.attempt) == ["_window", "_inputs"]
    assert not DeltaTable.is_deltatable(str(lab.output))


def test_a_window_gets_one_file(lab: Lab) -> None:
    for x in range(4):
        stage(lab.root / "numbers", [{"_window": "a", "x": x}, {"_window": "b", "x": x}])
    source = lab.source(windows=("a", "b"))
    request = lab.request(untouched, "window", {"numbers": source}, fingerprints={"a": "f1", "b": "f1"})
    lab.run(request)
    assert sorted(path.split("/")[0] for path in paths(Path(request.attempt))) == ["_window=a", "_window=b"]


def test_a_window_without_rows_is_no_error(lab: Lab) -> None:
    source = staged(lab).source(windows=("z",))
    request = lab.request(sums, "window", {"numbers": source}, fingerprints={"z": "f1"})
    lab.run(request)
    assert rows_of(request.attempt) == []


def test_a_function_that_asks_for_the_windows_gets_them_in_order(lab: Lab) -> None:
    source = staged(lab).source(windows=("c", "a"))
    request = lab.request(asked, "window", {"numbers": source}, fingerprints={"c": "f", "a": "f"})
    lab.run(request)
    assert {row["asked"] for row in rows_of(request.attempt)} == {"a,c"}


def test_rows_of_windows_that_were_not_asked_for_get_no_fingerprint(lab: Lab) -> None:
    source = staged(lab).source(windows=("a", "b"))
    request = lab.request(astray, "window", {"numbers": source}, fingerprints={"a": "f1", "b": "f1"})
    lab.run(request)
    assert {(row["_window"], row["_inputs"]) for row in rows_of(request.attempt)} == {("not a", None), ("not b", None)}


def test_a_result_without_the_window_column_is_refused_before_anything_is_written(lab: Lab) -> None:
    source = staged(lab).source(windows=("a",))
    request = lab.request(windowless, "window", {"numbers": source}, fingerprints={"a": "f1"})
    with pytest.raises(ValueError, match=r"no column _window, .* it returned x\. Nothing was written"):
        lab.run(request)
    assert not lab.output.exists()


def test_a_result_with_a_reserved_column_is_refused(lab: Lab) -> None:
    request = staged(lab).request(reserved, "full", {"numbers": lab.source()}, fingerprints={"": "f1"})
    with pytest.raises(ValueError, match="returned _inputs, reserved"):
        lab.run(request)


def test_parameters_reach_the_function(lab: Lab) -> None:
    source = staged(lab).source(windows=("a",))
    request = lab.request(sums, "window", {"numbers": source}, fingerprints={"a": "f"}, parameters={"factor": 10})
    lab.run(request)
    assert rows_of(request.attempt) == [{"_window": "a", "_inputs": "f", "s": 30}]


def test_a_function_that_does_not_fit_is_refused_before_an_input_is_read(lab: Lab) -> None:
    staged(lab)
    request = lab.request(sums, "full", {"numbers": lab.source(), "names": lab.source()}, fingerprints={"": "f"})
    with pytest.raises(ValueError, match="no argument for the input 'names'"):
        lab.run(request)


def test_each_input_is_read_as_its_source_says(lab: Lab) -> None:
    stage(lab.root / "names", [{"_window": "a", "name": "old"}])
    stage(lab.root / "names", [{"_window": "b", "name": "new"}])
    inputs = {"numbers": staged(lab).source(windows=("a", "b")), "names": lab.source("names", version=0)}
    request = lab.request(joined, "window", inputs, fingerprints={"a": "f", "b": "f"})
    lab.run(request)
    assert [row["name"] for row in rows_of(request.attempt)] == ["old", None]


def test_full_is_partitioned_by_its_one_fingerprint(lab: Lab) -> None:
    request = staged(lab).request(sums, "full", {"numbers": lab.source()}, fingerprints={"": "f1"})
    lab.run(request)
    assert partition_columns(request.attempt) == ["_inputs"]
    assert {(row["_window"], row["s"], row["_inputs"]) for row in rows_of(request.attempt)} == {
        ("a", 3, "f1"),
        ("b", 3, "f1"),
        ("c", 4, "f1"),
    }
    assert len(paths(Path(request.attempt))) == 1


def test_incremental_writes_what_the_new_files_give_by_window(lab: Lab) -> None:
    staged(lab)
    new = stage(lab.root / "numbers", [{"_window": "a", "x": 10}])
    request = lab.request(sums, "incremental", {"numbers": lab.source(files=new)})
    lab.run(request)
    assert rows_of(request.attempt) == [{"_window": "a", "s": 10}]
    assert partition_columns(request.attempt) == ["_window"]


def test_incremental_without_windows_has_no_partitions(lab: Lab) -> None:
    new = stage(lab.root / "numbers", [{"_window": "a", "x": 10}])
    request = lab.request(windowless, "incremental", {"numbers": lab.source(files=new)})
    lab.run(request)
    assert rows_of(request.attempt) == [{"x": 10}]
    assert partition_columns(request.attempt) == []


def test_an_attempt_is_never_written_twice(lab: Lab) -> None:
    request = staged(lab).request(sums, "full", {"numbers": lab.source()}, fingerprints={"": "f1"})
    lab.run(request)
    with pytest.raises(PySparkException, match="DELTA_PATH_EXISTS"):
        lab.run(request)
    assert len(rows_of(request.attempt)) == 3


def test_the_result_names_the_application(lab: Lab) -> None:
    request = staged(lab).request(sums, "full", {"numbers": lab.source()}, fingerprints={"": "f1"})
    assert lab.run(request).application == lab.spark.sparkContext.applicationId


def test_nothing_but_the_attempt_is_written(lab: Lab) -> None:
    request = staged(lab).request(sums, "full", {"numbers": lab.source()}, fingerprints={"": "f1"})
    lab.run(request)
    assert [path.name for path in lab.output.iterdir()] == ["attempt-1"]
    assert without(rows_of(lab.root / "numbers"), "_window") == [{"x": 1}, {"x": 2}, {"x": 3}, {"x": 4}]
