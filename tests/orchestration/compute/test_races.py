"""Who comes in between plan and commit; and results whose columns are not the table's."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from consumers.errors import StorageError
from consumers.staging.delta import Conflict
from orchestration.compute import publish as publishing
from orchestration.compute.job import Job
from orchestration.compute.plan import Plan, plan, request
from orchestration.compute.publish import publish
from orchestration.compute.record import Publication
from spark_jobs.request import Mode
from tests.orchestration.compute import fake
from tests.orchestration.compute.bench import FUNCTIONS, MODES, clean, make, run


def attempts(job: Job) -> list[Path]:
    return list(job.output.glob("attempt-*"))


@pytest.fixture
def planned(tmp_path: Path) -> Iterator[tuple[Job, Plan]]:
    job, staged = make(tmp_path, "incremental")
    staged.batch(d1=[1])
    run(job)
    staged.batch(d1=[2])
    yield job, plan(job)


def test_of_two_that_publish_from_one_plan_one_gets_a_conflict(planned: tuple[Job, Plan]) -> None:
    job, todo = planned
    first, second = request(todo), request(todo)
    results = [fake.compute(asked, fake.rows_as_they_are) for asked in (first, second)]
    publish(todo, first, results[0])
    with pytest.raises(Conflict, match="since this was planned"):
        publish(todo, second, results[1])
    assert fake.contents(job.output) == clean(job)
    assert [folder.name for folder in attempts(job) if (folder / "_delta_log").exists()] == []


def test_compaction_between_plan_and_publication_is_no_conflict_but_a_strangers_row_is(planned: tuple[Job, Plan]) -> None:
    job, todo = planned
    asked = request(todo)
    result = fake.compute(asked, fake.rows_as_they_are)
    DeltaTable(job.output).create_checkpoint()
    DeltaTable(job.output).alter.set_table_properties({"delta.logRetentionDuration": "interval 60 days"})
    assert publish(todo, asked, result).version == 2
    staged = fake.Staged(job.inputs["numbers"].path, 9)
    staged.batch(d1=[3])
    todo = plan(job)
    asked = request(todo)
    result = fake.compute(asked, fake.rows_as_they_are)
    write_deltalake(job.output, pa.table({"_window": ["d1"], "x": [99]}), mode="append")
    with pytest.raises(Conflict, match=r"version 3 \(write\) changed"):
        publish(todo, asked, result)


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let something happen once, between the publisher's look at the table and its commit."""
    real, acts = publishing._unchanged_table, [act]

    def look(todo: Plan) -> DeltaTable | None:
        table = real(todo)
        if acts:
            acts.pop()()
        return table

    monkeypatch.setattr(publishing, "_unchanged_table", look)


def interfere(job: Job, todo: Plan, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> Publication:
    asked = request(todo)
    result = fake.compute(asked, FUNCTIONS[job.mode])
    meanwhile(monkeypatch, act)
    return publish(todo, asked, result)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("first", [True, False], ids=["first run", "later run"])
def test_another_publication_in_the_last_moment_is_a_conflict(
    tmp_path: Path, mode: Mode, first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, staged = make(tmp_path, mode)
    staged.batch(d1=[1, 2])
    if not first:
        run(job)
        staged.batch(d1=[3])
    with pytest.raises(Conflict):
        interfere(job, plan(job), lambda: run(job), monkeypatch)
    assert fake.contents(job.output) == clean(job)
    assert plan(job).stale == ()


@pytest.mark.parametrize("mode", MODES)
def test_compaction_in_the_last_moment_is_no_conflict(tmp_path: Path, mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    job, staged = make(tmp_path, mode)
    stored_anew: list[dict[str, Any]] = []
    for key in range(3):
        staged.batch(d1=[(f"a{key}", key)])
        run(job)
    staged.batch(d1=[("a1", 9)])
    column = "s" if mode in {"window", "full"} else "x"
    interfere(job, plan(job), lambda: stored_anew.append(DeltaTable(job.output).optimize.z_order([column])), monkeypatch)
    assert stored_anew[0]["numFilesRemoved"] > 0
    assert fake.contents(job.output) == clean(job)
    assert plan(job).stale == ()


@pytest.mark.parametrize("mode", MODES)
def test_a_strangers_commit_in_the_last_moment_is_a_conflict(tmp_path: Path, mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    job, staged = make(tmp_path, mode)
    staged.batch(d1=[1])
    run(job)
    staged.batch(d1=[2])
    same = DeltaTable(job.output).to_pyarrow_table()
    with pytest.raises(Conflict, match=r"version 1 \(write\) changed"):
        interfere(job, plan(job), lambda: write_deltalake(job.output, same, mode="append"), monkeypatch)


def with_column(inputs: dict[str, fake.Rows]) -> fake.Rows:
    return [row | {"more": "m"} for row in fake.rows_as_they_are(inputs)]


def test_new_columns_are_added_and_missing_ones_are_null(planned: tuple[Job, Plan]) -> None:
    job, todo = planned
    asked = request(todo)
    publish(todo, asked, fake.compute(asked, with_column))  # type: ignore[arg-type]
    assert sorted(DeltaTable(job.output).to_pyarrow_table()["more"].to_pylist(), key=str) == [None, "m"]
    fake.Staged(job.inputs["numbers"].path, 9).rewrite("d1", 4)
    run(job)
    assert DeltaTable(job.output).to_pyarrow_table().to_pylist() == [{"_window": "d1", "x": 4, "more": None}]


def test_a_column_of_another_type_is_refused_except_where_all_is_replaced(planned: tuple[Job, Plan]) -> None:
    job, todo = planned

    def texts(inputs: dict[str, fake.Rows]) -> fake.Rows:
        return [row | {"x": str(row["x"])} for row in fake.rows_as_they_are(inputs)]

    asked = request(todo)
    result = fake.compute(asked, texts)  # type: ignore[arg-type]
    with pytest.raises(StorageError, match=r"x \(long in the table, string in the result\)"):
        publish(todo, asked, result)
    assert fake.contents(job.output) == [("d1", 1)]
    todo = plan(replace(job, declared_version="v2"))
    asked = request(todo)
    publish(todo, asked, fake.compute(asked, texts))  # type: ignore[arg-type]
    assert fake.contents(job.output) == [("d1", "1"), ("d1", "2")]
