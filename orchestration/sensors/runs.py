"""The runs of a consumer's ingestion job as its sensor sees them: members, failures in a row, an error that waits for a person,
and runs that are dead although Dagster does not know. Knows nothing of Kafka, and of the table what `losses` says.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
from dagster._core.storage.tags import MAX_RUNTIME_SECONDS_TAG, SENSOR_NAME_TAG

from consumers.clock import Clock
from consumers.config import Consumer
from orchestration import heartbeat
from orchestration.catalog import CONSUMER_TAG, KILL_AFTER_SECONDS, ingestion_job_name, ingestion_op_name
from orchestration.sensors.decision import Member, State, handover
from orchestration.sensors.losses import accepted

_STATES: dict[dg.DagsterRunStatus, State] = {
    dg.DagsterRunStatus.QUEUED: "queued",
    dg.DagsterRunStatus.NOT_STARTED: "queued",
    dg.DagsterRunStatus.STARTING: "starting",
    dg.DagsterRunStatus.STARTED: "working",
    dg.DagsterRunStatus.CANCELING: "ending",
}
ALIVE = tuple(_STATES)
RECENT_RUNS = 20
AFTERLIFE_SECONDS = 30.0
"""How long the process of a run that is over may need to go."""
LONGEST_START_SECONDS = 300.0
"""What takes longer is no start any more: Dagster gives such a run up."""
_KINDS = {dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.RUN_FAILURE}


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run failed: the innermost error's class and its message, in one line."""

    kind: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Runs:
    """The consumer's runs: those that are not over, the newest one's id, the failures since a run that did something.

    `paused` is the error of a run, failed since the sensor was switched on, that only a person can decide about, and that nobody
    has decided about yet.
    """

    members: tuple[Member, ...]
    newest: str | None
    failures: int = 0
    seconds_since_failure: float = 0.0
    last_error: str = ""
    paused: str = ""


@dataclass(frozen=True, slots=True)
class Records:
    """What Dagster keeps of a consumer's runs: of all that are not over, and of the newest, newest first."""

    alive: Sequence[dg.RunRecord]
    recent: Sequence[dg.RunRecord]


def records_of(instance: dg.DagsterInstance, consumer: Consumer) -> Records:
    """As it is now."""
    return Records(instance.get_run_records(_of(consumer, ALIVE)), instance.get_run_records(_of(consumer), limit=RECENT_RUNS))


def runs_of(
    instance: dg.DagsterInstance,
    consumer: Consumer,
    records: Records,
    working: frozenset[str],
    switched_on: float,
    clock: Clock,
) -> Runs:
    """The consumer's runs. `working` are members that committed lately: their failures are no crash loop.

    `switched_on` is when the sensor was (seconds since the epoch): what happened before waits for nobody any more.
    """
    alive, recent = records.alive, records.recent
    told = heartbeat.told_to_leave(instance, [record.dagster_run.run_id for record in alive])
    slowest = max(map(_started_after, recent), default=0.0)
    members = tuple(_member(consumer, record, record.dagster_run.run_id in told, slowest, clock) for record in alive)
    newest = recent[0].dagster_run.run_id if recent else None
    paused = _paused(instance, consumer, recent, switched_on)
    failed = _failed_in_row(recent, working)
    if not failed:
        return Runs(members, newest, paused=paused)
    last = _failure(instance, failed[0].dagster_run.run_id)
    return Runs(members, newest, len(failed), clock.time() - _ended(failed[0]), last.message, paused)


def blocked(instance: dg.DagsterInstance, consumer: Consumer, members: Sequence[Member]) -> str:
    """What queued runs wait for, with numbers."""
    pool = ingestion_job_name(consumer.name)
    limits = {limit.name: limit.limit for limit in instance.event_log_storage.get_pool_limits()}
    inside = sum(member.state != "queued" for member in members)
    if pool in limits and inside >= limits[pool]:
        return f"the pool {pool} is full ({inside} of {limits[pool]})"
    queue = instance.get_concurrency_config().run_queue_config
    slots = queue.max_concurrent_runs if queue else -1
    taken = instance.get_runs_count(dg.RunsFilter(statuses=[status for status in ALIVE if _STATES[status] != "queued"]))
    if 0 <= slots <= taken:
        waiting = instance.get_runs_count(dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED]))
        return f"all run slots are taken ({taken} of {slots}; {waiting} runs wait for one)"
    return f"{taken} of {slots} run slots are taken, so the daemon starts it soon; if not, look at Deployment, Daemons"


def end_dead(instance: dg.DagsterInstance, consumer: Consumer, records: Records, clock: Clock) -> list[str]:
    """End the runs that give no sign of life, and the processes of runs that are over; a sentence for each run ended.

    A run without a beat for too long is killed where its process is on this machine, marked as failed, and its slots are given
    back. Should it live on somewhere else, it sees that by itself, and cannot commit what its successor committed.
    """
    limit = heartbeat.dead_after(consumer.config.batch.max_latency_seconds)
    beats = heartbeat.beats(instance, {record.dagster_run.run_id for record in (*records.alive, *records.recent)})
    said = []
    for record in records.alive:
        if record.dagster_run.status != dg.DagsterRunStatus.STARTED:
            continue
        run = record.dagster_run
        beat = beats.get(run.run_id)
        silent = clock.time() - max(beat.at if beat else 0.0, record.start_time or record.update_timestamp.timestamp())
        if silent > limit:
            killed = beat is not None and heartbeat.kill(beat)
            said.append(f"ended run {run.run_id}, which gave no sign of life for {silent:.0f} s")
            _fail(instance, run, silent, killed)
    _bury(instance, records.recent, beats, clock)
    return said


def _fail(instance: dg.DagsterInstance, run: dg.DagsterRun, silent: float, killed: bool) -> None:
    what = "its process was killed" if killed else "its process is not on the machine of the code server, or gone"
    instance.report_run_failed(
        run,
        f"The member gave no sign of life for {silent:.0f} s, so it is taken for dead: {what}. What it committed is safe, the "
        "rest is read again. The sensor starts another one.",
    )
    _let_go(instance, run.run_id)


def _let_go(instance: dg.DagsterInstance, run: str) -> None:
    storage = instance.event_log_storage
    if storage.supports_global_concurrency_limits:
        storage.free_concurrency_slots_for_run(run)
    heartbeat.forget(instance, [run])


def _bury(
    instance: dg.DagsterInstance, recent: Sequence[dg.RunRecord], beats: Mapping[str, heartbeat.Beat], clock: Clock
) -> None:
    """Runs forget their own beat when they end. One that is over and still has one was killed, or its process hangs."""
    for record in recent:
        run = record.dagster_run
        if run.run_id in beats and run.is_finished and clock.time() - _ended(record) > AFTERLIFE_SECONDS:
            heartbeat.kill(beats[run.run_id])
            _let_go(instance, run.run_id)


def _of(consumer: Consumer, statuses: Sequence[dg.DagsterRunStatus] = ()) -> dg.RunsFilter:
    return dg.RunsFilter(
        job_name=ingestion_job_name(consumer.name), tags={CONSUMER_TAG: consumer.name}, statuses=list(statuses) or None
    )


def _started_after(record: dg.RunRecord) -> float:
    """Seconds from a run's creation to the start of its work; 0 for one that never started, or that waited for others."""
    seconds = (record.start_time or 0.0) - record.create_timestamp.timestamp()
    return seconds if 0 < seconds <= LONGEST_START_SECONDS else 0.0


def _member(consumer: Consumer, record: dg.RunRecord, told: bool, slowest_start: float, clock: Clock) -> Member:
    run = record.dagster_run
    state = _STATES[run.status]
    since = record.start_time if state == "working" else None
    seconds = max(0.0, clock.time() - (since or record.create_timestamp.timestamp()))
    own, allowed = _own_limit(consumer, run), _chosen_limit(consumer, run) or float(consumer.config.max_run_seconds)
    limit = min(own, allowed)
    leaves_in = limit - handover(limit, slowest_start) - seconds if state == "working" else None
    return Member(run.run_id, state, seconds, leaves_in, SENSOR_NAME_TAG in run.tags, told, outdated=own > allowed)


def _own_limit(consumer: Consumer, run: dg.DagsterRun) -> float:
    """After how many seconds a run ends by itself: what it was launched with, else the definition that it was started by."""
    if chosen := _chosen_limit(consumer, run):
        return chosen
    killed_after = run.tags.get(MAX_RUNTIME_SECONDS_TAG, "")
    return float(int(killed_after) - KILL_AFTER_SECONDS if killed_after.isdecimal() else consumer.config.max_run_seconds)


def _chosen_limit(consumer: Consumer, run: dg.DagsterRun) -> float:
    """How long a run may work by its launch config; 0 where that says nothing."""
    config: Any = run.run_config
    for key in ("ops", ingestion_op_name(consumer.name), "config", "max_seconds"):
        config = config.get(key) if isinstance(config, Mapping) else None
    return float(config or 0)


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


def _paused(instance: dg.DagsterInstance, consumer: Consumer, recent: Sequence[dg.RunRecord], switched_on: float) -> str:
    """Whatever other members did since: what made one stop for a person would make its successor stop, too."""
    for record in recent:
        run, ended = record.dagster_run, _ended(record)
        if run.status != dg.DagsterRunStatus.FAILURE or ended <= switched_on:
            continue
        failure = _failure(instance, run.run_id)
        lost = failure.kind == "DataLoss" and consumer.config.on_data_loss == "fail"
        if failure.kind == "InvalidLimit" or (lost and not accepted(instance, consumer, run, ended, failure.message)):
            return failure.message
    return ""


def _ended(record: dg.RunRecord) -> float:
    return record.end_time or record.update_timestamp.timestamp()


def _failure(instance: dg.DagsterInstance, run_id: str) -> Failure:
    """Of a failed run."""
    for record in instance.get_records_for_run(run_id, of_type=_KINDS, limit=10).records:
        event = record.event_log_entry.dagster_event
        data = event.event_specific_data if event else None
        error = getattr(data, "error", None)
        while error is not None and error.cause is not None:
            error = error.cause
        if error is not None:
            return Failure(str(error.cls_name), " ".join(str(error.message).split())[:1000])
        if event is not None and event.message:
            return Failure("", " ".join(event.message.split())[:1000])
    return Failure()
