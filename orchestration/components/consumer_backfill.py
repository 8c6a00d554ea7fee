"""The staged asset as something that can be materialized: its windows are built again from Kafka, many to a run, an event each.

Windows are reported by events of our own. An ordinary return would mark the whole range, also the windows that failed.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing

import dagster as dg
from pydantic import Field

from consumers.clock import Clock, SystemClock
from consumers.config import Consumer
from consumers.errors import ConfigError, DataLoss, StorageError
from consumers.processing.backfill.source import reader
from consumers.processing.backfill.window import Backfill, Choices
from consumers.types import OffsetRange, TopicPartition
from orchestration import mirror
from orchestration.catalog import CONSUMER_TAG
from orchestration.rebuilt_events import in_words, rebuilt_event
from orchestration.resources.kafka import KafkaResource

PARTIAL_TAG = "weir/partial"
"""`true` on a run or backfill is `partial: true`, for where no config can be given."""
MOST_WINDOWS = 50
"""How many windows one run builds."""


class RebuildConfig(dg.Config):
    """What an operator may choose."""

    partial: bool = Field(
        default=False, description="build what is there where Kafka no longer holds everything, and record the rest as lost"
    )
    offsets: dict[str, list[int]] = Field(
        default={}, description="read these, too: partition → [first, end), such as {'0': [1500, 2000]}"
    )


def rebuild_op_name(consumer: str) -> str:
    """The name of the asset's op, under which run config is given, and of its pool."""
    return f"rebuild_{consumer}"


def rebuildable(consumer: Consumer, spec: dg.AssetSpec) -> dg.AssetsDefinition:
    """The staged asset `spec` with the op that builds its windows again."""
    name = rebuild_op_name(consumer.name)

    @dg.multi_asset(
        name=name,
        specs=[spec.replace_attributes(skippable=True)],
        backfill_policy=dg.BackfillPolicy.multi_run(MOST_WINDOWS),
        pool=name,
        op_tags={CONSUMER_TAG: consumer.name},
    )
    def rebuild(
        context: dg.AssetExecutionContext, config: RebuildConfig, kafka: KafkaResource
    ) -> Iterator[dg.MaterializeResult[None]]:
        choices = choices_of(consumer, config, context.run.tags, context.run.run_id)
        build(context, consumer, kafka, choices, SystemClock())
        yield from ()

    return rebuild


def choices_of(consumer: Consumer, config: RebuildConfig, tags: Mapping[str, str], run_id: str) -> Choices:
    """What the run's config and tags ask for. Raises `ConfigError` for offsets that are no ranges."""
    try:
        offsets = {TopicPartition(consumer.config.topic, int(p)): OffsetRange(*ends) for p, ends in config.offsets.items()}
    except (ValueError, TypeError):
        raise ConfigError(
            f"`offsets` are partition → [first, end), such as {{'0': [1500, 2000]}}, not {config.offsets}. Nothing was read."
        ) from None
    partial = config.partial or tags.get(PARTIAL_TAG, "").lower() == "true"
    return Choices(partial, offsets, by=run_id, why="backfill")


def build(context: dg.AssetExecutionContext, consumer: Consumer, kafka: KafkaResource, choices: Choices, clock: Clock) -> None:
    """Build the run's windows again, one after the other. Those that fail alone do not keep the others; then the run fails."""
    windows = list(context.partition_keys)
    failed: dict[str, str] = {}
    backfill = Backfill(consumer, lambda: reader(kafka.connection(), consumer, clock), clock, choices)
    with closing(backfill):
        for number, window in enumerate(windows, 1):
            progress = f"[{number}/{len(windows)}] {window}"
            try:
                rebuilt = backfill.window(window)
            except (DataLoss, StorageError) as error:
                failed[window] = str(error)
                context.log.error(f"{progress}: {error}")
                continue
            context.log.info(f"{progress}: {in_words(rebuilt)}")
            context.log_event(rebuilt_event(context.instance, consumer, rebuilt))
    mirror.catch_up(context.instance, consumer, context.log_event, clock)
    if failed:
        raise dg.Failure(
            f"{len(failed)} of {len(windows)} windows of {consumer.name} failed and are as they were: {', '.join(failed)}. "
            f"The others are done. First error: {next(iter(failed.values()))}",
            allow_retries=False,
        )
