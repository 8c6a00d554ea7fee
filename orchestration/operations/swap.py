"""The job `swap_<name>`: a shadow becomes the table."""

import dagster as dg
from pydantic import Field

from consumers.clock import SystemClock
from consumers.config import Consumer
from consumers.errors import ConfigError
from consumers.processing.backfill.shadow import Shadow
from consumers.processing.backfill.swap import swap, whole_table
from orchestration import mirror
from orchestration.catalog import CONSUMER_TAG, ingestion_job_name
from orchestration.sensors.runs import ALIVE


class SwapConfig(dg.Config):
    """Which shadow."""

    id: str = Field(pattern=r"^[A-Za-z0-9]{1,32}$", description="the shadow's name, as `shadow_<name>` told it")
    confirm: str = Field(description="the consumer's name: rows of the table are replaced")


def swap_job(consumer: Consumer) -> dg.JobDefinition:
    """The job, with its op."""

    @dg.op(name=f"swap_shadow_of_{consumer.name}", out=dg.Out(dg.Nothing))
    def exchange(context: dg.OpExecutionContext, config: SwapConfig) -> None:
        if config.confirm != consumer.name:
            raise ConfigError(f"`confirm` must be '{consumer.name}', not '{config.confirm}'. Nothing was changed.")
        shadow, clock = Shadow(consumer, config.id), SystemClock()
        if whole_table(shadow):
            _require_stopped(context.instance, consumer)
        commits, rows, removed = 0, 0, 0
        for commit in swap(shadow, clock, context.run_id):
            context.log.info(f"version {commit.version}: {commit.rows} rows for {commit.removed}, {len(commit.windows)} windows")
            commits, rows, removed = commits + 1, rows + commit.rows, removed + commit.removed
        mirror.catch_up(context.instance, consumer, context.log_event, clock)
        context.add_output_metadata({"commits": commits, "rows": rows, "rows_removed": removed})

    @dg.job(
        name=f"swap_{consumer.name}",
        description=(
            f"Makes a shadow of staged/{consumer.name} the table: window by window beside ingestion, or, where columns or "
            "windows changed, all of it in one commit, for which ingestion must be stopped. Positions stand."
        ),
        executor_def=dg.in_process_executor,
        tags={CONSUMER_TAG: consumer.name},
        run_tags={CONSUMER_TAG: consumer.name, "dagster/max_retries": "0"},
    )
    def job() -> None:
        exchange()

    return job


def _require_stopped(instance: dg.DagsterInstance, consumer: Consumer) -> None:
    """A member that runs on would write files of the old columns into the new table."""
    job = ingestion_job_name(consumer.name)
    if alive := instance.get_runs_count(dg.RunsFilter(job_name=job, statuses=ALIVE)):
        raise ConfigError(
            f"{alive} runs of {job} are alive, and this shadow replaces the whole table. Nothing was changed. Switch keep_"
            f"{consumer.name} off, terminate them, and try again."
        )
