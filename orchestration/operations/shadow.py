"""The job `shadow_<name>`: windows built again beside the table, and how they differ from it."""

from contextlib import closing

import dagster as dg
from pydantic import Field

from consumers.clock import SystemClock
from consumers.config import Consumer
from consumers.processing.backfill.difference import Difference, difference
from consumers.processing.backfill.shadow import Shadow, cast_shadow
from consumers.processing.backfill.source import reader
from consumers.processing.backfill.window import Backfill, Choices
from orchestration.catalog import CONSUMER_TAG
from orchestration.mirror_events import table
from orchestration.resources.kafka import KafkaResource


class ShadowConfig(dg.Config):
    """Which windows, and under which name."""

    first: str = Field(default="", description="the first window, such as 2013-01-31; default: the table's first")
    last: str = Field(default="", description="the last window; default: the table's last")
    id: str = Field(default="", pattern=r"^[A-Za-z0-9]{0,32}$", description="its name; default: the start of the run's id")
    partial: bool = Field(default=False, description="keep rows whose records Kafka no longer holds, as they are")


def shadow_job(consumer: Consumer) -> dg.JobDefinition:
    """The job, with its op."""

    @dg.op(name=f"cast_shadow_of_{consumer.name}", out=dg.Out(dg.Nothing))
    def build(context: dg.OpExecutionContext, config: ShadowConfig, kafka: KafkaResource) -> None:
        clock = SystemClock()
        shadow = Shadow(consumer, config.id or context.run_id[:8])
        choices = Choices(config.partial, by=context.run_id, why="shadow")
        with closing(Backfill(consumer, lambda: reader(kafka.connection(), consumer, clock), clock, choices)) as backfill:
            for window, made in cast_shadow(shadow, backfill, clock, config.first, config.last):
                context.log.info(f"{window}: {made.rows.num_rows} rows, {made.seen} records read, {made.kept} not read again")
        found = difference(shadow)
        context.log.info(f"swap it in with the job swap_{consumer.name}: id: {shadow.id}, confirm: {consumer.name}")
        context.add_output_metadata({"id": shadow.id, "table": dg.MetadataValue.path(shadow.tables.staged), **_told(found)})

    @dg.job(
        name=f"shadow_{consumer.name}",
        description=(
            f"Builds windows of staged/{consumer.name} again into a table beside it, by today's definition, and shows the "
            f"difference. The table itself is not touched; `swap_{consumer.name}` makes the shadow the table."
        ),
        executor_def=dg.in_process_executor,
        tags={CONSUMER_TAG: consumer.name},
        run_tags={CONSUMER_TAG: consumer.name, "dagster/max_retries": "0"},
    )
    def job() -> None:
        build()

    return job


def _told(found: Difference) -> dict[str, dg.MetadataValue]:
    counts = {
        "rows_before": found.before,
        "rows_after": found.after,
        "added": found.added,
        "removed": found.removed,
        "moved_to_another_window": found.moved,
        "changed": found.changed,
    }
    columns = table({"column": "string", "changed_values": "int"}, sorted(found.columns.items()))
    return {name: dg.MetadataValue.int(count) for name, count in counts.items()} | {"changed_by_column": columns}
