"""What a tick of a consumer's sensor looks at: Kafka's watermarks, the table's positions, and Dagster's runs. Reads only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import dagster as dg

from consumers.brokers.admin import KafkaAdmin
from consumers.brokers.options import KafkaOptions
from consumers.clock import Clock
from consumers.config import Consumer
from consumers.staging.log import StagedCommit, commits
from consumers.staging.positions import committed_positions
from consumers.types import TopicPartition, Watermarks
from orchestration.catalog import CONSUMER_TAG

TIMEOUT_SECONDS = 5.0
ALIVE = (
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)
_RECENT_RUNS = 20
_RECENT_COMMITS = 50


class Watermarked(Protocol):
    """What is asked of a cluster."""

    def watermarks(self, topic: str) -> dict[TopicPartition, Watermarks]: ...

    def group_offsets(self, group: str, topic: str) -> dict[TopicPartition, int]: ...


@dataclass(frozen=True)
class Runs:
    """The runs of a consumer's job: how many are alive, the newest one's id, and the failures since a run that did something."""

    alive: int
    newest: str | None
    failures: int = 0
    seconds_since_failure: float = 0.0
    last_error: str = ""


def admin(options: KafkaOptions) -> KafkaAdmin:
    """A client whose every question is answered or given up within five seconds."""
    return KafkaAdmin(options, timeout=TIMEOUT_SECONDS)


def next_offsets(kafka: Watermarked, consumer: Consumer, marks: Mapping[TopicPartition, Watermarks]) -> dict[TopicPartition, int]:
    """Where a member would start to read each partition: the table's position, else the group's offset, else `start`.

    A start at a timestamp counts as the lowest offset: the lag is at most that.
    """
    topic, config = consumer.config.topic, consumer.config
    positions = committed_positions(consumer.staged, consumer.name, topic, len(marks))
    if len(positions) < len(marks):
        positions = {**kafka.group_offsets(consumer.group, topic), **positions}
    first = {tp: mark.high if config.start == "latest" else mark.low for tp, mark in marks.items()}
    return {tp: positions.get(tp, first[tp]) for tp in marks}


def total_lag(marks: Mapping[TopicPartition, Watermarks], positions: Mapping[TopicPartition, int]) -> int:
    """Records between the positions and the high watermarks."""
    return sum(mark.lag(positions[tp]) for tp, mark in marks.items())


def recent_commits(consumer: Consumer, newest: int) -> list[StagedCommit]:
    """The last commits of the table, oldest first."""
    return commits(consumer.staged, max(-1, newest - _RECENT_COMMITS))


def runs_of(instance: dg.DagsterInstance, consumer: Consumer, job: str, working: frozenset[str], clock: Clock) -> Runs:
    """The consumer's runs. `working` are members that committed lately: their failures are no crash loop."""
    tags = {CONSUMER_TAG: consumer.name}
    alive = instance.get_runs_count(dg.RunsFilter(job_name=job, tags=tags, statuses=ALIVE))
    recent = instance.get_run_records(dg.RunsFilter(job_name=job, tags=tags), limit=_RECENT_RUNS)
    failed = _failed_in_row(recent, working)
    newest = recent[0].dagster_run.run_id if recent else None
    if not failed:
        return Runs(alive, newest)
    last = failed[0]
    ended = last.end_time or last.update_timestamp.timestamp()
    return Runs(alive, newest, len(failed), clock.time() - ended, _error(instance, last.dagster_run.run_id))


def _failed_in_row(recent: Sequence[dg.RunRecord], working: frozenset[str]) -> list[dg.RunRecord]:
    """The newest ended runs as long as they failed without a commit, newest first."""
    failed: list[dg.RunRecord] = []
    for record in recent:
        run = record.dagster_run
        if run.status in ALIVE:
            continue
        if run.status != dg.DagsterRunStatus.FAILURE or run.run_id in working:
            break
        failed.append(record)
    return failed


def _error(instance: dg.DagsterInstance, run_id: str) -> str:
    """The message of a failed run's innermost error, in one line."""
    kinds = {dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.RUN_FAILURE}
    for record in instance.get_records_for_run(run_id, of_type=kinds, limit=10).records:
        event = record.event_log_entry.dagster_event
        data = event.event_specific_data if event else None
        error = getattr(data, "error", None)
        while error is not None and error.cause is not None:
            error = error.cause
        if error is not None:
            return " ".join(str(error.message).split())[:500]
        if event is not None and event.message:
            return " ".join(event.message.split())[:500]
    return ""
