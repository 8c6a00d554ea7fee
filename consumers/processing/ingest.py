"""One call that stages a consumer's topic: what a Dagster run, the command line and a test all do."""

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

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
from consumers.processing.strategies.stage.owner import Owner
from consumers.processing.strategies.stage.strategy import Stage
from consumers.processing.subscription import POLL_RECORDS, Subscription
from consumers.staging.log import StagedCommit


@dataclass(frozen=True, slots=True)
class IngestResult:
    """What a run did: Delta commits, staged rows, dead letters, and why it ended."""

    commits: int
    rows: int
    dead_letters: int
    reason: str


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

    `member` names this process in the table's log. `on_commit` is called, in the calling thread, after every batch commit and
    for a takeover that lost offsets. `abort` is `stop` without waiting for work in flight. `heartbeat` is called after every turn
    that got on, or had nothing to get on with. Raises `FatalError` with the cause; what was committed before is safe, and the
    next call goes on from there, as it does after any interruption.
    """
    around = Surroundings(clock or SystemClock(), metrics or NoMetrics())
    name = f"weir-{consumer.name}"
    config = consumer.config
    broker = KafkaGroupMember(
        kafka,
        config.topic,
        consumer.group,
        name,
        around.clock,
        settings=config.membership,
        metrics=around.metrics,
        chance=around.random,
    )
    limits = Limits(until_caught_up, max_seconds)
    return stage_from(broker, consumer, member, stop, limits, on_commit, around, abort, heartbeat)


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
    """`ingest` from any broker. Closes it at the end."""
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
