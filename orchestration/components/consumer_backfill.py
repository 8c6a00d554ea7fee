"""The staged asset as something that can be materialized: its windows are built again from Kafka, many to a run, an event each.

Windows are reported by events of our own. An ordinary return would mark the whole range, also the windows that failed.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing

import dagster as dg
import pyarrow as pa
from pydantic import Field

from consumers.clock import Clock, SystemClock
from consumers.config import Consumer
from consumers.errors import ConfigError, DataLoss, StorageError
from consumers.processing.backfill.source import reader
from consumers.processing.backfill.window import Backfill, Choices, Made, Rebuilt
from consumers.staging.positions import committed_positions
from consumers.types import OffsetRange
from orchestration import mirror
from orchestration.catalog import CONSUMER_TAG
from orchestration.operations.topics import partition_of
from orchestration.rebuilt_events import in_words, rebuilt_event
from orchestration.resources.kafka import KafkaResource
from orchestration.sensors.facts import admin, topics_of

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
        default={}, description="read these, too: partition → [first, end), such as {'0': [1500, 2000]}; or topic/partition"
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
        offsets = {partition_of(consumer, p): OffsetRange(*ends) for p, ends in config.offsets.items()}
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
    with ExitStack() as stack:
        topics = {
            alone.config.topic: stack.enter_context(closing(_backfill(alone, consumer, kafka, clock, choices)))
            for alone in _by_topic(consumer, kafka)
        }
        for number, window in enumerate(windows, 1):
            progress = f"[{number}/{len(windows)}] {window}"
            try:
                rebuilt = {topic: backfill.window(window) for topic, backfill in topics.items()}
            except (DataLoss, StorageError) as error:
                failed[window] = str(error)
                context.log.error(f"{progress}: {error}")
                continue
            for topic, found in rebuilt.items():
                context.log.info(f"{progress}: {topic}: {in_words(found)}")
            context.log_event(rebuilt_event(context.instance, consumer, _together(window, list(rebuilt.values()))))
    mirror.catch_up(context.instance, consumer, context.log_event, clock)
    if failed:
        raise dg.Failure(
            f"{len(failed)} of {len(windows)} windows of {consumer.name} failed and are as they were: {', '.join(failed)}. "
            f"The others are done. First error: {next(iter(failed.values()))}",
            allow_retries=False,
        )


def _by_topic(consumer: Consumer, kafka: KafkaResource) -> list[Consumer]:
    """The consumer as far as each of its topics goes: of several, those that it has begun to stage, unless that is none."""
    if consumer.config.only_topic is not None:
        return [consumer]
    with closing(admin(kafka.connection())) as client:
        topics = topics_of(client, consumer)
    begun = [topic for topic in topics if committed_positions(consumer.staged, consumer.name, topic, 1)]
    return [consumer.of_topic(topic) for topic in begun or topics]


def _backfill(alone: Consumer, consumer: Consumer, kafka: KafkaResource, clock: Clock, choices: Choices) -> Backfill:
    shared = consumer.config.only_topic is None
    return Backfill(alone, lambda: reader(kafka.connection(), alone, clock), clock, choices, shared)


def _together(window: str, topics: Sequence[Rebuilt]) -> Rebuilt:
    """What a window is after all of its topics, which come in the order in which they were built."""
    made = [each.made for each in topics]
    whole = Made(
        rows=made[-1].rows,
        rejects=pa.concat_tables([each.rejects for each in made]),
        ranges={tp: span for each in made for tp, span in each.ranges.items()},
        lost={tp: span for each in made for tp, span in each.lost.items()},
        seen=sum(each.seen for each in made),
        added=sum(each.added for each in made),
        removed=sum(each.removed for each in made),
        kept=sum(each.kept for each in made),
        left=sum(each.left for each in made),
    )
    return Rebuilt(window, whole, next((each.commit for each in reversed(topics) if each.commit is not None), None))
