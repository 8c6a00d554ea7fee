"""The job of a consumer: an op that is one member of the consumer group for a bounded time."""

import threading
from dataclasses import dataclass

import dagster as dg
from pydantic import Field

from consumers.brokers.options import KafkaOptions
from consumers.clock import Clock, SystemClock
from consumers.config import Consumer
from consumers.errors import WeirError
from consumers.monitoring.stuck import StuckDetector, stuck_after
from consumers.monitoring.totals import Totals
from consumers.processing.ingest import IngestResult, ingest
from consumers.staging.log import StagedCommit
from orchestration import mirror
from orchestration.catalog import CONSUMER_TAG, KILL_AFTER_SECONDS, ingestion_job_name, ingestion_op_name
from orchestration.components.consumer_member import run_member
from orchestration.heartbeat import Pulse
from orchestration.mirror_events import Event
from orchestration.monitoring import run_metadata
from orchestration.resources.kafka import KafkaResource


class IngestConfig(dg.Config):
    """What an operator may choose for one run."""

    until_caught_up: bool = Field(default=False, description="end as soon as there is nothing left to read")
    max_seconds: int | None = Field(
        default=None, ge=1, description="end after this long; default: the consumer's max_run_seconds"
    )


def ingestion_job(consumer: Consumer) -> dg.JobDefinition:
    """The job, with its op."""
    name = ingestion_job_name(consumer.name)

    @dg.op(
        name=ingestion_op_name(consumer.name),
        pool=name,
        description=f"One member of the Kafka consumer group {consumer.group}.",
        out=dg.Out(dg.Nothing),
    )
    def member(context: dg.OpExecutionContext, config: IngestConfig, kafka: KafkaResource) -> None:
        totals = Totals()
        with Pulse(context.instance, context.run_id, SystemClock()) as pulse:
            result = _ingest(context, consumer, config, kafka.connection(), totals, pulse)
        if pulse.told:
            context.log.info(f"told to leave: {pulse.told}")
        context.log.info(f"{result.reason}: {result.commits} commits, {result.rows} rows, {result.dead_letters} dead letters")
        done = {"commits": result.commits, "rows": result.rows, "dead_letters": result.dead_letters, "reason": result.reason}
        context.add_output_metadata({**run_metadata(totals.summary()), **done})

    @dg.job(
        name=name,
        description=f"Stages {consumer.config.reads}. Each run is one member of the consumer group; several may run.",
        executor_def=dg.in_process_executor,
        tags={CONSUMER_TAG: consumer.name},
        run_tags={
            CONSUMER_TAG: consumer.name,
            "dagster/max_runtime": str(consumer.config.max_run_seconds + KILL_AFTER_SECONDS),
            # The sensor replaces a member that ended; a retry beside it would be one too many.
            "dagster/max_retries": "0",
        },
    )
    def job() -> None:
        member()

    return job


@dataclass
class _Mirroring:
    """Brings Dagster up to date from a run's main thread: after its first commit, and then once a minute."""

    context: dg.OpExecutionContext
    consumer: Consumer
    clock: Clock
    pulse: Pulse
    next: float
    committed: bool = False

    def hear(self, commit: StagedCommit) -> None:
        """There is news. Called by the member's thread: an assignment, nothing more."""
        self.committed = True

    def if_due(self) -> None:
        """A pass, if it is time."""
        if self.committed and self.clock.monotonic() >= self.next:
            self.committed = False
            done = self.now()
            self.committed = self.committed or done.again_in is not None
            self.next = self.clock.monotonic() + (done.again_in or mirror.EVERY_SECONDS)

    def now(self) -> mirror.Pass:
        """A pass."""
        return mirror.catch_up(self.context.instance, self.consumer, self._emit, self.clock)

    def _emit(self, event: Event) -> None:
        self.context.log_event(event)
        # A pass over many windows takes its time, and that is no silence.
        self.pulse.progress()
        self.pulse.beat()


def _ingest(
    context: dg.OpExecutionContext,
    consumer: Consumer,
    config: IngestConfig,
    kafka: KafkaOptions,
    totals: Totals,
    pulse: Pulse,
) -> IngestResult:
    clock = SystemClock()
    stuck = threading.Event()
    # A run that ends when it is caught up is over soon: its first commit's events would make the last ones wait for a minute.
    first = clock.monotonic() + (mirror.EVERY_SECONDS if config.until_caught_up else 0.0)
    mirroring = _Mirroring(context, consumer, clock, pulse, first)

    def meanwhile() -> str:
        mirroring.if_due()
        return pulse.beat()

    def work(stop: threading.Event) -> IngestResult:
        with StuckDetector(stuck_after(consumer.config.batch.max_latency_seconds), clock, stuck.set) as detector:

            def got_on() -> None:
                detector.progress()
                pulse.progress()

            return ingest(
                consumer,
                kafka,
                member=context.run_id,
                stop=stop,
                until_caught_up=config.until_caught_up,
                max_seconds=config.max_seconds or consumer.config.max_run_seconds,
                on_commit=mirroring.hear,
                clock=clock,
                metrics=totals,
                heartbeat=got_on,
            )

    try:
        result = run_member(work, meanwhile, clock, stuck=stuck)
    except WeirError:
        mirroring.now()
        raise
    mirroring.now()
    return result
