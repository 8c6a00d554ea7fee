"""Which windows are stale, read from real Delta logs. No Spark: output tables are written by deltalake."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from consumers.errors import StorageError
from orchestration.compute.job import Input, Job
from orchestration.compute.plan import plan, request
from orchestration.compute.publish import publish
from orchestration.compute.windows import Reach
from tests.orchestration.compute import bench, fake


def stage(path: Path, *windows: str) -> None:
    rows = [{"_window": window, "x": 1} for window in windows]
    write_deltalake(str(path), pa.Table.from_pylist(rows), partition_by=["_window"], mode="append")


def compute(job: Job, *windows: str) -> None:
    """Do what a run does; windows that no input has rows of have none in the output."""
    todo = plan(job, windows or None)
    asked = request(todo)
    publish(todo, asked, fake.compute(asked, fake.sums))


@pytest.fixture
def job(tmp_path: Path) -> Job:
    inputs = {"left": Input(tmp_path / "left"), "right": Input(tmp_path / "right")}
    stage(inputs["left"].path, "d1", "d2", "d3")
    stage(inputs["right"].path, "d1")
    return Job("out", "spark_jobs.airport_delays.airport_delays", inputs, tmp_path / "out", "window", "v1")


def test_every_window_of_any_input_is_stale_before_the_first_run(job: Job) -> None:
    stage(job.inputs["right"].path, "d9")
    assert plan(job).stale == ("d1", "d2", "d3", "d9")


def test_a_commit_makes_only_its_windows_stale_whichever_input_it_was_for(job: Job) -> None:
    compute(job)
    assert plan(job).stale == ()
    stage(job.inputs["left"].path, "d3")
    stage(job.inputs["right"].path, "d2")
    todo = plan(job)
    assert todo.stale == ("d2", "d3")
    assert (todo.sources["left"].windows, todo.sources["right"].windows) == (("d2", "d3"), ("d2",))
    assert todo.reason == "unchanged: 1 windows; to compute: 2 of 3 windows"


def test_a_commit_that_adds_no_files_makes_nothing_stale(job: Job) -> None:
    compute(job)
    DeltaTable(str(job.inputs["left"].path)).alter.set_table_properties({"delta.appendOnly": "true"})
    assert plan(job).stale == ()


def test_a_mark_of_no_rows_is_not_believed_once_the_window_has_rows(job: Job) -> None:
    compute(job, "d1", "d7")
    foreign = [{"_window": "d7", "_inputs": "0" * 16, "s": 1}]
    write_deltalake(str(job.output), pa.Table.from_pylist(foreign), mode="append")
    assert plan(job, ["d1", "d7"]).stale == ("d7",)


def test_a_window_that_left_every_input_is_stale_while_the_output_has_rows_of_it(job: Job) -> None:
    compute(job)
    DeltaTable(str(job.inputs["left"].path)).delete("_window = 'd3'")
    assert plan(job).stale == ("d3",)
    compute(job)
    assert fake.contents(job.output) == [("d1", 2), ("d2", 1)]
    assert plan(job).stale == ()


def test_a_restored_output_is_stale_again(job: Job) -> None:
    compute(job)
    stage(job.inputs["left"].path, "d1")
    compute(job)
    DeltaTable(str(job.output)).restore(0)
    assert plan(job).stale == ("d1",)


def test_what_a_stranger_deleted_is_computed_again_also_by_a_run_of_another_window(job: Job) -> None:
    compute(job)
    whole = fake.contents(job.output)
    DeltaTable(str(job.output)).delete("_window = 'd1' AND s > 0")
    stage(job.inputs["right"].path, "d3")
    todo = plan(job, ["d3"])
    assert todo.stale == ("d1", "d3") and "(delete), which is none of this job's" in todo.reason
    compute(job, "d3")
    assert fake.contents(job.output) == [*whole[:2], ("d3", 2)] and plan(job).stale == ()


def test_code_that_changes_during_a_run_is_not_what_the_rows_were_computed_with(tmp_path: Path) -> None:
    job, staged = bench.make(tmp_path, "incremental")
    staged.batch(d1=[1])
    todo = plan(replace(job, declared_version="old"))
    asked = request(todo)
    result = fake.compute(asked, fake.rows_as_they_are)
    publish(replace(todo, job=replace(job, declared_version="new")), asked, result)
    assert "code, parameters, keys or mode are not those" in plan(replace(job, declared_version="new")).reason
    assert plan(replace(job, declared_version="old")).stale == ()


def test_an_input_that_only_maintenance_has_changed_is_pinned_at_what_is_there(tmp_path: Path) -> None:
    a, b, c = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    for _ in range(3):
        stage(a, "d1")
    first = Job("b", "spark_jobs.airport_delays.airport_delays", {"a": Input(a)}, b, "window", "v1")
    compute(first)
    DeltaTable(str(a)).optimize.compact()
    both = Job("c", "spark_jobs.airport_delays.airport_delays", {"a": Input(a), "b": Input(b)}, c, "window", "v1")
    assert plan(both).inputs["a"].version == 3
    stage(a, "d1")
    assert plan(both).inputs["a"].version == 2, "rows that the other input has not seen"


def test_a_table_of_another_layout_is_replaced_whole_also_when_one_window_was_asked_for(job: Job) -> None:
    rows = [{"_window": window, "s": 1} for window in ("d1", "d2")]
    write_deltalake(str(job.output), pa.Table.from_pylist(rows), partition_by=["_window"])
    assert plan(job, ["d1"]).stale == ("d1", "d2", "d3")


def test_a_row_beside_a_compaction_makes_its_window_stale(job: Job) -> None:
    stage(job.inputs["left"].path, "d1")
    compute(job)
    DeltaTable(str(job.inputs["left"].path)).optimize.compact()
    assert plan(job).stale == ()
    stage(job.inputs["left"].path, "d1")
    assert plan(job).stale == ("d1",)
    compute(job)
    DeltaTable(str(job.inputs["left"].path)).optimize.compact()
    assert plan(job).stale == ()
    DeltaTable(str(job.inputs["left"].path)).delete("_window = 'd1' and x = 1")
    assert plan(job).stale == ("d1",)


def test_the_code_version_follows_the_function_file_unless_declared(job: Job) -> None:
    undeclared = replace(job, declared_version=None)
    other = replace(undeclared, function="spark_jobs.account_balances.account_balances")
    assert undeclared.code_version() != other.code_version()
    assert job.code_version() == "v1"


def days(tmp_path: Path, reach: Reach, *windows: str) -> Job:
    stage(tmp_path / "in", *windows)
    return Job("out", "none.of.it", {"in": Input(tmp_path / "in", reach)}, tmp_path / "out", "window", "v1")


def test_hours_make_their_day_stale_and_are_read_for_it(tmp_path: Path) -> None:
    job = days(tmp_path, Reach(contained=True), "2013-01-01-05", "2013-01-01-07", "2013-01-02-00")
    todo = plan(job, ["2013-01-01"])
    assert plan(job).stale == ("2013-01-01", "2013-01-02")
    assert todo.sources["in"].windows == ("2013-01-01-05", "2013-01-01-07")


def test_a_window_that_looks_back_reads_the_windows_before(tmp_path: Path) -> None:
    job = days(tmp_path, Reach(look_back=1), "2013-01-01", "2013-01-02", "2013-01-03")
    assert plan(job, ["2013-01-03"]).sources["in"].windows == ("2013-01-02", "2013-01-03")


def test_an_input_without_windows_is_refused_unless_it_is_said_so(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "in", pa.table({"x": [1]}))
    job = Job("out", "none.of.it", {"in": Input(tmp_path / "in")}, tmp_path / "out", "window", "v1")
    with pytest.raises(StorageError, match="windows: none"):
        plan(job)
    whole = replace(job, inputs={"in": Input(tmp_path / "in", Reach(whole=True))})
    before = plan(whole, ["d1"]).fingerprints
    assert plan(whole, ["d1"]).sources["in"].windows is None
    write_deltalake(tmp_path / "in", pa.table({"x": [2]}), mode="append")
    assert plan(whole, ["d1"]).fingerprints != before
