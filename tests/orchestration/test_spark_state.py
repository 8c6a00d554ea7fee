"""Which windows are stale, read from real Delta logs. No Spark: output tables are written by deltalake."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from orchestration.components.spark_plan import Job, load_function
from orchestration.components.spark_state import read_output, record_empty


def stage(path: Path, *windows: str) -> None:
    rows = [{"_window": window, "x": 1} for window in windows]
    write_deltalake(str(path), pa.Table.from_pylist(rows), partition_by=["_window"], mode="append")


def compute(job: Job, empty: tuple[str, ...] = ()) -> None:
    """Do what a run does: write the stale windows, stamped; `empty` ones get a mark and no row."""
    plan = job.plan()
    rows = [{"_window": w, "_inputs": plan.fingerprints[w], "s": 1} for w in plan.stale if w not in empty]
    schema = pa.schema({"_window": pa.string(), "_inputs": pa.string(), "s": pa.int64()})
    chosen = ", ".join(f"'{window}'" for window in plan.stale)
    write_deltalake(
        str(job.output),
        pa.Table.from_pylist(rows, schema),
        partition_by=["_window", "_inputs"],
        mode="overwrite",
        predicate=f"_window IN ({chosen})" if plan.output.version >= 0 else None,
    )
    record_empty(read_output(job.output, True), job.name, {w: plan.fingerprints[w] for w in empty})


@pytest.fixture
def job(tmp_path: Path) -> Job:
    inputs = {"left": tmp_path / "left", "right": tmp_path / "right"}
    stage(inputs["left"], "d1", "d2", "d3")
    stage(inputs["right"], "d1")
    return Job("out", "spark_jobs.airport_delays.airport_delays", inputs, tmp_path / "out", True, "v1")


def test_every_window_of_any_input_is_stale_before_the_first_run(job: Job) -> None:
    stage(job.inputs["right"], "d9")
    assert job.plan().stale == ("d1", "d2", "d3", "d9")


def test_nothing_is_stale_after_a_run(job: Job) -> None:
    compute(job)
    assert job.plan().stale == ()


def test_a_commit_makes_only_its_windows_stale_whichever_input_it_was_for(job: Job) -> None:
    compute(job)
    stage(job.inputs["left"], "d3")
    stage(job.inputs["right"], "d2")
    assert job.plan().stale == ("d2", "d3")


def test_a_commit_that_adds_no_files_makes_nothing_stale(job: Job) -> None:
    compute(job)
    DeltaTable(str(job.inputs["left"])).alter.set_table_properties({"delta.appendOnly": "true"})
    assert job.plan().stale == ()


def test_other_code_makes_every_window_stale(job: Job) -> None:
    compute(job)
    other = Job(job.name, job.function, job.inputs, job.output, True, "v2")
    assert other.plan().stale == ("d1", "d2", "d3")


def test_a_window_whose_result_has_no_rows_is_not_computed_again(job: Job) -> None:
    compute(job, empty=("d2",))
    assert job.plan().stale == ()
    stage(job.inputs["left"], "d2")
    assert job.plan().stale == ("d2",)


def test_a_mark_of_no_rows_is_not_believed_once_the_window_has_rows(job: Job) -> None:
    compute(job, empty=("d2",))
    foreign = [{"_window": "d2", "_inputs": "0" * 16, "s": 1}]
    write_deltalake(str(job.output), pa.Table.from_pylist(foreign), mode="append")
    assert job.plan().stale == ("d2",)


def test_a_window_that_left_every_input_is_stale_while_the_output_has_rows_of_it(job: Job) -> None:
    compute(job)
    DeltaTable(str(job.inputs["left"])).delete("_window = 'd3'")
    assert job.plan().stale == ("d3",)


def test_a_restored_output_is_stale_again(job: Job) -> None:
    compute(job)
    stage(job.inputs["left"], "d1")
    compute(job)
    DeltaTable(str(job.output)).restore(0)
    assert job.plan().stale == ("d1",)


def test_compaction_of_the_output_changes_nothing(job: Job) -> None:
    compute(job)
    extra = [{"_window": "d1", "_inputs": job.plan().fingerprints["d1"], "s": 2}]
    write_deltalake(str(job.output), pa.Table.from_pylist(extra), mode="append")
    assert DeltaTable(str(job.output)).optimize.compact()["numFilesRemoved"] == 2
    assert job.plan().stale == ()


def test_the_code_version_follows_the_function_file_unless_declared(job: Job) -> None:
    undeclared = Job(job.name, job.function, job.inputs, job.output, True)
    other = Job(job.name, "spark_jobs.account_balances.account_balances", job.inputs, job.output, True)
    assert undeclared.code_version() != other.code_version()
    assert job.code_version() == "v1"


@pytest.mark.parametrize(
    ("dotted", "said"),
    [
        ("airport_delays", "no dotted path"),
        ("spark_jobs.nowhere.f", "cannot import 'spark_jobs.nowhere'"),
        ("spark_jobs.airport_delays.nope", "has no function 'nope'"),
    ],
)
def test_a_function_that_cannot_be_imported_says_why(dotted: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        load_function(dotted)
