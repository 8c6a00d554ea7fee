"""The sensor of a consumer: keeps its members alive, mends its mirror, and asks for its checks when commits have settled.

A tick only looks: no record is read in it, and no question to Kafka takes longer than five seconds.
"""

import json
from dataclasses import dataclass

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from consumers.clock import Clock, SystemClock
from consumers.config import Consumer
from consumers.errors import BrokerError
from consumers.staging.log import StagedCommit
from orchestration import mirror
from orchestration.catalog import check_job_name, ingestion_job_name, ingestion_run_config
from orchestration.local.errors import LocalError
from orchestration.resources.kafka import KafkaResource
from orchestration.sensors.decision import Facts, decide
from orchestration.sensors.facts import admin, next_offsets, recent_commits, runs_of, total_lag

INTERVAL_SECONDS = 15
SETTLED_SECONDS = 10.0
"""The checks run when no commit came for this long..."""
CHECK_AT_LEAST_SECONDS = 600.0
"""...or, while commits keep coming, when they last ran this long ago."""


@dataclass(frozen=True)
class Checked:
    """The sensor's cursor: the commit that the last checks were asked for, and when (seconds since the epoch)."""

    commit_id: str = ""
    at: float = 0.0

    @staticmethod
    def parse(cursor: str | None) -> "Checked":
        """From the cursor; an absent or foreign one is a fresh start."""
        try:
            raw = json.loads(cursor or "{}")
            return Checked(str(raw["commit_id"]), float(raw["at"]))
        except (ValueError, KeyError, TypeError):
            return Checked()

    def to_json(self) -> str:
        """The cursor."""
        return json.dumps({"commit_id": self.commit_id, "at": self.at})


def keep_sensor(consumer: Consumer, ingestion: dg.JobDefinition, checking: UnresolvedAssetJobDefinition) -> dg.SensorDefinition:
    """The sensor `keep_<name>`."""
    config = consumer.config

    @dg.sensor(
        name=f"keep_{consumer.name}",
        jobs=[ingestion, checking],
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING if config.autostart else dg.DefaultSensorStatus.STOPPED,
        description=f"Keeps {config.members} members of {consumer.group} ({config.mode}) alive, mends the mirror, runs checks",
    )
    def keep(context: dg.SensorEvaluationContext, kafka: KafkaResource) -> dg.SensorResult:
        return tick(context.instance, consumer, kafka, context.cursor, SystemClock())

    return keep


def tick(
    instance: dg.DagsterInstance, consumer: Consumer, kafka: KafkaResource, cursor: str | None, clock: Clock
) -> dg.SensorResult:
    """One evaluation: what to start, or a reason with numbers."""
    set_pool_limit(instance, consumer)
    repaired = mirror.repair(instance, consumer, clock)
    recent = recent_commits(consumer, repaired.verified)
    checks, checked = checks_due(consumer, recent, Checked.parse(cursor), clock)
    try:
        facts = _facts(instance, consumer, kafka, recent, clock)
    except (BrokerError, LocalError) as error:
        return _result(checks, [], f"Kafka cannot be reached: {error}", checked)
    decision = decide(consumer.name, facts)
    mended = f"; mirrored {repaired.commits} commits whose events were lost" if repaired.events else ""
    members = [_member(consumer, key) for key in decision.run_keys]
    return _result(checks, members, decision.reason + mended, checked)


def checks_due(
    consumer: Consumer, recent: list[StagedCommit], last: Checked, clock: Clock
) -> tuple[list[dg.RunRequest], Checked]:
    """The run of the checks, if there is something new to check, and what to remember."""
    if not recent or recent[-1].commit_id == last.commit_id:
        return [], last
    newest = recent[-1]
    settled = clock.time() - newest.committed_at_ms / 1000 >= SETTLED_SECONDS
    if not settled and clock.time() - last.at < CHECK_AT_LEAST_SECONDS:
        return [], last
    job = check_job_name(consumer.name)
    return [dg.RunRequest(run_key=f"{job}/{newest.commit_id}", job_name=job)], Checked(newest.commit_id, clock.time())


def set_pool_limit(instance: dg.DagsterInstance, consumer: Consumer) -> None:
    """Let as many members run at once as the definition wants. Does nothing where storage knows no pools, or the limit stands."""
    pool = ingestion_job_name(consumer.name)
    storage = instance.event_log_storage
    if not storage.supports_global_concurrency_limits:
        return
    known = {limit.name: limit.limit for limit in storage.get_pool_limits()}
    if known.get(pool) != consumer.config.members:
        storage.set_concurrency_slots(pool, consumer.config.members)


def _facts(
    instance: dg.DagsterInstance, consumer: Consumer, kafka: KafkaResource, recent: list[StagedCommit], clock: Clock
) -> Facts:
    client = admin(kafka.connection())
    marks = client.watermarks(consumer.config.topic)
    positions = next_offsets(client, consumer, marks)
    working = frozenset(commit.member for commit in recent if commit.kind == "batch")
    runs = runs_of(instance, consumer, ingestion_job_name(consumer.name), working, clock)
    return Facts(
        wanted=consumer.config.members,
        mode=consumer.config.mode,
        alive=runs.alive,
        lag=total_lag(marks, positions),
        version=recent[-1].version if recent else -1,
        newest_run=runs.newest,
        failures=runs.failures,
        seconds_since_failure=runs.seconds_since_failure,
        last_error=runs.last_error,
    )


def _member(consumer: Consumer, key: str) -> dg.RunRequest:
    return dg.RunRequest(
        run_key=key,
        job_name=ingestion_job_name(consumer.name),
        run_config=ingestion_run_config(consumer.name, until_caught_up=consumer.config.mode == "on_lag"),
    )


def _result(checks: list[dg.RunRequest], members: list[dg.RunRequest], reason: str, checked: Checked) -> dg.SensorResult:
    requests = [*members, *checks]
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else dg.SkipReason(reason),
        cursor=checked.to_json(),
    )
