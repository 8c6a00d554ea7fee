"""A day of the platform on a compressed clock: a cluster in memory, real Delta tables, Dagster's storage, the sensors' ticks.

What is simulated is the daemon and the processes: runs that a tick asks for are started some seconds later, as far as their pool
allows, and each is a member that the engine's own loop moves on, a few turns a simulated ten minutes. Members die in every way:
Dagster hears of it, nobody hears of it, or the process hangs on. `findings` says what went wrong.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import dagster as dg
from dagster._core.events import JobFailureData
from dagster._core.storage.tags import SENSOR_NAME_TAG
from dagster_shared.error import SerializableErrorInfo
from deltalake import DeltaTable

from consumers.brokers.memory import MemoryCluster, MemoryConsumer, MemoryProducer
from consumers.clock import ManualClock
from consumers.config import Consumer
from consumers.errors import FatalError
from consumers.processing.context import Context, Surroundings
from consumers.processing.incarnation import Incarnation
from consumers.processing.ingest import subscription_of
from consumers.processing.processor import Limits, Processor
from consumers.processing.strategies.stage.owner import Owner
from consumers.processing.strategies.stage.strategy import Stage
from orchestration import mirror
from orchestration.catalog import CONSUMER_TAG
from orchestration.components.consumer_job import ingestion_job
from orchestration.heartbeat import Pulse
from orchestration.resources.kafka import KafkaResource
from orchestration.sensors import keep

STEP_SECONDS = 600.0
TICK_SECONDS = 1200.0
LONGEST_ALONE_SECONDS = 2 * 3600.0
"""How long a consumer may be without a member that works: a dead one is found within two ticks, its successor starts within two
steps, and may be lost at once."""
_RUN_DELAY = 10.0
_TURNS = 2
_KAFKA = KafkaResource(bootstrap_servers="memory:1")


@dataclass(eq=False)
class Member:
    """A run's process."""

    run: str
    consumer: Consumer
    broker: MemoryConsumer
    processor: Processor
    pulse: Pulse
    until: float
    hangs: bool = False


@dataclass
class Kept:
    """One consumer's sensor: its definition may change, and it is switched on at some time."""

    consumer: Consumer
    job: dg.JobDefinition
    cursor: str | None = None
    switched_on: float = 0.0
    queued: dict[str, float] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    said: list[str] = field(default_factory=list)


class Platform:
    """Everything, and the clock that moves it."""

    def __init__(self, instance: dg.DagsterInstance, cluster: MemoryCluster, clock: ManualClock, chance: random.Random) -> None:
        self.instance = instance
        self.cluster = cluster
        self.clock = clock
        self.chance = chance
        self.sensors: dict[str, Kept] = {}
        self.members: dict[str, Member] = {}
        self.events: dict[tuple[str, str], list[float]] = defaultdict(list)
        self.produced: dict[str, Counter[str]] = defaultdict(Counter)
        self.most: Counter[str] = Counter()
        self.alone: dict[str, float] = defaultdict(float)
        self._worked: dict[str, float] = {}
        self._next_tick = 0.0

    def add(self, consumer: Consumer) -> None:
        """Switch a consumer's sensor on."""
        self.sensors[consumer.name] = Kept(consumer, ingestion_job(consumer), switched_on=self.clock.time())

    def advance(self) -> None:
        """Ten minutes."""
        self.clock.advance(STEP_SECONDS)
        for kept in self.sensors.values():
            self._start(kept)
        for member in list(self.members.values()):
            if not member.hangs:
                self._work(member)
        if self.clock.time() >= self._next_tick:
            self._next_tick = self.clock.time() + TICK_SECONDS
            for kept in self.sensors.values():
                self._tick(kept)
        self._count()

    def kill(self, member: Member, told: bool) -> None:
        """SIGKILL. Dagster is told by its code server, unless that is gone, too."""
        member.broker.freeze()
        del self.members[member.run]
        if told:
            self.fail(member.run)

    def hang(self, member: Member) -> None:
        """SIGSTOP."""
        member.broker.freeze()
        member.hangs = True

    def fail(self, run: str, error: FatalError | None = None) -> None:
        """Dagster hears that a run failed; a process of it that hangs was killed."""
        self.members.pop(run, None)
        info = SerializableErrorInfo(str(error), [], type(error).__name__) if error else None
        self._report(run, dg.DagsterEventType.RUN_FAILURE, JobFailureData(error=info))

    def unfinished(self) -> set[str]:
        """The runs that Dagster takes for alive."""
        found = self.instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.NOT_STARTED]))
        return {run.run_id for run in found}

    def hear(self, event: object) -> None:
        """An event is written."""
        if isinstance(event, dg.AssetMaterialization):
            self.events["/".join(event.asset_key.path), event.partition or ""].append(self.clock.time())

    def _count(self) -> None:
        """How many members work, and since when none did."""
        now = self.clock.time()
        working = Counter(member.consumer.name for member in self.members.values() if not member.hangs)
        self.most |= working
        for name in self.sensors:
            if working[name]:
                self._worked[name] = now
            self.alone[name] = max(self.alone[name], now - self._worked.setdefault(name, now))

    def _tick(self, kept: Kept) -> None:
        result = keep.tick(self.instance, kept.consumer, _KAFKA, kept.cursor, self.clock, kept.switched_on, kept.said.append)
        kept.cursor = result.cursor
        for event in result.asset_events:
            assert isinstance(event, dg.AssetMaterialization)
            self.instance.report_runless_asset_event(event)
        for request in result.run_requests or []:
            if request.job_name == kept.job.name and request.run_key not in kept.keys:
                kept.keys.add(str(request.run_key))
                tags = {CONSUMER_TAG: kept.consumer.name, SENSOR_NAME_TAG: f"keep_{kept.consumer.name}"}
                run = self.instance.create_run_for_job(kept.job, tags=tags, run_config=request.run_config)
                kept.queued[run.run_id] = self.clock.time() + _RUN_DELAY

    def _start(self, kept: Kept) -> None:
        """Runs that have waited, as far as the pool allows, as the daemon does."""
        for run, due in list(kept.queued.items()):
            filters = dg.RunsFilter(job_name=kept.job.name, statuses=[dg.DagsterRunStatus.STARTED])
            if due <= self.clock.time() and self.instance.get_runs_count(filters) < keep.pool_limit(kept.consumer):
                del kept.queued[run]
                self._report(run, dg.DagsterEventType.RUN_START)
                self.members[run] = self._member(kept.consumer, run)

    def _member(self, consumer: Consumer, run: str) -> Member:
        around = Surroundings(self.clock, random=self.chance)
        broker = MemoryConsumer(self.cluster, consumer.config.topic, consumer.group, run)
        owner = Owner(consumer, run, self.clock, lambda commit: None)

        def build(context: Context) -> Stage:
            incarnation = Incarnation(broker.topic_id, self.clock)
            return Stage(consumer, owner, context, incarnation, broker.high_watermarks, lambda commit: None)

        pulse = Pulse(self.instance, run, self.clock)
        processor = Processor(subscription_of(consumer), broker, owner, build, around, pulse.progress)
        processor.start()
        return Member(run, consumer, broker, processor, pulse, self.clock.time() + consumer.config.max_run_seconds)

    def _work(self, member: Member) -> None:
        """Ten minutes of a member's life."""
        try:
            for _ in range(_TURNS):
                member.processor.step()
                # Its batches come of age by the machine's clock, which stands still.
                member.processor.finish(Limits().stop_seconds)
            mirror.catch_up(self.instance, member.consumer, self.instance.report_runless_asset_event, self.clock)
            if member.pulse.beat() or self.clock.time() >= member.until:
                self._end(member)
                self._report(member.run, dg.DagsterEventType.RUN_SUCCESS)
        except FatalError as error:
            self._end(member)
            self.fail(member.run, error)

    def _end(self, member: Member) -> None:
        member.processor.end()
        member.broker.close()
        member.pulse.__exit__(None, None, None)
        del self.members[member.run]

    def _report(self, run: str, kind: dg.DagsterEventType, data: JobFailureData | None = None) -> None:
        event = dg.DagsterEvent(event_type_value=kind.value, job_name="ingest", event_specific_data=data)
        self.instance.report_dagster_event(event, run_id=run, timestamp=self.clock.time())


@dataclass
class Produce:
    """Keeps producing to a topic, and remembers how many good records each window has to have."""

    platform: Platform
    consumer: Consumer
    producer: MemoryProducer
    partitions: int
    window: Callable[[float], str]
    made: int = 0

    def some(self, count: int, good: bool = True) -> None:
        """Records of this very moment, in turn to all partitions."""
        now = self.platform.clock.time()
        for _ in range(count):
            value = b'{"a": %d}' % self.made if good else b"not json"
            self.producer.send(
                self.consumer.config.topic, value, b"k", partition=self.made % self.partitions, timestamp_ms=int(now * 1000)
            )
            self.made += 1
        self.producer.flush(10.0)
        self.platform.produced[self.consumer.name][self.window(now)] += count if good else 0


def steps(platform: Platform, hours: float) -> Iterator[float]:
    """The hour of the day, after each step of it."""
    began = platform.clock.time()
    while platform.clock.time() - began < hours * 3600:
        platform.advance()
        yield (platform.clock.time() - began) / 3600


def findings(platform: Platform, always: Collection[str]) -> list[str]:
    """What is wrong at the end of a day whose records stopped coming early enough; empty when nothing is.

    `always` are the consumers of which a member has to work at all times, but for the time that it takes to replace one.
    """
    alone = [
        f"{name}: no member for {platform.alone[name]:g} s" for name in always if platform.alone[name] > LONGEST_ALONE_SECONDS
    ]
    return [*_stuck(platform), *_doubled(platform), *alone, *_unbounded(platform), *_lost(platform)]


def rows(consumer: Consumer) -> Counter[str]:
    """How many rows each window of the table has."""
    return Counter(DeltaTable(consumer.staged).to_pyarrow_table(columns=["_window"])["_window"].to_pylist())


def _stuck(platform: Platform) -> list[str]:
    queued = {run for kept in platform.sensors.values() for run in kept.queued}
    working = {run for run, member in platform.members.items() if not member.hangs}
    return [f"run {run} is stuck" for run in sorted(platform.unfinished() ^ (queued | working))]


def _doubled(platform: Platform) -> list[str]:
    consumers = [kept.consumer for kept in platform.sensors.values()]
    most = [(each.name, platform.most[each.name], keep.pool_limit(each)) for each in consumers]
    return [f"{name}: {there} members at once" for name, there, limit in most if there > limit]


def _unbounded(platform: Platform) -> list[str]:
    return [
        f"{asset} {window}: events {later - earlier:g} s apart"
        for (asset, window), times in platform.events.items()
        for earlier, later in pairwise(times)
        if later - earlier < 60.0
    ]


def _lost(platform: Platform) -> list[str]:
    said = []
    for kept in platform.sensors.values():
        found, due = rows(kept.consumer), +platform.produced[kept.consumer.name]
        windows = sorted(window for window in found | due if found[window] != due[window])
        said += [f"{kept.consumer.name} {window}: {found[window]} rows of {due[window]}" for window in windows]
    return said
