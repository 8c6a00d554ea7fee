"""How far the main job has come, read from the tables' logs: what progress bars show and what `weir demo` waits for."""

from dataclasses import dataclass

from consumers.config import Consumer
from consumers.staging.log import commits
from consumers.types import TopicPartition, Watermarks
from orchestration.compute.job import Job
from orchestration.compute.plan import plan
from orchestration.job_catalog import configs, job_of
from orchestration.settings import Settings
from orchestration.status import opened, table_status


@dataclass(frozen=True)
class Staged:
    """Records of a topic that its consumer has accounted for, rows and dead letters together."""

    done: int
    total: int


def staged(consumer: Consumer, marks: dict[TopicPartition, Watermarks]) -> Staged:
    """From the row counts in both logs. A dead letter that was replayed is a row, too, so it counts once."""
    tables = [table_status(opened(path)) for path in (consumer.staged, consumer.dead_letters)]
    resolved = sum(commit.resolved for commit in commits(consumer.staged))
    return Staged(sum(t.rows for t in tables if t is not None) - resolved, sum(m.high - m.low for m in marks.values()))


@dataclass(frozen=True)
class Computed:
    """Windows of a job's output that hold what the staged tables give, of how many."""

    done: int
    total: int


def jobs(settings: Settings) -> dict[str, Job]:
    """The project's Spark jobs by output table, as far as their sensors start switched on."""
    return {config.output: job_of(config, settings) for config in configs(settings) if config.autostart}


def computed(job: Job) -> Computed:
    """From the fingerprints in the logs; nothing is computed while an input is missing."""
    if job.missing():
        return Computed(0, 0)
    now = plan(job)
    return Computed(len(now.fingerprints) - len(now.stale), len(now.fingerprints))
