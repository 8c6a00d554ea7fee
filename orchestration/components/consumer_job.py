"""The job of a consumer: an op that is one member of the consumer group for a bounded time."""

import threading

import dagster as dg
from pydantic import Field

from consumers.brokers.options import KafkaOptions
from consumers.clock import SystemClock
from consumers.config import Consumer
from consumers.monitoring.stuck import StuckDetector, stuck_after
from consumers.monitoring.totals import Totals
from consumers.processing.ingest import IngestResult, ingest
from consumers.staging.log import StagedCommit
from orchestration import mirror
from orchestration.catalog import CONSUMER_TAG, ingestion_job_name, ingestion_op_name
from orchestration.components.consumer_member import OnCommit, run_member
from orchestration.monitoring import run_metadata
from orchestration.resources.kafka import KafkaResource

KILL_AFTER_SECONDS = 120
"""How much longer than a member's own limit a run may live before run monitoring ends it."""


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
        repaired = mirror.repair(context.instance, consumer)
        if repaired.events:
            context.log.info(f"mirrored {repaired.commits} earlier commits whose events were lost")
        totals = Totals()
        result = _ingest(context, consumer, config, kafka.connection(), totals)
        context.log.info(f"{result.reason}: {result.commits} commits, {result.rows} rows, {result.dead_letters} dead letters")
        done = {"commits": result.commits, "rows": result.rows, "dead_letters": result.dead_letters, "reason": result.reason}
        context.add_output_metadata({**run_metadata(totals.summary()), **done})

    @dg.job(
        name=name,
        description=f"Stages the topic {consumer.config.topic}. Each run is one member of the consumer group; several may run.",
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


def _ingest(
    context: dg.OpExecutionContext, consumer: Consumer, config: IngestConfig, kafka: KafkaOptions, totals: Totals
) -> IngestResult:
    clock = SystemClock()
    stuck = threading.Event()

    def log(commit: StagedCommit) -> None:
        mirror.log(consumer, commit, context.log_event, clock)

    def work(stop: threading.Event, on_commit: OnCommit) -> IngestResult:
        with StuckDetector(stuck_after(consumer.config.batch.max_latency_seconds), clock, stuck.set) as detector:
            return ingest(
                consumer,
                kafka,
                member=context.run_id,
                stop=stop,
                until_caught_up=config.until_caught_up,
                max_seconds=config.max_seconds or consumer.config.max_run_seconds,
                on_commit=on_commit,
                clock=clock,
                metrics=totals,
                heartbeat=detector.progress,
            )

    return run_member(work, log, clock, stuck=stuck)
