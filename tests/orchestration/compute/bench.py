"""A job of each mode over one staged table, computed without Spark."""

import shutil
from dataclasses import replace
from pathlib import Path

from orchestration.compute.job import Input, Job
from orchestration.compute.plan import plan, request
from orchestration.compute.publish import publish
from orchestration.compute.record import Publication
from spark_jobs.request import Mode
from tests.orchestration.compute import fake

FUNCTIONS: dict[Mode, fake.Function] = {
    "window": fake.sums,
    "full": fake.total,
    "incremental": fake.rows_as_they_are,
    "merge": fake.newest,
}
MODES = list(FUNCTIONS)


def make(tmp_path: Path, mode: Mode, output: str = "out") -> tuple[Job, fake.Staged]:
    """The job, and the table that it reads."""
    staged = fake.Staged(tmp_path / "staged" / "numbers")
    keys = ("key",) if mode == "merge" else ()
    inputs = {"numbers": Input(staged.path)}
    return Job(output, "none.of.it", inputs, tmp_path / output, mode, "v1", keys=keys, buckets=4), staged


def run(job: Job) -> Publication | None:
    """Compute and publish what is to be done; None where nothing is."""
    todo = plan(job)
    if not todo.stale:
        return None
    asked = request(todo)
    return publish(todo, asked, fake.compute(asked, FUNCTIONS[job.mode]))


def clean(job: Job) -> list[tuple[object, ...]]:
    """What a run from nothing gives."""
    other = replace(job, name="clean", output=job.output.with_name("clean"))
    shutil.rmtree(other.output, ignore_errors=True)
    run(other)
    return fake.contents(other.output)
