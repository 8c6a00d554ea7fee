"""What is computed and how it becomes visible, in every mode, on real Delta tables and without Spark."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from consumers.errors import StorageError
from orchestration.compute import publish as publishing
from orchestration.compute.job import Job
from orchestration.compute.output import read_output
from orchestration.compute.plan import plan, request
from orchestration.compute.publish import publish
from spark_jobs.request import Mode, Result
from tests.orchestration.compute import fake
from tests.orchestration.compute.bench import FUNCTIONS, MODES, clean, make, run


@pytest.mark.parametrize("mode", MODES)
def test_a_second_run_changes_nothing(tmp_path: Path, mode: Mode) -> None:
    job, staged = make(tmp_path, mode)
    staged.batch(d1=[1, 2], d2=[3])
    assert run(job) is not None
    version = read_output(job).version
    assert run(job) is None
    assert read_output(job).version == version == 0


@pytest.mark.parametrize("mode", MODES)
def test_new_rows_give_what_a_run_from_nothing_gives(tmp_path: Path, mode: Mode) -> None:
    job, staged = make(tmp_path, mode)
    staged.batch(d1=[("a", 1), ("b", 2)], d2=[("c", 3)])
    run(job)
    staged.batch(d2=[("a", 5), ("b", None)], d3=[("d", 4)])
    assert run(job) is not None
    assert fake.contents(job.output) == clean(job) != []


@pytest.mark.parametrize("mode", MODES)
def test_compaction_and_members_that_take_over_change_nothing(tmp_path: Path, mode: Mode) -> None:
    job, staged = make(tmp_path, mode)
    staged.batch(d1=[1])
    staged.batch(d1=[2])
    run(job)
    staged.compact()
    staged.batch("acquire")
    assert plan(job).stale == ()
    staged.batch(d2=[3])
    staged.batch(d1=[4])
    run(job)
    assert fake.contents(job.output) == clean(job)


@pytest.mark.parametrize("mode", MODES)
def test_compaction_of_the_output_changes_nothing(tmp_path: Path, mode: Mode) -> None:
    job, staged = make(tmp_path, mode)
    for key in range(12):
        staged.batch(d1=[(f"a{key}", key)])
        if mode in {"incremental", "merge"} or not key:
            run(job)
    run(job)
    DeltaTable(job.output).optimize.compact()
    assert plan(job).stale == ()
    staged.batch(d1=[("a1", 50)])
    assert run(job) is not None
    assert fake.contents(job.output) == clean(job)


@pytest.mark.parametrize("mode", MODES)
def test_a_rewritten_window_of_the_input_replaces_its_rows(tmp_path: Path, mode: Mode) -> None:
    job, staged = make(tmp_path, mode)
    staged.batch(d1=[1, 2], d2=[3])
    run(job)
    staged.batch(d1=[7])
    staged.rewrite("d1", 2, 7, 8)
    staged.batch(d3=[9])
    assert run(job) is not None
    assert fake.contents(job.output) == clean(job)


@pytest.mark.parametrize("mode", MODES)
def test_a_strangers_row_in_the_input_is_computed_too(tmp_path: Path, mode: Mode) -> None:
    job, staged = make(tmp_path, mode)
    staged.batch(d1=[1, 2])
    run(job)
    staged.foreign("d1", 6)
    assert run(job) is not None
    assert fake.contents(job.output) == clean(job)


def test_incremental_reads_new_files_alone_and_touches_no_old_one(tmp_path: Path) -> None:
    job, staged = make(tmp_path, "incremental")
    staged.batch(d1=[1])
    run(job)
    before = set(DeltaTable(job.output).file_uris())
    staged.batch(d1=[2])
    todo = plan(job)
    assert todo.reason == "to compute: 1 new rows in 1 files of numbers, versions 1 to 1"
    assert [row["x"] for row in fake.read(todo.sources["numbers"])] == [2]
    run(job)
    assert before < set(DeltaTable(job.output).file_uris())


def test_incremental_replaces_a_rewritten_window_and_adds_new_rows_in_one_commit(tmp_path: Path) -> None:
    job, staged = make(tmp_path, "incremental")
    staged.batch(d1=[1], d2=[2])
    run(job)
    staged.rewrite("d1", 10)
    staged.batch(d3=[3])
    done = run(job)
    assert done is not None and (done.version, done.windows, done.whole) == (1, ("d1",), False)
    assert fake.contents(job.output) == [("d1", 10), ("d2", 2), ("d3", 3)]


def test_files_that_vacuum_took_are_read_from_their_windows(tmp_path: Path) -> None:
    job, staged = make(tmp_path, "incremental")
    staged.batch(d1=[1])
    run(job)
    staged.batch(d1=[2])
    staged.batch(d2=[5])
    staged.compact()
    DeltaTable(staged.path).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert plan(job).changes is not None
    run(job)
    assert fake.contents(job.output) == clean(job)


def test_merge_keeps_buckets_that_no_new_key_falls_into(tmp_path: Path) -> None:
    job, staged = make(tmp_path, "merge")
    staged.batch(d1=[(f"k{n}", n) for n in range(20)])
    run(job)
    before = set(DeltaTable(job.output).file_uris())
    staged.batch(d1=[("k1", 100)])
    done = run(job)
    assert done is not None and len(done.buckets) == 1
    assert len(before & set(DeltaTable(job.output).file_uris())) == len(before) - 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda job, staged: staged.rewrite("d1", 1), "version 1 (rewrite) of numbers is no batch"),
        (lambda job, staged: staged.foreign("d1", 1), "version 1 (write) of numbers is no batch"),
        (lambda job, staged: staged.batch("replay", d1=[1]), "version 1 (replay) of numbers is no batch"),
        (lambda job, staged: DeltaTable(job.output).delete("x = 1"), "changed by version 1 (delete)"),
    ],
)
def test_a_merge_starts_over_when_order_or_output_cannot_be_trusted(
    tmp_path: Path, change: Callable[[Job, fake.Staged], None], said: str
) -> None:
    job, staged = make(tmp_path, "merge")
    staged.batch(d1=[1, 2])
    run(job)
    change(job, staged)
    assert said in plan(job).reason
    run(job)
    assert fake.contents(job.output) == clean(job)


@pytest.mark.parametrize("mode", ["incremental", "merge"])
def test_a_restored_output_starts_over(tmp_path: Path, mode: Mode) -> None:
    job, staged = make(tmp_path, mode)
    staged.batch(d1=[1])
    run(job)
    staged.batch(d1=[2])
    run(job)
    DeltaTable(job.output).restore(0)
    assert "starting over: the output was changed by version 2 (restore)" in plan(job).reason
    run(job)
    assert fake.contents(job.output) == clean(job)


@pytest.mark.parametrize("mode", MODES)
def test_other_code_or_parameters_compute_all_of_it_again(tmp_path: Path, mode: Mode) -> None:
    job, staged = make(tmp_path, mode)
    staged.batch(d1=[1], d2=[2])
    run(job)
    for other in (replace(job, declared_version="v2"), replace(job, declared_version="v2", parameters={"p": 0.5})):
        assert plan(other).stale
        run(other)
        assert plan(other).stale == ()
        assert fake.contents(job.output) == clean(other)


@pytest.mark.parametrize("mode", ["incremental", "merge"])
def test_an_input_that_was_built_again_starts_over(tmp_path: Path, mode: Mode) -> None:
    job, staged = make(tmp_path, mode)
    staged.batch(d1=[1])
    run(job)
    staged.path.rename(tmp_path / "old")
    for number in range(4):
        staged.batch(d1=[number])
    assert "numbers is another table" in plan(job).reason
    run(job)
    assert fake.contents(job.output) == clean(job)


def test_a_log_that_was_cleaned_up_starts_over(tmp_path: Path) -> None:
    job, staged = make(tmp_path, "incremental")
    staged.batch(d1=[1])
    run(job)
    staged.batch(d1=[2])
    staged.batch(d1=[3])
    DeltaTable(staged.path).create_checkpoint()
    for version in (0, 1):
        (staged.path / "_delta_log" / f"{version:020d}.json").unlink()
    assert plan(job).reason == "starting over: the log of numbers no longer has version 1"
    run(job)
    assert fake.contents(job.output) == clean(job)


@pytest.mark.parametrize("mode", MODES)
def test_a_table_of_another_mode_is_replaced_as_a_whole_and_keeps_its_history(tmp_path: Path, mode: Mode) -> None:
    for other in MODES:
        job, staged = make(tmp_path / other, other)
        staged.batch(d1=[("a", 1)], d2=[("b", 2)])
        run(job)
        now = make(tmp_path / other, mode)[0]
        if other != mode:
            assert run(now) is not None
            assert DeltaTable(job.output).version() == 1
        assert fake.contents(now.output) == clean(now)
        assert plan(now).stale == ()


def test_windows_without_rows_are_marked_in_the_commit_of_the_others(tmp_path: Path) -> None:
    job, staged = make(tmp_path, "window")
    staged.batch(d1=[1])
    todo = plan(job, ["d1", "d7"])
    asked = request(todo)
    assert publish(todo, asked, fake.compute(asked, fake.sums)).version == 0
    assert plan(job, ["d1", "d7"]).stale == ()
    staged.batch(d7=[1])
    assert plan(job, ["d1", "d7"]).stale == ("d7",)


@pytest.mark.parametrize("mode", MODES)
def test_a_result_of_no_rows_at_all_is_published_once(tmp_path: Path, mode: Mode) -> None:
    job, staged = make(tmp_path, mode)
    staged.batch("acquire")
    todo = plan(job, ["d1"] if mode == "window" else None)
    asked = request(todo)
    publish(todo, asked, fake.compute(asked, lambda inputs: []))
    assert fake.contents(job.output) == []
    assert plan(job, ["d1"] if mode == "window" else None).stale == ()


STEPS = ["read_attempt", "_unchanged_table", "_commit", "_create", "_change", "seal"]
WHEN_DONE = [("_commit", True), ("_create", True), ("_change", True), ("seal", False), ("seal", True)]
"""Where it dies after the commit. Of `_create` and `_change` a run takes one, and is not killed in the other."""


class Killed(BaseException):
    """The process died here."""


def kill(monkeypatch: pytest.MonkeyPatch, step: str, after: bool) -> None:
    real = getattr(publishing, step)

    def dying(*args: object, **kwargs: object) -> None:
        if after:
            real(*args, **kwargs)
        raise Killed

    monkeypatch.setattr(publishing, step, dying)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("first", [True, False], ids=["first run", "later run"])
def test_killed_at_any_step_readers_see_old_or_new_and_a_rerun_mends(
    tmp_path: Path, mode: Mode, first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, staged = make(tmp_path / "base", mode)
    staged.batch(d1=[("a", 1), ("b", 2)], d2=[("c", 3)])
    if not first:
        run(base)
        staged.batch(d2=[("a", 7), ("c", None)], d3=[("e", 5)])
    old, new = fake.contents(base.output), clean(base)
    reached = set()
    for number, (step, after) in enumerate((step, after) for step in STEPS for after in (False, True)):
        shutil.copytree(tmp_path / "base", tmp_path / str(number))
        job, _ = make(tmp_path / str(number), mode)
        with monkeypatch.context() as patched:
            kill(patched, step, after)
            try:
                run(job)
            except Killed:
                reached.add((step, after))
        seen = fake.contents(job.output)
        assert seen == (old if (step, after) in reached - {*WHEN_DONE} else new)
        run(job)
        assert fake.contents(job.output) == new
        assert plan(job).stale == ()
    assert len(reached) == 10, "one of _create and _change is not used"


@pytest.mark.parametrize("mode", MODES)
def test_a_computation_that_died_or_was_refused_leaves_readers_on_the_old_version(tmp_path: Path, mode: Mode) -> None:
    job, staged = make(tmp_path, mode)
    staged.batch(d1=[1])
    run(job)
    staged.batch(d1=[2], d2=[3])
    old = fake.contents(job.output)
    fake.compute(request(plan(job)), FUNCTIONS[mode])
    assert fake.contents(job.output) == old and plan(job).stale
    asked = request(plan(job))
    result = fake.compute(asked, FUNCTIONS[mode], refuse=True)
    assert result.refused
    publishing.discard(Path(asked.attempt))
    assert fake.contents(job.output) == old and plan(job).stale
    run(job)
    assert fake.contents(job.output) == clean(job)


def test_an_attempt_without_a_result_is_not_published(tmp_path: Path) -> None:
    job, staged = make(tmp_path, "full")
    staged.batch(d1=[1])
    todo = plan(job)
    with pytest.raises(StorageError, match="holds no result"):
        publish(todo, request(todo), Result())


def test_a_result_with_a_file_that_is_gone_is_not_published(tmp_path: Path) -> None:
    job, staged = make(tmp_path, "window")
    staged.batch(d1=[1])
    run(job)
    staged.batch(d1=[2], d2=[3])
    todo = plan(job)
    asked = request(todo)
    result = fake.compute(asked, FUNCTIONS["window"])
    next(Path(asked.attempt).rglob("*.parquet")).unlink()
    old = fake.contents(job.output)
    with pytest.raises(StorageError, match="before it was published"):
        publish(todo, asked, result)
    assert fake.contents(job.output) == old and not Path(asked.attempt).exists()
    run(job)
    assert fake.contents(job.output) == clean(job)


def test_rows_of_windows_that_were_not_asked_for_are_refused_by_name(tmp_path: Path) -> None:
    job, staged = make(tmp_path, "window")
    staged.batch(d1=[1])
    run(job)
    staged.batch(d1=[2], d2=[3])
    old, todo = fake.contents(job.output), plan(job, ["d1"])
    asked = request(todo)
    result = fake.compute(asked, FUNCTIONS["window"])
    stray = Path(asked.attempt) / "_delta_log" / f"{0:020d}.json"
    lines = [json.loads(line) for line in stray.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            line["add"]["partitionValues"] = {"_window": "d2", "_inputs": None}
    stray.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(StorageError, match=r"windows other than the 1 in `windows`: d2\. Nothing was published"):
        publish(todo, asked, result)
    assert fake.contents(job.output) == old
