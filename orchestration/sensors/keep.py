"""The sensor of a consumer: keeps its members alive, ends dead ones, mends its mirror, and asks for its checks when commits have
settled.

A tick only looks: no record is read in it, and no question to Kafka takes longer than five seconds.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition
from dagster._core.storage.tags import PRIORITY_TAG

from consumers.clock import Clock, SystemClock
from consumers.config import Consumer
from consumers.errors import BrokerError
from consumers.staging.log import StagedCommit
from consumers.types import Positions, TopicPartition, Watermarks
from orchestration import completeness, heartbeat, mirror
from orchestration.catalog import check_job_name, ingestion_job_name, ingestion_run_config
from orchestration.local.errors import LocalError
from orchestration.mirror_events import staged_key
from orchestration.resources.kafka import KafkaResource
from orchestration.sensors import modes
from orchestration.sensors.decision import Decision, Facts, Work, decide
from orchestration.sensors.facts import Watermarked, admin, marks_of, next_offsets, offsets_at, recent_commits, total_lag
from orchestration.sensors.modes import Plan
from orchestration.sensors.runs import Records, blocked, end_dead, records_of, runs_of
from orchestration.sensors.waiting import urgent

INTERVAL_SECONDS = 15
URGENT_PRIORITY = "10"
SETTLED_SECONDS = 10.0
"""The checks run when no commit came for this long..."""
TOLD_SECONDS = mirror.EVERY_SECONDS + INTERVAL_SECONDS
"""...again when no event came for this long, because Dagster counts a check for the events before it only..."""
CHECK_AT_LEAST_SECONDS = 600.0
"""...or, while commits or events keep coming, when they last ran this long ago."""


@dataclass(frozen=True)
class Memory:
    """The sensor's cursor: the commit and the event that checks were last asked for, when (seconds since the epoch), and a
    schedule's plan.
    """

    commit_id: str = ""
    event: int = -1
    at: float = 0.0
    plan: Plan = field(default_factory=Plan)

    @staticmethod
    def parse(cursor: str | None) -> "Memory":
        """From the cursor; an absent or foreign one is a fresh start."""
        try:
            raw = json.loads(cursor or "{}")
            plan = raw["plan"]
            goal = {str(tp): int(offset) for tp, offset in plan["goal"].items()}
            return Memory(str(raw["commit_id"]), int(raw["event"]), float(raw["at"]), Plan(float(plan["seen"]), goal))
        except (ValueError, KeyError, TypeError, AttributeError):
            return Memory()

    def to_json(self) -> str:
        """The cursor."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Seen:
    """What a tick saw of the cluster: the watermarks, and after them where members would start to read."""

    kafka: Watermarked
    marks: Mapping[TopicPartition, Watermarks]
    positions: Positions


def keep_sensor(consumer: Consumer, ingestion: dg.JobDefinition, checking: UnresolvedAssetJobDefinition) -> dg.SensorDefinition:
    """The sensor `keep_<name>`."""
    config = consumer.config

    @dg.sensor(
        name=f"keep_{consumer.name}",
        jobs=[ingestion, checking],
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING if config.autostart else dg.DefaultSensorStatus.STOPPED,
        description=f"Keeps {config.members} in the group {consumer.group} ({config.mode}), mends the mirror, runs checks",
    )
    def keep(context: dg.SensorEvaluationContext, kafka: KafkaResource) -> dg.SensorResult:
        switched_on = context.last_sensor_start_time or 0.0
        return tick(context.instance, consumer, kafka, context.cursor, SystemClock(), switched_on, context.log.info)

    return keep


def tick(
    instance: dg.DagsterInstance,
    consumer: Consumer,
    kafka: KafkaResource,
    cursor: str | None,
    clock: Clock,
    switched_on: float = 0.0,
    say: Callable[[str], None] = lambda text: None,
) -> dg.SensorResult:
    """One evaluation: what to start, or a reason with numbers.

    `switched_on` is when the sensor was (seconds since the epoch). `say` gets the reason, whatever it is: Dagster shows none of a
    tick that asks for runs.
    """
    set_pool_limit(instance, consumer)
    records = records_of(instance, consumer)
    if dead := end_dead(instance, consumer, records, clock):
        records = records_of(instance, consumer)
    done = [*dead, *_mirrored(instance, consumer, clock)]
    recent = recent_commits(consumer)
    checks, memory = checks_due(consumer, recent, newest_event(instance, consumer), Memory.parse(cursor), clock)
    events: tuple[dg.AssetMaterialization, ...] = ()
    try:
        client = admin(kafka.connection())
        marks = marks_of(client, consumer)
        seen = Seen(client, marks, next_offsets(client, consumer, marks))
        facts, plan = _facts(instance, consumer, seen, records, recent, memory.plan, switched_on, clock)
        decision, memory = decide(consumer.name, facts), replace(memory, plan=plan)
        advanced = completeness.advance(instance, consumer, marks, seen.positions, clock)
        done, events = [*done, advanced.sentence], advanced.events
        if events:
            mirror.wrote(instance, consumer, clock)
    except (BrokerError, LocalError) as error:
        decision = Decision((), f"Kafka cannot be reached: {error}")
    for run in decision.leave:
        heartbeat.tell_to_leave(instance, run, decision.why)
    first = bool(decision.run_keys) and urgent(instance, consumer.name)
    if first:
        done.append("they go first, because the topic's retention is about to take what waits")
    reason = "; ".join([decision.reason, *done])
    say(reason)
    requests = [*(_member(consumer, key, first) for key in decision.run_keys), *checks]
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else dg.SkipReason(reason),
        cursor=memory.to_json(),
        asset_events=events,
    )


@dataclass(frozen=True, slots=True)
class Told:
    """The newest event of a staged table: its number in Dagster's storage, and when it was written (seconds since the epoch)."""

    number: int = -1
    at: float = 0.0


def newest_event(instance: dg.DagsterInstance, consumer: Consumer) -> Told:
    """As Dagster's storage has it, whoever wrote it."""
    found = next(iter(instance.fetch_materializations(staged_key(consumer.name), limit=1).records), None)
    return Told(found.storage_id, found.timestamp) if found else Told()


def checks_due(
    consumer: Consumer, recent: list[StagedCommit], told: Told, last: Memory, clock: Clock
) -> tuple[list[dg.RunRequest], Memory]:
    """The run of the checks, if there is something new to check, and what to remember."""
    if not recent or (recent[-1].commit_id == last.commit_id and told.number <= last.event):
        return [], last
    newest, now = recent[-1], clock.time()
    settled = newest.commit_id != last.commit_id and now - newest.committed_at_ms / 1000 >= SETTLED_SECONDS
    shown = told.number > last.event and now - told.at >= TOLD_SECONDS
    if not (settled or shown) and now - last.at < CHECK_AT_LEAST_SECONDS:
        return [], last
    job = check_job_name(consumer.name)
    request = dg.RunRequest(run_key=f"{job}/{newest.commit_id}/{told.number}", job_name=job)
    return [request], replace(last, commit_id=newest.commit_id, event=told.number, at=now)


def pool_limit(consumer: Consumer) -> int:
    """How many members may run at once: as many as are wanted, and a successor beside each while it takes over."""
    return 2 * consumer.config.members


def set_pool_limit(instance: dg.DagsterInstance, consumer: Consumer) -> None:
    """Set the limit of the consumer's pool. Does nothing where storage knows no pools, or the limit stands."""
    pool, limit = ingestion_job_name(consumer.name), pool_limit(consumer)
    storage = instance.event_log_storage
    if not storage.supports_global_concurrency_limits:
        return
    known = {limit.name: limit.limit for limit in storage.get_pool_limits()}
    if known.get(pool) != limit:
        storage.set_concurrency_slots(pool, limit)


def _mirrored(instance: dg.DagsterInstance, consumer: Consumer, clock: Clock) -> list[str]:
    emit = instance.report_runless_asset_event
    passed = mirror.catch_up(instance, consumer, emit, clock, seconds=mirror.SENSOR_SECONDS)
    return [f"mirrored {passed.commits} commits with {passed.events} events"] if passed.events else []


def _facts(
    instance: dg.DagsterInstance,
    consumer: Consumer,
    seen: Seen,
    records: Records,
    recent: list[StagedCommit],
    plan: Plan,
    switched_on: float,
    clock: Clock,
) -> tuple[Facts, Plan]:
    plan, work = _work(consumer, seen, plan, clock)
    working = frozenset(commit.member for commit in recent if commit.kind == "batch")
    runs = runs_of(instance, consumer, records, working, switched_on, clock)
    queued = any(member.state == "queued" for member in runs.members)
    facts = Facts(
        wanted=consumer.config.members,
        members=runs.members,
        work=work,
        lag=total_lag(seen.marks, seen.positions),
        version=recent[-1].version if recent else -1,
        newest_run=runs.newest,
        failures=runs.failures,
        seconds_since_failure=runs.seconds_since_failure,
        last_error=runs.last_error,
        paused=runs.paused,
        blocked=blocked(instance, consumer, runs.members) if queued else "",
    )
    return facts, plan


def _work(consumer: Consumer, seen: Seen, plan: Plan, clock: Clock) -> tuple[Plan, Work]:
    """Whether members are to work now. What an open transaction holds back cannot be read, so it starts nobody."""
    config, positions = consumer.config, seen.positions
    if config.mode == "continuous":
        return plan, modes.ALWAYS
    stable = seen.kafka.stable_watermarks(positions)
    if config.schedule is not None:
        return modes.scheduled(config.schedule, plan, {tp: mark.high for tp, mark in stable.items()}, positions, clock.time())
    lag, seconds = total_lag(stable, positions), config.on_lag.seconds
    overdue = False
    if seconds is not None and 0 < lag < config.on_lag.records:
        overdue = modes.overdue(positions, offsets_at(seen.kafka, positions, int((clock.time() - seconds) * 1000)))
    return plan, modes.on_lag(config.on_lag, lag, overdue)


def _member(consumer: Consumer, key: str, first: bool) -> dg.RunRequest:
    return dg.RunRequest(
        run_key=key,
        job_name=ingestion_job_name(consumer.name),
        run_config=ingestion_run_config(consumer.name, until_caught_up=consumer.config.mode != "continuous"),
        tags={PRIORITY_TAG: URGENT_PRIORITY} if first else None,
    )
