"""One call that stages a consumer's topic: what a Dagster run, the command line and a test all do."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from consumers.brokers.kafka import KafkaGroupMember
from consumers.brokers.options import KafkaOptions
from consumers.brokers.protocol import BrokerConsumer
from consumers.clock import Clock, SystemClock
from consumers.config import Consumer
from consumers.processing.incarnation import Incarnation
from consumers.processing.processor import Limits, Processor
from consumers.processing.strategies.stage import Stage
from consumers.processing.strategies.writer import Owner
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
) -> IngestResult:
    """Be a member of the consumer's group until stopped, caught up, or `max_seconds` have passed.

    `member` names this process in the table's log. `on_commit` is called, in the calling thread, after every batch commit and
    for a takeover that lost offsets. Raises `FatalError` with the cause; what was committed before is safe, and the next call
    goes on from there, as it does after any interruption.
    """
    broker = KafkaGroupMember(kafka, consumer.config.topic, consumer.group, f"weir-{consumer.name}")
    return stage_from(broker, consumer, member, stop, Limits(until_caught_up, max_seconds), on_commit, clock or SystemClock())


def stage_from(
    broker: BrokerConsumer,
    consumer: Consumer,
    member: str,
    stop: threading.Event,
    limits: Limits,
    on_commit: Callable[[StagedCommit], None],
    clock: Clock,
) -> IngestResult:
    """`ingest` from any broker. Closes it at the end."""
    commits: list[StagedCommit] = []

    def committed(commit: StagedCommit) -> None:
        if commit.kind == "batch":
            commits.append(commit)
        on_commit(commit)

    with ExitStack() as closing:
        closing.callback(broker.close)
        owner = Owner(consumer, member, clock)
        stage = Stage(consumer, member, clock, Incarnation(broker.topic_id, clock))
        closing.callback(stage.close)
        processor = Processor(consumer, broker, owner, stage, clock, committed)
        closing.callback(processor.end)
        reason = processor.run(stop, limits)
    return IngestResult(
        commits=len(commits),
        rows=sum(commit.rows for commit in commits),
        dead_letters=sum(commit.dead_letters for commit in commits),
        reason=reason,
    )
