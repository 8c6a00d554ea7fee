"""Audits of a written result: each kind passes and fails, and says by how much."""

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.audits import audit
from spark_jobs.request import Audit, AuditResult
from tests.spark_jobs.tables import Lab, stage

pytestmark = pytest.mark.spark

ROWS = [("a", 1, 10.5), ("a", 2, None), ("b", 3, 1234.0), (None, 4, 7.0)]


def per_window(numbers: DataFrame) -> DataFrame:
    return numbers.where("x is not null").groupBy("_window").agg(F.count("x").alias("n"))


def counted(numbers: DataFrame, current: DataFrame | None) -> DataFrame:
    new = numbers.groupBy("_window").agg(F.count("x").alias("n"))
    return new if current is None else current.unionByName(new).groupBy("_window").agg(F.sum("n").alias("n"))


def found(spark: SparkSession, *audits: Audit, **inputs: DataFrame) -> tuple[AuditResult, ...]:
    return audit(spark.createDataFrame(ROWS, "name string, x long, y double"), audits, inputs, None)


@pytest.mark.parametrize(
    ("options", "passed", "said"),
    [
        ({"kind": "rows", "least": 4, "most": 4}, True, "4 rows; at least 4 and at most 4"),
        ({"kind": "rows", "least": 1_000}, False, "4 rows; at least 1,000"),
        ({"kind": "rows", "most": 3}, False, "4 rows; at most 3"),
        ({"kind": "not_null", "columns": ("x",)}, True, "0 of 4 rows have a null in x"),
        ({"kind": "not_null", "columns": ("name", "y")}, False, "2 of 4 rows have a null in name, y"),
        ({"kind": "unique", "columns": ("name", "x")}, True, "0 of 4 rows share their name, x with another"),
        ({"kind": "unique", "columns": ("name",)}, False, "2 of 4 rows share their name with another"),
        (
            {"kind": "between", "columns": ("y",), "least": 0, "most": 2_000},
            True,
            "0 of 4 rows have a y that is not at least 0 and at most 2,000; it goes from 7.0 to 1234.0",
        ),
        (
            {"kind": "between", "columns": ("x",), "most": 2.5},
            False,
            "2 of 4 rows have a x that is not at most 2.5; it goes from 1 to 4",
        ),
        (
            {"kind": "between", "columns": ("x",), "least": 2},
            False,
            "1 of 4 rows have a x that is not at least 2; it goes from 1 to 4",
        ),
        ({"kind": "sql", "sql": "x > 0"}, True, "0 of 4 rows do not keep `x > 0`"),
        ({"kind": "sql", "sql": "y > x"}, False, "1 of 4 rows do not keep `y > x`"),
    ],
)
def test_each_kind_passes_and_fails_with_its_numbers(
    spark: SparkSession, options: dict[str, Any], passed: bool, said: str
) -> None:
    assert found(spark, Audit("rule", **options)) == (AuditResult("rule", passed, True, said),)


def test_a_result_reconciles_with_the_records_of_its_input_and_not_with_its_tombstones(spark: SparkSession) -> None:
    ten = spark.createDataFrame([(False,)] * 10 + [(True,), (None,)], "_tombstone boolean")
    eleven, twelve = (Audit("sum", "reconcile", sql=sql, input="numbers") for sql in ("if(x = 4, 5, x)", "x"))
    passing, failing = found(spark, eleven, twelve, numbers=ten)
    assert (passing.passed, failing.passed) == (True, False)
    assert failing.said == "the sum of `x` over the result is 10; 11 records of numbers were read"


def test_an_empty_result_is_judged_like_any_other(spark: SparkSession) -> None:
    empty = spark.createDataFrame([], "x long")
    rules = [Audit("some", "rows", least=1), Audit("x", "not_null", ("x",)), Audit("u", "unique", ("x",))]
    assert [result.passed for result in audit(empty, rules, {}, None)] == [False, True, True]


def test_several_audits_take_one_pass_and_keep_their_order(spark: SparkSession) -> None:
    rules = [Audit(f"{bound}", "between", ("x",), most=bound, blocking=bound > 3) for bound in (4, 3, 2)]
    results = found(spark, *rules)
    assert [(result.name, result.passed, result.blocking) for result in results] == [
        ("4", True, True),
        ("3", False, False),
        ("2", False, False),
    ]


def test_a_run_audits_what_it_wrote_and_a_failed_blocking_rule_refuses_it(lab: Lab) -> None:
    stage(lab.root / "numbers", [{"_window": "a", "x": 1}, {"_window": "a", "x": None}])
    rules = (
        Audit("all", "reconcile", sql="n", input="numbers"),
        Audit("rows", "rows", least=1),
        Audit("many", "rows", least=5, blocking=False),
    )
    source = lab.source(windows=("a",))
    result = lab.run(lab.request(per_window, "window", {"numbers": source}, fingerprints={"a": "f"}, audits=rules))
    assert [one.name for one in result.refused] == ["all"]
    assert result.audits[0].said == "the sum of `n` over the result is 1; 2 records of numbers were read"


def test_a_merge_reconciles_by_what_it_added(lab: Lab) -> None:
    options: dict[str, Any] = {
        "keys": ("_window",),
        "buckets": 4,
        "audits": (Audit("all", "reconcile", sql="n", input="numbers"),),
    }
    stage(lab.root / "numbers", [{"_window": window, "x": 1} for window in "aab"])
    first = lab.merge(lab.request(counted, "merge", {"numbers": lab.source()}, **options))
    new = stage(lab.root / "numbers", [{"_window": window, "x": 1} for window in "ac"])
    second = lab.merge(lab.request(counted, "merge", {"numbers": lab.source(files=new)}, **options))
    assert [first.refused, second.refused] == [(), ()]
    assert second.audits[0].said == "the sum of `n` over what the merge added is 2; 2 records of numbers were read"
