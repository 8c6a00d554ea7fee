"""From rows back to offsets, through tables that were computed from tables; and versions that belong together."""

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from consumers.errors import ConfigError
from orchestration.cli import app
from orchestration.compute.job import Input, Job
from orchestration.compute.lineage import lineage, told
from orchestration.compute.plan import plan, request
from orchestration.compute.publish import publish
from tests.orchestration.compute import fake
from tests.orchestration.compute.fake import Staged


def run(job: Job, function: fake.Function) -> int:
    todo = plan(job)
    asked = request(todo)
    return publish(todo, asked, fake.compute(asked, function)).version


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def staged(tables: Path) -> Staged:
    return Staged(tables / "staged" / "numbers")


def job(tables: Path, output: str, *inputs: Path) -> Job:
    return Job(output, "none.of.it", {path.name: Input(path) for path in inputs}, tables / output, "window", "v1")


def test_a_window_leads_through_two_tables_to_the_offsets_of_its_own_commits(tables: Path, staged: Staged) -> None:
    first = job(tables, "first", staged.path)
    second = job(tables, "second", first.output)
    staged.batch(d1=[1, 2, 3])
    staged.batch(d2=[4])
    run(first, fake.sums)
    run(second, fake.sums)
    staged.batch(d1=[5])
    run(first, fake.sums)
    run(second, fake.sums)
    found = lineage(tables, "second", window="d2")
    assert found.publication is not None and found.publication.version == 0
    [(_, middle)] = found.inputs
    [(_, last)] = middle.inputs
    assert (middle.table, middle.version, last.table, last.version) == ("first", 0, "staged/numbers", 1)
    assert last.ranges == {"numbers/0": [(3, 4)]}
    [(_, late)] = lineage(tables, "first", window="d1").inputs
    assert (late.version, late.ranges) == (2, {"numbers/0": [(0, 3), (4, 5)]})
    assert lineage(tables, "first", 0, "d1").inputs[0][1].ranges == {"numbers/0": [(0, 3)]}


def test_it_is_told_in_lines_with_what_was_new(tables: Path, staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    staged.batch(d1=[1, 2])
    first = replace(job(tables, "first", staged.path), parameters={"percentile": 0.9})
    run(first, fake.sums)
    staged.batch(d1=[3])
    run(first, fake.sums)
    lines = list(told(lineage(tables, "first")))
    assert lines[0] == "first version 1"
    assert "  published as version 1 by first (window, code v1): 1 rows" in lines
    assert "  parameter percentile: 0.9" in lines
    assert "  audit as_told: passed, 1 rows" in lines
    assert "  new in numbers since the publication before: numbers/0 [2, 3)" in lines
    assert lines[-1] == "    numbers/0: [0, 3)"
    monkeypatch.setenv("WEIR_TABLES", str(tables))
    assert CliRunner().invoke(app, ["lineage", "first"]).output.splitlines() == lines


def test_what_there_is_not_is_said(tables: Path, staged: Staged) -> None:
    staged.batch(d1=[1])
    for name, version, window, said in [
        ("nothing", None, None, "there is no table"),
        ("staged/numbers", 7, None, "its newest is 0"),
        ("staged/numbers", None, "d9", "touched the window d9"),
    ]:
        with pytest.raises(ConfigError, match=said):
            lineage(tables, name, version, window)


def test_an_input_is_read_at_the_version_that_another_input_was_computed_from(tables: Path, staged: Staged) -> None:
    first = job(tables, "first", staged.path)
    both = job(tables, "both", staged.path, first.output)
    staged.batch(d1=[1])
    run(first, fake.sums)
    staged.batch(d1=[2])
    assert {name: pinned.version for name, pinned in plan(both).inputs.items()} == {"numbers": 0, "first": 0}
    run(both, fake.sums)
    assert fake.contents(both.output) == [("d1", 2)]
    run(first, fake.sums)
    run(both, fake.sums)
    assert fake.contents(both.output) == [("d1", 6)]


def test_of_two_inputs_the_one_that_saw_more_steps_back(tables: Path, staged: Staged) -> None:
    slow, fast = job(tables, "slow", staged.path), job(tables, "fast", staged.path)
    both = job(tables, "both", slow.output, fast.output)
    staged.batch(d1=[1])
    run(slow, fake.sums)
    run(fast, fake.sums)
    staged.batch(d1=[2])
    run(fast, fake.sums)
    found = plan(both).inputs
    assert (found["slow"].version, found["fast"].version, found["fast"].newest) == (0, 0, 1)
    run(slow, fake.sums)
    assert plan(both).inputs["fast"].version == 1
