"""What a tick of a consumer's sensor looks at outside of Dagster: Kafka's watermarks, the table's positions. Reads only."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from deltalake import DeltaTable

from consumers.brokers.admin import KafkaAdmin
from consumers.brokers.options import KafkaOptions
from consumers.config import Consumer
from consumers.staging.log import StagedCommit, commits
from consumers.staging.positions import committed_positions
from consumers.types import TopicPartition, Watermarks

TIMEOUT_SECONDS = 5.0
_RECENT_COMMITS = 50


class Watermarked(Protocol):
    """What is asked of a cluster."""

    def watermarks(self, topic: str) -> dict[TopicPartition, Watermarks]: ...

    def stable_watermarks(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, Watermarks]: ...

    def offsets_at(self, topic: str, timestamp_ms: int) -> Mapping[TopicPartition, int]: ...

    def group_offsets(self, group: str, topic: str) -> dict[TopicPartition, int]: ...


def admin(options: KafkaOptions) -> KafkaAdmin:
    """A client whose every question is answered or given up within five seconds."""
    return KafkaAdmin(options, timeout=TIMEOUT_SECONDS)


def next_offsets(kafka: Watermarked, consumer: Consumer, marks: Mapping[TopicPartition, Watermarks]) -> dict[TopicPartition, int]:
    """Where a member would start to read each partition: the table's position, else the group's offset, else `start`.

    A start at a timestamp counts as the lowest offset: the lag is at most that.
    """
    topic, config = consumer.config.topic, consumer.config
    positions = committed_positions(consumer.staged, consumer.name, topic, len(marks))
    if len(positions) < len(marks):
        positions = {**kafka.group_offsets(consumer.group, topic), **positions}
    first = {tp: mark.high if config.start == "latest" else mark.low for tp, mark in marks.items()}
    return {tp: positions.get(tp, first[tp]) for tp in marks}


def total_lag(marks: Mapping[TopicPartition, Watermarks], positions: Mapping[TopicPartition, int]) -> int:
    """Records between the positions and the high watermarks."""
    return sum(mark.lag(positions[tp]) for tp, mark in marks.items())


def recent_commits(consumer: Consumer) -> list[StagedCommit]:
    """The last commits of the table, oldest first; none where there is no table yet."""
    if not DeltaTable.is_deltatable(str(consumer.staged)):
        return []
    table = DeltaTable(consumer.staged)
    return commits(table, max(-1, table.version() - _RECENT_COMMITS))
