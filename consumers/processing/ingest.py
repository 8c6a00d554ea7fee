"""One call that stages a consumer's topics: what a Dagster run, the command line and a test all do."""

import threading
from collections.abc import Callable
from contextlib import closing

from consumers.brokers.admin import KafkaAdmin
from consumers.brokers.kafka import KafkaGroupMember
from consumers.brokers.options import KafkaOptions
from consumers.brokers.protocol import BrokerConsumer
from consumers.clock import Clock, SystemClock
from consumers.config import Consumer
from consumers.metrics import Metrics, NoMetrics
from consumers.processing.context import Context, Surroundings
from consumers.processing.incarnation import Incarnation
from consumers.processing.processor import Limits
from consumers.processing.run import run
from consumers.processing.several import Hooks, IngestResult, Several
from consumers.processing.strategies.stage.owner import Owner
from consumers.processing.strategies.stage.strategy import Stage
from consumers.processing.subscription import POLL_RECORDS, Subscription
from consumers.staging.log import StagedCommit

__all__ = ["IngestResult", "ingest", "stage_from", "subscription_of"]


def ingest(
    consumer: Consumer,
    kafka: KafkaOptions,
    *,
    member: str,
    stop: threading.Event,
    until_caught_up: bool = False,
    max_seconds: float | None = None,
    on_commit: Callable[[StagedCommit], None] = lambda commit: None,
    clock: Clock | None = None,
    metrics: Metrics | None = None,
    abort: threading.Event | None = None,
    heartbeat: Callable[[], None] = lambda: None,
) -> IngestResult:
    """Be a member of the consumer's group until stopped, caught up, or `max_seconds` have passed.

    Where the consumer reads several topics, be one for each of them, side by side; `stop` is set when they end, whatever for.
    `member` names this process in the table's log. `on_commit` is called, in the calling thread, after every batch commit and for
    a takeover that lost offsets. `abort` is `stop` without waiting for work in flight. `heartbeat` is called after every turn
    that got on, or had nothing to get on with. Raises `FatalError` with the cause; what was committed before is safe, and the
    next call goes on from there, as it does after any interruption.
    """
    around = Surroundings(clock or SystemClock(), metrics or NoMetrics())
    told = Hooks(stop, Limits(until_caught_up, max_seconds), on_commit, heartbeat)

    def work(alone: Consumer, hooks: Hooks) -> IngestResult:
        config = alone.config
        broker = KafkaGroupMember(
            kafka,
            config.topic,
            alone.group,
            f"weir-{alone.name}",
            around.clock,
            settings=config.membership,
            metrics=around.metrics,
            chance=around.random,
        )
        return stage_from(broker, alone, member, hooks.stop, hooks.limits, hooks.on_commit, around, abort, hooks.heartbeat)

    if consumer.config.only_topic is not None:
        return work(consumer, told)
    with closing(KafkaAdmin(kafka)) as admin:
        return Several(consumer, admin.topics, work, around, told).run()


def stage_from(
    broker: BrokerConsumer,
    consumer: Consumer,
    member: str,
    stop: threading.Event,
    limits: Limits,
    on_commit: Callable[[StagedCommit], None],
    around: Surroundings,
    abort: threading.Event | None = None,
    heartbeat: Callable[[], None] = lambda: None,
) -> IngestResult:
    """`ingest` from any broker, of a consumer of one topic. Closes it at the end."""
    commits: list[StagedCommit] = []

    def committed(commit: StagedCommit) -> None:
        commits.append(commit)
        on_commit(commit)

    def build(context: Context) -> Stage:
        incarnation = Incarnation(broker.topic_id, around.clock)
        return Stage(consumer, owner, context, incarnation, broker.high_watermarks, committed)

    with closing(broker):
        owner = Owner(consumer, member, around.clock, on_commit)
        reason = run(
            subscription_of(consumer),
            broker,
            owner,
            build,
            stop=stop,
            limits=limits,
            around=around,
            abort=abort,
            heartbeat=heartbeat,
        )
    return IngestResult(
        commits=len(commits),
        rows=sum(commit.rows for commit in commits),
        dead_letters=sum(commit.dead_letters for commit in commits),
        reason=reason,
    )


def subscription_of(consumer: Consumer) -> Subscription:
    """The part of a definition that the loop needs."""
    config = consumer.config
    return Subscription(
        name=consumer.name,
        topic=config.topic,
        start=config.start,
        on_data_loss=config.on_data_loss,
        poll_records=min(POLL_RECORDS, config.batch.max_records),
    )
